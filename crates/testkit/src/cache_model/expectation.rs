//! The documented rules of time and return times, implemented a second time.
//!
//! Times are ticks in `u64`; nothing is packed and nothing saturates but what is documented to.
//! The worth of a place comes from a [`ReturnTimes`] of the model's own, which records the same as
//! the engine's: its calculations have tests of their own, and a decision between two places of
//! nearly the same worth must not depend on rounding.

use std::sync::LazyLock;

use rejoin_cache::{Expectation, Interval, IntervalClass, Policy, Prediction, ReturnTimes, Rhythm};
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

    /// Converts to the engine's own type.
    fn told(self) -> IntervalClass {
        IntervalClass::holding(Interval::from_ms(self.ticks() * TICK_MS))
    }
}

/// The expectation of a client's return, in the order in which lists are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expected {
    /// Nothing is known of it.
    Unknown,
    /// Back at an interval of this class, in this stage of its run, so many ticks before the bound.
    Back(Trust, Class, Rhythm, u64),
    /// It keeps no interval; this is its mean gap.
    Irregular(Class, Rhythm),
    Never,
}

impl Expected {
    /// Returns the expectation of a return after this interval: a loose one of no time counts as unknown.
    fn back(trust: Trust, interval_ticks: u64) -> Self {
        match Class::of(interval_ticks) {
            Class(0) if trust == Trust::Loose => Self::Unknown,
            class => Self::Back(trust, class, Rhythm::NONE, 0),
        }
    }

    /// How long after it was heard of; that of a client not known is at once.
    pub(crate) fn ticks(self) -> Option<u64> {
        match self {
            Self::Unknown => Some(0),
            Self::Back(_, class, _, lead) => Some(class.ticks() - lead),
            Self::Irregular(class, _) => Some(class.ticks()),
            Self::Never => None,
        }
    }

    /// The ticks before the bound of its class at which it is expected.
    pub(crate) fn lead(self) -> u64 {
        match self {
            Self::Back(.., lead) => lead,
            _ => 0,
        }
    }

    /// The number of its list where return times are learned.
    pub(crate) fn list(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Back(trust, class, ..) => 256 * trust as u32 + class.0 as u32,
            Self::Irregular(..) => 254,
            Self::Never => 255,
        }
    }

    /// Returns the interval that the application gave.
    pub(crate) fn hint(self) -> Option<Class> {
        match self {
            Self::Back(Trust::Claimed | Trust::Kept, class, ..) => Some(class).filter(|c| c.0 > 0),
            _ => None,
        }
    }

    /// Converts to the engine's own type.
    fn told(self) -> Expectation {
        match self {
            Self::Unknown => Expectation::UNKNOWN,
            Self::Back(trust, interval, rhythm, lead) => {
                let exact = Interval::from_ms((interval.ticks() - lead) * TICK_MS);
                Expectation::new(trust, interval.told()).with_rhythm(rhythm).exactly(exact)
            }
            Self::Irregular(gap, rhythm) => {
                Expectation::new(Trust::Loose, gap.told()).with_rhythm(rhythm)
            }
            Self::Never => Expectation::NEVER,
        }
    }
}

/// Milliseconds as an interval: whole ticks, rounded up, at most 49 days.
pub(crate) fn interval_ticks(ms: u64) -> u64 {
    ms.div_ceil(TICK_MS).min(LONGEST_TICKS)
}

/// A client's gaps and runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Past {
    last: Option<Class>,
    before: Option<Class>,
    /// The mean of the numbers of the gaps' classes, in quarters.
    mean: i64,
    gaps: u32,
    doubt: u32,
    /// While it has a habit: the gaps in this run, up to seven, and the visits in the one before; 0 if they are not known.
    position: u32,
    visits_before: u32,
}

impl Past {
    /// Adds a visit, unless it begins a new run of a client with a habit.
    pub(crate) fn record(&mut self, gap_ticks: u64) {
        let had_habit = self.habit().is_some();
        if had_habit && self.last.is_some_and(|last| gap_ticks > 3 * last.ticks()) {
            (self.position, self.visits_before) = (0, self.position + 1);
            return;
        }
        let before = *self;
        let class = Class::of(gap_ticks.max(1));
        let weight = f64::from((self.gaps + 1).min(16));
        let apart = (4 * class.0 as i64 - self.mean) as f64;
        let differs = self.last.is_some_and(|last| !agree(class.ticks(), last.ticks()));
        *self = Self {
            last: Some(class),
            before: self.last,
            mean: self.mean + (apart / weight).round() as i64,
            gaps: (self.gaps + 1).min(15),
            doubt: if differs { (self.doubt + 1).min(3) } else { self.doubt.saturating_sub(2) },
            ..before
        };
        if self.habit().is_none() {
            return;
        }
        // With a habit the mean is known to an octave of the last gap, and the number of gaps coarsely.
        let last = 4 * class.0 as i64;
        self.mean = self.mean.clamp(last - 32, last + 31).clamp(4, 4 * 224);
        if had_habit {
            self.position = (before.position + 1).min(7);
            let at_least = if before.position == 7 { 15 } else { self.position };
            self.gaps = before.gaps.max(roughly(at_least));
        } else {
            self.position = 2;
            self.visits_before = if self.gaps > 2 { 2 } else { 0 };
            self.gaps = roughly(self.gaps);
        }
    }

