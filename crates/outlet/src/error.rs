//! The errors of this crate.

use std::io;
use std::path::PathBuf;

/// A way to a server that is not open. The server goes on with the keys it has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ring has no key yet.
    #[error("the ring has no ticket key yet")]
    NoKey,

    /// A context that no server can have.
    #[error("a context is 1 to {} bytes, not {length}", crate::Context::LONGEST_BYTES)]
    BadContext {
        /// Its length, in bytes.
        length: usize,
    },

    /// A file or folder whose path the server's configuration cannot express.
    #[error("{}: give a path without quotes, backslashes or line feeds", path.display())]
    BadPath {
        /// The path.
        path: PathBuf,
    },

    /// A context that is no name of a Kubernetes object.
    #[error(
        "{name:?} is no name of a Secret: give a --context of at most 253 of a-z 0-9 - . that begins and ends with a-z \
         or 0-9"
    )]
    BadObjectName {
        /// The context.
        name: String,
    },

    /// A file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },

    /// A file that is in the way.
    #[error("{} is no regular file: give the path of the file itself", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },

    /// HAProxy does not take the keys.
    #[error("{}: HAProxy {problem}", socket.display())]
    Haproxy {
        /// Its runtime socket.
        socket: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },

    /// The cache or its keys cannot be used.
    #[error(transparent)]
    Store(#[from] rejoin_store::Error),

    /// The service cannot go on.
    #[error("{socket}: {cause}", socket = socket.display())]
    Stopped {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        cause: String,
    },
}
