//! Requests and answers on a program's socket.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::protocol::{
    self, Answer, ErrorKind, LENGTH_BYTES, REQUEST_BYTES, Request, write_answer,
};

/// A program that has not said what it wants after this long is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a program's request, and the socket that may come with it. `None`: it went away, or its
/// socket broke.
pub(crate) async fn read_request(
    stream: &UnixStream,
) -> Option<Result<(Request, Option<OwnedFd>), Failure>> {
    match timeout(PATIENCE, read(stream)).await {
        Ok(Ok(read)) => Some(read),
        Ok(Err(_)) => None,
        Err(_) => {
            let late = "no request came within 10 seconds";
            Some(Err(Failure::new(ErrorKind::Timeout, late)))
        }
    }
}

async fn read(stream: &UnixStream) -> io::Result<Result<(Request, Option<OwnedFd>), Failure>> {
    let (mut prefix, mut socket) = ([0; LENGTH_BYTES], None);
    fill(stream, &mut prefix, &mut socket).await?;
    let bytes = match protocol::length(prefix, REQUEST_BYTES) {
        Ok(bytes) => bytes,
        Err(malformed) => return Ok(Err(malformed.into())),
    };
    // It may hold a private key: wiped, and never moved. Zeroed memory takes no room before it is
    // written to.
    let mut message = Zeroizing::new(vec![0; bytes]);
    fill(stream, &mut message, &mut socket).await?;
    Ok(protocol::read_request(&message).map(|request| (request, socket)).map_err(Into::into))
}

/// Fills the buffer, and not a byte more: what follows is not the request's. The first descriptor
/// that comes with it is kept, others are closed.
async fn fill(
    stream: &UnixStream,
    mut buffer: &mut [u8],
    socket: &mut Option<OwnedFd>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        let read = stream.async_io(Interest::READABLE, || receive(stream, buffer, socket)).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[read..];
    }
    Ok(())
}

fn receive(
    stream: &UnixStream,
    buffer: &mut [u8],
    socket: &mut Option<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(buffer)];
    let received = recvmsg(stream, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for descriptor in descriptors {
                socket.get_or_insert(descriptor);
            }
        }
    }
    Ok(received.bytes)
}

/// Writes an answer. A program that does not take it in time has gone.
pub(crate) async fn write(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let message = write_answer(answer);
    let message =
        message.or_else(|malformed| write_answer(&Answer::Error(Failure::from(malformed).into())));
    let message = message.map_err(io::Error::other)?;
    match timeout(PATIENCE, stream.write_all(&message)).await {
        Ok(written) => written,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
