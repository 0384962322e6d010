//! A TCP connection to a server: the manager's own, or one that a program brought.
//!
//! Of one that was brought the program may have a copy, and so may clear `O_NONBLOCK` at any time.
//! So each call says itself that it does not wait, and no `read` or `write` is used.

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, ipproto, recv, send, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::closing::Brought;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Tcp {
    // Dropped first: while what was brought stands, closing this copy of it waits for nobody.
    stream: TcpStream,
    _brought: Option<Brought>,
}

impl Tcp {
    /// Takes over what a program brought. `None`: it is no connected TCP socket.
    pub(crate) fn take_over(brought: Brought) -> io::Result<Option<Self>> {
        let protocol = rustix::net::sockopt::socket_protocol(&brought).ok().flatten();
        if !matches!(protocol, Some(ipproto::TCP | ipproto::MPTCP)) {
            return Ok(None);
        }
        let stream = std::net::TcpStream::from(brought.as_fd().try_clone_to_owned()?);
        // The address of a socket that is no internet socket, or not connected, is none.
        if stream.peer_addr().is_err() {
            return Ok(None);
        }
        // For tokio's own sake.
        stream.set_nonblocking(true)?;
        Ok(Some(Self { stream: TcpStream::from_std(stream)?, _brought: Some(brought) }))
    }
}

impl From<TcpStream> for Tcp {
    fn from(stream: TcpStream) -> Self {
        Self { stream, _brought: None }
    }
}

impl Deref for Tcp {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

/// The socket as rustls reads it.
pub(crate) struct Source<'a>(pub(crate) &'a Tcp);

impl io::Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stream = &self.0.stream;
        let (read, _) = stream.try_io(Interest::READABLE, || {
            recv(stream, buffer, RecvFlags::DONTWAIT).map_err(Into::into)
        })?;
        Ok(read)
    }
}

/// The socket as rustls writes it.
pub(crate) struct Sink<'a>(pub(crate) &'a Tcp);

impl Sink<'_> {
    const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
}

impl io::Write for Sink<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let stream = &self.0.stream;
        stream.try_io(Interest::WRITABLE, || send(stream, buffer, Self::FLAGS).map_err(Into::into))
    }

    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let stream = &self.0.stream;
        stream.try_io(Interest::WRITABLE, || {
            let mut nothing = SendAncillaryBuffer::default();
            sendmsg(stream, buffers, &mut nothing, Self::FLAGS).map_err(Into::into)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
