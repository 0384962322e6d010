//! For programs that wait.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exchange::Exchange;
use crate::protocol::{Answer, Connect, Connected, Request, Stats, Token};
use crate::{Error, Manager, at_end};

impl Manager {
    /// A connection as `wanted`.
    ///
    /// # Errors
    /// The manager's, and [`Error::NotRunning`] where there is none.
    pub fn connect(&self, wanted: &Connect) -> Result<Stream, Error> {
        self.open(Exchange::connect(wanted, None, &[])?)
    }

    /// A connection as `wanted`, to whose server these bytes, [`FIRST_BYTES`](crate::FIRST_BYTES) at
    /// most, go as soon as the handshake has succeeded, without a turn of the program's. What it may
    /// say to this server it must know from what it wants: [`Stream::session`] comes too late for
    /// that. Where there is an error, the server has seen none of it; but [`Error::Silent`] leaves
    /// that open.
    ///
    /// # Errors
    /// As [`Self::connect`]; and where there is 0-RTT data, too, which may have to be sent again.
    pub fn connect_sending(&self, wanted: &Connect, first: &[u8]) -> Result<Stream, Error> {
        self.open(Exchange::connect(wanted, None, first)?)
    }

    /// A connection over a TCP socket that is connected already: through a proxy, or from another
    /// network namespace. The manager takes it over.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_over(&self, socket: impl AsFd, wanted: &Connect) -> Result<Stream, Error> {
        self.open(Exchange::connect(wanted, Some(socket.as_fd()), &[])?)
    }

    /// What the manager counted.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn stats(&self) -> Result<Stats, Error> {
        match self.ask(Exchange::new(&Request::Stats {})?)? {
            (Answer::Stats(stats), ..) => Ok(*stats),
            _ => Err(Error::OtherAnswer),
        }
    }

    fn open(&self, exchange: Exchange<'_>) -> Result<Stream, Error> {
        match self.ask(exchange)? {
            (Answer::Connected(session), socket, manager) => {
                Ok(Stream { socket, session: *session, manager, is_over: false })
            }
            _ => Err(Error::OtherAnswer),
        }
    }

    /// The answer, the socket that it came over, and whose it is.
    fn ask(&self, exchange: Exchange<'_>) -> Result<(Answer, UnixStream, Self), Error> {
        let until = Instant::now() + exchange.patience;
        let (socket, path) = self.reach(Some(left(until)))?;
        let answer = exchanged(exchange, &socket, until)?;
        Ok((answer, socket, Self::at(path)))
    }
}

/// A connection: plaintext here, TLS from the manager on.
///
/// Reading ends where the server said that this was all. Where it did not, the last read fails with
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
#[derive(Debug)]
pub struct Stream {
    socket: UnixStream,
    session: Connected,
    manager: Manager,
    /// Whether the server's end was asked for and found clean.
    is_over: bool,
}

impl Stream {
    /// What the manager said of the connection.
    pub fn session(&self) -> &Connected {
        &self.session
    }

    /// Tells the server that no more will be written; reading goes on.
    ///
    /// # Errors
    /// The socket's.
    pub fn finish_writing(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// The same socket, for another thread that writes while this one reads.
    ///
    /// # Errors
    /// The system's.
    pub fn writer(&self) -> io::Result<UnixStream> {
        self.socket.try_clone()
    }

    /// How long a read may take: `None` for ever.
    ///
    /// # Errors
    /// The socket's.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    /// The socket alone, and how to ask for the end: [`ended_well`].
    pub fn into_parts(self) -> (UnixStream, Connected, Manager) {
        (self.socket, self.session, self.manager)
    }

    fn read_end(&mut self) -> io::Result<usize> {
        if !self.is_over {
            ended_well(&self.manager, self.session.connection)?;
            self.is_over = true;
        }
        Ok(0)
    }
}

/// Asks how a connection ended whose socket has come to its end.
///
/// # Errors
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) unless the server said that this was all.
pub fn ended_well(manager: &Manager, connection: Token) -> io::Result<()> {
    let asked = Exchange::new(&Request::End { connection }).and_then(|asks| manager.ask(asks));
    at_end(asked.map(|(answer, ..)| answer))
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.socket.read(buffer) {
            Ok(0) if !buffer.is_empty() => self.read_end(),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.read_end(),
            read => read,
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.socket.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(super) fn exchanged(
    mut exchange: Exchange<'_>,
    mut socket: &UnixStream,
    until: Instant,
) -> Result<Answer, Error> {
    let mut broke = None;
    while !exchange.is_sent() && broke.is_none() {
        broke = exchange.send(socket.as_fd()).err();
    }
    while !exchange.is_received() {
        let read = until_readable(socket, until).and_then(|()| socket.read(exchange.room()));
        exchange.received(read, &mut broke)?;
    }
    socket.set_write_timeout(None)?;
    exchange.answer()
}

/// Who waits in `read` instead is also woken, for nothing, whenever the manager reads.
fn until_readable(socket: &UnixStream, until: Instant) -> io::Result<()> {
    let timeout = PollTimeout::try_from(left(until)).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], timeout)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Never zero, which would be for ever.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
