//! A connection that takes one of the service's places for as long as it is open. It is closed if it has asked for nothing
//! after a time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// The connection, and its place.
pub(super) struct Placed {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
    asked: Asked,
    /// The end of the time to ask. `None`: the connection has asked, and stays.
    silence: Option<Pin<Box<Sleep>>>,
}

/// A mark of each connection that its requests can set.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked(Arc<AtomicBool>);

impl Asked {
    /// Keeps the connection open from now on.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Placed {
    /// Makes one that must ask within this time.
    pub(super) fn new(stream: UnixStream, place: OwnedSemaphorePermit, longest: Duration) -> Self {
        let silence = Some(Box::pin(sleep(longest)));
        Self { stream, _place: place, asked: Asked::default(), silence }
    }

    fn is_silent_for_long(&mut self, context: &mut Context<'_>) -> bool {
        if self.asked.0.load(Ordering::Relaxed) {
            self.silence = None;
        }
        self.silence.as_mut().is_some_and(|silence| silence.as_mut().poll(context).is_ready())
    }
}

impl Connected for Placed {
    type ConnectInfo = Asked;

    fn connect_info(&self) -> Asked {
        self.asked.clone()
    }
}

impl AsyncRead for Placed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_silent_for_long(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Placed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
