//! Hops, for libraries inside programs that do their own TLS: the program's TLS ends at the manager, which has its own
//! TLS connection to the server.
//!
//! The program's TLS library is a client as usual. Beside everything that it would offer to the server, it offers a
//! PSK for this connection alone. The manager has the PSK, and makes its handshake with the server first. Its
//! description of the server goes to the program's own verification, which comes last.

use std::io::{self, Read};
use std::net::Shutdown;
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

/// A connection that was offered to the manager, whose decision is not known yet. If this is dropped
/// before, the manager does not take it over.
pub struct Requested {
    socket: UnixStream,
    answer: Exchange<'static>,
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
        let asked = asked(wanted, sockets)?;
        let (socket, _) = self.reach(Some(patience))?;
        match exchanged(asked, &socket, Instant::now() + patience, || Ok(()))? {
            Answer::Ready {} => Ok(Hop { socket }),
            _ => Err(Error::OtherAnswer),
        }
    }

    /// Offers a connection to the manager, and waits for nothing.
    ///
    /// # Errors
    /// The same as [`hop`](Self::hop), and [`Error::NotRunning`] with
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if too many programs ask at once.
    pub fn request_hop(
        &self,
        wanted: &protocol::Hop,
        sockets: Sockets<'_>,
    ) -> Result<Requested, Error> {
        let mut asked = asked(wanted, sockets)?;
        let (socket, _) = self.reach(None)?;
        asked.send(socket.as_fd()).map_err(Error::Silent)?;
        if !asked.is_sent() {
            return Err(Error::Silent(io::ErrorKind::WouldBlock.into()));
        }
        Ok(Requested { socket, answer: Exchange::awaiting() })
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

fn asked<'a>(wanted: &protocol::Hop, sockets: Sockets<'a>) -> Result<Exchange<'a>, Error> {
    let Sockets { line, tcp, spare } = sockets;
    let passed = [line, tcp].into_iter().chain(spare).collect();
    Exchange::passing(&Request::Hop(Box::new(wanted.clone())), passed)
}

impl std::fmt::Debug for Requested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requested").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl AsFd for Requested {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Hop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Requested {
    /// Returns the manager's decision, once, or `None` while there is none. Does not wait.
    pub fn decision(&mut self) -> Option<Result<(), Error>> {
        let mut broke = None;
        while !self.answer.is_received() {
            let read = (&self.socket).read(self.answer.room());
            if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return None;
            }
            if let Err(error) = self.answer.received(read, &mut broke) {
                return Some(Err(error));
            }
        }
        let answer = std::mem::replace(&mut self.answer, Exchange::awaiting());
        Some(match answer.answer() {
            Ok(Answer::Ready {}) => Ok(()),
            Ok(_) => Err(Error::OtherAnswer),
            Err(error) => Err(error),
        })
    }

    /// Returns the connection after the [decision](Self::decision) to take it.
    pub fn into_hop(self) -> Hop {
        Hop { socket: self.socket }
    }

    /// Takes the offer back, unless the manager has decided. The manager cannot take the connection after that: it does
    /// nothing with it before its decision is sent, which fails from now on.
    ///
    /// # Errors
    /// The manager's errors, and [`Error::Silent`] if it had not decided.
    pub fn cancel(mut self) -> Result<Hop, Error> {
        let mut decision = self.decision();
        if decision.is_none() {
            let _ = self.socket.shutdown(Shutdown::Read);
            // What was read is a decision, and the end after it is our own.
            let is_silent = |error: &Error| matches!(error, Error::Silent(_));
            decision = self.decision().filter(|decided| !decided.as_ref().is_err_and(is_silent));
        }
        let silent = || Err(Error::Silent(io::ErrorKind::TimedOut.into()));
        decision.unwrap_or_else(silent).map(|()| self.into_hop())
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Cancels an offer to which the manager has said so much.
    fn cancelled(said: &[u8], is_gone: bool) -> Result<Hop, Error> {
        let (socket, mut manager) = UnixStream::pair().expect("a pair");
        socket.set_nonblocking(true).expect("a setting");
        manager.write_all(said).expect("room");
        let _open = (!is_gone).then_some(manager);
        Requested { socket, answer: Exchange::awaiting() }.cancel()
    }

    #[test]
    fn an_offer_that_is_taken_back_says_why() {
        let ready = protocol::write_answer(&Answer::Ready {}).expect("an answer");
        let why = |said: &[u8], is_gone| match cancelled(said, is_gone) {
            Err(Error::Silent(why)) => Some(why.kind()),
            _ => None,
        };
        assert_eq!(why(&[], false), Some(io::ErrorKind::TimedOut));
        assert_eq!(why(&ready[..3], false), Some(io::ErrorKind::TimedOut));
        assert_eq!(why(&ready[..3], true), Some(io::ErrorKind::UnexpectedEof));
        assert!(cancelled(&ready, false).is_ok() && cancelled(&ready, true).is_ok());
    }
}
