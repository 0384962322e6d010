//! The ways in which a program waits for its socket, all of which must go on when another socket takes its place.
//!
//! `epoll` knows the socket itself, and not its descriptor, so that the new socket must be registered anew.
//! `librejoin_preload.so` hears of each registration that the program makes. Programs that make system calls without
//! the C library, wait by io_uring, or have the socket under a second descriptor are noticed among the lowest
//! descriptors, where such things are nearly always made: the work is the same for each connection, however many there
//! are. Nothing of `/proc` is read, which a sandbox may deny.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use libc::c_int;
use rejoin_abi::{Registered, RegisteredOf, report};

/// The number of descriptors that are looked at. To ask about one that is not open takes fifty to two hundred nanoseconds.
const LOWEST: RawFd = 1_024;

/// Returns the registration that the program made last.
pub(crate) fn known(of: RegisteredOf, descriptor: RawFd) -> Option<Registered> {
    let mut known = Registered::default();
    // SAFETY: the function writes a registration, for which there is room.
    let is_known = unsafe { of(descriptor, &raw mut known) } != 0;
    is_known.then_some(known)
}

/// Returns true if the program waits for a socket in a way that cannot be renewed, or has it under a second descriptor.
/// `known` is the registration that the program made.
pub(crate) fn is_elsewhere(socket: BorrowedFd<'_>, inode: u64, known: Option<&Registered>) -> bool {
    // Nobody knows whether a registration for one event was used up.
    let one_shot = libc::EPOLLONESHOT as u32;
    if known.is_some_and(|known| known.events & one_shot != 0) {
        return true;
    }
    (0..LOWEST).filter(|other| *other != socket.as_raw_fd()).any(|other| {
        // SAFETY: the descriptor is only asked about; if it is not open, the call fails.
        let Ok(found) = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(other) }) else {
            return false;
        };
        match found.st_mode & libc::S_IFMT {
            libc::S_IFSOCK => found.st_ino == inode,
            // `epoll`, io_uring, timers, events and other files without a name.
            0 if known.is_some_and(|known| known.instance == other) => false,
            0 => has(other, socket) || is_mappable(other),
            _ => false,
        }
    })
}

/// Returns true if this is an `epoll` instance that has the socket.
fn has(instance: RawFd, socket: BorrowedFd<'_>) -> bool {
    let nothing = Registered { instance, events: 0, data: 0 };
    if control(&nothing, libc::EPOLL_CTL_ADD, socket).is_ok() {
        let _ = control(&nothing, libc::EPOLL_CTL_DEL, socket);
        return false;
    }
    io::Error::last_os_error().raw_os_error() == Some(libc::EEXIST)
}

/// Returns true if a file without a name can be mapped, as the rings of io_uring can.
fn is_mappable(descriptor: RawFd) -> bool {
    const BYTES: usize = 4_096;
    let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: the kernel chooses an address that is free.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind, descriptor, 0) };
    let is_mapped = mapped != libc::MAP_FAILED;
    if is_mapped {
        // SAFETY: the pages were mapped above, and nobody else knows them.
        unsafe { libc::munmap(mapped, BYTES) };
    }
    is_mapped
}

/// Removes the registration of a socket, while it still has its descriptor. `None`: there is none any more.
pub(crate) fn forget(socket: BorrowedFd<'_>, known: Option<Registered>) -> Option<Registered> {
    known.filter(|known| control(known, libc::EPOLL_CTL_DEL, socket).is_ok())
}

/// Registers the socket that has the descriptor now.
pub(crate) fn renew(socket: BorrowedFd<'_>, known: Option<&Registered>) {
    let Some(known) = known else { return };
    if let Err(why) = control(known, libc::EPOLL_CTL_ADD, socket) {
        // Without this line nobody would know why the program waits for ever.
        report(&format!("cannot register a socket anew: {why}"));
    }
}

/// Calls `epoll_ctl`, without the library that hears of the program's calls.
fn control(of: &Registered, what: c_int, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut event = libc::epoll_event { events: of.events, u64: of.data };
    let (call, event) = (libc::SYS_epoll_ctl, &raw mut event);
    // SAFETY: the event is there during the call, and any descriptor may be given.
    let done = unsafe { libc::syscall(call, of.instance, what, socket.as_raw_fd(), event) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    fn instance() -> OwnedFd {
        // SAFETY: the call takes no pointer.
        let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        // SAFETY: the descriptor was made above, if there is one.
        unsafe { OwnedFd::from_raw_fd(made) }
    }

    fn is_elsewhere(socket: &UnixStream, known: Option<&Registered>) -> bool {
        let inode = rustix::fs::fstat(socket).expect("open").st_ino;
        super::is_elsewhere(socket.as_fd(), inode, known)
    }

    #[test]
    fn a_registration_is_moved_if_the_program_made_it_alone() {
        let (socket, _other) = UnixStream::pair().expect("a pair");
        let (first, second) = (instance(), instance());
        let known = |instance: &OwnedFd| {
            let events = libc::EPOLLIN as u32;
            Registered { instance: instance.as_raw_fd(), events, data: 7 }
        };
        assert!(!is_elsewhere(&socket, None));
        renew(socket.as_fd(), Some(&known(&first)));
        assert!(is_elsewhere(&socket, None), "it was not told");
        assert!(!is_elsewhere(&socket, Some(&known(&first))));
        renew(socket.as_fd(), Some(&known(&second)));
        assert!(is_elsewhere(&socket, Some(&known(&first))), "two have it");
        for own in [known(&first), known(&second)] {
            assert_eq!(forget(socket.as_fd(), Some(own)), Some(own));
            assert_eq!(forget(socket.as_fd(), Some(own)), None, "it is removed already");
        }
        let once = Registered { events: libc::EPOLLONESHOT as u32, ..known(&first) };
        assert!(is_elsewhere(&socket, Some(&once)));
        for at_least in [0, 64, 900] {
            // SAFETY: the call takes a number.
            let second =
                unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, at_least) };
            assert!(second >= at_least && is_elsewhere(&socket, None), "{second}");
            // SAFETY: it is this test's own.
            unsafe { libc::close(second) };
            assert!(!is_elsewhere(&socket, None), "{second}");
        }
    }
}
