//! Where a return time comes from: a client's own past visits, and the population's.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::interval::{Gap, Interval, IntervalClass, TICK_MS};

/// The last two gaps between a client's visits: four bytes that travel with the client, from a
/// consumed TLS 1.3 ticket to its successor and from an evicted session to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct History {
    gap: Gap,
    gap_before: Gap,
}

impl History {
    /// Adds a visit that came `ticks` after the last. A client whose two gaps agree and who was
    /// then away for more than three of them has begun a new run of visits: the absence says
    /// nothing about its habit, and is not recorded.
    pub(crate) fn record(&mut self, ticks: u32) {
        if let Some(habit) = self.habit()
            && u64::from(ticks) > 3 * u64::from(habit)
        {
            return;
        }
        self.gap_before = self.gap;
        self.gap = Gap::from_ticks(ticks);
    }

    /// Whether no gap is known yet.
    pub(crate) fn is_empty(self) -> bool {
        self.gap == Gap::default()
    }

    /// The interval to expect: the shorter of the last two gaps. A client that then stays away
    /// is overdue sooner, which costs the cache less than holding its place for the longer one.
    pub fn learned(self) -> Option<Interval> {
        let gap = self.gap.ticks()?;
        Some(Interval::from_ticks(self.gap_before.ticks().map_or(gap, |before| before.min(gap))))
    }

    /// What a hint may not undercut: the shorter gap, once two are known. It stops a client from
    /// buying a place by claiming to be back sooner than it ever was.
    pub(crate) fn least_believable(self) -> Option<Interval> {
        self.gap_before.ticks().and_then(|_| self.learned())
    }

    /// Both gaps in 24 bits.
    pub(crate) fn coarse(self) -> u32 {
        self.gap.coarse() << 12 | self.gap_before.coarse()
    }

    pub(crate) fn from_coarse(coarse: u32) -> Self {
        let (gap, gap_before) = (Gap::from_coarse(coarse >> 12), Gap::from_coarse(coarse));
        Self { gap, gap_before }
    }

    /// The gap of a client whose last two agree within a tenth and half a second.
    fn habit(self) -> Option<u32> {
        const HALF_A_SECOND: u32 = (500 / TICK_MS) as u32;
        let (gap, before) = (self.gap.ticks()?, self.gap_before.ticks()?);
        (gap.abs_diff(before) <= before / 10 + HALF_A_SECOND).then_some(gap)
    }
}

/// What is known of clients in general: the distribution of their *first* gaps, which is the
/// expectation for a client seen once. One for all shards, so that a small shard learns from
/// everyone. Lock-free; its figures are approximate under concurrency.
///
/// The expectation is the 90th percentile: the clients that are seen again are those that return
/// soonest, so the median of what is seen would sink with every eviction.
#[derive(Debug)]
pub struct Population {
    counts: [AtomicU32; IntervalClass::COUNT],
    seen: AtomicU32,
    expected: AtomicU8,
}

impl Population {
    /// First gaps between two estimates.
    const BATCH: u32 = 64;
    /// First gaps after which the counts are halved, so that old ones fade.
    const FADE: u32 = 64 * Self::BATCH;

    /// Expects `prior` until the first few dozen first gaps were seen.
    pub fn new(prior: Interval) -> Self {
        Self {
            counts: [const { AtomicU32::new(0) }; IntervalClass::COUNT],
            seen: AtomicU32::new(0),
            expected: AtomicU8::new(IntervalClass::holding(prior).0),
        }
    }

    /// The class to expect of a client without history.
    pub fn expected(&self) -> IntervalClass {
        IntervalClass(self.expected.load(Ordering::Relaxed))
    }

    /// Records a client's first gap.
    pub fn record(&self, first_gap: IntervalClass) {
        self.counts[usize::from(first_gap.0)].fetch_add(1, Ordering::Relaxed);
        let seen = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if seen.is_multiple_of(Self::BATCH) {
            self.estimate();
        }
        if seen.is_multiple_of(Self::FADE) {
            self.counts.iter().for_each(|count| {
                let half = count.load(Ordering::Relaxed) / 2;
                count.fetch_sub(half, Ordering::Relaxed);
            });
        }
    }

    fn estimate(&self) {
        let total: u64 = self.counts.iter().map(|c| u64::from(c.load(Ordering::Relaxed))).sum();
        let mut below = 0;
        for (class, count) in self.counts.iter().enumerate() {
            below += u64::from(count.load(Ordering::Relaxed));
            if below * 10 >= total * 9 {
                self.expected.store(class as u8, Ordering::Relaxed);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(gaps: &[u32]) -> History {
        let mut history = History::default();
        gaps.iter().for_each(|&gap| history.record(gap));
        history
    }

    #[test]
    fn a_new_run_keeps_the_habit() {
        let steady = history(&[15_000, 15_010]);
        assert_eq!(history(&[15_000, 15_010, 690_000]), steady);
        assert_ne!(history(&[15_000, 15_010, 30_000]), steady);
        assert_eq!(history(&[15_000, 690_000]).learned(), Some(Interval::from_ticks(15_000)));
    }

    #[test]
    fn the_expectation_is_the_ninetieth_percentile() {
        let population = Population::new(Interval::from_ms(1_000));
        assert_eq!(population.expected(), IntervalClass::holding(Interval::from_ms(1_000)));
        for gap in 0..640_u64 {
            population.record(IntervalClass::holding(Interval::from_ms(1_000 * (1 + gap % 10))));
        }
        assert_eq!(population.expected(), IntervalClass::holding(Interval::from_ms(9_000)));
    }
}
