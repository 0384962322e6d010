//! A visit: one TLS connection's use of a cache.
//!
//! A visit carries a client's history from the session it presents to the session it is given.
//! Over TLS 1.2 they are the same; over TLS 1.3 every connection ends with new ids. If one
//! connection issues several sessions, the client is expected back with the newest; those before
//! it, and the one consumed, are kept only while there is room to spare. Under the policy `lru` they
//! count as used just before the newest.
//!
//! A session may also wait for the application's hint on when its client returns, so that
//! Algorithm 1 can decide with it. [`Visit::finish`] ends the wait.

use std::collections::VecDeque;

use crate::history::History;
use crate::id::{ContextTag, SessionId};
use crate::interval::Interval;
use crate::secret::SecretBytes;
use crate::session::NewSession;
use crate::session_store::SessionStore;
use crate::settings::Policy;
use crate::source::Source;

/// The hints that an application gives on when its clients return. By this setting an adapter calls
/// [`Visit::issue`] or [`Visit::issue_later`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// The application gives none: a session is stored when the handshake has made it.
    Never,
    /// The application says on every connection when the client returns, or that it does not know.
    /// A session is stored then, so that the decision to keep it can use the hint, or else when the
    /// connection ends.
    Expected,
}

/// A session that a handshake made.
#[derive(Debug)]
pub struct Issued {
    /// The id under which the client will present it.
    pub id: SessionId,
    /// The serialised session.
    pub value: SecretBytes,
    /// The end of its lifetime, on the cache's clock.
    pub expires_ms: u64,
    /// The session-id context it was made in.
    pub context: ContextTag,
}

/// One TLS connection's use of a cache; see the module's documentation. It belongs to one
/// connection and is not shared by threads.
#[derive(Debug, Default)]
pub struct Visit {
    history: History,
    source: Source,
    /// The session with which the client is expected back: the one found, or the newest stored.
    current: Option<SessionId>,
    /// The client's other sessions in the cache: those consumed, and those issued beside the newest.
    others: VecDeque<SessionId>,
    waiting: Vec<Issued>,
    /// True if the session last taken was certainly not taken before.
    is_certain: bool,
}

impl Visit {
    /// The most sessions of one connection that wait for a hint; more are stored at once.
    const MOST_WAITING: usize = 4;
    /// The most other sessions that [`Self::forget`] removes; it leaves older ones to be evicted.
    const MOST_OTHERS: usize = 8;

    /// Begins the visit of another connection, in the memory of this one.
    #[inline]
    pub fn restart(&mut self) {
        let Self { history, source, current, others, waiting, is_certain } = self;
        (*history, *source, *current) = (History::default(), Source::default(), None);
        others.clear();
        waiting.clear();
        *is_certain = false;
    }

    /// Looks up the session id that the client presents. Copies a session found to `value` and
    /// returns true.
    pub fn look_up(
        &mut self,
        cache: &(impl SessionStore + ?Sized),
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        // A TLS 1.3 ClientHello may be read twice (HelloRetryRequest): that is one arrival.
        if self.current.as_ref() == Some(id) {
            return cache.peek(now_ms, id, context, value);
        }
        let arrival = cache.get(now_ms, id, context, value);
        self.arrived(id, arrival.found, arrival.history)
    }

    /// Looks up a session as [`Self::look_up`] does and removes it, for sessions that may be used only
    /// once.
    pub fn take(
        &mut self,
        cache: &(impl SessionStore + ?Sized),
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        let arrival = cache.take(now_ms, id, context, value);
        self.is_certain = arrival.is_certain;
        self.arrived(id, arrival.found, arrival.history)
    }

    /// Returns true if the session that was taken last was certainly not taken before ([`Arrival::is_certain`](crate::Arrival)).
    pub fn is_certain(&self) -> bool {
        self.is_certain
    }

    fn arrived(&mut self, id: &SessionId, found: bool, history: History) -> bool {
        if found {
            let before = self.current.replace(*id);
            before.into_iter().for_each(|before| self.remember(before));
        }
        if found || history != History::default() {
            self.history = history;
        }
        found
    }

    /// Sets the history that the client brought in a ticket with its whole session. The ticket was
    /// issued `away_ms` ago; if that is not known, this visit adds nothing to the history.
    pub fn recall(&mut self, mut history: History, away_ms: Option<u64>) {
        if let Some(away_ms) = away_ms {
            history.record(Interval::from_ms(away_ms).ticks());
        }
        self.history = history;
    }

