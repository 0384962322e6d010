//! The ledger, which a cache has beside its shards: one for all of them, and for all processes that
//! share them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::Counters;
use crate::return_time::Waits;

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

    /// Returns the counts of the ledger; all others are zero.
    pub(crate) fn counters(&self) -> Counters {
        let [forged, rejected, full_handshakes, resumed_handshakes] =
            self.counts().map(|count| count.load(Ordering::Relaxed));
        Counters { forged, rejected, full_handshakes, resumed_handshakes, ..Counters::default() }
    }

    pub(crate) fn reset_counters(&self) {
        self.counts().iter().for_each(|count| count.store(0, Ordering::Relaxed));
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
