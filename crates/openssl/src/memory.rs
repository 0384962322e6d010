//! Counting the memory that OpenSSL allocates and frees.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_char, c_int, c_void, size_t};

use crate::ffi;

/// The number of measurements under way.
static COUNTING: AtomicU64 = AtomicU64::new(0);
static ALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);
static FREED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Amounts of memory, including the allocator's own word in front of every block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Bytes that were allocated.
    pub allocated_bytes: u64,
    /// Bytes that were freed.
    pub freed_bytes: u64,
}

impl Memory {
    /// Runs `work`, and counts the memory that OpenSSL allocates and frees meanwhile, in all threads. The counts are
    /// zero unless [`count_memory`] was called in time.
    pub fn of<T>(work: impl FnOnce() -> T) -> (T, Self) {
        let before = Self::so_far();
        COUNTING.fetch_add(1, Ordering::Relaxed);
        let done = work();
        COUNTING.fetch_sub(1, Ordering::Relaxed);
        let after = Self::so_far();
        let allocated_bytes = after.allocated_bytes - before.allocated_bytes;
        (done, Self { allocated_bytes, freed_bytes: after.freed_bytes - before.freed_bytes })
    }

    fn so_far() -> Self {
        let allocated_bytes = ALLOCATED_BYTES.load(Ordering::Relaxed);
        Self { allocated_bytes, freed_bytes: FREED_BYTES.load(Ordering::Relaxed) }
    }
}

/// Lets [`Memory`] count. Works only before OpenSSL's first allocation in the process; returns whether it was in
/// time.
pub fn count_memory() -> bool {
    // SAFETY: the three functions keep the contract of malloc, realloc and free; OpenSSL refuses
    // them once it has allocated anything.
    unsafe { ffi::CRYPTO_set_mem_functions(allocate, reallocate, free) == 1 }
}

/// # Safety
/// `memory` came from malloc or realloc, or is null.
unsafe fn count(memory: *mut c_void, sum: &AtomicU64) {
    if !memory.is_null() && COUNTING.load(Ordering::Relaxed) > 0 {
        // SAFETY: the caller vouches for `memory`.
        let bytes = unsafe { libc::malloc_usable_size(memory) };
        // The allocator's own word in front of every block.
        let with_header = bytes + size_of::<usize>();
        sum.fetch_add(with_header as u64, Ordering::Relaxed);
    }
}

unsafe extern "C" fn allocate(bytes: size_t, _file: *const c_char, _line: c_int) -> *mut c_void {
    // OpenSSL expects a null pointer for zero bytes.
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: any size may be asked for.
    let memory = unsafe { libc::malloc(bytes) };
    // SAFETY: just allocated.
    unsafe { count(memory, &ALLOCATED_BYTES) };
    memory
}

unsafe extern "C" fn reallocate(
    memory: *mut c_void,
    bytes: size_t,
    _file: *const c_char,
    _line: c_int,
) -> *mut c_void {
    // SAFETY: `memory` came from the functions here.
    unsafe { count(memory, &FREED_BYTES) };
    // SAFETY: `memory` came from malloc or realloc, and OpenSSL gives it up.
    let memory = unsafe { libc::realloc(memory, bytes) };
    // SAFETY: just allocated, or null.
    unsafe { count(memory, &ALLOCATED_BYTES) };
    memory
}

unsafe extern "C" fn free(memory: *mut c_void, _file: *const c_char, _line: c_int) {
    // SAFETY: `memory` came from malloc or realloc.
    unsafe { count(memory, &FREED_BYTES) };
    // SAFETY: `memory` came from malloc or realloc, and OpenSSL gives it up.
    unsafe { libc::free(memory) }
}