    /// Sets the history that the client brought in the id of a session that was not found ([`IdSeal::carried`](crate::IdSeal::carried)),
    /// unless more is known.
    pub fn recall_missed(&mut self, history: History, away_ms: u64) {
        if self.history == History::default() {
            self.recall(history, Some(away_ms));
        }
    }

    /// Sets the source of the client, for the sessions that it is given.
    pub fn comes_from(&mut self, source: Source) {
        self.source = source;
    }

    /// Returns the client's history, this visit included.
    pub fn history(&self) -> History {
        self.history
    }

    /// Stores a session that the handshake made.
    pub fn issue(&mut self, cache: &(impl SessionStore + ?Sized), now_ms: u64, issued: &Issued) {
        self.store(cache, now_ms, issued, None, false);
    }

    /// Takes a session that the handshake made, and stores it when [`Self::hint`] or [`Self::finish`]
    /// is called.
    pub fn issue_later(
        &mut self,
        cache: &(impl SessionStore + ?Sized),
        now_ms: u64,
        issued: Issued,
    ) {
        if self.waiting.len() == Self::MOST_WAITING {
            self.store_waiting(cache, now_ms, None);
        }
        self.waiting.push(issued);
    }

    /// Stores the sessions that the handshake made, the newest last, with the hint if there is one.
    pub fn issue_all(
        &mut self,
        cache: &(impl SessionStore + ?Sized),
        now_ms: u64,
        issued: &[Issued],
        hint_ms: Option<u64>,
    ) {
        let Some((newest, siblings)) = issued.split_last() else { return };
        let store_newest = |visit: &mut Self| visit.store(cache, now_ms, newest, hint_ms, false);
        let store_siblings = |visit: &mut Self| {
            siblings.iter().for_each(|sibling| visit.store(cache, now_ms, sibling, None, true));
        };
        match cache.policy() {
            // What is stored first is evicted first, which must not be what the client will offer.
            Policy::Lru => {
                store_siblings(self);
                store_newest(self);
            }
            // The newest finds its place by the hint, and only then it is known whether there is room to spare.
            Policy::Predictive => {
                store_newest(self);
                store_siblings(self);
            }
        }
    }

    /// Records the application's hint that the client returns in `interval_ms`.
    pub fn hint(&mut self, cache: &(impl SessionStore + ?Sized), now_ms: u64, interval_ms: u64) {
        if !self.waiting.is_empty() {
            self.store_waiting(cache, now_ms, Some(interval_ms));
        } else if let Some(id) = &self.current {
            cache.hint(now_ms, id, interval_ms);
        }
    }

    /// Stores the sessions that wait for a hint: none will come.
    pub fn finish(&mut self, cache: &(impl SessionStore + ?Sized), now_ms: u64) {
        self.store_waiting(cache, now_ms, None);
    }

    /// Removes the connection's sessions after a fatal alert: they must not be resumed (RFC 5246,
    /// section 7.2.2).
    pub fn forget(&mut self, cache: &(impl SessionStore + ?Sized)) {
        self.waiting.clear();
        for id in self.others.drain(..).chain(self.current.take()) {
            cache.remove(&id);
        }
    }

    fn store_waiting(
        &mut self,
        cache: &(impl SessionStore + ?Sized),
        now_ms: u64,
        hint_ms: Option<u64>,
    ) {
        let waiting = std::mem::take(&mut self.waiting);
        self.issue_all(cache, now_ms, &waiting, hint_ms);
    }

    fn store(
        &mut self,
        cache: &(impl SessionStore + ?Sized),
        now_ms: u64,
        issued: &Issued,
        hint_ms: Option<u64>,
        sibling: bool,
    ) {
        let Issued { id, value, expires_ms, context } = issued;
        if sibling {
            self.remember(*id);
        } else if let Some(before) = self.current.replace(*id).filter(|before| before != id) {
            cache.retire(&before);
            self.remember(before);
        }
        let history = if sibling { History::default() } else { self.history };
        let new = NewSession {
            id: *id,
            value,
            expires_ms: *expires_ms,
            context: *context,
            history,
            hint_ms,
            sibling,
            seen_ms: None,
            source: self.source,
        };
        // The cache counts a refusal, which costs the client a full handshake and nothing else.
        let _ = cache.insert(now_ms, &new);
    }

    fn remember(&mut self, other: SessionId) {
        self.others.truncate(Self::MOST_OTHERS - 1);
        self.others.push_front(other);
    }
}
