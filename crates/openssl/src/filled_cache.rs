//! OpenSSL's own session cache, full of real sessions, to compare with.

use std::ffi::c_uint;

use foreign_types::ForeignType;
use libc::c_long;
use openssl::error::ErrorStack;
use openssl::ssl::{SslContext, SslContextBuilder, SslSession, SslSessionCacheMode};

use crate::internal_cache::InternalCache;
use crate::{ffi, session_decoder};

/// A context that keeps sessions itself, and the session that the others are copies of.
pub struct FilledCache {
    context: SslContext,
    session: SslSession,
}

/// A session that no other cache has.
pub struct SessionCopy {
    session: SslSession,
    /// The address of the only context that it may be in: sessions are links of their context's list.
    of: usize,
}

impl FilledCache {
    /// Makes a cache for `most_sessions`. `session` is a server's, of any context.
    pub fn new(mut context: SslContextBuilder, session: SslSession, most_sessions: i32) -> Self {
        context.set_session_cache_mode(SslSessionCacheMode::SERVER);
        context.set_session_cache_size(most_sessions);
        Self { context: context.build(), session }
    }

    /// Makes a copy of the session with an id of its own, a time of `made_s` and a lifetime of `lifetime_s`.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory.
    pub fn copy(
        &self,
        id: &[u8; 32],
        made_s: i64,
        lifetime_s: i64,
    ) -> Result<SessionCopy, ErrorStack> {
        let copy = session_decoder::duplicate(&self.session)?;
        let session = copy.as_ptr();
        // SAFETY: the copy is valid and nobody else's; the id is as long as stated, and copied.
        unsafe { ffi::SSL_SESSION_set1_id(session, id.as_ptr(), id.len() as c_uint) };
        // SAFETY: the copy is valid and nobody else's.
        unsafe { ffi::SSL_SESSION_set_time(session, made_s as c_long) };
        // SAFETY: the copy is valid and nobody else's.
        unsafe { ffi::SSL_SESSION_set_timeout(session, lifetime_s as c_long) };
        Ok(SessionCopy { session: copy, of: self.context.as_ptr().addr() })
    }

    /// Inserts a copy (`SSL_CTX_add_session(3)`). Returns false if the cache has it already, or another cache made it.
    pub fn insert(&self, copy: &SessionCopy) -> bool {
        // SAFETY: no other context has it, and it was made by a server of the same kind.
        copy.of == self.context.as_ptr().addr()
            && unsafe { self.context.add_session(&copy.session) }
    }

    /// Returns the number of sessions in the cache.
    pub fn sessions(&self) -> u64 {
        InternalCache::sessions(&self.context)
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
