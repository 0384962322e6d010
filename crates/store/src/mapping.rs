//! A file's bytes, mapped to be shared with other processes.
//!
//! Whoever may write to the file may also cut it short, and then the kernel stops with SIGBUS
//! whoever touches what is gone. Its size is looked at when it is mapped, and its room taken when
//! it is made, so that a full folder cannot do that; nothing more can be done about a file with a
//! name.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rejoin_cache::{Ledger, Line};
use rejoin_tickets::TicketEvent;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, munmap};

use crate::division::Division;
use crate::lock::Lock;

/// The bytes, until it is dropped. A child process has them too.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    is_locked: bool,
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
        let mut mapping = Self { start: start_of_bytes, bytes, is_locked: false };
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
