//! The trait through which a connection uses a store of sessions.

use std::ops::Deref;

use crate::cache::Cache;
use crate::error::Refusal;
use crate::id::{ContextTag, SessionId};
use crate::ledger::{EarlyData, Ledger};
use crate::region::Region;
use crate::secret::SecretBytes;
use crate::session::{Arrival, Inserted, NewSession};
use crate::settings::Policy;
use crate::source::{Fairness, Source};

/// A store of sessions, on the heap or in memory that processes share.
///
/// Any session may be lost at any time: that costs a full handshake and is never an error. A
/// session is never returned under another id, or in another context, than it was stored under; a
/// session that was taken is never returned again. `now_ms` is on one clock that all callers share.
/// No method waits for long, or calls back.
pub trait SessionStore {
    /// See [`Cache::get`].
    fn get(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival;

    /// See [`Cache::peek`].
    fn peek(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool;

    /// See [`Cache::take`].
    fn take(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival;

    /// See [`Cache::insert`].
    ///
    /// # Errors
    /// Returns the reason if the session is not stored.
    fn insert(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal>;

    /// See [`Cache::hint`].
    fn hint(&self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool;

    /// See [`Cache::retire`].
    fn retire(&self, id: &SessionId);

    /// See [`Cache::remove`].
    fn remove(&self, id: &SessionId) -> bool;

    /// See [`Cache::policy`].
    fn policy(&self) -> Policy;

    /// See [`Cache::fairness`].
    fn fairness(&self) -> Option<Fairness>;

    /// See [`Cache::source`].
    fn source(&self, known: &[u8]) -> Source;

    /// Returns the counts that belong to no single session.
    fn ledger(&self) -> &Ledger;

    /// See [`Cache::record_early`].
    fn record_early(&self, early: EarlyData) {
        self.ledger().record_early(early);
    }

    /// See [`Cache::record_forged`].
    fn record_forged(&self) {
        self.ledger().record_forged();
    }

    /// See [`Cache::record_rejected`].
    fn record_rejected(&self) {
        self.ledger().record_rejected();
    }

    /// See [`Cache::record_handshake`].
    fn record_handshake(&self, resumed: bool) {
        self.ledger().record_handshake(resumed);
    }
}

/// The body of an implementation that leaves every method to `$to`, which `$self` leads to.
macro_rules! left_to {
    ($self:ident => $to:expr) => {
        fn get(
            &$self,
            now_ms: u64,
            id: &SessionId,
            context: ContextTag,
            value: &mut SecretBytes,
        ) -> Arrival {
            $to.get(now_ms, id, context, value)
        }

        fn peek(
            &$self,
            now_ms: u64,
            id: &SessionId,
            context: ContextTag,
            value: &mut SecretBytes,
        ) -> bool {
            $to.peek(now_ms, id, context, value)
        }

        fn take(
            &$self,
            now_ms: u64,
            id: &SessionId,
            context: ContextTag,
            value: &mut SecretBytes,
        ) -> Arrival {
            $to.take(now_ms, id, context, value)
        }

        fn insert(&$self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal> {
            $to.insert(now_ms, new)
        }

        fn hint(&$self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
            $to.hint(now_ms, id, interval_ms)
        }

        fn retire(&$self, id: &SessionId) {
            $to.retire(id);
        }

        fn remove(&$self, id: &SessionId) -> bool {
            $to.remove(id)
        }

        fn policy(&$self) -> Policy {
            $to.policy()
        }

        fn fairness(&$self) -> Option<Fairness> {
            $to.fairness()
        }

        fn source(&$self, known: &[u8]) -> Source {
            $to.source(known)
        }

        fn ledger(&$self) -> &Ledger {
            $to.ledger()
        }
    };
}

/// A cache's own methods are the store's.
impl<R: Region> SessionStore for Cache<R> {
    left_to!(self => self);
}

/// A reference, a `Box` or an `Arc` of a store is a store.
impl<P: Deref<Target: SessionStore>> SessionStore for P {
    left_to!(self => (**self));
}
