//! The ledger, which a cache has beside its shards: one for all of them, and for all processes that
//! share them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::{Counters, EarlyCounters};
use crate::return_time::Waits;

/// The fate of a client's early data (0-RTT), where each session is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyData {
    /// The server accepted it, with a session that was there and is used up now.
    Accepted,
    /// It came with a session that is not there: used up, as that of a copied first flight is, or evicted, or expired.
    Unknown,
    /// It came with a session that is there, while it is not certain that no copy of it was accepted before.
    Waiting,
    /// The TLS library or the program declined it: by its age, protocol, cipher or size, or after a HelloRetryRequest.
    Declined,
}

impl EarlyData {
    /// All fates, in order.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Unknown, Self::Waiting, Self::Declined];
}

/// The counts that belong to no single shard, and the table of return times. They are plain atomics
/// of which every value is valid, so that a ledger may lie in memory that processes share. A ledger
/// of zeros is a new one.
#[derive(bytemuck::Zeroable)]
#[repr(C)]
pub struct Ledger {
    forged: AtomicU64,
    rejected: AtomicU64,
    full_handshakes: AtomicU64,
    resumed_handshakes: AtomicU64,
    early: [AtomicU64; EarlyData::ALL.len()],
    pub(crate) waits: Waits,
}

impl Ledger {
    pub(crate) fn record_forged(&self) {
        self.forged.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_handshake(&self, resumed: bool) {
        let count = if resumed { &self.resumed_handshakes } else { &self.full_handshakes };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_early(&self, early: EarlyData) {
        self.early[early as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts of early data.
    pub(crate) fn early(&self) -> EarlyCounters {
        let [accepted, unknown, waiting, declined] =
            self.early.each_ref().map(|count| count.load(Ordering::Relaxed));
        EarlyCounters { accepted, unknown, waiting, declined }
    }

    /// Returns the counts of the ledger; all others are zero.
    pub(crate) fn counters(&self) -> Counters {
        let [forged, rejected, full_handshakes, resumed_handshakes] =
            self.counts().map(|count| count.load(Ordering::Relaxed));
        Counters { forged, rejected, full_handshakes, resumed_handshakes, ..Counters::default() }
    }

    pub(crate) fn reset_counters(&self) {
        let early = self.early.iter();
        self.counts().into_iter().chain(early).for_each(|count| count.store(0, Ordering::Relaxed));
    }

    fn counts(&self) -> [&AtomicU64; 4] {
        [&self.forged, &self.rejected, &self.full_handshakes, &self.resumed_handshakes]
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
