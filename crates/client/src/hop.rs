//! For libraries inside programs that do their own TLS: a connection whose TLS ends at the manager, and is
//! made anew there.
//!
//! The program's TLS library is a client as ever, and offers, beside all it would offer to the
//! server, a key for this connection alone. The manager has the key, and speaks first with the server. What
//! it found is said here, for the program's own verification, which comes last.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::blocking::exchanged;
use crate::exchange::Exchange;
use crate::protocol::{self, Answer, Connected, Directly, Request};
use crate::{Error, Manager};

/// What a program gives away for a hop.
#[derive(Debug, Clone, Copy)]
pub struct Sockets<'a> {
    /// The other end of the pair that the program has in place of its TCP socket.
    pub line: BorrowedFd<'a>,
    /// The TCP socket, connected, and nothing was sent over it but by a proxy's leave.
    pub tcp: BorrowedFd<'a>,
    /// One that is not connected, and as the other was made, if the same server answers when it is called
    /// again.
    pub spare: Option<BorrowedFd<'a>>,
}

/// A connection that the manager takes when the program's ClientHello comes over the pair. Dropped
/// before, nothing has happened to the TCP socket.
#[derive(Debug)]
pub struct Hop {
    socket: UnixStream,
}

impl Manager {
    /// Offers a connection to the manager, which may have this long to say whether it takes it.
    ///
    /// # Errors
    /// The manager's. The program goes on alone, whatever it is.
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
        match exchanged(asked, &socket, Instant::now() + patience)? {
            Answer::Ready {} => Ok(Hop { socket }),
            _ => Err(Error::OtherAnswer),
        }
    }

    /// Says that so many connections went without the manager. Nothing is waited for.
    ///
    /// # Errors
    /// Nobody was told.
    pub fn went_directly(&self, why: Directly, times: u32) -> Result<(), Error> {
        let mut said = Exchange::new(&Request::Directly { why, times })?;
        let (socket, _) = self.reach(None)?;
        said.send(socket.as_fd()).map_err(Error::Silent)
    }
}

impl Hop {
    /// What the manager found at the server. It has said so before its part of the handshake with
    /// the program came.
    ///
    /// # Errors
    /// The manager's.
    pub fn described(&self, patience: Duration) -> Result<Connected, Error> {
        match exchanged(Exchange::awaiting(), &self.socket, Instant::now() + patience)? {
            Answer::Connected(connected) => Ok(*connected),
            _ => Err(Error::OtherAnswer),
        }
    }

    /// The program goes on, and has not verified the server, or not yet. Before this or
    /// [`verified`](Self::verified) is said nothing goes over the connection.
    ///
    /// # Errors
    /// The manager's: it is gone, and the connection with it.
    pub fn accept(&self) -> Result<(), Error> {
        self.say(&Request::Accepted {})
    }

    /// The program has verified the server, and goes on: other programs may resume the sessions, and verify
    /// for themselves. It counts at once, or within ten seconds after [`accept`](Self::accept).
    ///
    /// # Errors
    /// As above.
    pub fn verified(self) -> Result<(), Error> {
        self.say(&Request::Verified {})
    }

    fn say(&self, word: &Request) -> Result<(), Error> {
        Ok(Exchange::new(word)?.send(self.socket.as_fd())?)
    }
}