    /// The longer of two gaps that agree, if there is no doubt.
    fn habit(self) -> Option<Class> {
        let (last, before) = (self.last?, self.before?);
        (self.doubt == 0 && agree(last.ticks(), before.ticks())).then_some(last.max(before))
    }

    fn mean_class(self) -> Class {
        Class((self.mean + 3) as usize / 4)
    }

    /// In milliseconds, and whether it is a habit.
    pub(crate) fn interval_ms(self) -> Option<(u64, bool)> {
        let class = self.last.map(|_| self.habit().unwrap_or_else(|| self.mean_class()))?;
        Some((class.ticks() * TICK_MS, self.habit().is_some()))
    }

    fn learned(self) -> Expected {
        match (self.last, self.habit()) {
            (None, _) => Expected::Unknown,
            (_, Some(habit)) => Expected::Back(Trust::Confirmed, habit, Rhythm::NONE, 0),
            (Some(_), None) if self.gaps < 2 => {
                Expected::Back(Trust::Loose, self.mean_class(), Rhythm::NONE, 0)
            }
            (Some(last), None) => {
                let octaves = (4 * last.0 as i64 - self.mean) as f64 / 32.0;
                let rhythm = Rhythm::new((octaves + 0.5).floor() as i32, self.gaps);
                Expected::Irregular(self.mean_class(), rhythm)
            }
        }
    }

    fn hinted(self, hint_ticks: u64) -> Expected {
        let interval = hint_ticks.max(self.floor());
        let class = Class::of(interval);
        match self.keeps(interval) {
            true => Expected::Back(Trust::Kept, class, self.stage(class.ticks()), 0),
            false => Expected::back(Trust::Claimed, interval),
        }
    }

    /// The stage of its run. Without a habit, a gap of more than three intervals is the wait between two short runs.
    fn stage(self, interval_ticks: u64) -> Rhythm {
        if self.habit().is_some() {
            return Rhythm::of_run(self.position, self.visits_before);
        }
        let is_wait = |gap: Class| gap.ticks() > 3 * interval_ticks;
        match (self.last.map(is_wait), self.before.map(is_wait)) {
            (Some(false), _) if self.gaps == 1 => Rhythm::of_run(1, 0),
            (Some(true), Some(false)) => Rhythm::of_run(0, 2),
            (Some(false), Some(true)) => Rhythm::of_run(1, 2),
            _ => Rhythm::NONE,
        }
    }

    /// By what the application said, or else by what a ghost keeps of the past. A gap longer than what the application said was
    /// believed because the one before, which no ghost keeps, was not.
    pub(crate) fn expected(self, hint: Option<Class>) -> Expected {
        let Some(hint) = hint else { return self.learned() };
        let is_longer = self.habit().is_none() && self.last.is_some_and(|last| last > hint);
        let before = if is_longer { Some(hint) } else { self.before };
        Self { before, ..self }.hinted(hint.ticks())
    }

    /// Leaves out waits between two runs, if no more than two gaps are known and they do not agree.
    pub(crate) fn without(self, is_wait: impl Fn(Class) -> bool) -> Self {
        if self.gaps > 2 || self.habit().is_some() {
            return self;
        }
        let known = [self.before, self.last].into_iter().flatten();
        let left: Vec<Class> = known.filter(|gap| !is_wait(*gap)).collect();
        match left[..] {
            [] => Self::default(),
            [only] if self.gaps == 2 => {
                Self { last: Some(only), mean: 4 * only.0 as i64, gaps: 1, ..Self::default() }
            }
            _ => self,
        }
    }

    /// The shortest gap known, which no hint may undercut.
    fn floor(self) -> u64 {
        [self.last, self.before].into_iter().flatten().map(Class::ticks).min().unwrap_or(0)
    }

    fn keeps(self, interval_ticks: u64) -> bool {
        let gaps = [self.last, self.before].into_iter().flatten();
        gaps.into_iter().any(|gap| agree(gap.ticks(), interval_ticks))
    }

    /// The part that a ghost keeps: the last gap, twice if it is a habit; the mean; how many they are; the doubt; and the runs. Beside a
    /// hint there is room for the mean in two classes, and none for the doubt: there is some without a habit.
    pub(crate) fn coarse(self, is_hinted: bool) -> Self {
        let has_habit = self.habit().is_some();
        let Some(last) = self.last else { return Self::default() };
        // With a habit the mean is counted from an octave below the last gap.
        let from = if has_habit { 4 * last.0 as i64 - 32 } else { 0 };
        let mean = match is_hinted {
            true => from + (self.mean - from) / 8 * 8 + 4,
            false => self.mean,
        };
        Self {
            last: Some(last),
            before: Some(last).filter(|_| has_habit),
            mean: mean.clamp(4, 4 * 224),
            doubt: if is_hinted { u32::from(!has_habit) } else { self.doubt },
            ..self
        }
    }
}

