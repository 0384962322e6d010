//! Reading that Ctrl-C ends, even while it waits.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use rejoin_sim::Progress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// A reader that ends at Ctrl-C as at the end of its input.
pub(crate) struct Stoppable<'a> {
    input: File,
    stop: &'a Progress,
    /// Is told how many bytes were read.
    read: Box<dyn Fn(u64) + 'a>,
}

impl<'a> Stoppable<'a> {
    /// Opens a file, or a pipe, for whose writer the reader waits.
    pub(crate) fn open(
        path: &Path,
        stop: &'a Progress,
        read: impl Fn(u64) + 'a,
    ) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let input = File::options().read(true).custom_flags(flags).open(path)?;
        Ok(Self { input, stop, read: Box::new(read) })
    }

    /// Reads standard input, without the buffer of `Stdin`: what it holds would be waited for.
    pub(crate) fn standard_input(stop: &'a Progress, read: impl Fn(u64) + 'a) -> io::Result<Self> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Self { input, stop, read: Box::new(read) })
    }
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = loop {
            if !is_readable(self.input.as_fd(), self.stop, None)? {
                return Ok(0);
            }
            match self.input.read(buffer) {
                // Another reader took it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read?,
            }
        };
        (self.read)(length as u64);
        Ok(length)
    }
}

/// Waits until there is something to read. Returns false if Ctrl-C or the end of the time came first.
pub(crate) fn is_readable(
    input: impl AsFd,
    stop: &Progress,
    until: Option<Instant>,
) -> io::Result<bool> {
    const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !stop.stopped() && until.is_none_or(|until| Instant::now() < until) {
        let mut wanted = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut wanted, Some(&LOOK_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}
