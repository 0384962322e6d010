//! A machine's sessions, and behind them those of its cluster.

use std::sync::Arc;

use rejoin_cache::{
    Arrival, ContextTag, Inserted, Ledger, NewSession, Refusal, SecretBytes, SessionId,
    SessionStore,
};

use crate::Store;
use crate::letters::Says;

/// The sessions of a [`Store`] and, if it belongs to a cluster, those that other machines made: a miss here is asked
/// for in the cluster, and a session stored here is announced to it. A lookup then waits for a few milliseconds at
/// most, and a thread for a quarter of its time ([`crate::Mailbox`]); nothing else waits at all.
#[derive(Debug, Clone)]
pub struct Tiered(Arc<Store>);

impl Tiered {
    /// Wraps a store.
    pub fn new(store: Arc<Store>) -> Self {
        Self(store)
    }

    fn tell(&self, id: &SessionId, context: ContextTag, says: Says) {
        self.0.mailbox().into_iter().for_each(|mailbox| mailbox.tell(id, context, says));
    }
}

impl SessionStore for Tiered {
    fn get(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        let Some(mailbox) = self.0.mailbox() else {
            return self.0.cache().get(now_ms, id, context, value);
        };
        if !self.0.cache().peek(now_ms, id, context, value) {
            mailbox.ask(id, context, false);
        }
        let arrival = self.0.cache().get(now_ms, id, context, value);
        if arrival.found {
            mailbox.tell(id, context, Says::Seen);
        }
        arrival
    }

    fn peek(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        self.0.cache().peek(now_ms, id, context, value)
    }

    /// Takes only what the cluster returns, if there is one: another machine may already have taken the session.
    fn take(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        if let Some(mailbox) = self.0.mailbox()
            && !mailbox.ask(id, context, true)
        {
            self.0.cache().remove(id);
        }
        self.0.cache().take(now_ms, id, context, value)
    }

    fn insert(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal> {
        let inserted = self.0.cache().insert(now_ms, new)?;
        self.tell(&new.id, new.context, Says::Stored);
        Ok(inserted)
    }

    /// Records the hint on this machine only. A hint that comes before the session is stored is announced with it.
    fn hint(&self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
        self.0.cache().hint(now_ms, id, interval_ms)
    }

    fn retire(&self, id: &SessionId) {
        self.0.cache().retire(id);
        self.tell(id, ContextTag::default(), Says::Retired);
    }

    fn remove(&self, id: &SessionId) -> bool {
        let was_there = self.0.cache().remove(id);
        self.tell(id, ContextTag::default(), Says::Removed);
        was_there
    }

    fn ledger(&self) -> &Ledger {
        SessionStore::ledger(self.0.cache())
    }
}
