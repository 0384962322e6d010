//! Measuring the memory of OpenSSL's own session cache, to compare with.

use foreign_types::ForeignTypeRef;
use openssl::ssl::SslContextRef;

use crate::ffi;
use crate::memory::Memory;

/// The contents that [`InternalCache::empty`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalCache {
    /// Sessions that were in it.
    pub sessions: u64,
    /// Bytes of memory that OpenSSL freed.
    pub bytes: u64,
}

impl InternalCache {
    /// Empties a context's own cache, and counts. The bytes are zero unless [`crate::count_memory`] was called in
    /// time.
    pub fn empty(context: &SslContextRef) -> Self {
        let sessions = Self::sessions(context);
        let context = context.as_ptr();
        // SAFETY: the reference keeps the context alive; time 0 means all sessions.
        let ((), memory) = Memory::of(|| unsafe { ffi::SSL_CTX_flush_sessions(context, 0) });
        Self { sessions, bytes: memory.freed_bytes }
    }

    /// Returns the number of sessions in the cache.
    pub(crate) fn sessions(context: &SslContextRef) -> u64 {
        let (what, none) = (ffi::SSL_CTRL_SESS_NUMBER, std::ptr::null_mut());
        // SAFETY: the reference keeps the context alive; the call only reads a number.
        let number = unsafe { openssl_sys::SSL_CTX_ctrl(context.as_ptr(), what, 0, none) };
        number.max(0) as u64
    }
}
