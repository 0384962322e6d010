//! Hops, for libraries inside programs that do their own TLS: the program's TLS ends at the manager, which has its own
//! TLS connection to the server.
//!
//! The program's TLS library is a client as usual. Beside everything that it would offer to the server, it offers a
//! PSK for this connection alone. The manager has the PSK, and makes its handshake with the server first. Its
//! description of the server goes to the program's own verification, which comes last.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::blocking::exchanged;
use crate::exchange::Exchange;
use crate::protocol::{self, Answer, Connected, Directly, Request};
use crate::{Error, Manager};

/// The sockets that a program hands over for a hop.
#[derive(Debug, Clone, Copy)]
pub struct Sockets<'a> {
    /// The other end of the pair that the program has in place of its TCP socket.
    pub line: BorrowedFd<'a>,
    /// The connected TCP socket. Nothing has gone over it, except a request to a proxy.
    pub tcp: BorrowedFd<'a>,
    /// An unconnected socket like the other, if a new connection to the same address reaches the same server.
    pub spare: Option<BorrowedFd<'a>>,
}

/// A connection that the manager takes over when the program's ClientHello comes over the pair. If this is dropped
/// before, nothing has happened to the TCP socket.
#[derive(Debug)]
pub struct Hop {
    socket: UnixStream,
}

impl Manager {
    /// Offers a connection to the manager, and waits this long for its decision.
    ///
    /// # Errors
    /// The manager's errors. The program goes on without the manager after each.
    pub fn hop(
        &self,
        wanted: &protocol::Hop,
        sockets: Sockets<'_>,
        patience: Duration,
    ) -> Result<Hop, Error> {
        let Sockets { line, tcp, spare } = sockets;
        let passed = [line, tcp].into_iter().chain(spare).collect();
        let asked = Exchange::passing(&Request::Hop(Box::new(wanted.clone())), passed)?;
        let (socket, _) = self.reach(Some(patience))?;
        match exchanged(asked, &socket, Instant::now() + patience, || Ok(()))? {
            Answer::Ready {} => Ok(Hop { socket }),
            _ => Err(Error::OtherAnswer),
        }
    }

    /// Reports a number of connections that went without the manager. Does not wait for an answer.
    ///
    /// # Errors
    /// The report did not reach a manager.
    pub fn went_directly(&self, why: Directly, times: u32) -> Result<(), Error> {
        let mut said = Exchange::new(&Request::Directly { why, times })?;
        let (socket, _) = self.reach(None)?;
        said.send(socket.as_fd()).map_err(Error::Silent)
    }
}

impl Hop {
    /// Returns the manager's description of the server. The manager sends it before its part of the handshake with the
    /// program.
    ///
    /// # Errors
    /// The manager's errors.
    pub fn described(&self, patience: Duration) -> Result<Connected, Error> {
        match exchanged(Exchange::awaiting(), &self.socket, Instant::now() + patience, || Ok(()))? {
            Answer::Connected(connected) => Ok(*connected),
            _ => Err(Error::OtherAnswer),
        }
    }

    /// Tells the manager that the program goes on, and has not verified the server, or not yet. No data goes over the
    /// connection before this or [`verified`](Self::verified).
    ///
    /// # Errors
    /// The manager is gone, and the connection with it.
    pub fn accept(&self) -> Result<(), Error> {
        self.say(&Request::Accepted {})
    }

    /// Tells the manager that the program has verified the server, and goes on. Other programs may then resume the
    /// sessions, and verify the server by themselves. This counts at once, or within ten seconds after
    /// [`accept`](Self::accept).
    ///
    /// # Errors
    /// The same as [`accept`](Self::accept).
    pub fn verified(self) -> Result<(), Error> {
        self.say(&Request::Verified {})
    }

    fn say(&self, word: &Request) -> Result<(), Error> {
        Ok(Exchange::new(word)?.send(self.socket.as_fd())?)
    }
}
