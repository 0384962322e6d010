//! Counts of a cache's sessions by when their clients are expected back.
//!
//! They follow the engine's own expectation, by which it evicts: an interval is rounded up to its
//! class, so that a client appears up to an eighth of its interval too late, never too early.
//! Lifetimes are ignored: an expired session stays in the cache, and is counted, until it is evicted
//! or looked up.

use crate::expectation::Expectation;
use crate::interval::TICK_MS;
use crate::order;
use crate::region::Region;
use crate::shard::Shard;
use crate::slots::Slot;

/// The sessions by when their clients are expected back, each counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Sessions whose clients should have been back. No grace is given here.
    pub overdue: u64,
    /// Sessions expected within each of [`Self::BOUNDS_MS`], and not within the one before.
    pub within: [u64; Self::BOUNDS_MS.len()],
    /// Sessions expected later than that.
    pub later: u64,
    /// Sessions of clients about which nothing is known: they came once, and no hint was given.
    /// Under the policy `lru` all sessions count here.
    pub unknown: u64,
    /// Sessions not expected back: unused siblings, and those whose clients hold a newer one
    /// (TLS 1.3).
    pub never: u64,
}

impl Occupancy {
    /// Bounds from now on, in milliseconds: one and ten seconds, one and ten minutes, one hour.
    pub const BOUNDS_MS: [u64; 5] = [1_000, 10_000, 60_000, 600_000, 3_600_000];

    /// Returns the sum of both, as over shards.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        let bounded = self.within.iter_mut().zip(other.within);
        bounded.for_each(|(count, more)| *count += more);
        self.overdue += other.overdue;
        self.later += other.later;
        self.unknown += other.unknown;
        self.never += other.never;
        self
    }

    /// Returns every count with its name, soonest first, for printing.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        let [second, ten_seconds, minute, ten_minutes, hour] = self.within;
        [
            ("overdue", self.overdue),
            ("within_1_s", second),
            ("within_10_s", ten_seconds),
            ("within_1_min", minute),
            ("within_10_min", ten_minutes),
            ("within_1_h", hour),
            ("later", self.later),
            ("unknown", self.unknown),
            ("never", self.never),
        ]
    }

    /// Counts a session at `now_ticks` after the epoch of its shard.
    #[inline]
    fn count(&mut self, slot: &Slot, now_ticks: u64) {
        let expected = slot.expected();
        let returns_ticks = u64::from(order::returns(slot.seen, expected));
        let place = match expected {
            Expectation::NEVER => &mut self.never,
            Expectation::UNKNOWN => &mut self.unknown,
            _ if returns_ticks < now_ticks => &mut self.overdue,
            _ => self.bucket((returns_ticks - now_ticks) * TICK_MS),
        };
        *place += 1;
    }

    fn bucket(&mut self, wait_ms: u64) -> &mut u64 {
        let bound = Self::BOUNDS_MS.iter().position(|bound_ms| wait_ms <= *bound_ms);
        bound.map_or(&mut self.later, |bound| &mut self.within[bound])
    }
}

impl<R: Region> Shard<'_, R> {
    /// Counts the sessions in some of the slots. Returns `None` beyond the last slot that was ever
    /// used.
    pub(crate) fn occupancy(&mut self, now_ms: u64, from: u32, slots: u32) -> Option<Occupancy> {
        // Reading does not move the epoch: before it moves, no time here is beyond 32 bits.
        let now_ticks = now_ms.saturating_sub(self.header.epoch_ms) / TICK_MS;
        let used = self.slots.first(self.header.fresh).get(from as usize..)?;
        let some = used.iter().take(slots as usize).filter(|slot| slot.id_length() > 0);
        let mut occupancy = Occupancy::default();
        some.for_each(|slot| occupancy.count(slot, now_ticks));
        Some(occupancy).filter(|_| !used.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_what_it_bounds() {
        let bucket_of = |wait_ms| {
            let mut occupancy = Occupancy::default();
            *occupancy.bucket(wait_ms) += 1;
            occupancy.named().into_iter().find_map(|(name, count)| (count == 1).then_some(name))
        };
        for (wait_ms, name) in [
            (0, "within_1_s"),
            (1_000, "within_1_s"),
            (1_004, "within_10_s"),
            (60_000, "within_1_min"),
            (600_000, "within_10_min"),
            (3_600_000, "within_1_h"),
            (3_600_004, "later"),
        ] {
            assert_eq!(bucket_of(wait_ms), Some(name), "{wait_ms} ms");
        }
    }
}
