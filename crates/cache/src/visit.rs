//! One TLS connection's dealings with a cache.
//!
//! A visit carries a client's history from the session it presents to the session it is given:
//! over TLS 1.2 they are the same, over TLS 1.3 every connection ends with new ids. Of several
//! sessions issued on one connection the newest is the one to expect back; those before it, and
//! the one consumed, are kept only while there is room to spare.
//!
//! A session may also wait for the application's word on when its client returns, so that
//! Algorithm 1 can decide with it. [`Visit::finish`] ends the wait.

use std::collections::VecDeque;

use crate::history::History;
use crate::id::{ContextTag, SessionId};
use crate::interval::Interval;
use crate::secret::SecretBytes;
use crate::session::NewSession;
use crate::session_store::SessionStore;

/// Whether an application says when its clients return. Adapters are told, and call
/// [`Visit::issue`] or [`Visit::issue_later`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// It does not: a session is stored when the handshake has made it.
    Never,
    /// It says on every connection when the client returns, or that it does not know. A session
    /// is stored then, so that the decision to keep it can use the hint, or else when the
    /// connection ends.
    Expected,
}

/// A session that a handshake made.
#[derive(Debug)]
pub struct Issued {
    /// Under what the client will present it.
    pub id: SessionId,
    /// The serialised session.
    pub value: SecretBytes,
    /// When its lifetime is over, on the cache's clock.
    pub expires_ms: u64,
    /// The session-id context it was made in.
    pub context: ContextTag,
}

/// See the module's documentation. Belongs to one connection, and is not shared by threads.
#[derive(Debug, Default)]
pub struct Visit {
    history: History,
    /// The session to expect back: the one found, or the newest one stored.
    current: Option<SessionId>,
    /// Its others in the cache: those consumed, and those issued beside the newest.
    others: VecDeque<SessionId>,
    waiting: Vec<Issued>,
}

impl Visit {
    /// Sessions of one connection that may wait for a hint; more are stored at once.
    const MOST_WAITING: usize = 4;
    /// Of more sessions than these, [`Self::forget`] leaves the oldest to be evicted.
    const MOST_OTHERS: usize = 8;

    /// The client presents a session id. If its session is in the cache, it is copied to `value`.
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

    /// As [`Self::look_up`], for sessions that may be used once only.
    pub fn take(
        &mut self,
        cache: &(impl SessionStore + ?Sized),
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        let arrival = cache.take(now_ms, id, context, value);
        self.arrived(id, arrival.found, arrival.history)
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

    /// The client brought its own history, in a ticket that holds its whole session and that it was
    /// given `away_ms` ago. Without that time only what was known before is.
    pub fn recall(&mut self, mut history: History, away_ms: Option<u64>) {
        if let Some(away_ms) = away_ms {
            history.record(Interval::from_ms(away_ms).ticks());
        }
        self.history = history;
    }

    /// What is known of the client's past visits, this one included.
    pub fn history(&self) -> History {
        self.history
    }

    /// The handshake made a session: store it now.
    pub fn issue(&mut self, cache: &(impl SessionStore + ?Sized), now_ms: u64, issued: &Issued) {
        self.store(cache, now_ms, issued, None, false);
    }

    /// The handshake made a session: store it when [`Self::hint`] or [`Self::finish`] is called.
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

    /// The handshake made sessions, the newest last, and all is known that will be: store them now.
    pub fn issue_all(
        &mut self,
        cache: &(impl SessionStore + ?Sized),
        now_ms: u64,
        issued: &[Issued],
        hint_ms: Option<u64>,
    ) {
        if let Some((newest, siblings)) = issued.split_last() {
            self.store(cache, now_ms, newest, hint_ms, false);
            siblings.iter().for_each(|sibling| self.store(cache, now_ms, sibling, None, true));
        }
    }

    /// The application says that the client comes back in `interval_ms`.
    pub fn hint(&mut self, cache: &(impl SessionStore + ?Sized), now_ms: u64, interval_ms: u64) {
        if !self.waiting.is_empty() {
            self.store_waiting(cache, now_ms, Some(interval_ms));
        } else if let Some(id) = &self.current {
            cache.hint(now_ms, id, interval_ms);
        }
    }

    /// No hint will come.
    pub fn finish(&mut self, cache: &(impl SessionStore + ?Sized), now_ms: u64) {
        self.store_waiting(cache, now_ms, None);
    }

    /// The connection ended in a fatal alert: its sessions are not to be resumed (RFC 5246,
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
        };
        // A refusal is counted by the cache, and costs the client a full handshake, no more.
        let _ = cache.insert(now_ms, &new);
    }

    fn remember(&mut self, other: SessionId) {
        self.others.truncate(Self::MOST_OTHERS - 1);
        self.others.push_front(other);
    }
}
