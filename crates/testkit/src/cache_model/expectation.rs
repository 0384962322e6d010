//! The documented rules of time and return times, implemented a second time.
//!
//! Times are ticks in `u64`; nothing is packed and nothing saturates but what is documented to.
//! The worth of a place comes from a [`ReturnTimes`] of the model's own, which records the same as
//! the engine's: its calculations have tests of their own, and a decision between two places of
//! nearly the same worth must not depend on rounding.

use std::sync::LazyLock;

use rejoin_cache::{Expectation, Interval, IntervalClass, Policy, Prediction, ReturnTimes};
use rejoin_cache::{Settings, TICK_MS, Trust};

/// 49 days: the longest interval.
const LONGEST_TICKS: u64 = 1 << 30;

/// The upper bounds of the classes: every tick up to eight, then eight to the octave.
static BOUNDS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut bounds: Vec<u64> = (0..=8).collect();
    while let Some(&octave) = bounds.last().filter(|last| **last < LONGEST_TICKS) {
        bounds.extend((1..=8).map(|eighths| octave + octave / 8 * eighths));
    }
    assert_eq!(bounds.len(), 225);
    bounds
});

/// A class of interval, by its place among the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(usize);

impl Class {
    /// Rounds up.
    fn of(interval_ticks: u64) -> Self {
        let interval = interval_ticks.min(LONGEST_TICKS);
        Self(BOUNDS.partition_point(|bound| *bound < interval))
    }

    fn ticks(self) -> u64 {
        BOUNDS[self.0]
    }
}

/// The expectation of a client's return, in the order in which lists are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expected {
    /// Nothing is known of it.
    Unknown,
    Back(Trust, Class),
    Never,
}

impl Expected {
    /// Returns the expectation of a return after this interval: a loose one of no time counts as unknown.
    fn back(trust: Trust, interval_ticks: u64) -> Self {
        match Class::of(interval_ticks) {
            Class(0) if trust == Trust::Loose => Self::Unknown,
            class => Self::Back(trust, class),
        }
    }

    /// How long after it was heard of; that of a client not known is at once.
    pub(crate) fn ticks(self) -> Option<u64> {
        match self {
            Self::Unknown => Some(0),
            Self::Back(_, class) => Some(class.ticks()),
            Self::Never => None,
        }
    }

    /// Converts to the engine's own type.
    fn told(self) -> Expectation {
        let class =
            |class: Class| IntervalClass::holding(Interval::from_ms(class.ticks() * TICK_MS));
        match self {
            Self::Unknown => Expectation::UNKNOWN,
            Self::Back(trust, interval) => Expectation { trust, class: class(interval) },
            Self::Never => Expectation::NEVER,
        }
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
    /// Adds a visit, unless it begins a new run of a client with a habit.
    pub(crate) fn record(&mut self, gap_ticks: u64) {
        if self.habit().is_none_or(|_| self.last.is_some_and(|last| gap_ticks <= 3 * last)) {
            *self = Self { last: Some(eleven_bits(gap_ticks)), before: self.last };
        }
    }

    /// The longer of two gaps that agree.
    fn habit(self) -> Option<u64> {
        let (last, before) = (self.last?, self.before?);
        agree(last, before).then_some(last.max(before))
    }

    /// The habit, or else the last gap, and which of the two it is.
    fn interval(self) -> Option<(u64, Trust)> {
        let habit = self.habit().map(|habit| (habit, Trust::Confirmed));
        habit.or_else(|| Some((self.last?, Trust::Loose)))
    }

    /// In milliseconds, and whether it is a habit.
    pub(crate) fn interval_ms(self) -> Option<(u64, bool)> {
        self.interval().map(|(ticks, trust)| (ticks * TICK_MS, trust == Trust::Confirmed))
    }

    /// The shortest gap known, which no hint may undercut.
    fn floor(self) -> u64 {
        [self.last, self.before].into_iter().flatten().min().unwrap_or(0)
    }

    fn keeps(self, interval_ticks: u64) -> bool {
        [self.last, self.before].into_iter().flatten().any(|gap| agree(gap, interval_ticks))
    }

    /// The part that a ghost keeps: the last gap, twice if the one before agrees.
    pub(crate) fn coarse(self) -> Self {
        let last = self.last.map(seven_bits);
        Self { last, before: last.filter(|_| self.habit().is_some()) }
    }
}

/// Within a fifth and half a second.
fn agree(gap_ticks: u64, interval_ticks: u64) -> bool {
    5 * gap_ticks.abs_diff(interval_ticks) <= interval_ticks + 5 * (500 / TICK_MS)
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

/// The cache's beliefs about clients: its settings, and what it has learned.
pub(crate) struct Beliefs {
    policy: Policy,
    prediction: Prediction,
    prior_ticks: u64,
    return_times: ReturnTimes,
}

impl Beliefs {
    /// The beliefs of a cache of so many sessions in all.
    pub(crate) fn new(settings: &Settings, sessions: u64) -> Self {
        Self {
            policy: settings.policy,
            prediction: settings.prediction,
            prior_ticks: interval_ticks(settings.prior_ms),
            return_times: ReturnTimes::new(sessions, Interval::from_ms(settings.prior_ms)),
        }
    }

    /// Returns true if places are weighed by what they are worth.
    pub(crate) fn weighs(&self) -> bool {
        self.policy == Policy::Predictive && self.prediction != Prediction::Hint
    }

    /// Returns the expectation of a client, from its hint, its past, and the expectation before.
    pub(crate) fn expectation(
        &self,
        past: Past,
        hint_ms: Option<u64>,
        before: Option<Expected>,
    ) -> Expected {
        let learned = || {
            past.interval().map_or(Expected::Unknown, |(ticks, trust)| Expected::back(trust, ticks))
        };
        match (self.policy, self.prediction, hint_ms.map(interval_ticks)) {
            (Policy::Lru, ..) => Expected::Unknown,
            (_, Prediction::Hint, hint) => {
                let before = before.filter(|before| hint.is_none() && *before != Expected::Never);
                let interval = hint.unwrap_or(self.prior_ticks);
                before.unwrap_or_else(|| Expected::back(Trust::Loose, interval))
            }
            (_, Prediction::Both, Some(hint)) => {
                let interval = hint.max(past.floor());
                let kept = past.keeps(interval);
                Expected::back(if kept { Trust::Kept } else { Trust::Claimed }, interval)
            }
            (_, Prediction::Both, None) | (_, Prediction::Learned, _) => learned(),
        }
    }

    /// The wait for a client is over. Nobody waits for one that is never expected.
    pub(crate) fn record(&self, told_by: u16, expected: Expected, age_ticks: u64, returned: bool) {
        if self.weighs() && expected != Expected::Never {
            self.return_times.record(told_by, expected.told(), in_32_bits(age_ticks), returned);
        }
    }

    /// Returns the worth of a place for a client heard of so long ago.
    pub(crate) fn worth(&self, expected: Expected, age_ticks: u64) -> u64 {
        self.return_times.worth(expected.told(), in_32_bits(age_ticks))
    }

    /// Returns the worth of remembering a client: where nothing is learned, it falls with age.
    pub(crate) fn worth_remembering(&self, expected: Expected, age_ticks: u64) -> u64 {
        if self.weighs() { self.worth(expected, age_ticks) } else { u64::MAX - age_ticks }
    }

    /// After every operation.
    pub(crate) fn learn(&self) {
        self.return_times.learn();
    }
}

fn in_32_bits(age_ticks: u64) -> u32 {
    u32::try_from(age_ticks).expect("the epoch moves before")
}
