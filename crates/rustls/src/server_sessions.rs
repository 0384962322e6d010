//! The session store.

use std::sync::Arc;

use rejoin_cache::{Cache, ContextTag, Hints, Issued, SecretBytes, SessionId, Visit};
use rejoin_store::now_ms;
use rustls::server::StoresServerSessions;

use crate::connection::{self, Connection};

/// A session cache for rustls servers.
#[derive(Debug)]
pub struct ServerSessions {
    cache: Arc<Cache>,
    lifetime_ms: u64,
    hints: Hints,
}

impl ServerSessions {
    /// Makes a store that forgets sessions `lifetime_ms` after they were made. Where hints are expected, a
    /// connection outside of any scope does not wait for one. The cache must have been made
    /// with [`now_ms`] as its clock.
    pub fn new(cache: Arc<Cache>, lifetime_ms: u64, hints: Hints) -> Arc<Self> {
        Arc::new(Self { cache, lifetime_ms, hints })
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    fn read(
        &self,
        key: &[u8],
        found: impl FnOnce(&mut Visit, &SessionId, &mut SecretBytes) -> bool,
    ) -> Option<Vec<u8>> {
        let id = SessionId::new(key).ok()?;
        let mut value = SecretBytes::default();
        let connection = connection::current().unwrap_or_default();
        let found = connection.with(|visit| found(visit, &id, &mut value));
        // rustls asks for a Vec, and owns the secret from here on.
        found.then(|| value.to_vec())
    }
}

/// One store serves one rustls `ServerConfig`: contexts are not told apart within it.
const CONTEXT: ContextTag = ContextTag(0);

impl StoresServerSessions for ServerSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let value = SecretBytes::from(value);
        let Ok(id) = SessionId::new(&key) else {
            return false;
        };
        let now_ms = now_ms();
        let expires_ms = now_ms.saturating_add(self.lifetime_ms);
        let issued = Issued { id, value, expires_ms, context: CONTEXT };
        match connection::current() {
            Some(connection) if self.hints == Hints::Expected => {
                connection.waits_for(&self.cache);
                connection.with(|visit| visit.issue_later(&self.cache, now_ms, issued));
            }
            connection => connection
                .unwrap_or_default()
                .with(|visit| visit.issue(&self.cache, now_ms, &issued)),
        }
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.read(key, |visit, id, value| visit.look_up(&self.cache, now_ms(), id, CONTEXT, value))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.read(key, |visit, id, value| visit.take(&self.cache, now_ms(), id, CONTEXT, value))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl Connection {
    /// Tells the cache that this connection's client returns in `interval_ms`. Stores the session that waited for the
    /// hint.
    pub fn hint(&self, sessions: &ServerSessions, interval_ms: u64) {
        self.with(|visit| visit.hint(sessions.cache(), now_ms(), interval_ms));
    }

    /// Tells the cache that the application has no hint for this connection's client.
    pub fn no_hint(&self, sessions: &ServerSessions) {
        self.with(|visit| visit.finish(sessions.cache(), now_ms()));
    }

    /// Forgets the sessions of a connection that ended in a fatal alert.
    pub fn forget(&self, sessions: &ServerSessions) {
        self.with(|visit| visit.forget(sessions.cache()));
    }
}
