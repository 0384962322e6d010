//! A file's bytes, mapped to be shared with other processes.
//!
//! A process that may write to the file may also cut it short. The kernel then stops any process that touches the
//! missing part (SIGBUS). The file's room is reserved when it is made, so that a full folder cannot have this effect,
//! and its size is checked when it is mapped. Later every operation begins by asking the kernel whether the last page
//! can be read ([`Mapping::notice`]), because a file is cut from its end: a system call that is given an unreadable
//! address fails (`EFAULT`), and no signal is sent. Once the page is unreadable, zeros replace the whole mapping. In
//! these no lock is sound and nothing is found. The only gap is a cut between the question and the operation's end.
//!
//! A file that was cut and made long again has a last page, of zeros, but perhaps no room for the others. So its last
//! word is a mark, which is not zero in a whole file. Files of older versions have none: who opens one reserves its room
//! once more, and marks it.
//!
//! The question is `rt_sigprocmask(2)` with an address and an impossible `how`: the kernel reads the
//! set first, and changes nothing. It needs no file descriptor, which a program may have closed.

use rejoin_cache::{Ledger, Line};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::folder::reserve;
use crate::lock::Lock;
use crate::patience::Patience;
use crate::trouble::{Alarm, Trouble};

/// The mapped bytes, until it is dropped. A child process has them too.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
    /// False for a file that ends where others have their mark.
    is_marked: bool,
    pub(crate) alarm: Alarm,
    pub(crate) patience: Patience,
}

/// The least size of a page.
const PAGE_BYTES: usize = 4096;

/// A type that may lie in memory to which other processes write at the same time.
///
/// # Safety
/// Every value of its bytes is valid, and every field an atomic.
pub(crate) unsafe trait Shared: Sync {}

// SAFETY: every field is an atomic.
unsafe impl Shared for Lock {}
// SAFETY: every field is an atomic, as its documentation promises.
unsafe impl Shared for Ledger {}
// SAFETY: an atomic.
unsafe impl Shared for AtomicU64 {}

impl Mapping {
    /// The mark of a whole file, which is its last word.
    pub(crate) const MARK: u64 = u64::from_ne_bytes(*b"rejoin\x00\x02");
    pub(crate) const MARK_BYTES: usize = size_of::<u64>();

    /// Maps the first `bytes` of a file, which must have them, and of which the last word `is_marked` or has no meaning.
    /// Keeps them out of core dumps and, where the limit on locked memory allows, out of the swap space.
    ///
    /// # Errors
    /// [`Errno::NOSPC`] and others: a file without a mark has not all of its room, and cannot get it.
    pub(crate) fn new(file: impl AsFd, bytes: usize, is_marked: bool) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at no address that is in use.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) }?;
        let start_of_bytes = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        let (alarm, patience) = (Alarm::default(), Patience::default());
        let mut mapping =
            Self { start: start_of_bytes, bytes, is_locked: false, is_marked, alarm, patience };
        // SAFETY: the advice changes nothing in memory.
        unsafe { madvise(start, bytes, Advice::LinuxDontDump) }?;
        // SAFETY: the range is mapped.
        mapping.is_locked = unsafe { mlock(start, bytes) }.is_ok();
        mapping.ensure_mark(file)?;
        Ok(mapping)
    }

    /// Marks a file that an older version made, or that was cut and made long again, once it has all of its room.
    fn ensure_mark(&self, file: impl AsFd) -> Result<(), Errno> {
        if self.is_whole() {
            return Ok(());
        }
        // A file that is cut meanwhile must not become longer by it.
        reserve(file, FallocateFlags::KEEP_SIZE, self.bytes as u64)?;
        if self.is_marked && self.is_end_readable() {
            self.mark().store(Self::MARK, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns true if the kernel promised this process to keep the bytes in memory.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Gives the mapping up and raises the alarm if its file was cut short. To be called before every operation,
    /// which takes 0.1 to 0.3 µs longer by it, and after every sleep in one.
    pub(crate) fn notice(&self) {
        if !self.is_whole() && !self.alarm.has_raised(Trouble::CutShort) {
            self.give_up();
        }
    }

    /// Returns false if the file was cut since it was marked.
    #[inline]
    fn is_whole(&self) -> bool {
        self.is_end_readable() && (!self.is_marked || self.mark().load(Ordering::Relaxed) != 0)
    }

    #[inline]
    fn is_end_readable(&self) -> bool {
        // SAFETY: within the mapping, which is not empty.
        is_readable(unsafe { self.start.add(self.bytes - 1) })
    }

    #[inline]
    fn mark(&self) -> &AtomicU64 {
        self.at(self.bytes - Self::MARK_BYTES)
    }

    /// Replaces the mapping by zeros. An operation under way goes on with these, which are no worse than bytes that
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

    /// Returns true if a part of the file has its room in memory, or got it now: a part that was cut and is there again
    /// has none, and to write to it while the folder is full would stop the process. Linux tells since 5.14.
    pub(crate) fn has_room(&self, offset: usize, bytes: usize) -> bool {
        let start = offset / PAGE_BYTES * PAGE_BYTES;
        let pages = self.place::<u8>(start, offset + bytes - start).as_ptr();
        let length = offset + bytes - start;
        // SAFETY: within the mapping, of which it touches every page and changes nothing.
        unsafe { madvise(pages.cast(), length, Advice::LinuxPopulateWrite) }.is_ok()
    }

    /// Returns the value at an offset.
    ///
    /// # Panics
    /// If it does not lie within the mapping.
    #[inline]
    pub(crate) fn at<T: Shared>(&self, offset: usize) -> &T {
        let place = self.place::<T>(offset, 1);
        // SAFETY: within the mapping, aligned, and of a type that may lie there.
        unsafe { place.as_ref() }
    }

    /// Lends lines from an offset on.
    ///
    /// # Safety
    /// Nobody else uses them while they are lent.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
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

/// Returns true if the kernel can read the word that ends there.
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
    // The program may be about to read the `errno` of a call of its own.
    // SAFETY: the variable is this thread's own.
    unsafe { errno.write(before) };
    after != libc::EFAULT
}

// SAFETY: the mapping belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: shared values are atomics, and `lines` makes its callers see to it that they are alone.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing is lent any more, because it borrowed from the mapping.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a whole mapping");
    }
}