/// Rounds a number of gaps down to 2, 4, 8 or 15.
fn roughly(gaps: u32) -> u32 {
    [15, 8, 4, 2].into_iter().find(|number| *number <= gaps).unwrap_or(2)
}

/// Within a fifth and half a second.
fn agree(gap_ticks: u64, interval_ticks: u64) -> bool {
    5 * gap_ticks.abs_diff(interval_ticks) <= interval_ticks / 5 * 5 + 5 * (500 / TICK_MS)
}

/// The cache's beliefs about clients: its settings, and what it has learned.
pub(crate) struct Beliefs {
    policy: Policy,
    prediction: Prediction,
    prior_ticks: u64,
    return_times: ReturnTimes,
}

impl Beliefs {
    /// The beliefs of a cache of so many sessions in all, which waits for so many clients.
    pub(crate) fn new(settings: &Settings, sessions: u64, clients: u64) -> Self {
        Self {
            policy: settings.policy,
            prediction: settings.prediction,
            prior_ticks: interval_ticks(settings.prior_ms),
            return_times: ReturnTimes::new(sessions, clients, Interval::from_ms(settings.prior_ms)),
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
        match (self.policy, self.prediction, hint_ms.map(interval_ticks)) {
            (Policy::Lru, ..) => Expected::Unknown,
            (_, Prediction::Hint, hint) => {
                let before = before.filter(|before| hint.is_none() && *before != Expected::Never);
                let interval = hint.unwrap_or(self.prior_ticks);
                before.unwrap_or_else(|| Expected::back(Trust::Loose, interval))
            }
            (_, Prediction::Both, Some(hint)) => self.with_due(past.hinted(hint), hint),
            (_, Prediction::Both, None) | (_, Prediction::Learned, _) => past.learned(),
        }
    }

    /// When a client is overdue, the engine's own rule says: of those with like intervals most have come by then.
    fn with_due(&self, expected: Expected, hint_ticks: u64) -> Expected {
        let hint = Interval::from_ms(hint_ticks * TICK_MS);
        let due_ms = self.return_times.with_due(expected.told(), hint).returns_ms(0);
        match (expected, due_ms) {
            (Expected::Back(trust, class, rhythm, _), Some(due_ms)) => {
                Expected::Back(trust, class, rhythm, class.ticks() - due_ms / TICK_MS)
            }
            (other, _) => other,
        }
    }

    /// A client came whose session was there.
    pub(crate) fn came(&self, expected: Expected, age_ticks: u64) {
        if self.weighs() {
            self.return_times.came(expected.told(), in_32_bits(age_ticks));
        }
    }

    /// Returns what counts of a past.
    pub(crate) fn counted(&self, past: Past) -> Past {
        let is_wait = |gap: Class| self.return_times.is_wait(gap.told());
        if self.weighs() { past.without(is_wait) } else { past }
    }

    /// The wait for a client is over. Nobody waits for one that is never expected.
    pub(crate) fn record(&self, expected: Expected, age_ticks: u64, returned: bool) {
        if self.weighs() && expected != Expected::Never {
            self.return_times.record(expected.told(), in_32_bits(age_ticks), returned);
        }
    }

    /// The client of a session is still waited for.
    pub(crate) fn look(&self, expected: Expected, age_ticks: u64) {
        if self.weighs() {
            self.return_times.look(expected.told(), in_32_bits(age_ticks));
        }
    }

    /// So many clients without a session are still waited for.
    pub(crate) fn watch(&self, expected: Expected, age_ticks: u64, clients: u32) {
        if self.weighs() {
            self.return_times.watch(expected.told(), in_32_bits(age_ticks), clients);
        }
    }

    /// Returns the worth of a place for a client heard of so long ago.
    pub(crate) fn worth(&self, expected: Expected, age_ticks: u64) -> u64 {
        self.return_times.worth(expected.told(), in_32_bits(age_ticks))
    }

    /// Returns the worth of remembering a client, which is greatest where two gaps or more are known that are no habit. Where nothing
    /// is learned, it falls with age.
    pub(crate) fn worth_remembering(&self, expected: Expected, age_ticks: u64) -> u64 {
        match expected {
            _ if !self.weighs() => u64::MAX - age_ticks,
            Expected::Irregular(..) => self.worth(expected, age_ticks).saturating_mul(4),
            _ => self.worth(expected, age_ticks),
        }
    }

    /// After every operation.
    pub(crate) fn learn(&self) {
        self.return_times.learn();
    }
}

fn in_32_bits(age_ticks: u64) -> u32 {
    u32::try_from(age_ticks).expect("the epoch moves before")
}
