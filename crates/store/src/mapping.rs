//! A file's bytes, mapped to be shared with other processes.
//!
//! Whoever may write to the file may also cut it short, and then the kernel stops with SIGBUS
//! whoever touches what is gone. The file's room is taken when it is made, so that a full folder cannot
//! do that, and its size is looked at when it is mapped. Later every operation begins by asking the
//! kernel whether the last page can be read ([`Mapping::notice`]), for a file is cut from its end:
//! a system call that is given an address which cannot be read says so (`EFAULT`), and no signal is
//! sent. Once it cannot, zeros take the place of the whole mapping, in which no lock is sound and
//! nothing is found. What is left is a cut between the question and the operation's end.
//!
//! The question is `rt_sigprocmask(2)` with an address and an impossible `how`: the kernel reads the
//! set first, and changes nothing. It needs no file descriptor, which a program may have closed.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rejoin_cache::{Ledger, Line};
use rejoin_tickets::TicketEvent;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};

use crate::division::Division;
use crate::lock::Lock;
use crate::trouble::{Alarm, Trouble};

/// The bytes, until it is dropped. A child process has them too.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
    pub(crate) alarm: Alarm,
}

/// What may lie in memory that others write to at the same time.
///
/// # Safety
/// Every value of its bytes is valid, and every field an atomic.
pub(crate) unsafe trait Shared: Sync {}

/// Figures about a whole cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Figures {
    pub(crate) lock_waits: AtomicU64,
    pub(crate) lock_timeouts: AtomicU64,
    pub(crate) locks_broken: AtomicU64,
    /// By event, in their order.
    pub(crate) tickets: [AtomicU64; TicketEvent::ALL.len()],
}

// SAFETY: see its fields.
unsafe impl Shared for Figures {}
// SAFETY: see its fields.
unsafe impl Shared for Lock {}
// SAFETY: its documentation says so.
unsafe impl Shared for Ledger {}

impl Mapping {
    /// Maps so many bytes of a file, which has them, and keeps them out of core dumps and, where
    /// the limit on locked memory allows, out of the swap space.
    pub(crate) fn new(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at no address that is in use.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        let start_of_bytes = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        let alarm = Alarm::default();
        let mut mapping = Self { start: start_of_bytes, bytes, is_locked: false, alarm };
        // SAFETY: the advice changes nothing in memory.
        unsafe { madvise(start, bytes, Advice::LinuxDontDump) }?;
        // SAFETY: the range is mapped.
        mapping.is_locked = unsafe { mlock(start, bytes) }.is_ok();
        Ok(mapping)
    }

    /// Whether the kernel promised this process to keep it in memory.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Gives the mapping up if its file was cut short, and tells. To be called before every operation,
    /// which it makes 0.1 to 0.3 µs longer.
    pub(crate) fn notice(&self) {
        // SAFETY: within the mapping, which is not empty.
        let last = unsafe { self.start.add(self.bytes - 1) };
        if !is_readable(last) {
            self.give_up();
        }
    }

    /// Whoever is in the middle of an operation goes on with zeros, which is no worse than what
    /// another process may write there.
    #[cold]
    fn give_up(&self) {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: it takes the place of this mapping and of nothing else, and any bytes may lie there.
        let zeros =
            unsafe { mmap_anonymous(self.start.as_ptr().cast(), self.bytes, protection, flags) };
        debug_assert!(zeros.is_ok(), "of the same size");
        self.alarm.raise(Trouble::CutShort);
    }

    /// What lies there.
    ///
    /// # Panics
    /// When it does not lie within.
    #[inline]
    pub(crate) fn at<T: Shared>(&self, offset: usize) -> &T {
        let place = self.place::<T>(offset, 1);
        // SAFETY: within the mapping, aligned, and of a type that may lie there.
        unsafe { place.as_ref() }
    }

    /// The lines that lie there.
    ///
    /// # Safety
    /// Nobody else uses them while they are lent.
    ///
    /// # Panics
    /// When they do not lie within.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "a lock sees to it that nobody else has them")]
    pub(crate) unsafe fn lines(&self, offset: usize, lines: usize) -> &mut [Line] {
        let place = self.place::<Line>(offset, lines).as_ptr();
        // SAFETY: within the mapping, aligned, plain bytes, and lent to nobody else.
        unsafe { std::slice::from_raw_parts_mut(place, lines) }
    }

    #[inline]
    fn place<T>(&self, offset: usize, count: usize) -> NonNull<T> {
        let end = count.checked_mul(size_of::<T>()).and_then(|bytes| offset.checked_add(bytes));
        assert!(end.is_some_and(|end| end <= self.bytes), "beyond the mapping");
        assert!(offset.is_multiple_of(align_of::<T>()), "between two places");
        // SAFETY: within the mapping.
        unsafe { self.start.add(offset) }.cast()
    }
}

/// Whether the kernel can read the word that ends there.
fn is_readable(last: NonNull<u8>) -> bool {
    const WORD: usize = size_of::<u64>();
    /// Neither `SIG_BLOCK`, nor `SIG_UNBLOCK`, nor `SIG_SETMASK`.
    const NO_HOW: libc::c_long = -1;
    let word = last.as_ptr().wrapping_sub(WORD - 1);
    let why = || std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
    let (before, nowhere) = (why(), std::ptr::null::<u8>());
    // SAFETY: the kernel reads the word if it can, and then refuses to do anything.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_HOW, word, nowhere, WORD) };
    let after = why();
    // SAFETY: no arguments.
    let errno = unsafe { libc::__errno_location() };
    // The program may be about to look at what its own call left there.
    // SAFETY: it is this thread's own.
    unsafe { errno.write(before) };
    after != libc::EFAULT
}

// SAFETY: the mapping belongs to no thread; what lies in it is lent as the methods say.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what was lent is gone, since it borrowed from this.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a whole mapping");
    }
}

const _: () = {
    assert!(Division::FIGURES + size_of::<Figures>() <= Division::PAGE);
    assert!(crate::head::Head::BYTES <= Division::FIGURES);
};
