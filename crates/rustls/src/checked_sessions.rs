//! The sessions of TLS 1.2 that a server with tickets keeps for clients that take none.

use std::sync::Arc;

use rustls::server::StoresServerSessions;
use zeroize::Zeroizing;

use crate::clock::now_s;
use crate::{Context, connection, session_value};

/// Another store, of which no session begins or resumes where a ticket would not.
#[derive(Debug)]
pub(crate) struct CheckedSessions {
    pub(crate) store: Arc<dyn StoresServerSessions>,
    pub(crate) context: Context,
}

impl CheckedSessions {
    /// Returns a session that may resume now.
    fn checked(&self, session: Vec<u8>) -> Option<Vec<u8>> {
        let mut session = Zeroizing::new(session);
        let now_s = now_s();
        // Over TLS 1.2 rustls makes sessions with ids in full handshakes alone.
        let made_s = session_value::made_s(&session)?;
        if !self.context.resumes(&session, now_s) || self.context.is_overdue(made_s, now_s) {
            return None;
        }
        // A ticket of this connection is no older.
        if let Some(connection) = connection::current() {
            connection.with(|state| state.authenticated_s = Some(made_s));
        }
        Some(std::mem::take(&mut *session))
    }
}

impl StoresServerSessions for CheckedSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut value = Zeroizing::new(value);
        self.context.allows(&value) && self.store.put(key, std::mem::take(&mut *value))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.store.get(key).and_then(|session| self.checked(session))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.store.take(key).and_then(|session| self.checked(session))
    }

    fn can_cache(&self) -> bool {
        self.store.can_cache()
    }
}
