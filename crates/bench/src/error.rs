//! What stops a run, in one line that names the cause and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server, a fleet, a demonstration or a measurement could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A certificate or key that is not one.
    #[error("{}: no {what} in PEM in it; give a file that has one", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: &'static str,
    },
    /// A key that is another certificate's.
    #[error(
        "{}: this key is not the one of the certificate in {}; give the pair",
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
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A server that does not answer.
    #[error("cannot connect to {address}: {source}; is the server running?")]
    Connect {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Settings that exclude each other.
    #[error("{0}")]
    Settings(&'static str),
    /// A cache that cannot be made.
    #[error(transparent)]
    Cache(#[from] rejoin_cache::Error),
    /// A cache larger than the machine.
    #[error(
        "a cache of {bytes} bytes on a machine with {memory_bytes} bytes of memory: give a smaller \
         capacity"
    )]
    LargerThanMemory {
        /// What the cache would take when full.
        bytes: u64,
        /// What there is.
        memory_bytes: u64,
    },
    /// A trace that cannot be read.
    #[error("{}: {source}", path.display())]
    Trace {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: rejoin_trace::Error,
    },
    /// A population that cannot be.
    #[error(transparent)]
    Population(rejoin_trace::Error),
    /// OpenSSL refused its settings.
    #[error("OpenSSL: {0}")]
    OpenSsl(#[from] openssl::error::ErrorStack),
    /// rustls refused its settings.
    #[error("rustls: {0}")]
    Rustls(#[from] rustls::Error),
    /// A certificate that cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// What this machine or its libraries do not have.
    #[error("{what} is not available here: {why}")]
    Unavailable {
        /// What was asked for.
        what: &'static str,
        /// Why, and where it would be.
        why: String,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A server under test that ended, did not start, or is silent.
    #[error("the {resumption} server {what}")]
    Server {
        /// Which.
        resumption: &'static str,
        /// What it did.
        what: String,
    },
}

impl Error {
    /// Whether the caller asked for what cannot be, rather than something having failed.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::Settings(_)
                | Self::Cache(_)
                | Self::Population(_)
                | Self::LargerThanMemory { .. }
        )
    }
}
