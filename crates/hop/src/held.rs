//! Descriptors that Rejoin holds in a program that knows nothing of them.
//!
//! The program, or a child that it forked, may close all descriptors that it does not know (`closefrom`), and open files
//! of its own. They then have the numbers that Rejoin believes its own. So each descriptor is compared with what it was
//! before it is used or closed, and one that refers to something else is left alone.

use std::os::fd::{AsFd, OwnedFd};

use rejoin_client::hop::{Hop, Requested};
use rustix::fs::fstat;

/// The file that a descriptor refers to: the device, and the inode on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    /// Returns what a descriptor refers to, or `None` if it is not open.
    pub(crate) fn of(descriptor: impl AsFd) -> Option<Self> {
        let found = fstat(descriptor).ok()?;
        Some(Self { device: found.st_dev, inode: found.st_ino })
    }
}

/// Something that closes a descriptor when it is dropped.
pub(crate) trait Closes: AsFd {}

impl Closes for OwnedFd {}
impl Closes for Hop {}
impl Closes for Requested {}

/// A descriptor, and the file that it referred to when it was opened.
#[derive(Debug)]
pub(crate) struct Held<T: Closes> {
    /// Empty after [`take`](Self::take).
    inner: Option<T>,
    identity: Option<Identity>,
}

impl<T: Closes> Held<T> {
    /// Holds something whose descriptor was opened just now.
    pub(crate) fn new(inner: T) -> Self {
        let identity = Identity::of(&inner);
        Self { inner: Some(inner), identity }
    }

    fn is_foreign(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| Identity::of(inner) != self.identity)
    }

    /// Returns it, or `None` if the descriptor is the program's now.
    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_foreign() { None } else { self.inner.as_ref() }
    }

    /// Returns the same, to be changed.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if self.is_foreign() { None } else { self.inner.as_mut() }
    }

    /// Takes it out, unless the descriptor is the program's now.
    pub(crate) fn take(mut self) -> Option<T> {
        if self.is_foreign() { None } else { self.inner.take() }
    }
}

impl<T: Closes> Drop for Held<T> {
    fn drop(&mut self) {
        if self.is_foreign() {
            // Its memory is lost with it, and nothing is closed.
            std::mem::forget(self.inner.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

    use super::*;

    fn is_open(descriptor: RawFd) -> bool {
        // SAFETY: the descriptor is only asked about.
        Identity::of(unsafe { BorrowedFd::borrow_raw(descriptor) }).is_some()
    }

    #[test]
    fn what_is_the_programs_is_left_alone() {
        let held = || {
            Held::new(OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket")))
        };
        let number = |held: &Held<OwnedFd>| held.inner.as_ref().expect("held").as_raw_fd();
        let (ours, theirs, taken) = (held(), held(), held());
        let numbers = [&ours, &theirs, &taken].map(number);
        let file = std::fs::File::open("/dev/null").expect("a file");
        for number in &numbers[1..] {
            // SAFETY: both are open.
            unsafe { libc::dup2(file.as_raw_fd(), *number) };
        }
        assert!(theirs.get().is_none() && taken.take().is_none());
        drop((ours, theirs));
        assert_eq!(numbers.map(is_open)[1..], [true; 2]);
        for number in &numbers[1..] {
            // SAFETY: it is this test's own.
            unsafe { libc::close(*number) };
        }
        let gone = held();
        assert!(gone.get().is_some());
        // SAFETY: the same.
        unsafe { libc::close(number(&gone)) };
        assert!(gone.get().is_none());
    }
}
