//! OpenSSL's own session cache, full of real sessions, to compare with.

use std::ffi::c_uint;

use foreign_types::ForeignType;
use libc::c_long;
use openssl::error::ErrorStack;
use openssl::ssl::{SslContext, SslContextBuilder, SslSession, SslSessionCacheMode};

use crate::ffi;

/// A context that keeps sessions itself, and a session that others are copies of.
pub struct FilledCache {
    context: SslContext,
    session: SslSession,
}

/// A session that no cache has.
pub struct SessionCopy(SslSession);

impl FilledCache {
    /// For so many sessions. `session` is a server's, of any context.
    pub fn new(mut context: SslContextBuilder, session: SslSession, most_sessions: i32) -> Self {
        context.set_session_cache_mode(SslSessionCacheMode::SERVER);
        context.set_session_cache_size(most_sessions);
        Self { context: context.build(), session }
    }

    /// A copy with an id of its own, made at `made_s` for `lifetime_s`.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory.
    pub fn copy(
        &self,
        id: &[u8; 32],
        made_s: i64,
        lifetime_s: i64,
    ) -> Result<SessionCopy, ErrorStack> {
        // SAFETY: a valid session, which is only read.
        let copy = unsafe { ffi::SSL_SESSION_dup(self.session.as_ptr()) };
        if copy.is_null() {
            return Err(ErrorStack::get());
        }
        // SAFETY: the copy is valid, and nobody else has it.
        let copy = SessionCopy(unsafe { SslSession::from_ptr(copy) });
        let session = copy.0.as_ptr();
        // SAFETY: as above; the id is as long as it says, and copied.
        unsafe { ffi::SSL_SESSION_set1_id(session, id.as_ptr(), id.len() as c_uint) };
        // SAFETY: as above.
        unsafe { ffi::SSL_SESSION_set_time(session, made_s as c_long) };
        // SAFETY: as above.
        unsafe { ffi::SSL_SESSION_set_timeout(session, lifetime_s as c_long) };
        Ok(copy)
    }

    /// Whether the cache took it (`SSL_CTX_add_session(3)`).
    pub fn insert(&self, session: &SessionCopy) -> bool {
        // SAFETY: no other context has it, and it was made by a server of the same kind.
        unsafe { self.context.add_session(&session.0) }
    }

    /// Sessions that are in it.
    pub fn sessions(&self) -> u64 {
        let (what, none) = (ffi::SSL_CTRL_SESS_NUMBER, std::ptr::null_mut());
        // SAFETY: the context is valid; the call only reads a number.
        let number = unsafe { openssl_sys::SSL_CTX_ctrl(self.context.as_ptr(), what, 0, none) };
        number.max(0) as u64
    }
}

impl std::fmt::Debug for FilledCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilledCache").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SessionCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionCopy(…)")
    }
}
