//! A machine's sessions, and behind them those of its cluster.

use std::sync::Arc;

use rejoin_cache::{
    Arrival, ContextTag, Fairness, Inserted, Ledger, NewSession, Policy, Refusal, SecretBytes,
    SessionId, SessionStore, Source,
};

use crate::letters::Says;
use crate::{Asked, Mailbox, Store};

/// The sessions of a [`Store`] and, if it belongs to a cluster, those that other machines made: a miss here is asked
/// for in the cluster, and a session stored here is announced to it. A lookup then waits for a few milliseconds at
/// most, and a thread for a quarter of its time ([`crate::Mailbox`]); nothing else waits at all.
#[derive(Debug, Clone)]
pub struct Tiered {
    store: Arc<Store>,
    /// True if the cluster is neither asked nor told.
    is_alone: bool,
    /// True if the machine's own session is taken where the cluster did not answer.
    takes_unanswered: bool,
}

impl Tiered {
    /// Wraps a store.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, is_alone: false, takes_unanswered: false }
    }

    /// Wraps a store whose sessions stay on this machine, whether it belongs to a cluster or not.
    pub fn alone(store: Arc<Store>) -> Self {
        Self { store, is_alone: true, takes_unanswered: false }
    }

    /// Takes a session that is on this machine where the cluster does not answer for it, too. That is never certain, and the
    /// session may resume once more elsewhere. Not for sessions that must resume once only.
    #[must_use]
    pub fn taking_unanswered(self) -> Self {
        Self { takes_unanswered: true, ..self }
    }

    fn mailbox(&self) -> Option<&Mailbox> {
        self.store.mailbox().filter(|_| !self.is_alone)
    }

    fn tell(&self, id: &SessionId, context: ContextTag, says: Says) {
        self.mailbox().into_iter().for_each(|mailbox| mailbox.tell(id, context, says));
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
        let Some(mailbox) = self.mailbox() else {
            return self.store.cache().get(now_ms, id, context, value);
        };
        if !self.store.cache().peek(now_ms, id, context, value) {
            mailbox.ask(id, context, false);
        }
        let arrival = self.store.cache().get(now_ms, id, context, value);
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
        self.store.cache().peek(now_ms, id, context, value)
    }

    /// Takes only what the cluster returns, if there is one: another machine may already have taken the session. (Without an
    /// answer, see [`Self::taking_unanswered`].) Then the cluster's agent says whether that is certain. It is not for eighteen seconds after the cluster did not answer for
    /// this session: its client was turned away then, and a copy of its first flight may come.
    fn take(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        let asked = self.mailbox().map(|mailbox| mailbox.ask(id, context, true));
        if asked == Some(Asked::Unanswered) {
            self.store.turn_away(id);
        }
        let is_refused = match asked {
            Some(Asked::Unanswered) => !self.takes_unanswered,
            Some(asked) => !asked.is_there(),
            None => false,
        };
        if is_refused {
            self.store.cache().remove(id);
        }
        let arrival = self.store.cache().take(now_ms, id, context, value);
        let is_certain = arrival.found
            && self.store.took_certainly(now_ms)
            && asked.is_none_or(|asked| asked == Asked::Certain && !self.store.has_turned_away(id));
        Arrival { is_certain, ..arrival }
    }

    /// Stores a session on this machine, where the agent fetches it. A cluster takes what a machine has no room for.
    fn insert(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal> {
        let Some(mailbox) = self.mailbox() else {
            return self.store.cache().insert(now_ms, new);
        };
        let inserted = self.store.cache().admit(now_ms, new)?;
        mailbox.tell(&new.id, new.context, Says::Stored);
        Ok(inserted)
    }

    /// Records the hint on this machine only. A hint that comes before the session is stored is announced with it.
    fn hint(&self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
        self.store.cache().hint(now_ms, id, interval_ms)
    }

    fn retire(&self, id: &SessionId) {
        self.store.cache().retire(id);
        self.tell(id, ContextTag::default(), Says::Retired);
    }

    fn remove(&self, id: &SessionId) -> bool {
        let was_there = self.store.cache().remove(id);
        self.tell(id, ContextTag::default(), Says::Removed);
        was_there
    }

    fn policy(&self) -> Policy {
        self.store.cache().policy()
    }

    fn fairness(&self) -> Option<Fairness> {
        self.store.cache().fairness()
    }

    fn source(&self, known: &[u8]) -> Source {
        self.store.cache().source(known)
    }

    fn ledger(&self) -> &Ledger {
        SessionStore::ledger(self.store.cache())
    }
}
