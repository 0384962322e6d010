//! The errors that end a measurement, each in one line that names the cause and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A reason why a fleet or a measurement could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the reference server, or of TLS as the server uses it.
    #[error(transparent)]
    Serve(#[from] rejoin_serve::Error),
    /// A server that does not answer.
    #[error("cannot connect to {address}: {source}; is the server running?")]
    Connect {
        /// The server's address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// Settings that exclude each other.
    #[error("{0}")]
    Settings(&'static str),
    /// A trace that cannot be read.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The trace's file.
        path: PathBuf,
        /// The cause.
        source: rejoin_trace::Error,
    },
    /// A population that cannot exist.
    #[error(transparent)]
    Population(rejoin_trace::Error),
    /// A feature that this machine or its libraries do not have.
    #[error("{what} is not available here: {why}")]
    Unavailable {
        /// The feature.
        what: &'static str,
        /// The cause, and where the feature would be.
        why: String,
    },
    /// An operation that the operating system refused.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A command of the caller's that failed.
    #[error("{command:?}: {why}")]
    Command {
        /// The command.
        command: String,
        /// The cause.
        why: String,
    },
    /// A server under test that ended, did not start, or is silent.
    #[error("the {resumption} server {what}")]
    Server {
        /// The server's way of resuming.
        resumption: &'static str,
        /// The failure.
        what: String,
    },
    /// A failure of one cell of an experiment.
    #[error("{cell}: {error}")]
    Cell {
        /// The cell.
        cell: String,
        /// The failure.
        error: Box<Self>,
    },
    /// A failure before anything was measured.
    #[error("nothing was measured: {0}")]
    Nothing(Box<Self>),
}

impl Error {
    /// Returns true if the caller asked for something impossible, rather than something having
    /// failed.
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::Serve(error) => error.is_misuse(),
            Self::Settings(_) | Self::Population(_) => true,
            Self::Cell { error, .. } | Self::Nothing(error) => error.is_misuse(),
            _ => false,
        }
    }

    /// Names the cell that failed.
    pub(crate) fn of(self, cell: impl std::fmt::Display) -> Self {
        Self::Cell { cell: cell.to_string(), error: Box::new(self) }
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Serve(rejoin_serve::Error::File { path: path.into(), source })
    }
}

/// Errors of libraries, which the server's own has variants for.
macro_rules! from_libraries {
    ($($library:ty),*) => {
        $(impl From<$library> for Error {
            fn from(error: $library) -> Self {
                Self::Serve(error.into())
            }
        })*
    };
}

from_libraries!(openssl::error::ErrorStack, rcgen::Error, rejoin_cache::Error, rustls::Error);
