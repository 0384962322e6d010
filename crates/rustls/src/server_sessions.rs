//! The session store.

use std::sync::Arc;

use rejoin_cache::{
    Cache, ContextTag, Hints, IdSeal, Issued, SecretBytes, SessionId, SessionStore, Visit,
};
use rejoin_store::{Store, Tiered, now_ms};
use rustls::HandshakeKind;
use rustls::server::StoresServerSessions;
use zeroize::Zeroizing;

use crate::Context;
use crate::clock::now_s;
use crate::connection::{self, Connection, State};
use crate::session_value;

/// A session store of any kind.
pub(crate) type AnyStore = dyn SessionStore + Send + Sync;

/// Sessions of rustls servers, in a cache of this process or in one that processes and machines share.
pub struct ServerSessions {
    store: Arc<AnyStore>,
    lifetime_ms: u64,
    hints: Hints,
    tag: ContextTag,
    /// Sessions in memory that others can write to.
    shared: Option<Shared>,
}

/// Distinguishes our sessions in shared memory from those of others.
struct Shared {
    context: Context,
    seal: IdSeal,
    label: Box<[u8]>,
}

impl ServerSessions {
    /// The most sessions that are looked for on one connection in a scope. A ClientHello can present hundreds.
    const MOST_LOOKUPS: u32 = 8;

    /// Makes a store that forgets sessions `lifetime_ms` after they were made. Where hints are expected, a
    /// connection outside of any scope does not wait for one. The cache must have been made
    /// with [`now_ms`] as its clock, and serves one `ServerConfig`: contexts are not told apart within it. A client makes
    /// a full handshake after seven days, however often it resumed; a handshake outside of [`Connection::scope`] counts as
    /// a full one.
    pub fn new(cache: Arc<Cache>, lifetime_ms: u64, hints: Hints) -> Arc<Self> {
        Arc::new(Self { store: cache, lifetime_ms, hints, tag: ContextTag(0), shared: None })
    }

    /// Makes a store in memory that processes share, or that belongs to a cluster. All configurations with this context
    /// resume each other's sessions.
    ///
    /// If the memory belongs to a cluster, a session that another machine made is waited for: for 5 ms at most, and a
    /// thread waits for a quarter of its time ([`Tiered`]).
    pub fn shared(
        store: Arc<Store>,
        context: Context,
        lifetime_ms: u64,
        hints: Hints,
    ) -> Arc<Self> {
        let (label, id_key) = (context.label(), Zeroizing::new(*store.id_key()));
        let tag = Context::tag(&label, &id_key);
        let (seal, label) = (IdSeal::new(*id_key), label.as_bytes().into());
        let shared = Some(Shared { context, seal, label });
        Arc::new(Self { store: Arc::new(Tiered::new(store)), lifetime_ms, hints, tag, shared })
    }

    /// Counts the handshake of a connection. The acceptor of the feature `tokio` does so for every one.
    pub fn record(&self, connection: &Connection, kind: HandshakeKind) {
        let is_resumed = kind == HandshakeKind::Resumed;
        self.store.record_handshake(is_resumed);
        if !is_resumed && connection.is_known() {
            self.store.record_rejected();
        }
    }

    fn read(
        &self,
        key: &[u8],
        found: impl FnOnce(&mut Visit, &SessionId, &mut SecretBytes) -> bool,
    ) -> Option<Vec<u8>> {
        let id = SessionId::new(key).ok()?;
        let connection = connection::current().unwrap_or_default();
        connection.uses(&self.store);
        connection.with(|state| {
            state.lookups += 1;
            if state.lookups > Self::MOST_LOOKUPS {
                return None;
            }
            let mut value = SecretBytes::default();
            let is_found = found(&mut state.visit, &id, &mut value);
            is_found.then(|| self.opened(&id, &value, state)).flatten()
        })
    }

    /// Returns the session that a value holds, which rustls owns from here on.
    fn opened(&self, id: &SessionId, value: &[u8], state: &mut State) -> Option<Vec<u8>> {
        let value = match &self.shared {
            Some(Shared { seal, label, .. }) => seal.open_value(id, label, value)?,
            None => value,
        };
        let (authenticated_s, session) = value.split_first_chunk()?;
        let authenticated_s = u32::from_le_bytes(*authenticated_s).into();
        let now_s = now_s();
        let may = match &self.shared {
            Some(Shared { context, .. }) => {
                context.resumes(session, now_s) && !context.is_overdue(authenticated_s, now_s)
            }
            None => {
                !session_value::has_expired(session, now_s)
                    && !Context::is_overdue_anywhere(authenticated_s, now_s)
            }
        };
        if !may {
            self.store.record_rejected();
            return None;
        }
        state.authenticated_s = Some(authenticated_s);
        Some(session.to_vec())
    }

    /// Returns the value to be stored for a session. `None` if it cannot be one of the context.
    fn sealed(&self, id: &SessionId, session: &[u8], state: &State) -> Option<SecretBytes> {
        let authenticated_s = state.authenticated_s.unwrap_or_else(now_s) as u32;
        let mut value = SecretBytes::from(authenticated_s.to_le_bytes().to_vec());
        value.extend(session);
        if let Some(Shared { context, seal, label }) = &self.shared {
            if !context.allows(session) {
                return None;
            }
            seal.seal_value(id, label, &mut value);
        }
        Some(value)
    }
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let (value, id) = (Zeroizing::new(value), SessionId::new(&key));
        let Ok(id) = id else { return false };
        let scope = connection::current();
        let waits = self.hints == Hints::Expected && scope.is_some();
        let connection = scope.unwrap_or_default();
        connection.uses(&self.store);
        connection.with(|state| {
            let Some(value) = self.sealed(&id, &value, state) else { return false };
            if let Some(known) = &state.source {
                state.visit.comes_from(self.store.source(known));
            }
            let now_ms = now_ms();
            let expires_ms = now_ms.saturating_add(self.lifetime_ms);
            let issued = Issued { id, value, expires_ms, context: self.tag };
            if waits {
                state.visit.issue_later(&*self.store, now_ms, issued);
            } else {
                state.visit.issue(&*self.store, now_ms, &issued);
            }
            true
        })
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.read(key, |visit, id, value| {
            visit.look_up(&*self.store, now_ms(), id, self.tag, value)
        })
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.read(key, |visit, id, value| visit.take(&*self.store, now_ms(), id, self.tag, value))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for ServerSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let context = self.shared.as_ref().map(|shared| &shared.context);
        f.debug_struct("ServerSessions")
            .field("lifetime_ms", &self.lifetime_ms)
            .field("hints", &self.hints)
            .field("context", &context)
            .finish_non_exhaustive()
    }
}
