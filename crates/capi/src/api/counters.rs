//! The counters of a store, as a C structure.

use libc::size_t;
use rejoin_cache::Counters;

use super::failure::Failure;
use super::sized;

/// Counts since the store was made. Every count but `sessions` only grows.
// The fields are those of `rejoin_cache::Counters`: cbindgen writes the header from the fields and comments here.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RejoinCounters {
    /// `sizeof(rejoin_counters)`. It tells the library which version the program was compiled with.
    pub struct_size: size_t,
    /// Sessions stored now.
    pub sessions: u64,
    /// Full handshakes on attached contexts.
    pub full_handshakes: u64,
    /// Handshakes on attached contexts that resumed a session, from the store or from a stateless ticket.
    pub resumed_handshakes: u64,
    /// Sessions stored so far.
    pub stored: u64,
    /// Lookups that found a session.
    pub hits: u64,
    /// Lookups that found none, for any reason; forged ids are not counted.
    pub misses: u64,
    /// Session ids from clients that no server with this store's key has issued, counted where they are
    /// presented.
    pub forged: u64,
    /// Hits whose session OpenSSL then declined to resume.
    pub rejected: u64,
    /// Misses on a session whose lifetime was over.
    pub expired: u64,
    /// Misses on a session of another session-id context.
    pub foreign_context: u64,
    /// Misses on a session that was evicted or refused shortly before.
    pub wanted_after_eviction: u64,
    /// Evictions of a session whose client was overdue or unknown.
    pub evicted_overdue: u64,
    /// Evictions of a session whose client was expected later than others, or with less certainty.
    pub evicted_latest: u64,
    /// Evictions by the policy `lru`.
    pub evicted_oldest: u64,
    /// Sessions not stored because all others were expected sooner, or with more certainty.
    pub refused_returns_later: u64,
    /// Sessions not stored because they were too large.
    pub refused_too_large: u64,
    /// Sessions not stored because their lifetime was over.
    pub refused_expired: u64,
    /// Hits whose return time was predicted.
    pub predictions: u64,
    /// Sum of |actual − predicted| over these hits, in milliseconds.
    pub prediction_error_ms: u64,
    /// Evictions for another session of the same source, which had its share.
    pub evicted_source_share: u64,
    /// Sessions not stored because their source had its share, and none of its sessions was worth less.
    pub refused_source_share: u64,
}

/// Implements the conversion for these fields, which are all.
macro_rules! from_counters {
    ($($field:ident)*) => {
        impl From<Counters> for RejoinCounters {
            fn from(Counters { $($field),* }: Counters) -> Self {
                Self { struct_size: size_of::<Self>(), $($field),* }
            }
        }
    };
}

from_counters! {
    sessions full_handshakes resumed_handshakes stored hits misses forged rejected expired
    foreign_context wanted_after_eviction evicted_overdue evicted_latest evicted_oldest
    refused_returns_later refused_too_large refused_expired predictions prediction_error_ms evicted_source_share
    refused_source_share
}

impl RejoinCounters {
    /// Writes as many fields as the program has room for. Fields that this version does not have are zero.
    ///
    /// # Safety
    /// `target` is null, or points to as many bytes as its `struct_size` says.
    pub(super) unsafe fn write(self, target: *mut Self) -> Result<(), Failure> {
        // SAFETY: the caller vouches for `target`.
        unsafe { sized::write(self, target, "counters", "rejoin_counters") }
    }
}
