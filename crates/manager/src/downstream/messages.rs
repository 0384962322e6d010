//! Requests and answers on a program's socket.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::downstream::descriptors::{Closer, PassedDescriptor, ProgramSocket};
use crate::downstream::quota::{Permit, Quota};
use crate::failure::Failure;
use crate::protocol::{
    self, Answer, ErrorKind, LENGTH_BYTES, REQUEST_BYTES, Request, write_answer,
};

/// The time that a program has for sending its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The descriptors that one message can carry (`SCM_MAX_FD` of Linux). The buffer has room for all of them, because
/// the kernel closes on this thread those that do not fit.
const MOST_DESCRIPTORS: usize = 253;

/// The length up to which requests need no permit: there are at most as many of them as connections.
const SMALL_BYTES: usize = 4 * 1024;
/// The memory of all longer requests together, and of one user's.
const LARGE_BYTES: usize = 128 * 1024 * 1024;
const LARGE_BYTES_PER_USER: usize = 32 * 1024 * 1024;

/// The memory quota for long requests.
#[derive(Debug)]
pub(crate) struct Rooms(Quota);

impl Default for Rooms {
    fn default() -> Self {
        Self(Quota::new(LARGE_BYTES, LARGE_BYTES_PER_USER))
    }
}

/// A request, the sockets that came with it, and its permit, which must live as long as the request.
pub(crate) type Received = (Request, Vec<PassedDescriptor>, Option<Permit>);

/// The sockets of a request that are kept.
const SOCKETS: usize = 3;

/// Reads a program's request. `None`: the program is gone, or its socket broke.
pub(crate) async fn read_request(
    stream: &ProgramSocket,
    rooms: (&Rooms, u32),
) -> Option<Result<Received, Failure>> {
    match timeout(PATIENCE, read(stream, rooms)).await {
        Ok(Ok(read)) => Some(read),
        Ok(Err(error)) if Failure::is_want(&error) => Some(Err(Failure::of_io(&error))),
        Ok(Err(_)) => None,
        Err(_) => {
            let late = "no request came within 10 seconds";
            Some(Err(Failure::new(ErrorKind::Timeout, late)))
        }
    }
}

async fn read(
    stream: &ProgramSocket,
    (Rooms(rooms), uid): (&Rooms, u32),
) -> io::Result<Result<Received, Failure>> {
    let (mut prefix, mut sockets) = ([0; LENGTH_BYTES], Vec::new());
    fill(stream, &mut prefix, &mut sockets).await?;
    let bytes = match protocol::length(prefix, REQUEST_BYTES) {
        Ok(bytes) => bytes,
        Err(malformed) => return Ok(Err(malformed.into())),
    };
    let room = match bytes {
        ..=SMALL_BYTES => None,
        _ => match rooms.take(uid, bytes as u32) {
            Some(room) => Some(room),
            None => {
                let detail = "too many long requests are being read";
                return Ok(Err(Failure::new(ErrorKind::Busy, detail)));
            }
        },
    };
    // The request may contain a private key: the buffer is wiped, and never moved. Zeroed memory takes no
    // pages before it is written to.
    let mut message = Zeroizing::new(vec![0; bytes]);
    fill(stream, &mut message, &mut sockets).await?;
    let request = protocol::read_request(&message).map_err(Into::into);
    Ok(request.map(|request| (request, sockets, room)))
}

/// Fills the buffer and reads no byte more, because what follows is not part of the request. Keeps the first
/// descriptors that come with it, and closes the others.
pub(crate) async fn fill(
    stream: &ProgramSocket,
    mut buffer: &mut [u8],
    sockets: &mut Vec<PassedDescriptor>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        let closer = stream.closer();
        let mut keep = |descriptor| {
            let brought = PassedDescriptor::new(descriptor, closer);
            if sockets.len() < SOCKETS {
                sockets.push(brought);
            }
        };
        closer.catch_up().await;
        let receive = || receive(stream, buffer, closer, &mut keep);
        let read = stream.async_io(Interest::READABLE, receive).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[read..];
    }
    Ok(())
}

/// Reads from a program's socket into the buffer, and gives each descriptor that came along to `keep`.
///
/// # Errors
/// Those of the socket. The manager cannot take more descriptors, or takes no more from this user
/// ([`Failure::is_want`]).
pub(crate) fn receive(
    stream: &UnixStream,
    buffer: &mut [u8],
    closer: &Arc<Closer>,
    keep: &mut dyn FnMut(OwnedFd),
) -> io::Result<usize> {
    if !closer.has_room() {
        return Err(Errno::MFILE.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(buffer)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(stream, slices, &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptors.for_each(&mut *keep);
        }
    }
    // The process has reached its limit of descriptors.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    Ok(received.bytes)
}

/// Writes an answer. Fails if the program does not take it in time.
pub(crate) async fn write(stream: &UnixStream, answer: Answer) -> io::Result<()> {
    let message = message(answer)?;
    match timeout(PATIENCE, write_all(stream, &message)).await {
        Ok(written) => written,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Encodes an answer with its length. An answer that is too long becomes an error that says so.
pub(crate) fn message(answer: Answer) -> io::Result<Vec<u8>> {
    let message = write_answer(&answer);
    drop(answer);
    let message =
        message.or_else(|malformed| write_answer(&Answer::Error(Failure::from(malformed).into())));
    message.map_err(io::Error::other)
}

pub(crate) async fn write_all(stream: &UnixStream, mut message: &[u8]) -> io::Result<()> {
    while !message.is_empty() {
        stream.writable().await?;
        match stream.try_write(message) {
            Ok(written) => message = &message[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
