//! What keeps a manager from starting.

use std::io;
use std::path::PathBuf;

/// Each names the cause. What befalls a single connection is a [`crate::protocol::Problem`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that make no sense.
    #[error("{}: {what}", path.display())]
    BadSettings {
        /// The file they are in.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },

    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },

    /// Another manager answers there.
    #[error("another manager serves {}: end it first", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },

    /// Something that is no socket is in the way.
    #[error("{} is no socket: remove it, or name another", path.display())]
    NoSocket {
        /// What is there.
        path: PathBuf,
    },

    /// The socket cannot be made.
    #[error("cannot listen at {}: {cause}", path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },

    /// The system's authorities cannot be had.
    #[error("{what}: install ca-certificates, or name a file as system_bundle")]
    NoAuthorities {
        /// Why not.
        what: String,
    },

    /// The process cannot be made what it should be.
    #[error("cannot {what}: {cause}")]
    Process {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        cause: io::Error,
    },

    /// The cache that decides which sessions stay cannot be made.
    #[error("session_bytes: {0}")]
    Cache(#[from] rejoin_cache::Error),
}
