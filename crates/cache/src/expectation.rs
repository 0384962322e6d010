//! What is expected of a client: how far the interval it keeps is trusted, and which it is.

use crate::history::History;
use crate::interval::{Interval, IntervalClass};
use crate::settings::Prediction;

/// How far an interval is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Trust {
    /// It is the client's last gap, and no more.
    Loose,
    /// The client's last two gaps agree.
    Confirmed,
    /// The application said so; the client's past does not bear it out.
    Claimed,
    /// What the application said, or the client's own shortest gap where that is longer, and one
    /// of its last two gaps agrees.
    Kept,
}

/// What is expected of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expectation {
    /// How far the interval is trusted.
    pub trust: Trust,
    /// The interval at which it is expected.
    pub class: IntervalClass,
}

impl Expectation {
    /// Of a client of which nothing is known.
    pub const UNKNOWN: Self = Self { trust: Trust::Loose, class: IntervalClass(0) };
    /// A session that is not expected back: the unused sibling of another (TLS 1.3).
    pub const NEVER: Self = Self { trust: Trust::Loose, class: IntervalClass(255) };
    /// How many there are.
    pub(crate) const COUNT: usize = 4 * IntervalClass::COUNT;

    /// By the hint as far as it is believed, else by the client's history. Where only hints count,
    /// and there is none: what the caller has.
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

    /// At this interval, whoever says so.
    #[inline]
    pub fn every(interval: Interval) -> Self {
        Self { trust: Trust::Loose, class: IntervalClass::holding(interval) }
    }

    /// When a client heard of at `seen_ms` is expected, on the same clock. `None`: never.
    pub fn returns_ms(self, seen_ms: u64) -> Option<u64> {
        (self != Self::NEVER).then(|| seen_ms.saturating_add(self.class.interval().as_ms()))
    }

    /// By a client's own past.
    #[inline]
    pub fn learned(history: History) -> Self {
        let Some((interval, confirmed)) = history.interval() else { return Self::UNKNOWN };
        let trust = if confirmed { Trust::Confirmed } else { Trust::Loose };
        Self { trust, class: IntervalClass::holding(interval) }
    }

    /// By the application's word, as far as the client's past supports it: nobody is expected
    /// back sooner than it ever came.
    #[inline]
    pub fn hinted(history: History, hint: Interval) -> Self {
        let interval = history.least().map_or(hint, |least| least.max(hint));
        let trust = if history.keeps(interval) { Trust::Kept } else { Trust::Claimed };
        Self { trust, class: IntervalClass::holding(interval) }
    }

    /// Its place among all [`Self::COUNT`].
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.trust as u8) << 8 | usize::from(self.class.0)
    }

    /// The inverse of [`Self::index`], of its lowest ten bits.
    #[inline]
    pub(crate) fn from_index(index: usize) -> Self {
        let trust = match index >> 8 & 3 {
            0 => Trust::Loose,
            1 => Trust::Confirmed,
            2 => Trust::Claimed,
            _ => Trust::Kept,
        };
        Self { trust, class: IntervalClass(index as u8) }
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
        let minute = Expectation { trust: Trust::Confirmed, class: IntervalClass(8 * 10 + 15) };
        assert_eq!(Expectation::from_index(minute.index()), minute);
    }

    #[test]
    fn a_hint_is_believed_as_far_as_the_past_supports_it() {
        let second = Interval::from_ms(1_000);
        let hinted = |gaps: &[u32], hint: Interval| {
            let mut history = History::default();
            gaps.iter().for_each(|&gap| history.record(gap));
            let Expectation { trust, class } = Expectation::hinted(history, hint);
            (trust, class)
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
