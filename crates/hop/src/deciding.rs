//! The choice of the process that decides about an offered connection when a program forks meanwhile.
//!
//! A child has the same sockets as its parent, and all that Rejoin remembers of them. If it gave the parent's connection
//! up, it would send a ClientHello into what the manager and the server say to each other. So the process that made the
//! offer decides, or a child that reads the server's answer. Another child gives a connection up only if the maker has
//! ended or left the connection, and nobody has decided: the connection was made for the child then.
//!
//! The kernel knows all of it. A record lock (`F_SETLK`) on the socket to the manager is the maker's alone, and ends with
//! it. One on the program's end of the pair ends when the program closes that in the maker, and counts at the last look
//! alone: it also ends when the program closes a copy, and a maker that goes on has decided by then. A flag of the socket
//! to the manager that means nothing for sockets (`O_APPEND`) tells all processes that one of them has decided, or that a
//! child reads.

use std::os::fd::{AsFd, BorrowedFd};

use rejoin_abi::gate::forks;
use rejoin_client::hop::Requested;
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_lock, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// The process that decides about a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decider {
    /// The process, by its [`forks`].
    process: usize,
    /// True if the process has locked the socket. Without that no other can know that it has ended.
    is_locked: bool,
    /// True if the process has locked the program's end of the pair.
    is_end_locked: bool,
    /// True if this process, or one that forked it, has the connection from the maker because it read from it.
    has_taken: bool,
    /// The number of times that a child still looks whether it is to decide.
    looks: u32,
}

/// The part that a process has in a connection whose patience has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It gives the connection up.
    Decides,
    /// It looks again later.
    Looks,
    /// It has none.
    Nothing,
}

/// The most times that a child looks. After them, what it has inherited of the connection is closed.
const LOOKS: u32 = 10;

impl Decider {
    /// Makes this process the one that decides. `end` is the program's end of the pair. The process holds no other
    /// descriptor of it, because to close one ends the lock.
    pub(crate) fn this(requested: &Requested, end: BorrowedFd<'_>) -> Self {
        let (is_locked, is_end_locked) = (lock(requested), lock(end));
        Self { process: forks(), is_locked, is_end_locked, has_taken: false, looks: LOOKS }
    }

    /// Makes this process the one that decides from now on, because it reads from the connection. Returns false if
    /// another one has decided, or reads: then this one must not give the connection up.
    pub(crate) fn reads(&mut self, requested: &Requested) -> bool {
        if self.is_anothers(requested) {
            return false;
        }
        if self.process != forks() {
            // The maker must not give up what this process reads.
            decide(requested);
            (self.process, self.has_taken) = (forks(), true);
        }
        true
    }

    /// Returns this process's part at the end of the patience. `end` is the program's end of the pair.
    pub(crate) fn part(&mut self, requested: Option<&Requested>, end: BorrowedFd<'_>) -> Part {
        if self.process == forks() {
            let is_anothers = requested.is_some_and(|it| self.is_anothers(it));
            return if is_anothers { Part::Nothing } else { Part::Decides };
        }
        self.looks = self.looks.saturating_sub(1);
        let Some(requested) = requested.filter(|it| !self.is_anothers(it)) else {
            return Part::Nothing;
        };
        let is_last = self.looks == 0;
        let is_left =
            self.is_locked && lock(requested) || is_last && self.is_end_locked && lock(end);
        // Asked again: who decides marks the socket before it gives the lock back.
        match is_left && !self.is_anothers(requested) && is_silent(requested) {
            true => Part::Decides,
            false if is_last => Part::Nothing,
            false => Part::Looks,
        }
    }

    /// Returns true if another process has decided, or reads: what this one decides it forgets at once.
    fn is_anothers(&self, requested: &Requested) -> bool {
        let is_child = self.process != forks();
        // Where it cannot be known, a child leaves the connection alone.
        !self.has_taken && is_marked(requested).unwrap_or(is_child)
    }
}

/// Tells the other processes that have the socket that one has decided.
pub(crate) fn decide(requested: &Requested) {
    // Where flags cannot be asked for, children leave each connection alone.
    let _ = fcntl_getfl(requested).and_then(|flags| fcntl_setfl(requested, flags | OFlags::APPEND));
}

/// Returns true if a process has decided, or a child reads. `None`: it cannot be known.
fn is_marked(requested: &Requested) -> Option<bool> {
    fcntl_getfl(requested).ok().map(|flags| flags.contains(OFlags::APPEND))
}

/// Returns true if no other process has the lock, and this one has it now.
fn lock(socket: impl AsFd) -> bool {
    fcntl_lock(socket, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Returns true if the manager has neither answered nor hung up. Else the program's socket has something to read, and who
/// goes on with the connection reads it.
fn is_silent(requested: &Requested) -> bool {
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    recv(requested, &mut [0_u8], peek).err() == Some(Errno::AGAIN)
}
