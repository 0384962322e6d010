//! The asynchronous interface, for programs on tokio.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf, copy, sink};
use ::tokio::net::{TcpStream, UnixStream};
use ::tokio::runtime::Handle;
use ::tokio::time::{sleep, timeout};

use crate::exchange::{Exchange, SILENCE, lives};
use crate::protocol::{Answer, Connect, Connected, Request};
use crate::{Error, Manager, at_end};

/// The time between attempts at a manager whose queue is full.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest time for which the socket stays open after a shutdown and a drop.
const CLOSING: Duration = Duration::from_secs(5);
/// The bytes from the server after which the manager has long seen the shutdown.
const CLOSING_BYTES: u64 = 1024 * 1024;

/// Asks for a connection, like [`Manager::connect`].
///
/// # Errors
/// The manager's errors, and [`Error::NotRunning`] if there is no manager.
pub async fn connect(manager: &Manager, wanted: &Connect) -> Result<Stream, Error> {
    open(manager, Exchange::connect(wanted, None, &[])?).await
}

/// Asks for a connection and sends bytes, like [`Manager::connect_sending`].
///
/// # Errors
/// The same as [`connect`].
pub async fn connect_sending(
    manager: &Manager,
    wanted: &Connect,
    first: &[u8],
) -> Result<Stream, Error> {
    open(manager, Exchange::connect(wanted, None, first)?).await
}

/// Asks for a connection over a TCP socket, like [`Manager::connect_over`].
///
/// # Errors
/// The same as [`connect`].
pub async fn connect_over(
    manager: &Manager,
    socket: TcpStream,
    wanted: &Connect,
) -> Result<Stream, Error> {
    open(manager, Exchange::connect(wanted, Some(socket.as_fd()), &[])?).await
}

/// A connection, like [`crate::Stream`].
///
/// If it is dropped after a shutdown, its socket stays open in the background until the server has ended, too, for five
/// seconds at most: the manager cannot tell a program that is done from one that died once it has gone.
pub struct Stream {
    socket: UnixStream,
    session: Connected,
    manager: Manager,
    end: End,
    is_shut: bool,
    runtime: Handle,
}

/// The state of the server's end.
enum End {
    NotSeen,
    Asked(Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>),
    Clean,
}

impl Stream {
    /// Returns the manager's description of the connection.
    pub fn session(&self) -> &Connected {
        &self.session
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.end {
                End::Clean => return Poll::Ready(Ok(())),
                End::NotSeen => {
                    let (manager, connection) = (self.manager.clone(), self.session.connection);
                    self.end = End::Asked(Box::pin(async move {
                        let end = Request::End { connection };
                        let asked = async { ask(&manager, Exchange::new(&end)?).await };
                        at_end(asked.await.map(|(answer, ..)| answer))
                    }));
                }
                End::Asked(asked) => {
                    let ended = ready!(asked.as_mut().poll(context));
                    self.end = if ended.is_ok() { End::Clean } else { End::NotSeen };
                    return Poll::Ready(ended);
                }
            }
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("session", &self.session).finish_non_exhaustive()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (room, filled) = (buffer.remaining(), buffer.filled().len());
        match ready!(Pin::new(&mut self.socket).poll_read(context, buffer)) {
            Ok(()) if room > 0 && buffer.filled().len() == filled => self.poll_end(context),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.poll_end(context),
            read => Poll::Ready(read),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, buffer)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Tells the server that no more data follows. Reading goes on.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = ready!(Pin::new(&mut self.socket).poll_shutdown(context));
        self.is_shut = shut.is_ok();
        Poll::Ready(shut)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_shut || matches!(self.end, End::Clean) {
            return;
        }
        let Ok(socket) = self.socket.as_fd().try_clone_to_owned() else { return };
        drop(self.runtime.spawn(async move {
            let rest = UnixStream::from_std(socket.into())?.take(CLOSING_BYTES);
            // Nobody wants to know how it ended.
            let _ = timeout(CLOSING, copy(&mut pin!(rest), &mut sink())).await;
            io::Result::Ok(())
        }));
    }
}

async fn open(manager: &Manager, exchange: Exchange<'_>) -> Result<Stream, Error> {
    match ask(manager, exchange).await? {
        (Answer::Connected(session), socket, manager) => {
            let (end, runtime) = (End::NotSeen, Handle::current());
            Ok(Stream { socket, session: *session, manager, end, is_shut: false, runtime })
        }
        _ => Err(Error::OtherAnswer),
    }
}

async fn ask(
    manager: &Manager,
    exchange: Exchange<'_>,
) -> Result<(Answer, UnixStream, Manager), Error> {
    let patience = exchange.patience;
    let asked = async {
        let (socket, path) = reach(manager).await?;
        let mut socket = UnixStream::from_std(socket)?;
        let (only, is_long) = (manager.only(path), exchange.is_long());
        let answer = {
            let mut answer = pin!(exchanged(exchange, &mut socket));
            match timeout(SILENCE, &mut answer).await {
                Ok(answer) => answer?,
                Err(_) => {
                    if is_long {
                        check_life(&only).await?;
                    }
                    answer.await?
                }
            }
        };
        Ok((answer, socket, only))
    };
    let late = |_| Err(Error::Silent(ErrorKind::TimedOut.into()));
    timeout(patience, asked).await.unwrap_or_else(late)
}

/// Checks that the manager answers at all.
fn check_life(
    manager: &Manager,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + Sync + '_>> {
    Box::pin(async { lives(ask(manager, Exchange::of_life()?).await) })
}

async fn reach(manager: &Manager) -> Result<(std::os::unix::net::UnixStream, &Path), Error> {
    loop {
        match manager.reach(None) {
            Err(Error::NotRunning { source, .. }) if source.kind() == ErrorKind::WouldBlock => {
                sleep(PAUSE).await;
            }
            reached => return reached,
        }
    }
}

async fn exchanged(mut exchange: Exchange<'_>, socket: &mut UnixStream) -> Result<Answer, Error> {
    let mut broke = None;
    while !exchange.is_sent() && broke.is_none() {
        let sent = socket.async_io(Interest::WRITABLE, || exchange.send(socket.as_fd()));
        broke = sent.await.err().map(|error| exchange.broke(error)).transpose()?;
    }
    while !exchange.is_received() {
        let count = socket.read(exchange.room()).await;
        exchange.received(count, &mut broke)?;
    }
    exchange.answer()
}
