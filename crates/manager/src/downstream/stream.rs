//! A program's end of a connection: plaintext, or TLS that the program does with the manager.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::messages;
use crate::hop::tls::Hop;

/// See the module's documentation.
pub(crate) enum Downstream<'a> {
    Plain(&'a ProgramSocket),
    Hop(&'a mut Hop),
}

/// What a program said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes.
    Bytes(usize),
    /// That this was all.
    Done,
    /// Nothing more, and not that this was all; it may still listen.
    Cut,
    /// Nothing, and it will not say more.
    Gone,
}

impl Downstream<'_> {
    /// What is waited on.
    pub(crate) fn line(&self) -> &ProgramSocket {
        match self {
            Self::Plain(line) => line,
            Self::Hop(hop) => hop.line(),
        }
    }

    /// Whether it reads no more before it has written.
    pub(crate) fn is_stuck(&self) -> bool {
        matches!(self, Self::Hop(hop) if hop.is_stuck())
    }

    /// Reads what is there, into `piece`.
    pub(crate) fn receive(&mut self, piece: &mut [u8]) -> io::Result<Received> {
        let bytes = match self {
            Self::Plain(line) => received(line, piece)?,
            Self::Hop(hop) => return hop.receive(piece),
        };
        Ok(match bytes {
            // The end of file of a program that died looks like that of one that is done.
            0 if is_gone(self.line()) => Received::Gone,
            0 => Received::Done,
            bytes => Received::Bytes(bytes),
        })
    }

    /// Writes as much as is taken; what is left comes again, beginning where this ended.
    pub(crate) fn send(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(line) => line.try_write(plaintext),
            Self::Hop(hop) => hop.send(plaintext),
        }
    }

    /// Says that this was all. Returns whether it could, for now. The program may be gone; then
    /// writing fails soon.
    pub(crate) fn finish(&mut self) -> bool {
        if let Self::Hop(hop) = self
            && !hop.finish()
        {
            return false;
        }
        let _ = rustix::net::shutdown(&**self.line(), Shutdown::Write);
        true
    }
}

/// Reads from a program's socket. Descriptors have no business here.
pub(crate) fn received(line: &ProgramSocket, piece: &mut [u8]) -> io::Result<usize> {
    let closer = line.closer();
    let mut refuse = |descriptor| closer.close(descriptor);
    line.try_io(Interest::READABLE, || messages::receive(line, piece, closer, &mut refuse))
}

/// Whether nobody holds the other end any more, or the server and the program have both ended.
pub(crate) fn is_gone(program: &UnixStream) -> bool {
    let mut asked = [PollFd::new(program, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().contains(PollFlags::HUP)
}
