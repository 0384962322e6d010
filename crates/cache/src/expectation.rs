//! An expectation of a client's return: the interval it keeps, and how far that is trusted.

use std::fmt;
use std::hint::select_unpredictable;

use crate::history::History;
use crate::interval::{Interval, IntervalClass, Lead, TICK_MS};
use crate::rhythm::Rhythm;
use crate::settings::Prediction;

/// The degree to which an interval is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Trust {
    /// The interval is the mean of the client's gaps; nothing else supports it.
    Loose,
    /// The client's last two gaps agree.
    Confirmed,
    /// The application gave the interval; the client's past does not support it.
    Claimed,
    /// The interval is the application's hint, or the client's own shortest gap where that is longer,
    /// and one of the client's last two gaps agrees with it.
    Kept,
}

/// The expectation of a client's return: at which interval it is expected, and how far that is trusted. How it comes is known, too,
/// if it keeps no interval, and if it keeps the application's, the stage of its run.
///
/// From the lowest bit: the rhythm and the class, eight bits each, two bits of trust, and from bit 24 how much sooner than the upper
/// bound of the class it is expected. Every place that an eviction weighs is read as one, so that it is a single word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expectation(u32);

impl Expectation {
    /// The expectation of a client about which nothing is known.
    pub const UNKNOWN: Self = Self::new(Trust::Loose, IntervalClass(0));
    /// The expectation of a session that will not come back: the unused sibling of another (TLS 1.3).
    pub const NEVER: Self = Self::new(Trust::Loose, IntervalClass(255));
    const RHYTHM_BITS: u32 = 8;
    const LEAD_SHIFT: u32 = 24;
    /// The number of expectations.
    pub(crate) const COUNT: usize = 4 * IntervalClass::COUNT;

    /// Makes the expectation of a client that keeps this interval.
    pub const fn new(trust: Trust, class: IntervalClass) -> Self {
        Self::from_index((trust as usize) << 8 | class.0 as usize)
    }

    /// Returns the same of a client that comes so.
    #[must_use]
    #[inline]
    pub const fn with_rhythm(self, rhythm: Rhythm) -> Self {
        Self(self.0 >> Self::RHYTHM_BITS << Self::RHYTHM_BITS | rhythm.0 as u32)
    }

    /// Returns the same of a client that is expected after exactly this interval, if that is of the class.
    #[must_use]
    #[inline]
    pub fn exactly(self, interval: Interval) -> Self {
        self.with_lead(self.class().lead(interval))
    }

    /// Returns the same of a client that is expected so much sooner than after the upper bound of its class.
    #[must_use]
    #[inline]
    pub(crate) const fn with_lead(self, lead: Lead) -> Self {
        Self(self.0 & ((1 << Self::LEAD_SHIFT) - 1) | (lead.0 as u32) << Self::LEAD_SHIFT)
    }

    #[inline]
    pub(crate) const fn lead(self) -> Lead {
        Lead((self.0 >> Self::LEAD_SHIFT) as u8)
    }

    /// Returns the interval at which it is expected, in ticks.
    #[inline]
    pub(crate) fn interval_ticks(self) -> u32 {
        self.class().upper_bound_ticks() - self.class().lead_ticks(self.lead())
    }

    /// Returns the degree to which the interval is trusted.
    #[inline]
    pub const fn trust(self) -> Trust {
        match self.index() >> 8 {
            0 => Trust::Loose,
            1 => Trust::Confirmed,
            2 => Trust::Claimed,
            _ => Trust::Kept,
        }
    }

    /// Returns the interval at which the client is expected.
    #[inline]
    pub const fn class(self) -> IntervalClass {
        IntervalClass(self.index() as u8)
    }

    /// Returns how it comes, if it keeps no interval, or the stage of its run, if it keeps the application's.
    #[inline]
    pub const fn rhythm(self) -> Rhythm {
        Rhythm(self.0 as u8)
    }

    /// Predicts from the hint as far as it is believed, or else from the client's history. Where
    /// only hints count and there is none, returns the caller's `otherwise`.
    #[inline]
    pub fn predicted(
        prediction: Prediction,
        history: History,
        hint_ms: Option<u64>,
        otherwise: Self,
    ) -> Self {
        let hint = hint_ms.map(Interval::from_ms);
        match (prediction, hint) {
            (Prediction::Hint, Some(hint)) => Self::every(hint),
            (Prediction::Hint, None) => otherwise,
            (Prediction::Both, Some(hint)) => Self::hinted(history, hint),
            (Prediction::Both | Prediction::Learned, _) => Self::learned(history),
        }
    }

    /// Expects a client at this interval, whatever the source.
    #[inline]
    pub fn every(interval: Interval) -> Self {
        Self::new(Trust::Loose, IntervalClass::holding(interval))
    }

