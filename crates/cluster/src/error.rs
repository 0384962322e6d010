//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// Each names the cause; nothing here fails a handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Valkey does not answer, or says no.
    #[error("Valkey: {0}")]
    Valkey(#[from] redis::RedisError),

    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}
