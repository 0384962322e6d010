//! A client of the TLS manager. A program asks the manager for a connection, and gets a stream that carries plaintext.
//!
//! [`Manager`] finds the manager, and [`Manager::connect`] returns a [`Stream`] that reads and writes. An end of file
//! without the server's close_notify is an error, [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof): the stream asks
//! the manager how the connection ended. The feature `tokio` has the same for asynchronous programs, and `hyper` a
//! connector for hyper's client, which connects directly where there is no manager.
//!
//! Programs and `librejoin.so` load this crate, so it brings no TLS library, and tokio and a digest only as features.
//! Not here, except in that connector: a fallback. [`Error::is_the_managers`] tells when a program may connect directly instead.

#![forbid(unsafe_code)]

mod blocking;
mod error;
mod exchange;
pub mod hop;
#[cfg(feature = "hyper")]
pub mod hyper;
pub mod protocol;
#[cfg(feature = "tokio")]
pub mod tokio;
mod trust;

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::TimeVal;

pub use blocking::{Stream, ended_well};
pub use error::Error;
pub use trust::CLIENT_SETTINGS;

use crate::protocol::{Answer, End};

/// The socket of the system's manager.
pub const SYSTEM_SOCKET: &str = "/run/rejoin/manager.sock";
/// The socket of a user's own manager, in `$XDG_RUNTIME_DIR`.
pub const USER_SOCKET: &str = "rejoin.sock";

/// The most bytes that [`Manager::connect_sending`] sends.
pub const FIRST_BYTES: usize = 16 * 1024;

/// The sockets at which a manager may listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    sockets: Vec<PathBuf>,
    /// True if it does not matter which user listens.
    of_any_user: bool,
}

impl Manager {
    /// Returns the user's own manager, in `$XDG_RUNTIME_DIR`, or else the system's. The sockets are tried at each
    /// request.
    pub fn find() -> Self {
        let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        let own = own.map(|folder| Path::new(&folder).join(USER_SOCKET));
        let sockets = own.into_iter().chain([PathBuf::from(SYSTEM_SOCKET)]).collect();
        Self { sockets, of_any_user: false }
    }

    /// Returns the manager that listens at this socket.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { sockets: vec![socket.into()], of_any_user: false }
    }

    /// Does without the check of the user who listens: for root, who asks for the counters of a user's manager. No
    /// connection to a server must be asked for.
    #[must_use]
    pub fn of_any_user(self) -> Self {
        Self { of_any_user: true, ..self }
    }

    /// Returns the manager with this socket alone.
    fn only(&self, socket: &Path) -> Self {
        Self { sockets: vec![socket.into()], ..*self }
    }

    /// Returns the sockets in the order in which they are tried.
    pub fn sockets(&self) -> impl Iterator<Item = &Path> {
        self.sockets.iter().map(PathBuf::as_path)
    }

    /// Returns the manager with the first socket alone at which it listens.
    ///
    /// # Errors
    /// [`Error::NotRunning`] if it listens at none, [`Error::Untrusted`] if another user does.
    pub fn found(&self) -> Result<Self, Error> {
        self.reach(Some(exchange::PATIENCE)).map(|(_, path)| self.only(path))
    }

    /// Connects to the first socket at which a manager listens, and returns its path, too. Without `patience` the
    /// connection is non-blocking, and a full queue is [`WouldBlock`](std::io::ErrorKind::WouldBlock).
    fn reach(&self, patience: Option<Duration>) -> Result<(UnixStream, &Path), Error> {
        let mut first = None;
        for path in &self.sockets {
            match reach(path, patience, self.of_any_user) {
                Ok(socket) => return Ok((socket.into(), path)),
                // The error of the first socket is the one to report.
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| unreachable!("a manager has a place")))
    }
}

/// Connects to a socket, and checks who listens there.
fn reach(path: &Path, patience: Option<Duration>, of_any_user: bool) -> Result<OwnedFd, Error> {
    let not_running =
        |errno: nix::Error| Error::NotRunning { socket: path.into(), source: errno.into() };
    let socket = connected(path, patience).map_err(not_running)?;
    let untrusted = |why| Error::Untrusted { socket: path.into(), why };
    let checked = if of_any_user { Ok(()) } else { trust::check(&socket, path) };
    checked.map(|()| socket).map_err(untrusted)
}

fn connected(path: &Path, patience: Option<Duration>) -> nix::Result<OwnedFd> {
    let mut flags = SockFlag::SOCK_CLOEXEC;
    flags.set(SockFlag::SOCK_NONBLOCK, patience.is_none());
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    if let Some(patience) = patience {
        // Connecting waits while the manager's queue is full, without a limit unless one is set.
        let (seconds, rest) = (patience.as_secs(), patience.subsec_micros());
        setsockopt(&socket, SendTimeout, &TimeVal::new(seconds as i64, i64::from(rest)))?;
    }
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// Returns the result of reading at the end of a connection, by the manager's answer.
fn at_end(end: Result<Answer, Error>) -> Result<(), std::io::Error> {
    let why = match end {
        Ok(Answer::End(End::Clean)) => return Ok(()),
        Ok(_) => "the connection broke off: the server did not say that this was all".to_owned(),
        Err(error) => format!("the connection may have broken off: {error}"),
    };
    Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, why))
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
