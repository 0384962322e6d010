//! The errors of a server, each in one line that names the cause and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A reason why a server or a status port could not start, or an identity could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file that does not hold the certificate or key that was expected.
    #[error("{}: contains no {what} in PEM; give a file that does", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
    },
    /// A key that belongs to another certificate.
    #[error(
        "{}: this key does not match the certificate in {}; give the pair",
        key.display(),
        certificate.display()
    )]
    Mismatch {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
    /// An address that cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose another with --listen, --metrics or --serve"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// Settings that exclude each other.
    #[error("{0}")]
    Settings(&'static str),
    /// A cache that cannot be made.
    #[error(transparent)]
    Cache(#[from] rejoin_cache::Error),
    /// A shared cache that cannot be opened.
    #[error(transparent)]
    Store(#[from] rejoin_store::Error),
    /// A cache larger than the machine's memory.
    #[error(
        "a cache of {bytes} bytes on a machine with {memory_bytes} bytes of memory: give a smaller \
         capacity"
    )]
    LargerThanMemory {
        /// Bytes of the cache when full.
        bytes: u64,
        /// Bytes of the machine's memory.
        memory_bytes: u64,
    },
    /// A type of key that the system's OpenSSL does not support.
    #[error("this type of key is unavailable: {why}")]
    UnknownKeyType {
        /// The version of OpenSSL, and what would support the type.
        why: String,
    },
    /// OpenSSL refused its settings.
    #[error("OpenSSL: {0}")]
    OpenSsl(#[from] openssl::error::ErrorStack),
    /// rustls refused its settings.
    #[error("rustls: {0}")]
    Rustls(#[from] rustls::Error),
    /// A certificate that cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

impl Error {
    /// Returns true if the caller asked for something impossible, rather than something having
    /// failed.
    pub fn is_misuse(&self) -> bool {
        matches!(self, Self::Settings(_) | Self::Cache(_) | Self::LargerThanMemory { .. })
    }
}
