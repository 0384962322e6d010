//! A session store, and the parts needed to use it from OpenSSL's callbacks.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use rejoin_cache::{Cache, ContextTag, Hints, IdSeal, SessionStore, SourceBy};
use zeroize::Zeroizing;

use crate::context_name::ContextName;
use crate::session_decoder::SessionDecoder;
use crate::source::Sourceless;

/// A session store for any number of `SSL_CTX`.
pub struct ServerSessions<S: ?Sized = Arc<Cache>> {
    seal: IdSeal,
    id_key: Zeroizing<[u8; 16]>,
    hints: Hints,
    decoder: SessionDecoder,
    sourceless: Sourceless,
    store: S,
}

/// The default room for decoded client certificates, in bytes, per process: about 4,000 certificates. Nothing is used
/// where clients show no certificates.
pub const CERTIFICATES_BYTES: usize = 32 * 1_024 * 1_024;

/// Sessions in a store of any type.
pub(crate) type AnySessions = ServerSessions<dyn SessionStore + Send + Sync>;

impl<S: SessionStore + Send + Sync + 'static> ServerSessions<S> {
    /// `id_key` must be random, and the same on all servers that share sessions. The store's clock
    /// must be [`crate::now_ms`].
    pub fn new(store: S, id_key: [u8; 16], hints: Hints) -> Arc<Self> {
        Self::with_certificates(store, id_key, hints, CERTIFICATES_BYTES)
    }

    /// Like [`ServerSessions::new`], with room for about `certificates_bytes` of decoded client certificates instead
    /// of [`CERTIFICATES_BYTES`]. The least recently used ones are dropped first. With 0 bytes, each resumption
    /// decodes its certificate.
    pub fn with_certificates(
        store: S,
        id_key: [u8; 16],
        hints: Hints,
        certificates_bytes: usize,
    ) -> Arc<Self> {
        // Not OpenSSL's random numbers: this may run while a program's OpenSSL initialises itself, and if ours is
        // another copy, it would load the same configuration, and wait for us. The seed need not be secret: a
        // client that chooses its certificates could at worst have them decoded more often.
        let random = RandomState::new();
        let seed = [random.hash_one(0), random.hash_one(1)];
        let decoder = SessionDecoder::new(certificates_bytes, seed);
        let (seal, id_key) = (IdSeal::new(id_key), Zeroizing::new(id_key));
        let sourceless = Sourceless::default();
        Arc::new(Self { seal, id_key, hints, decoder, sourceless, store })
    }

    /// Calls `tell` once, at the first session of a client whose source is not known, if the store bounds what one source
    /// can take.
    pub fn when_sourceless(&self, tell: impl Fn(SourceBy) + Send + Sync + 'static) {
        self.sourceless.tell_by(tell);
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

    pub(crate) fn sourceless(&self) -> &Sourceless {
        &self.sourceless
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

/// One context's use of the sessions.
#[derive(Debug, Clone)]
pub(crate) struct Cached {
    pub(crate) sessions: Arc<AnySessions>,
    pub(crate) context: ContextName,
}
