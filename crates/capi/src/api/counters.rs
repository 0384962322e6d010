//! What was counted, as a C program reads it.

use libc::size_t;
use rejoin_cache::Counters;

use super::failure::Failure;
use super::sized;

/// What was counted since the store was made. Everything but `sessions` only grows.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RejoinCounters {
    /// `sizeof(rejoin_counters)`, by which the library knows what the program was compiled with.
    pub struct_size: size_t,
    /// Sessions stored now.
    pub sessions: u64,
    /// Handshakes that made a new session, where the store is attached.
    pub full_handshakes: u64,
    /// Handshakes that resumed one, of the store or of a stateless ticket, where the store is attached.
    pub resumed_handshakes: u64,
    /// Sessions stored so far.
    pub stored: u64,
    /// Lookups that found a session.
    pub hits: u64,
    /// Lookups that did not, for whatever reason, forged ids excepted.
    pub misses: u64,
    /// Ids presented by clients that no server with this key ever issued, where they are
    /// presented.
    pub forged: u64,
    /// Hits whose session OpenSSL then declined to resume.
    pub rejected: u64,
    /// Misses because the session's lifetime was over.
    pub expired: u64,
    /// Misses because the session belongs to another session-id context.
    pub foreign_context: u64,
    /// Misses on a session that had been evicted, or refused, not long before.
    pub wanted_after_eviction: u64,
    /// Evicted, its client being overdue, or not known at all.
    pub evicted_overdue: u64,
    /// Evicted, its client being expected later than others, or less surely.
    pub evicted_latest: u64,
    /// Evicted by the policy `lru`.
    pub evicted_oldest: u64,
    /// Not stored: all others are expected sooner, or more surely.
    pub refused_returns_later: u64,
    /// Not stored: too large.
    pub refused_too_large: u64,
    /// Not stored: its lifetime was over.
    pub refused_expired: u64,
    /// Hits whose return time had been predicted.
    pub predictions: u64,
    /// Sum of |actual − predicted| over those, in milliseconds.
    pub prediction_error_ms: u64,
}

impl From<Counters> for RejoinCounters {
    fn from(counters: Counters) -> Self {
        let Counters {
            sessions,
            full_handshakes,
            resumed_handshakes,
            stored,
            hits,
            misses,
            forged,
            rejected,
            expired,
            foreign_context,
            wanted_after_eviction,
            evicted_overdue,
            evicted_latest,
            evicted_oldest,
            refused_returns_later,
            refused_too_large,
            refused_expired,
            predictions,
            prediction_error_ms,
        } = counters;
        Self {
            struct_size: size_of::<Self>(),
            sessions,
            full_handshakes,
            resumed_handshakes,
            stored,
            hits,
            misses,
            forged,
            rejected,
            expired,
            foreign_context,
            wanted_after_eviction,
            evicted_overdue,
            evicted_latest,
            evicted_oldest,
            refused_returns_later,
            refused_too_large,
            refused_expired,
            predictions,
            prediction_error_ms,
        }
    }
}

impl RejoinCounters {
    /// Writes what the program has room for; what this version does not count is zero.
    ///
    /// # Safety
    /// `target` is null, or points to as many bytes as it says.
    pub(super) unsafe fn write(self, target: *mut Self) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        unsafe { sized::write(self, target, "counters", "rejoin_counters") }
    }
}
