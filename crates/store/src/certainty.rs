//! The times at which a session that is taken may have been taken before.
//!
//! A session is taken from memory, or from Valkey, at most once, unless what was taken comes back: an older copy of the
//! memory is restored, or Valkey loses its last writes. A client's first flight that was accepted before could then be
//! accepted again. TLS stacks accept early data only within [`WINDOW_MS`] of the time that the client claims (RFC 8446,
//! section 8.3). So whoever has waited for that long since anything could come back accepts none twice.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The longest time for which a copied first flight may be accepted: OpenSSL allows ten seconds, and a second for the
/// client's clock. One more is to spare.
pub(crate) const WINDOW_MS: u64 = EARLY_WINDOW.as_millis() as u64;

/// The longest time for which a copied first flight may be accepted, with what is to spare.
pub const EARLY_WINDOW: Duration = Duration::from_secs(12);

/// The knowledge of one process about the memory that it takes sessions from.
#[derive(Debug)]
pub(crate) struct Certainty {
    /// The time from which all is certain, on the clock of caches.
    from_ms: AtomicU64,
    /// The sessions that were taken with early data, by all processes, as this one has seen them last.
    seen: AtomicU64,
    /// The difference of the wall clock from the clock of caches, in milliseconds.
    offset_ms: AtomicI64,
}

/// The figures in the memory itself, for all processes.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// The count of sessions that were taken.
    pub(crate) taken: &'a AtomicU64,
    /// The time until which a process that noticed older memory has all doubt it.
    pub(crate) doubted_until_ms: &'a AtomicU64,
}

impl Certainty {
    /// Begins with memory that may have been anybody's.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            from_ms: AtomicU64::new(now_ms.saturating_add(WINDOW_MS)),
            seen: AtomicU64::new(0),
            offset_ms: AtomicI64::new(wall_ms().saturating_sub_unsigned(now_ms)),
        }
    }

    /// Begins with memory that this process has just made, from which nothing was taken.
    pub(crate) fn begin(&self, now_ms: u64) {
        self.from_ms.store(now_ms, Ordering::Release);
    }

    /// Counts a session that was just taken, and returns true if it was certainly not taken before.
    pub(crate) fn count(&self, now_ms: u64, memory: Seen<'_>) -> bool {
        self.count_at(now_ms, wall_ms(), memory)
    }

    fn count_at(&self, now_ms: u64, wall_ms: i64, memory: Seen<'_>) -> bool {
        let Seen { taken, doubted_until_ms } = memory;
        // Read first: the count only grows, unless older memory came back.
        let seen = self.seen.load(Ordering::Acquire);
        let before = taken.fetch_add(1, Ordering::AcqRel);
        if before < seen {
            self.seen.store(before, Ordering::Release);
            self.doubt(now_ms, 0);
            // The next process to look finds the count as high as it knows it.
            let until_ms = now_ms.saturating_add(WINDOW_MS);
            doubted_until_ms.fetch_max(until_ms, Ordering::AcqRel);
        }
        self.seen.fetch_max(before + 1, Ordering::AcqRel);
        // The age of a ticket is counted on the wall clock.
        let offset_ms = wall_ms.saturating_sub_unsigned(now_ms);
        let back_ms = self.offset_ms.swap(offset_ms, Ordering::AcqRel).saturating_sub(offset_ms);
        if back_ms > Self::LEAST_STEP_MS {
            self.doubt(now_ms, back_ms.unsigned_abs());
        }
        now_ms >= self.from_ms.load(Ordering::Acquire)
            && now_ms >= doubted_until_ms.load(Ordering::Acquire)
    }

    /// The clocks are not read at the same instant.
    const LEAST_STEP_MS: i64 = 500;

    /// Trusts nothing for a while.
    fn doubt(&self, now_ms: u64, longer_ms: u64) {
        let from_ms = now_ms.saturating_add(WINDOW_MS).saturating_add(longer_ms);
        self.from_ms.fetch_max(from_ms, Ordering::AcqRel);
    }
}

fn wall_ms() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 5_000_000_000;
    const WALL_MS: i64 = 1_800_000_000_000;

    fn certainty(is_new: bool) -> Certainty {
        let certainty = Certainty::new(NOW_MS);
        if is_new {
            certainty.begin(NOW_MS);
        }
        certainty.offset_ms.store(WALL_MS - NOW_MS as i64, Ordering::Relaxed);
        certainty
    }

    #[test]
    fn old_memory_is_certain_after_the_window() {
        let (taken, doubted_until_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        let memory = Seen { taken: &taken, doubted_until_ms: &doubted_until_ms };
        let at = |certainty: &Certainty, ms: u64| {
            certainty.count_at(NOW_MS + ms, WALL_MS + ms as i64, memory)
        };
        assert!(at(&certainty(true), 0));
        let old = certainty(false);
        assert!(!at(&old, WINDOW_MS - 1) && at(&old, WINDOW_MS));
        assert_eq!(taken.into_inner(), 3);
    }

    #[test]
    fn older_memory_and_a_clock_that_is_set_back_begin_it_anew() {
        let (certainty, other) = (certainty(true), certainty(true));
        let (taken, doubted_until_ms) = (AtomicU64::new(100), AtomicU64::new(0));
        let memory = Seen { taken: &taken, doubted_until_ms: &doubted_until_ms };
        let at = |ms: u64, back_ms: u64| {
            let wall_ms = WALL_MS + ms as i64 - back_ms as i64;
            certainty.count_at(NOW_MS + ms, wall_ms, memory)
        };
        assert!(at(0, 0) && at(0, 0));
        taken.store(101, Ordering::Relaxed);
        assert!(!at(1, 0), "older memory came back");
        assert!(!other.count_at(NOW_MS + 2, WALL_MS + 2, memory), "another process is told");
        assert!(!at(WINDOW_MS, 0) && at(WINDOW_MS + 1, 0));
        // A first flight of that hour would be young again.
        let (begin, hour_ms) = (WINDOW_MS + 1, 3_600_000);
        assert!(!at(begin, hour_ms));
        let until = begin + WINDOW_MS + hour_ms;
        assert!(!at(until - 1, hour_ms) && at(until, hour_ms));
        assert!(at(until, 0), "forward is no danger");
    }
}
