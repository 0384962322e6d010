//! Standard error, which is the program's: whatever it leads to, a line of ours neither ends the program nor holds it up.

use core::ffi::{c_int, c_long, c_short, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{AsFd, FromRawFd, RawFd};

const STDERR: RawFd = 2;

/// The most bytes of a line: as many as a pipe that has room takes at once (`PIPE_BUF` of Linux).
const MOST_BYTES: usize = 4_096;

/// Writes one line on standard error in a single piece, so that the lines of several processes do not mix; of a very long
/// one only the beginning. Writes nothing if standard error is a connection: that of a server that inetd started is its
/// client. Nor if there is no room, or nobody reads: waiting could take for ever, and the signal of a pipe without a reader
/// (`SIGPIPE`) would end the program.
pub fn report(line: &str) {
    let own = io::stderr().as_fd().try_clone_to_owned();
    if own.is_ok_and(|descriptor| TcpStream::from(descriptor).local_addr().is_ok()) {
        return;
    }
    if !has_room() {
        return;
    }
    let line = whole(line);
    // Not through the standard library's own, whose lock a thread may have held while this process was forked.
    // SAFETY: the descriptor is only written to, and never closed; if it is not open, that fails.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(STDERR) });
    // The reader may leave just now. A program without standard error has nowhere to show the line.
    without_signal(|| (&*file).write(&line));
}

/// Returns the bytes of a line, with its end.
fn whole(line: &str) -> Vec<u8> {
    let mut whole = format!("rejoin: {line}\n").into_bytes();
    if whole.len() > MOST_BYTES {
        whole.truncate(MOST_BYTES - 1);
        whole.push(b'\n');
    }
    whole
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn sigemptyset(set: *mut Signals) -> c_int;
    fn sigaddset(set: *mut Signals, signal: c_int) -> c_int;
    fn sigismember(set: *const Signals, signal: c_int) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const Signals, old: *mut Signals) -> c_int;
    fn sigpending(set: *mut Signals) -> c_int;
    fn sigtimedwait(set: *const Signals, about: *mut c_void, longest: *const [c_long; 2]) -> c_int;
}

/// `sigset_t` of glibc and musl.
#[repr(C, align(8))]
struct Signals([u8; 128]);

/// `pollfd` of `poll.h`.
#[repr(C)]
struct Polled {
    descriptor: c_int,
    events: c_short,
    happened: c_short,
}

/// Returns true if standard error takes a line at once, and somebody may read it.
fn has_room() -> bool {
    /// `POLLOUT` of `poll.h`. Whatever else happened (`POLLERR`, `POLLHUP`, `POLLNVAL`) means that nobody reads.
    const TAKES: c_short = 4;
    let mut polled = Polled { descriptor: STDERR, events: TAKES, happened: 0 };
    let (list, count) = (&raw mut polled, 1_usize);
    // Not through the C library's name, which is ours in a program with the preload library.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `poll`(2), which does not wait, with a list of one.
    let found = unsafe { syscall(7, list, count, 0_usize) };
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: `ppoll`(2), which does not wait, with a list of one.
    let found = unsafe { syscall(73, list, count, &raw const NO_TIME, 0_usize, 0_usize) };
    found == 1 && polled.happened == TAKES
}

/// A `timespec` of no time.
static NO_TIME: [c_long; 2] = [0, 0];

/// Writes without `SIGPIPE`: holds it back in this thread, and takes the one that the write has raised.
fn without_signal(write: impl FnOnce() -> io::Result<usize>) {
    const SIGPIPE: c_int = 13;
    const BLOCK: c_int = 0;
    const SET: c_int = 2;
    let [mut pipe, mut before, mut pending] = [const { Signals([0; 128]) }; 3];
    // SAFETY: the set is this function's own.
    unsafe { sigemptyset(&raw mut pipe) };
    // SAFETY: the set is this function's own.
    unsafe { sigaddset(&raw mut pipe, SIGPIPE) };
    // SAFETY: both sets are this function's own.
    if unsafe { pthread_sigmask(BLOCK, &raw const pipe, &raw mut before) } != 0 {
        return;
    }
    // One that was raised before is the program's. Where it was not held back it has been delivered.
    // SAFETY: the set is this function's own.
    let is_known = unsafe { sigismember(&raw const before, SIGPIPE) } == 1
        // SAFETY: the set is this function's own.
        && unsafe { sigpending(&raw mut pending) } == 0
        // SAFETY: the set is this function's own.
        && unsafe { sigismember(&raw const pending, SIGPIPE) } == 1;
    let is_broken = write().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    if is_broken && !is_known {
        // SAFETY: the set and the time are valid, and nothing is to be written.
        unsafe { sigtimedwait(&raw const pipe, core::ptr::null_mut(), &raw const NO_TIME) };
    }
    // SAFETY: the set is this function's own.
    unsafe { pthread_sigmask(SET, &raw const before, core::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_longer_than_a_pipe_takes_at_once() {
        assert_eq!(whole("a"), b"rejoin: a\n");
        for bytes in [MOST_BYTES - 9, MOST_BYTES - 8, 3 * MOST_BYTES] {
            let line = whole(&"a".repeat(bytes));
            assert_eq!((line.len(), line.last()), (MOST_BYTES, Some(&b'\n')), "{bytes}");
        }
    }

    /// The program's SIGPIPE would end this test.
    #[test]
    fn a_pipe_that_breaks_just_then_raises_no_signal() {
        unsafe extern "C" {
            fn signal(number: c_int, what: usize) -> usize;
        }
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        // SAFETY: the default, in place of what Rust's runtime has set.
        let before = unsafe { signal(13, 0) };
        without_signal(|| (&writer).write(b"a"));
        // SAFETY: what was set before.
        unsafe { signal(13, before) };
    }
}
