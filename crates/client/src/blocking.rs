//! The blocking interface.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exchange::{Exchange, PATIENCE, SILENCE, lives};
use crate::protocol::{Answer, Connect, Connected, Request, Stats, Token};
use crate::{Error, Manager, at_end};

impl Manager {
    /// Asks for the connection `wanted`.
    ///
    /// # Errors
    /// The manager's errors, and [`Error::NotRunning`] if there is no manager.
    pub fn connect(&self, wanted: &Connect) -> Result<Stream, Error> {
        self.open(Exchange::connect(wanted, None, &[])?)
    }

    /// Asks for the connection `wanted`, and sends these bytes, [`FIRST_BYTES`](crate::FIRST_BYTES) at most, as soon
    /// as the handshake has succeeded, without another round trip to the manager. The request alone must suffice to
    /// decide what to send, because [`Stream::session`] comes too late for that. Where the manager's settings list the
    /// request as safe to repeat, it goes as 0-RTT data. Otherwise the server has seen none of the bytes after an
    /// error, except after [`Error::Silent`], which leaves that open ([`Error::early_data_may_have_left`]).
    ///
    /// # Errors
    /// The same as [`Self::connect`]; and if there is 0-RTT data as well, which may have to be sent again.
    pub fn connect_sending(&self, wanted: &Connect, first: &[u8]) -> Result<Stream, Error> {
        self.open(Exchange::connect(wanted, None, first)?)
    }

    /// Asks for a connection over a TCP socket that is connected already: through a proxy, or from a network
    /// namespace that the manager's settings name. The manager takes the socket over.
    ///
    /// # Errors
    /// The same as [`Self::connect`].
    pub fn connect_over(&self, socket: impl AsFd, wanted: &Connect) -> Result<Stream, Error> {
        self.open(Exchange::connect(wanted, Some(socket.as_fd()), &[])?)
    }

    /// Asks for the manager's counters.
    ///
    /// # Errors
    /// The same as [`Self::connect`].
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

    /// Sends a request. Returns the answer, its socket, and the manager with that socket alone.
    fn ask(&self, exchange: Exchange<'_>) -> Result<(Answer, UnixStream, Self), Error> {
        let until = Instant::now() + exchange.patience;
        let (socket, path) = self.reach(Some(left(until).min(PATIENCE)))?;
        let (only, is_long) = (self.only(path), exchange.is_long());
        let lives = || if is_long { lives(only.ask(Exchange::of_life()?)) } else { Ok(()) };
        let answer = exchanged(exchange, &socket, until, lives)?;
        Ok((answer, socket, only))
    }
}

/// A connection: plaintext to the manager, TLS from there to the server.
///
/// Reading ends at the server's close_notify. If the connection ends without one, the last read fails with
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
#[derive(Debug)]
pub struct Stream {
    socket: UnixStream,
    session: Connected,
    manager: Manager,
    /// True if the manager has answered that the server's end was clean.
    is_over: bool,
}

impl Stream {
    /// Returns the manager's description of the connection.
    pub fn session(&self) -> &Connected {
        &self.session
    }

    /// Tells the server that no more data follows. Reading goes on.
    ///
    /// # Errors
    /// The socket's errors.
    pub fn finish_writing(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Returns the same socket for another thread, which writes while this one reads.
    ///
    /// # Errors
    /// The system's errors.
    pub fn writer(&self) -> io::Result<UnixStream> {
        self.socket.try_clone()
    }

    /// Sets the time limit of a read. `None`: there is no limit.
    ///
    /// # Errors
    /// The socket's errors.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    /// Returns the socket alone, and the arguments for [`ended_well`].
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

/// Checks that the server closed a connection with close_notify, after the end of file on its socket.
///
/// # Errors
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if it did not, or if the manager cannot tell.
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

/// Sends a request and waits for its answer. Calls `lives` after a silence, and gives up if it fails.
pub(super) fn exchanged(
    mut exchange: Exchange<'_>,
    mut socket: &UnixStream,
    until: Instant,
    lives: impl FnOnce() -> Result<(), Error>,
) -> Result<Answer, Error> {
    let mut broke = None;
    while !exchange.is_sent() && broke.is_none() {
        let sent = exchange.send(socket.as_fd());
        broke = sent.err().map(|error| exchange.broke(error)).transpose()?;
    }
    let mut lives = Some((lives, until.min(Instant::now() + SILENCE)));
    while !exchange.is_received() {
        let next = lives.as_ref().map_or(until, |(_, silent)| *silent);
        let waited = until_readable(socket, next);
        let is_late = waited.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if let Some((lives, _)) = lives.take_if(|_| is_late && next < until) {
            lives()?;
            continue;
        }
        let read = waited.and_then(|()| socket.read(exchange.room()));
        exchange.received(read, &mut broke)?;
    }
    socket.set_write_timeout(None)?;
    exchange.answer()
}

/// Waits for data. A blocking `read` would also be woken, for nothing, whenever the manager reads.
fn until_readable(socket: &UnixStream, until: Instant) -> io::Result<()> {
    let timeout = PollTimeout::try_from(left(until)).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], timeout)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Returns the time that is left, and never zero, which would mean no limit.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
