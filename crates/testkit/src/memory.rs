//! The heap that one thread uses.
//!
//! A test program installs [`Counting`]:
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: rejoin_testkit::memory::Counting = rejoin_testkit::memory::Counting;
//! ```
//!
//! Counts are per thread, so that tests which run at the same time do not see each other. Memory
//! that one thread takes and another gives back counts for both, once each way.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which also counts what each thread has in use.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // A thread that ends may give memory back after its counters are gone.
    let _ = IN_USE.try_with(|in_use| {
        in_use.set(in_use.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(in_use.get())));
    });
}

fn size(layout: Layout) -> isize {
    layout.size().try_into().expect("a layout's size fits, by its own contract")
}

// SAFETY: every call is passed on to the system's allocator unchanged. `realloc` is the trait's
// own, so that both halves of a copy count.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(size(layout));
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        add(-size(layout));
        // SAFETY: the caller keeps the contract of `dealloc`, and `place` came from the system.
        unsafe { System.dealloc(place, layout) }
    }
}

/// The most bytes that this thread had in use beyond those at the start, while `work` ran.
///
/// # Panics
///
/// If [`Counting`] is not the program's allocator.
pub fn peak_bytes(work: impl FnOnce()) -> usize {
    let before = IN_USE.get();
    PEAK.set(before);
    drop(std::hint::black_box(Box::new(0_u64)));
    assert!(PEAK.get() > before, "the program's allocator does not count");
    work();
    usize::try_from(PEAK.get() - before).expect("a peak is no less than its start")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn the_peak_counts_what_was_in_use_at_once() {
        let peak = peak_bytes(|| {
            for _ in 0..10 {
                drop(std::hint::black_box(vec![0_u8; 1 << 20]));
            }
        });
        assert!((1 << 20..2 << 20).contains(&peak), "{peak}");
    }
}
