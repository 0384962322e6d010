//! The choice of the process that decides about an offered connection when a program forks meanwhile.
//!
//! A child has the same sockets as its parent, and all that Rejoin remembers of them. If it gave the parent's connection
//! up, it would send a ClientHello into what the manager and the server say to each other. So the process that made the
//! offer decides, or a child that reads the server's answer. Another child gives a connection up only if the maker has
//! ended or left the connection, and nobody has decided: the connection was made for the child then.
//!
//! The kernel knows both. A record lock (`F_SETLK`) on the socket to the manager is the maker's alone, and ends with it.
//! A flag of that socket that means nothing for sockets (`O_APPEND`) tells all processes that one of them has decided.

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
    /// Makes this process the one that decides.
    pub(crate) fn this(requested: &Requested) -> Self {
        Self { process: forks(), is_locked: lock(requested), looks: LOOKS }
    }

    /// Makes this process the one that decides from now on, because it reads from the connection.
    pub(crate) fn reads(&mut self) {
        self.process = forks();
    }

    /// Returns this process's part at the end of the patience.
    pub(crate) fn part(&mut self, requested: Option<&Requested>) -> Part {
        if self.process == forks() {
            // What this process decides it forgets at once: so a child has read, and goes on with the connection.
            let is_another = requested.is_some_and(|it| is_marked(it).unwrap_or(false));
            return if is_another { Part::Nothing } else { Part::Decides };
        }
        self.looks = self.looks.saturating_sub(1);
        match requested {
            Some(requested) if !is_decided(requested) && self.looks > 0 => {
                // In this order: who decides marks the socket before it gives the lock back.
                let is_left = self.is_locked && lock(requested) && !is_decided(requested);
                if is_left && is_silent(requested) { Part::Decides } else { Part::Looks }
            }
            _ => Part::Nothing,
        }
    }
}

/// Tells the other processes that have the socket that one has decided.
pub(crate) fn decide(requested: &Requested) {
    // Where flags cannot be asked for, `is_decided` says so of each connection.
    let _ = fcntl_getfl(requested).and_then(|flags| fcntl_setfl(requested, flags | OFlags::APPEND));
}

fn is_decided(requested: &Requested) -> bool {
    is_marked(requested).unwrap_or(true)
}

/// Returns true if a process has decided. `None`: it cannot be known.
fn is_marked(requested: &Requested) -> Option<bool> {
    fcntl_getfl(requested).ok().map(|flags| flags.contains(OFlags::APPEND))
}

/// Returns true if no other process has the lock, and this one has it now.
fn lock(requested: &Requested) -> bool {
    fcntl_lock(requested, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Returns true if the manager has neither answered nor hung up. Else the program's socket has something to read, and who
/// goes on with the connection reads it.
fn is_silent(requested: &Requested) -> bool {
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    recv(requested, &mut [0_u8], peek).err() == Some(Errno::AGAIN)
}
