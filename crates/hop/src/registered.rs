//! The `epoll` registrations of a program's socket. `epoll` knows the socket itself, and not its descriptor, so that
//! the socket that takes its place must be registered anew.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The most descriptors of a program that are searched. With more of them the search takes too long.
const MOST_DESCRIPTORS: usize = 1_024;

/// A registration, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registration {
    instance: RawFd,
    events: u32,
    data: u64,
}

/// Returns the registrations of a socket. `None`: they cannot be determined, or the program has the socket under a
/// second descriptor.
pub(crate) fn of(socket: BorrowedFd<'_>, inode: u64) -> Option<Vec<Registration>> {
    let mut found = Vec::new();
    let itself = format!("socket:[{inode}]");
    for (at, entry) in fs::read_dir("/proc/self/fd").ok()?.enumerate() {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.parse::<RawFd>().ok()?;
        let what = match fs::read_link(entry.path()) {
            Ok(what) => what,
            // Another thread has closed the descriptor.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return None,
        };
        match what.to_str() {
            _ if at >= MOST_DESCRIPTORS => return None,
            Some(what) if what == itself && number != socket.as_raw_fd() => return None,
            // The kernel does not report what an io_uring waits for.
            Some("anon_inode:[io_uring]") => return None,
            Some("anon_inode:[eventpoll]") => {
                let told = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
                let own = |line: &str| read(line, number, (socket.as_raw_fd(), inode));
                found.extend(told.lines().filter_map(own));
            }
            _ => {}
        }
    }
    Some(found)
}

/// Reads a line such as `tfd:        5 events:       1d data:                5  pos:0 ino:1a2b sdev:8` (proc(5)). The
/// numbers after the first are hexadecimal.
fn read(line: &str, instance: RawFd, (socket, inode): (RawFd, u64)) -> Option<Registration> {
    let mut words = line.split_ascii_whitespace();
    let mut after = |name: &str| loop {
        match words.next()?.strip_prefix(name) {
            Some("") => return words.next(),
            Some(joined) => return Some(joined),
            None => {}
        }
    };
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    if after("tfd:")?.parse() != Ok(socket) {
        return None;
    }
    let (events, data) = (number(after("events:")?)? as u32, number(after("data:")?)?);
    (number(after("ino:")?)? == inode).then_some(Registration { instance, events, data })
}

/// Removes the registrations of a socket, while it still has its descriptor.
pub(crate) fn forget(socket: BorrowedFd<'_>, of: &[Registration]) {
    for registration in of {
        control(registration, libc::EPOLL_CTL_DEL, socket);
    }
}

/// Registers the socket that has the descriptor now.
pub(crate) fn renew(socket: BorrowedFd<'_>, of: &[Registration]) {
    for registration in of {
        control(registration, libc::EPOLL_CTL_ADD, socket);
    }
}

fn control(of: &Registration, what: i32, socket: BorrowedFd<'_>) {
    let mut event = libc::epoll_event { events: of.events, u64: of.data };
    // SAFETY: the event is there during the call, and any descriptor may be given.
    if unsafe { libc::epoll_ctl(of.instance, what, socket.as_raw_fd(), &raw mut event) } != 0 {
        // Without this line nobody would know why the program waits for ever.
        let why = io::Error::last_os_error();
        let _ = writeln!(io::stderr(), "rejoin: cannot register a socket anew: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_registration_is_found_as_it_was_made() {
        // SAFETY: the call takes no pointer.
        let instance = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        let events = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;
        let made = Registration { instance, events, data: 0x0123_4567_89ab_cdef };
        renew(socket.as_fd(), &[made]);
        let found = of(socket.as_fd(), inode).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].instance, found[0].data), (instance, made.data));
        assert_eq!(found[0].events & events, events);
        forget(socket.as_fd(), &found);
        assert_eq!(of(socket.as_fd(), inode), Some(Vec::new()));
        let _second = socket.try_clone().unwrap();
        assert_eq!(of(socket.as_fd(), inode), None);
    }
}
