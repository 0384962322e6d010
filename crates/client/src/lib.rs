//! How programs reach the TLS manager: they ask for a connection, and have a stream that carries
//! plaintext.
//!
//! [`Manager`] finds it, [`Manager::connect`] gives a [`Stream`] that reads and writes. An end of file
//! that the server did not announce is an error, [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof):
//! at the end the stream asks the manager. The feature `tokio` has the same for programs that wait for many
//! connections at a time.
//!
//! Programs load this crate and `librejoin.so` does, so that it brings no TLS library, and tokio and a
//! digest only as features. What is not here: falling back. [`Error::is_the_managers`] tells when a
//! program may connect directly instead.

#![forbid(unsafe_code)]

mod blocking;
mod error;
mod exchange;
pub mod hop;
pub mod protocol;
#[cfg(feature = "tokio")]
pub mod tokio;

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::TimeVal;

pub use blocking::{Stream, ended_well};
pub use error::Error;

use crate::protocol::{Answer, End};

/// The system's manager.
pub const SYSTEM_SOCKET: &str = "/run/rejoin/manager.sock";
/// A user's own, in `$XDG_RUNTIME_DIR`.
pub const USER_SOCKET: &str = "rejoin.sock";

/// The most that [`Manager::connect_sending`] sends.
pub const FIRST_BYTES: usize = 16 * 1024;

/// Where a manager listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    sockets: Vec<PathBuf>,
}

impl Manager {
    /// The user's own manager, in `$XDG_RUNTIME_DIR`, else the system's. Whether one is there shows
    /// when it is asked.
    pub fn find() -> Self {
        let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        let own = own.map(|folder| Path::new(&folder).join(USER_SOCKET));
        Self { sockets: own.into_iter().chain([PathBuf::from(SYSTEM_SOCKET)]).collect() }
    }

    /// The one that listens at this socket.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { sockets: vec![socket.into()] }
    }

    /// Where it is looked for, in this order.
    pub fn sockets(&self) -> impl Iterator<Item = &Path> {
        self.sockets.iter().map(PathBuf::as_path)
    }

    /// The first of its places where somebody listens, alone.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub fn found(&self) -> Result<Self, Error> {
        self.reach(Some(exchange::PATIENCE)).map(|(_, path)| Self::at(path))
    }

    /// A socket to the first of the places where somebody listens, and which it is. Without patience
    /// the socket does not block, nor does this: a queue that is full is
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock).
    fn reach(&self, patience: Option<Duration>) -> Result<(UnixStream, &Path), Error> {
        let mut first = None;
        for path in &self.sockets {
            match reach(path, patience) {
                Ok(socket) => return Ok((socket.into(), path)),
                // What is wrong at the first place is what the user is told.
                Err(errno) => first = first.or(Some((path, errno))),
            }
        }
        let (socket, errno) = first.unwrap_or_else(|| unreachable!("a manager has a place"));
        Err(Error::NotRunning { socket: socket.clone(), source: errno.into() })
    }
}

fn reach(path: &Path, patience: Option<Duration>) -> nix::Result<OwnedFd> {
    let mut flags = SockFlag::SOCK_CLOEXEC;
    flags.set(SockFlag::SOCK_NONBLOCK, patience.is_none());
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    if let Some(patience) = patience {
        // Connecting waits while the manager's queue is full, without an end unless told so.
        let (seconds, rest) = (patience.as_secs(), patience.subsec_micros());
        setsockopt(&socket, SendTimeout, &TimeVal::new(seconds as i64, i64::from(rest)))?;
    }
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// What reading comes to once the manager has said how the connection ended.
fn at_end(end: Result<Answer, Error>) -> Result<(), std::io::Error> {
    let why = match end {
        Ok(Answer::End(End::Clean)) => return Ok(()),
        Ok(_) => "the connection broke off: the server did not say that this was all".to_owned(),
        Err(error) => format!("the connection may have broken off: {error}"),
    };
    Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, why))
}
