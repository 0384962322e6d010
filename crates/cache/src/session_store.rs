//! What a connection needs of whatever keeps its sessions.

use std::ops::Deref;

use crate::cache::Cache;
use crate::error::Refusal;
use crate::id::{ContextTag, SessionId};
use crate::region::Region;
use crate::secret::SecretBytes;
use crate::shard::{Arrival, Inserted, NewSession};

/// Keeps sessions, on the heap or in memory that processes share.
///
/// Any of them may be lost at any time: that is a full handshake, never an error. A session is never
/// given out under another id, or in another context, than it was stored under; once taken, to
/// nobody else. `now_ms` is of one clock that all callers share. Nothing waits for long, or calls back.
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
    /// The reason it was not stored.
    fn insert(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal>;

    /// See [`Cache::hint`].
    fn hint(&self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool;

    /// See [`Cache::retire`].
    fn retire(&self, id: &SessionId);

    /// See [`Cache::remove`].
    fn remove(&self, id: &SessionId) -> bool;

    /// See [`Cache::record_forged`].
    fn record_forged(&self);

    /// See [`Cache::record_rejected`].
    fn record_rejected(&self);

    /// See [`Cache::record_handshake`].
    fn record_handshake(&self, resumed: bool);
}

impl<R: Region> SessionStore for Cache<R> {
    fn get(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        Self::get(self, now_ms, id, context, value)
    }

    fn peek(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        Self::peek(self, now_ms, id, context, value)
    }

    fn take(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        Self::take(self, now_ms, id, context, value)
    }

    fn insert(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal> {
        Self::insert(self, now_ms, new)
    }

    fn hint(&self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
        Self::hint(self, now_ms, id, interval_ms)
    }

    fn retire(&self, id: &SessionId) {
        Self::retire(self, id);
    }

    fn remove(&self, id: &SessionId) -> bool {
        Self::remove(self, id)
    }

    fn record_forged(&self) {
        Self::record_forged(self);
    }

    fn record_rejected(&self) {
        Self::record_rejected(self);
    }

    fn record_handshake(&self, resumed: bool) {
        Self::record_handshake(self, resumed);
    }
}

/// Whatever leads to one.
impl<P: Deref<Target: SessionStore>> SessionStore for P {
    fn get(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        (**self).get(now_ms, id, context, value)
    }

    fn peek(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        (**self).peek(now_ms, id, context, value)
    }

    fn take(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        (**self).take(now_ms, id, context, value)
    }

    fn insert(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal> {
        (**self).insert(now_ms, new)
    }

    fn hint(&self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
        (**self).hint(now_ms, id, interval_ms)
    }

    fn retire(&self, id: &SessionId) {
        (**self).retire(id);
    }

    fn remove(&self, id: &SessionId) -> bool {
        (**self).remove(id)
    }

    fn record_forged(&self) {
        (**self).record_forged();
    }

    fn record_rejected(&self) {
        (**self).record_rejected();
    }

    fn record_handshake(&self, resumed: bool) {
        (**self).record_handshake(resumed);
    }
}