    /// Returns when a client last seen at `seen_ms` is expected, on the same clock; `None` if never.
    pub fn returns_ms(self, seen_ms: u64) -> Option<u64> {
        let interval_ms = u64::from(self.interval_ticks()) * TICK_MS;
        (self != Self::NEVER).then(|| seen_ms.saturating_add(interval_ms))
    }

    /// Predicts from the client's own past.
    #[inline]
    pub fn learned(history: History) -> Self {
        match history.class() {
            None => Self::UNKNOWN,
            Some((class, true)) => Self::new(Trust::Confirmed, class),
            Some((class, false)) => Self::new(Trust::Loose, class).with_rhythm(history.rhythm()),
        }
    }

    /// Predicts from the application's hint as far as the client's past supports it: no client is
    /// expected back sooner than it ever came.
    #[inline]
    pub fn hinted(history: History, hint: Interval) -> Self {
        let interval = history.least().map_or(hint, |least| least.max(hint));
        let class = IntervalClass::holding(interval);
        if history.keeps(interval) {
            Self::new(Trust::Kept, class).with(history)
        } else {
            Self::new(Trust::Claimed, class)
        }
    }

    /// Returns true if nothing is known about the client: [`Self::UNKNOWN`].
    #[inline]
    pub(crate) fn is_unknown(self) -> bool {
        self.index() == Self::UNKNOWN.index()
    }

    /// Returns true if the session will not come back: [`Self::NEVER`].
    #[inline]
    pub(crate) fn is_never(self) -> bool {
        self.class().0 == Self::NEVER.class().0
    }

    /// Returns true if the client keeps no interval, and more than one gap of it is known.
    #[inline]
    pub(crate) fn is_irregular(self) -> bool {
        self.rhythm().is_loose()
    }

    /// Returns its place among all [`Self::COUNT`].
    #[inline]
    pub(crate) const fn index(self) -> usize {
        (self.0 >> Self::RHYTHM_BITS) as usize & (Self::COUNT - 1)
    }

    /// Returns the expectation of an index and a history; the inverse of [`Self::index`].
    #[inline]
    pub(crate) fn of_index(index: usize, history: History) -> Self {
        Self::from_index(index).with(history)
    }

    /// Returns the same with what else a history says.
    #[inline(always)]
    fn with(self, history: History) -> Self {
        if self.trust() == Trust::Kept {
            return self.with_rhythm(history.stage(self.class().interval()));
        }
        let may_be = Self::may_be_irregular(self.index());
        // Clients of either kind come in no order, so that a branch would be mispredicted.
        self.with_rhythm(select_unpredictable(may_be, history.rhythm(), Rhythm::NONE))
    }

    /// Returns true if a client with an expectation of this index keeps no interval, if enough gaps are known.
    #[inline]
    pub(crate) fn may_be_irregular(index: usize) -> bool {
        (1..=usize::from(IntervalClass::LONGEST)).contains(&index)
    }

    /// Returns the expectation of an index. Only the lowest ten bits count.
    #[inline]
    pub(crate) const fn from_index(index: usize) -> Self {
        Self((index as u32 & (Self::COUNT as u32 - 1)) << Self::RHYTHM_BITS)
    }
}

impl fmt::Debug for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expectation")
            .field("trust", &self.trust())
            .field("class", &self.class())
            .field("rhythm", &self.rhythm())
            .field("lead", &self.lead())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_and_its_index_are_one() {
        for index in 0..Expectation::COUNT {
            assert_eq!(Expectation::from_index(index).index(), index);
        }
        let minute = Expectation::new(Trust::Confirmed, IntervalClass(8 * 10 + 15));
        assert_eq!(Expectation::from_index(minute.index()), minute);
    }

    #[test]
    fn a_hint_is_believed_as_far_as_the_past_supports_it() {
        let second = Interval::from_ms(1_000);
        let hinted = |gaps: &[u32], hint: Interval| {
            let mut history = History::default();
            gaps.iter().for_each(|&gap| history.record(gap));
            let expected = Expectation::hinted(history, hint);
            (expected.trust(), expected.class())
        };
        let holding = |ticks| IntervalClass::holding(Interval::from_ticks(ticks));
        assert_eq!(hinted(&[], second), (Trust::Claimed, holding(250)));
        assert_eq!(hinted(&[15_000], second), (Trust::Kept, holding(15_000)));
        assert_eq!(hinted(&[250], second), (Trust::Kept, holding(250)));
        assert_eq!(hinted(&[30_000, 15_000], second), (Trust::Kept, holding(14_992)));
        let hour = Interval::from_ms(3_600_000);
        assert_eq!(hinted(&[15_000, 15_000], hour), (Trust::Claimed, IntervalClass::holding(hour)));
    }
}
