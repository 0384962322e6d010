//! Input from a program's socket, and whether the program still holds its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::messages;

/// The result of one read from a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// This many bytes.
    Bytes(usize),
    /// The announced end: an end of file, or close_notify.
    Done,
    /// An unannounced end; the program may still listen.
    Cut,
    /// An unannounced end; the program is gone.
    Gone,
}

/// Reads plaintext or records from a program's socket. Descriptors that come along are closed.
pub(crate) fn received(socket: &ProgramSocket, piece: &mut [u8]) -> io::Result<usize> {
    let closer = socket.closer();
    let mut refuse = |descriptor| closer.close(descriptor);
    socket.try_io(Interest::READABLE, || messages::receive(socket, piece, closer, &mut refuse))
}

/// Returns true if no process holds the other end any more, or both the server and the program have ended their
/// directions.
pub(crate) fn is_gone(program: &UnixStream) -> bool {
    has_hung_up(program.as_fd())
}

/// The same, of any Unix socket.
pub(crate) fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().contains(PollFlags::HUP)
}
