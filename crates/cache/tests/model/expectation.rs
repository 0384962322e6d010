//! What the documentation says about time and return times, written down a second time.
//!
//! Times are ticks in `u64`; nothing is packed and nothing saturates but what is documented to.

use std::sync::LazyLock;

use rejoin_cache::{Policy, Prediction, Settings, TICK_MS};

/// 49 days: the longest interval.
const LONGEST_TICKS: u64 = 1 << 30;

/// The upper bounds of the classes: every tick up to eight, then eight to the octave.
static BOUNDS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut bounds: Vec<u64> = (0..=8).collect();
    while let Some(&octave) = bounds.last().filter(|last| **last < LONGEST_TICKS) {
        bounds.extend((1..=8).map(|eighths| octave + octave / 8 * eighths));
    }
    assert_eq!(bounds.len(), Class::COUNT);
    bounds
});

/// A class of interval, by its place among the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(usize);

impl Class {
    pub(crate) const COUNT: usize = 225;

    /// Rounds up.
    fn of(interval_ticks: u64) -> Self {
        let interval = interval_ticks.min(LONGEST_TICKS);
        Self(BOUNDS.partition_point(|bound| *bound < interval))
    }

    pub(crate) fn ticks(self) -> u64 {
        BOUNDS[self.0]
    }

    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// Milliseconds as an interval: whole ticks, rounded up, at most 49 days.
pub(crate) fn interval_ticks(ms: u64) -> u64 {
    ms.div_ceil(TICK_MS).min(LONGEST_TICKS)
}

/// A client's last two gaps, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Past {
    last: Option<u64>,
    before: Option<u64>,
}

impl Past {
    fn record(&mut self, gap_ticks: u64) {
        if let (Some(last), Some(before)) = (self.last, self.before) {
            let agree = last.abs_diff(before) * 10 <= before + 10 * (500 / TICK_MS);
            if agree && gap_ticks > 3 * last {
                return;
            }
        }
        *self = Self { last: Some(eleven_bits(gap_ticks)), before: self.last };
    }

    /// The interval to expect: the shorter gap.
    pub(crate) fn learned(self) -> Option<u64> {
        [self.last, self.before].into_iter().flatten().min()
    }

    pub(crate) fn learned_ms(self) -> Option<u64> {
        self.learned().map(|ticks| ticks * TICK_MS)
    }

    /// As a ghost keeps it.
    pub(crate) fn coarse(self) -> Self {
        Self { last: self.last.map(seven_bits), before: self.before.map(seven_bits) }
    }

    /// What a hint may not undercut.
    fn floor(self) -> Option<u64> {
        self.last?.min(self.before?).into()
    }
}

/// A gap as a ghost keeps it: seven bits after the leading one, rounded down to 64 ms at least.
fn seven_bits(gap_ticks: u64) -> u64 {
    const LEAST: u64 = 64 / TICK_MS;
    let unit = LEAST.max(1 << gap_ticks.ilog2().saturating_sub(7));
    (gap_ticks / unit * unit).max(LEAST)
}

/// A gap as it is kept: eleven bits after the leading one, rounded down, at least a tick.
fn eleven_bits(gap_ticks: u64) -> u64 {
    let gap = gap_ticks.clamp(1, LONGEST_TICKS);
    let dropped = gap.ilog2().saturating_sub(11);
    gap >> dropped << dropped
}

/// What the cache believes of clients: its settings, and the population's first gaps.
pub(crate) struct Beliefs {
    policy: Policy,
    prediction: Prediction,
    first_gaps: Vec<u64>,
    seen: u64,
    typical: Class,
}

impl Beliefs {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            policy: settings.policy,
            prediction: settings.prediction,
            first_gaps: vec![0; BOUNDS.len()],
            seen: 0,
            typical: Class::of(interval_ticks(settings.prior_ms)),
        }
    }

    /// The interval to expect of a client, by its hint, its past, and what was expected before.
    pub(crate) fn expectation(
        &self,
        past: Past,
        hint_ms: Option<u64>,
        before: Option<Class>,
    ) -> Class {
        if self.policy == Policy::Lru {
            return Class(0);
        }
        let hint = hint_ms.map(interval_ticks);
        let interval = match (self.prediction, hint) {
            (Prediction::Hint, hint) => hint,
            (Prediction::Learned, _) | (Prediction::Both, None) => past.learned(),
            (Prediction::Both, Some(hint)) => Some(hint.max(past.floor().unwrap_or(0))),
        };
        interval.map(Class::of).or(before).unwrap_or(self.typical)
    }

    /// A client came `gap_ticks` after it was last heard of.
    pub(crate) fn record_visit(&mut self, past: &mut Past, gap_ticks: u64) {
        if past.last.is_none() {
            self.record_first_gap(Class::of(gap_ticks));
        }
        past.record(gap_ticks);
    }

    /// Every 64 first gaps the 90th percentile is the new expectation; every 64 times that the
    /// counts are halved.
    fn record_first_gap(&mut self, gap: Class) {
        self.first_gaps[gap.0] += 1;
        self.seen += 1;
        if self.seen.is_multiple_of(64) {
            let total: u64 = self.first_gaps.iter().sum();
            let at_most = |class: usize| self.first_gaps[..=class].iter().sum::<u64>();
            let ninety = (0..BOUNDS.len()).find(|class| at_most(*class) * 10 >= total * 9);
            self.typical = Class(ninety.expect("all of them are at most the longest"));
        }
        if self.seen.is_multiple_of(64 * 64) {
            self.first_gaps.iter_mut().for_each(|count| *count -= *count / 2);
        }
    }
}
