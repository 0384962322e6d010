//! Measuring what OpenSSL's own session cache weighs, to compare with.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foreign_types::ForeignTypeRef;
use libc::{c_char, c_int, c_void, size_t};
use openssl::ssl::SslContextRef;

use crate::ffi;

static COUNTING: AtomicBool = AtomicBool::new(false);
static FREED_BYTES: AtomicU64 = AtomicU64::new(0);

/// What [`InternalCache::empty`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalCache {
    /// Sessions that were in it.
    pub sessions: u64,
    /// Bytes of memory they gave back.
    pub bytes: u64,
}

impl InternalCache {
    /// Empties a context's own cache, and counts. Zero bytes unless [`count_frees`] was called
    /// in time.
    pub fn empty(context: &SslContextRef) -> Self {
        let context = context.as_ptr();
        // SAFETY: the reference keeps the context alive; the call only reads a number.
        let sessions = unsafe {
            openssl_sys::SSL_CTX_ctrl(context, ffi::SSL_CTRL_SESS_NUMBER, 0, std::ptr::null_mut())
        };
        FREED_BYTES.store(0, Ordering::Relaxed);
        COUNTING.store(true, Ordering::Relaxed);
        // SAFETY: as above; time 0 means all sessions.
        unsafe { ffi::SSL_CTX_flush_sessions(context, 0) };
        COUNTING.store(false, Ordering::Relaxed);
        Self { sessions: sessions.max(0) as u64, bytes: FREED_BYTES.load(Ordering::Relaxed) }
    }
}

/// Lets [`InternalCache::empty`] count the bytes OpenSSL frees. Works only before OpenSSL's first
/// allocation in the process; returns whether it was in time.
pub fn count_frees() -> bool {
    // SAFETY: the three functions keep the contract of malloc, realloc and free; OpenSSL refuses
    // them once it has allocated anything.
    unsafe { ffi::CRYPTO_set_mem_functions(allocate, reallocate, free) == 1 }
}

unsafe extern "C" fn allocate(bytes: size_t, _file: *const c_char, _line: c_int) -> *mut c_void {
    // OpenSSL expects nothing for nothing.
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: any size may be asked for.
    unsafe { libc::malloc(bytes) }
}

unsafe extern "C" fn reallocate(
    memory: *mut c_void,
    bytes: size_t,
    _file: *const c_char,
    _line: c_int,
) -> *mut c_void {
    // SAFETY: `memory` came from the functions here.
    unsafe { libc::realloc(memory, bytes) }
}

unsafe extern "C" fn free(memory: *mut c_void, _file: *const c_char, _line: c_int) {
    if COUNTING.load(Ordering::Relaxed) && !memory.is_null() {
        // SAFETY: `memory` came from malloc or realloc.
        let bytes = unsafe { libc::malloc_usable_size(memory) };
        // The allocator's own word in front of every block.
        let with_header = bytes + size_of::<usize>();
        FREED_BYTES.fetch_add(with_header as u64, Ordering::Relaxed);
    }
    // SAFETY: as above.
    unsafe { libc::free(memory) }
}
