//! Time inside a shard: ticks, gaps between visits, and the logarithmic classes of intervals.
//!
//! A class holds all intervals between two bounds, eight classes to the octave, and stands for
//! the larger bound: because it rounds *up*, no client is called overdue before it is. Eight to
//! the octave keep the error below one part in eight.

/// Milliseconds in a tick, the unit of time inside a shard.
pub const TICK_MS: u64 = 4;

/// The longest interval, in ticks: 49 days.
const LONGEST_TICKS: u32 = 1 << 30;

/// A length of time, in ticks of [`TICK_MS`], at most 49 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Interval(u32);

impl Interval {
    /// The longest there is, in milliseconds.
    pub(crate) const LONGEST_MS: u64 = LONGEST_TICKS as u64 * TICK_MS;

    /// Rounds up to whole ticks; more than 49 days becomes 49 days.
    pub fn from_ms(ms: u64) -> Self {
        Self(ms.div_ceil(TICK_MS).min(u64::from(LONGEST_TICKS)) as u32)
    }

    /// Makes an interval of ticks; more than 49 days becomes 49 days.
    pub(crate) const fn from_ticks(ticks: u32) -> Self {
        Self(if ticks < LONGEST_TICKS { ticks } else { LONGEST_TICKS })
    }

    pub(crate) fn ticks(self) -> u32 {
        self.0
    }

    /// Returns the length in milliseconds.
    pub fn as_ms(self) -> u64 {
        u64::from(self.0) * TICK_MS
    }
}

/// One of the 225 classes of interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IntervalClass(pub(crate) u8);

impl IntervalClass {
    /// The number of classes, with a few numbers that mean none.
    pub(crate) const COUNT: usize = 256;
    /// The class of the longest interval.
    pub(crate) const LONGEST: u8 = 224;

    /// Returns the class whose upper bound is the first at or above `interval`.
    #[inline]
    pub fn holding(interval: Interval) -> Self {
        let ticks = interval.0;
        let shift = (ticks | 8).ilog2() - 3;
        // Rounded up; none of zero.
        let eighths = (ticks.wrapping_sub(1) >> shift).wrapping_add(1);
        Self((shift * 8 + eighths) as u8)
    }

    /// Returns the upper bound of the class.
    pub fn interval(self) -> Interval {
        Interval(self.upper_bound_ticks())
    }

    /// Returns how much shorter an interval of this class is than its upper bound; nothing if it is of another class.
    #[inline]
    pub(crate) fn lead(self, interval: Interval) -> Lead {
        if Self::holding(interval) != self {
            return Lead::NONE;
        }
        let shorter = u64::from(self.upper_bound_ticks() - interval.0);
        Lead((shorter << Lead::BITS >> self.width_bits()) as u8)
    }

    /// Returns the ticks of a lead.
    #[inline]
    pub(crate) fn lead_ticks(self, lead: Lead) -> u32 {
        (u64::from(lead.0) << self.width_bits() >> Lead::BITS) as u32
    }

    /// The logarithm of the width of the class, which is at most that.
    #[inline]
    const fn width_bits(self) -> u32 {
        (self.0 as u32 / 8).saturating_sub(1)
    }

    pub(crate) const fn upper_bound_ticks(self) -> u32 {
        UPPER_BOUNDS_TICKS[self.0 as usize]
    }
}

/// A lead: how much sooner than the upper bound of its class an interval ends, in 256ths of the width of the class. It is rounded
/// down, so that no client is called overdue before it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Lead(pub(crate) u8);

impl Lead {
    pub(crate) const NONE: Self = Self(0);
    const BITS: u32 = u8::BITS;
}

/// The upper bounds of all classes.
const UPPER_BOUNDS_TICKS: [u32; IntervalClass::COUNT] = {
    let mut bounds = [LONGEST_TICKS; IntervalClass::COUNT];
    let mut class = 0;
    while class <= IntervalClass::LONGEST as u32 {
        bounds[class as usize] =
            if class <= 8 { class } else { (8 + class % 8) << (class / 8 - 1) };
        class += 1;
    }
    bounds
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_rounds_up_by_less_than_an_eighth() {
        for ticks in (0..100_000).chain((0..LONGEST_TICKS).step_by(99_991)).chain([LONGEST_TICKS]) {
            let upper = IntervalClass::holding(Interval(ticks)).interval().0;
            assert!(upper >= ticks, "{ticks} -> {upper}");
            assert!(u64::from(upper) * 8 <= u64::from(ticks) * 9, "{ticks} -> {upper}");
        }
    }

    #[test]
    fn a_lead_is_rounded_down_to_a_256th_of_the_class() {
        let all = (0..100_000).chain((0..LONGEST_TICKS).step_by(99_991)).chain([LONGEST_TICKS]);
        for interval in all.map(Interval) {
            let class = IntervalClass::holding(interval);
            let ends = class.upper_bound_ticks() - class.lead_ticks(class.lead(interval));
            assert!(ends >= interval.0, "{ends} of {interval:?}");
            assert!(
                ends - interval.0 <= class.upper_bound_ticks() / 2_048,
                "{ends} of {interval:?}"
            );
            for other in [class.0.wrapping_sub(1), class.0 + 1].map(IntervalClass) {
                assert_eq!(other.lead(interval), Lead::NONE);
            }
        }
    }

    #[test]
    fn every_class_holds_its_own_upper_bound() {
        for class in 0..=IntervalClass::LONGEST {
            let class = IntervalClass(class);
            assert_eq!(IntervalClass::holding(class.interval()), class);
        }
        assert_eq!(IntervalClass::holding(Interval(LONGEST_TICKS)).0, IntervalClass::LONGEST);
    }
}
