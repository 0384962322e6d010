//! A cache, and what is needed to use it from OpenSSL's callbacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslOptions, SslSessionCacheMode};
use rejoin_cache::{Cache, ContextTag, Hints, IdSeal};

use crate::callbacks;

/// A session cache for any number of `SSL_CTX`.
#[derive(Debug)]
pub struct ServerSessions {
    cache: Arc<Cache>,
    seal: IdSeal,
    hints: Hints,
    rejected: AtomicU64,
}

impl ServerSessions {
    /// `id_key` must be random, and the same on all servers that share sessions. The cache must
    /// have been made with [`now_ms`] as its clock.
    pub fn new(cache: Arc<Cache>, id_key: [u8; 16], hints: Hints) -> Arc<Self> {
        let seal = IdSeal::new(id_key);
        Arc::new(Self { cache, seal, hints, rejected: AtomicU64::new(0) })
    }

    /// Makes a server context keep its sessions here, under the session-id context `id_context`
    /// (at most 32 bytes; nothing stands for `rejoin`): a session made in one context never resumes
    /// in another. TLS 1.3 tickets become stateful.
    ///
    /// The context is the one a connection *begins* in. Sessions are looked up before the servername
    /// callback runs, so virtual servers that are switched to there share the sessions of the
    /// context they are switched from; where they differ in what they ask of clients (certificates),
    /// give them listeners of their own. Early data is not supported: OpenSSL then resumes only what
    /// is in its own cache.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory or `id_context` is too long.
    pub fn attach(
        self: &Arc<Self>,
        context: &mut SslContextBuilder,
        id_context: &[u8],
    ) -> Result<(), ErrorStack> {
        let id_context = if id_context.is_empty() { b"rejoin" } else { id_context };
        context.set_session_id_context(id_context)?;
        context
            .set_session_cache_mode(SslSessionCacheMode::SERVER | SslSessionCacheMode::NO_INTERNAL);
        context.set_options(SslOptions::NO_TICKET);
        // The hash only tells contexts apart within this process's cache: no secret is needed.
        let tag = ContextTag::of(id_context, &[0; 16]);
        let sessions = Arc::clone(self);
        callbacks::install(context, Attachment { sessions, context: tag, server_info: None })
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Sessions that were found here and that OpenSSL then declined to resume, for instance
    /// because the cipher is no longer allowed.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(crate) fn record_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn seal(&self) -> &IdSeal {
        &self.seal
    }

    pub(crate) fn hints(&self) -> Hints {
        self.hints
    }
}

/// One context's use of the sessions.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) sessions: Arc<ServerSessions>,
    pub(crate) context: ContextTag,
    /// The server's own callback, set on the context before ours.
    pub(crate) server_info: Option<crate::ffi::InfoCallback>,
}

/// The clock of caches used from here: milliseconds since the machine started, sleep included.
/// It never steps, and all processes share it.
pub fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// The `SSL_CTX` under a builder.
pub(crate) fn raw(context: &SslContextBuilder) -> *mut openssl_sys::SSL_CTX {
    context.as_ptr()
}
