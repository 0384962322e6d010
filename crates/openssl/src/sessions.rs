//! A cache, and what is needed to use it from OpenSSL's callbacks.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslOptions, SslSessionCacheMode};
use rejoin_cache::{Cache, ContextTag, Hints, IdSeal, REACHES_BACK_MS, SessionStore};
use zeroize::Zeroizing;

use crate::callbacks;
use crate::context_name::ContextName;
use crate::everywhere::Own;
use crate::session_decoder::SessionDecoder;
use crate::tickets::ContextTickets;

/// A session store for any number of `SSL_CTX`.
pub struct ServerSessions<S: ?Sized = Arc<Cache>> {
    seal: IdSeal,
    id_key: Zeroizing<[u8; 16]>,
    hints: Hints,
    decoder: SessionDecoder,
    store: S,
}

/// About how many bytes the decoded certificates of clients that resume may take in a process, if nothing else is
/// said: some 4,000 certificates. A server has several processes, each with its own. Where clients show none it is
/// nothing.
pub const CERTIFICATES_BYTES: usize = 32 * 1_024 * 1_024;

/// Whatever the store is.
pub(crate) type AnySessions = ServerSessions<dyn SessionStore + Send + Sync>;

impl<S: SessionStore + Send + Sync + 'static> ServerSessions<S> {
    /// `id_key` must be random, and the same on all servers that share sessions. The store's clock
    /// must be [`now_ms`].
    pub fn new(store: S, id_key: [u8; 16], hints: Hints) -> Arc<Self> {
        Self::with_certificates(store, id_key, hints, CERTIFICATES_BYTES)
    }

    /// As [`ServerSessions::new`], with room for about so many bytes of decoded client certificates instead of
    /// [`CERTIFICATES_BYTES`]: what was not used for longest goes. Without room they are decoded at each
    /// resumption.
    pub fn with_certificates(
        store: S,
        id_key: [u8; 16],
        hints: Hints,
        certificates_bytes: usize,
    ) -> Arc<Self> {
        // Not OpenSSL's: this may be called while a program's OpenSSL initialises itself, and this one, if it is
        // another, would load the same configuration, and wait for us. With what is not secret, whoever has
        // certificates made could at worst have them decoded more often.
        let random = RandomState::new();
        let seed = [random.hash_one(0), random.hash_one(1)];
        let decoder = SessionDecoder::new(certificates_bytes, seed);
        let (seal, id_key) = (IdSeal::new(id_key), Zeroizing::new(id_key));
        Arc::new(Self { seal, id_key, hints, decoder, store })
    }

    /// Makes a server context keep its sessions here, under the session-id context `id_context`
    /// (at most 32 bytes; nothing stands for `rejoin`): a session made in one context never resumes
    /// in another. TLS 1.3 tickets become stateful, unless [`crate::TicketKeys`] are attached too:
    /// then only TLS 1.2 clients that know no tickets have their sessions here.
    ///
    /// The context is the one a connection *begins* in: sessions are looked up before the servername
    /// callback runs. Virtual servers that are switched to there share no sessions all the same, for
    /// a session resumes only under the name that it was made under (RFC 6066, section 3). Early data is not supported: OpenSSL then resumes only what
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
        if !callbacks::has_tickets(context) {
            context.set_options(SslOptions::NO_TICKET);
        }
        let sessions: Arc<AnySessions> = Arc::<Self>::clone(self);
        callbacks::install(context, Cached { sessions, context: ContextName::new(id_context) })
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }
}

impl AnySessions {
    pub(crate) fn sessions(&self) -> &(dyn SessionStore + Send + Sync) {
        &self.store
    }

    pub(crate) fn seal(&self) -> &IdSeal {
        &self.seal
    }

    pub(crate) fn tag(&self, label: &[u8]) -> ContextTag {
        ContextName::tag(label, &self.id_key)
    }

    pub(crate) fn decoder(&self) -> &SessionDecoder {
        &self.decoder
    }

    pub(crate) fn hints(&self) -> Hints {
        self.hints
    }
}

impl<S: ?Sized> std::fmt::Debug for ServerSessions<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerSessions").field("hints", &self.hints).finish_non_exhaustive()
    }
}

/// What is attached to one context.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) cached: Option<Cached>,
    /// Stateless tickets are off, whatever the program says.
    pub(crate) is_stateful: bool,
    /// Sessions of other session-id contexts are resumed, too.
    pub(crate) is_named: bool,
    /// How long a client may go on resuming after a full handshake.
    pub(crate) resumable_for: Duration,
    pub(crate) tickets: Option<ContextTickets>,
    /// Of a context that is attached since all of the process are.
    pub(crate) own: Option<Arc<Own>>,
    /// The server's own callback, set on the context before ours.
    pub(crate) server_info: Option<crate::ffi::InfoCallback>,
}

impl Default for Attachment {
    fn default() -> Self {
        let resumable_for = crate::RESUMABLE_FOR;
        let (is_stateful, is_named, tickets, own, server_info) = (false, false, None, None, None);
        Self { cached: None, is_stateful, is_named, resumable_for, tickets, own, server_info }
    }
}

impl Attachment {
    /// Whether nothing else may be attached.
    pub(crate) fn is_settled(&self) -> bool {
        self.cached.is_some() || self.own.as_ref().is_some_and(|own| own.is_settled())
    }
}

/// One context's use of the sessions.
#[derive(Debug, Clone)]
pub(crate) struct Cached {
    pub(crate) sessions: Arc<AnySessions>,
    pub(crate) context: ContextName,
}

/// The clock of caches used from here: milliseconds since 49 days before the machine started, sleep included.
/// It never steps, and all processes share it.
pub fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    REACHES_BACK_MS + now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// The `SSL_CTX` under a builder.
pub(crate) fn raw(context: &SslContextBuilder) -> *mut openssl_sys::SSL_CTX {
    context.as_ptr()
}
