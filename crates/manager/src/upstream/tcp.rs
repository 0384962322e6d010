//! A TCP connection to a server: the manager's own, or one that a program brought.
//!
//! Of one that was brought the program may have a copy, and so may clear `O_NONBLOCK` at any time.
//! So each call says itself that it does not wait, and no `read` or `write` is used.

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

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Tcp {
    // Dropped first: while what was brought stands, closing this copy of it waits for nobody.
    stream: TcpStream,
    _brought: Option<PassedDescriptor>,
}

impl Tcp {
    /// Connects. A server on this machine is connected to when the kernel returns, and then nobody
    /// waits.
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

    /// Takes over what a program brought. `None`: it is no connected TCP socket.
    pub(crate) fn take_over(brought: PassedDescriptor) -> io::Result<Option<Self>> {
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

    /// There is nearly always room: the kernel is asked first, and tokio where there is none.
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
