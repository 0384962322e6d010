//! The program's socket, as OpenSSL reads and writes it.
//!
//! The last byte that was read stays in the socket. If the socket is closed then, the program reads all that was written
//! to it, and then gets a reset (`unix(7)`: `ECONNRESET`), as from a TCP connection that broke. So a manager that dies is
//! never taken for a server that ended. An end that the server meant is [settled](Line::settle) before.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;

use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::input::received;
use crate::downstream::messages;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) socket: ProgramSocket,
    /// The number of bytes that were read and are still in the socket: 1 at most.
    kept: usize,
    is_settled: bool,
}

thread_local! {
    /// The bytes of one read, and the kept one before them. They are the program's ciphertext.
    static PEEKED: RefCell<Vec<u8>> = RefCell::default();
}

impl Line {
    pub(crate) fn new(mut socket: ProgramSocket) -> Self {
        socket.set_resets(true);
        Self { socket, kept: 0, is_settled: false }
    }

    /// Takes the kept byte, so that the program reads an end of file when the socket is closed.
    pub(crate) fn settle(&mut self) {
        self.is_settled = true;
        self.socket.set_resets(false);
        let mut kept = [0];
        if self.kept > 0 && recv(&*self.socket, &mut kept, RecvFlags::DONTWAIT).is_ok() {
            self.kept = 0;
        }
    }
}

/// Reads bytes that were not read before, and takes all of them but the last.
fn keep_last(socket: &ProgramSocket, kept: &mut usize, buffer: &mut [u8]) -> io::Result<usize> {
    PEEKED.with_borrow_mut(|peeked| {
        let most = *kept + buffer.len();
        peeked.resize(peeked.len().max(most), 0);
        let peek =
            |peeked: &mut [u8]| recv(&**socket, peeked, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let mut found = peek(&mut peeked[..most])?.0;
        if found == *kept {
            // An end of file is not seen behind the byte. More may have come before it meanwhile.
            if found > 0 && !has_ended(socket) {
                return Err(Errno::AGAIN.into());
            }
            found = peek(&mut peeked[..most])?.0;
        }
        let new = found.saturating_sub(*kept);
        if new > 0 {
            buffer[..new].copy_from_slice(&peeked[*kept..found]);
            take(socket, &mut peeked[..found - 1])?;
            *kept = 1;
        }
        Ok(new)
    })
}

/// Takes as many bytes as the buffer has, which are there. Descriptors that come along are closed.
fn take(socket: &ProgramSocket, mut buffer: &mut [u8]) -> io::Result<()> {
    let closer = socket.closer();
    let mut refuse = |descriptor| closer.close(descriptor);
    while !buffer.is_empty() {
        match messages::receive(socket, buffer, closer, &mut refuse)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            taken => buffer = &mut buffer[taken..],
        }
    }
    Ok(())
}

/// Returns true if the program has ended its direction.
fn has_ended(socket: &ProgramSocket) -> bool {
    let mut asked = [PollFd::new(&**socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ends = PollFlags::RDHUP | PollFlags::HUP;
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().intersects(ends)
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { socket, kept, is_settled } = self;
        if *is_settled {
            return received(socket, buffer);
        }
        socket.try_io(Interest::READABLE, || keep_last(socket, kept, buffer))
    }
}

impl Write for Line {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let send = || send(&*self.socket, buffer, flags).map_err(Errno::into);
        self.socket.try_io(Interest::WRITABLE, send)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
