//! Errors that keep a manager from starting.

use std::io;
use std::path::PathBuf;

/// An error that keeps a manager from starting. A connection that fails is reported as a
/// [`crate::protocol::Problem`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid settings.
    #[error("{}: {what}", path.display())]
    BadSettings {
        /// The settings file.
        path: PathBuf,
        /// The problem.
        what: String,
    },

    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },

    /// Another manager listens on the socket.
    #[error("another manager serves {}: stop it first, or start this one with --take-over", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },

    /// The manager that listens on the socket does not hand it over.
    #[error("cannot take over from the manager at {}: {cause}; stop it, and start again", path.display())]
    NotHandedOver {
        /// The socket.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },

    /// The path exists and is not a socket.
    #[error("{} is not a socket: remove it, or choose another path", path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },

    /// The socket cannot be created.
    #[error("cannot listen on {}: {cause}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },

    /// The system's certificate authorities are not available.
    #[error("{what}: install ca-certificates, or name a file as system_bundle")]
    NoAuthorities {
        /// The reason.
        what: String,
    },

    /// A step of the process's start failed.
    #[error("cannot {what}: {cause}")]
    Process {
        /// The step.
        what: &'static str,
        /// The reason.
        cause: io::Error,
    },

    /// The cache that decides which sessions stay cannot be created.
    #[error("session_bytes: {0}")]
    Cache(#[from] rejoin_cache::Error),
}
