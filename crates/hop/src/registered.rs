//! Where a program waits for its socket, and who else has it: `epoll` knows a socket, and not the number
//! that it has, so that what takes its place has to be registered anew.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// A program with more descriptors takes too long to be looked through.
const MOST_DESCRIPTORS: usize = 1_024;

/// A registration, as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registration {
    instance: RawFd,
    events: u32,
    data: u64,
}

/// Where a socket is registered. `None`: nobody knows, or the program has it under another number, too.
pub(crate) fn of(socket: BorrowedFd<'_>, inode: u64) -> Option<Vec<Registration>> {
    let mut found = Vec::new();
    let itself = format!("socket:[{inode}]");
    for (at, entry) in fs::read_dir("/proc/self/fd").ok()?.enumerate() {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.parse::<RawFd>().ok()?;
        let what = match fs::read_link(entry.path()) {
            Ok(what) => what,
            // Another thread has closed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return None,
        };
        match what.to_str() {
            _ if at >= MOST_DESCRIPTORS => return None,
            Some(what) if what == itself && number != socket.as_raw_fd() => return None,
            // What it waits for there cannot be asked.
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

/// `tfd:        5 events:       1d data:                5  pos:0 ino:1a2b sdev:8` (proc(5)): numbers in
/// hexadecimal, but the first.
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

/// Takes a socket out, while it still has its number.
pub(crate) fn forget(socket: BorrowedFd<'_>, of: &[Registration]) {
    for registration in of {
        control(registration, libc::EPOLL_CTL_DEL, socket);
    }
}

/// Registers what has the number now.
pub(crate) fn renew(socket: BorrowedFd<'_>, of: &[Registration]) {
    for registration in of {
        control(registration, libc::EPOLL_CTL_ADD, socket);
    }
}

fn control(of: &Registration, what: i32, socket: BorrowedFd<'_>) {
    let mut event = libc::epoll_event { events: of.events, u64: of.data };
    // SAFETY: the kernel reads the event.
    if unsafe { libc::epoll_ctl(of.instance, what, socket.as_raw_fd(), &raw mut event) } != 0 {
        // The program would wait for ever, and not know why.
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
        // SAFETY: it makes a descriptor.
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
