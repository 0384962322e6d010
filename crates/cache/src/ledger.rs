//! What a cache keeps beside its shards: one for all of them, and for all who share them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::return_time::Waits;

/// See the module's documentation. Plain atomics, of which every value is a valid one, so that it
/// may lie in memory that processes share. A ledger of zeros is a new one.
#[derive(bytemuck::Zeroable)]
#[repr(C)]
pub struct Ledger {
    forged: AtomicU64,
    pub(crate) waits: Waits,
}

impl Ledger {
    pub(crate) fn record_forged(&self) {
        self.forged.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn forged(&self) -> u64 {
        self.forged.load(Ordering::Relaxed)
    }

    pub(crate) fn reset_counters(&self) {
        self.forged.store(0, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("forged", &self.forged()).finish_non_exhaustive()
    }
}
