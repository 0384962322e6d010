//! A TCP connection to a server: the manager's own, or one that a program passed.
//!
//! A program may keep a copy of a socket that it passed, and so may clear `O_NONBLOCK` at any time.
//! So every call carries `MSG_DONTWAIT`, and `read` and `write` are not used.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, connect,
    ipproto, recv, send, sendmsg, socket_with,
};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::downstream::descriptors::PassedDescriptor;

/// A TCP connection to a server.
#[derive(Debug)]
pub(crate) struct Tcp {
    // Dropped first: while the passed descriptor is open, closing this copy does not block.
    stream: TcpStream,
    _brought: Option<PassedDescriptor>,
}

impl Tcp {
    /// Connects. A connection to a server on this machine is established when the system call returns, and needs no
    /// wait.
    pub(crate) async fn connect(address: &SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        match connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = std::net::TcpStream::from(socket);
        let is_there = stream.peer_addr().is_ok();
        let stream = TcpStream::from_std(stream)?;
        if !is_there {
            stream.writable().await?;
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
        }
        Ok(Self { stream, _brought: None })
    }

    /// Returns a connection that was made with a socket that a program passed.
    pub(crate) fn connected(stream: TcpStream, brought: PassedDescriptor) -> Self {
        Self { stream, _brought: Some(brought) }
    }

    /// Takes over a socket that a program passed. `None`: it is not a connected TCP socket.
    pub(crate) fn take_over(brought: PassedDescriptor) -> io::Result<Option<Self>> {
        let protocol = rustix::net::sockopt::socket_protocol(&brought).ok().flatten();
        if !matches!(protocol, Some(ipproto::TCP | ipproto::MPTCP)) {
            return Ok(None);
        }
        let stream = std::net::TcpStream::from(brought.as_fd().try_clone_to_owned()?);
        // Fails for a socket that is not connected or not an internet socket.
        if stream.peer_addr().is_err() {
            return Ok(None);
        }
        // tokio requires it.
        stream.set_nonblocking(true)?;
        Ok(Some(Self { stream: TcpStream::from_std(stream)?, _brought: Some(brought) }))
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

    /// Tries the system call first, because there is nearly always room, and registers with tokio otherwise.
    fn send(&self, send: impl Fn() -> rustix::io::Result<usize>) -> io::Result<usize> {
        match send() {
            Err(Errno::AGAIN) => {
                self.0.stream.try_io(Interest::WRITABLE, || send().map_err(Into::into))
            }
            sent => sent.map_err(Into::into),
        }
    }
}

impl io::Write for Sink<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.send(|| send(&self.0.stream, buffer, Self::FLAGS))
    }

    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.send(|| {
            let mut nothing = SendAncillaryBuffer::default();
            sendmsg(&self.0.stream, buffers, &mut nothing, Self::FLAGS)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
