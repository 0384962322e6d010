//! The handshakes in the course of time.

use std::collections::BTreeMap;

use serde::Serialize;

use super::uses::Uses;

/// The most intervals between the first and the last handshake.
const MOST_INTERVALS: i64 = 24;
/// The lengths of intervals, in seconds.
const STEPS_S: [i64; 20] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 604_800, 2_592_000,
];
const YEAR_S: i64 = 31_536_000;

/// The counted handshakes by the time of their beginning, without those that have none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct OverTime {
    /// The length of an interval, in seconds. Intervals begin at its multiples since 1970.
    pub step_s: i64,
    /// The intervals in which handshakes began, in order.
    pub intervals: Vec<Interval>,
}

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Interval {
    /// Its beginning, in seconds since 1970.
    pub begin_s: i64,
    /// The full handshakes.
    pub full: u64,
    /// The resumed handshakes.
    pub resumed: u64,
}

impl OverTime {
    pub(super) fn of(uses: &Uses) -> Self {
        let timed = || uses.iter().filter(|used| used.has_time);
        let begun = || timed().map(|used| used.begun_us.div_euclid(1_000_000));
        let (Some(first), Some(last)) = (begun().min(), begun().max()) else {
            return Self::default();
        };
        let is_long_enough = |step: &i64| (last - first) / step < MOST_INTERVALS;
        let years = (last - first) / YEAR_S / MOST_INTERVALS + 1;
        let step_s = STEPS_S.into_iter().find(is_long_enough).unwrap_or(years * YEAR_S);
        let mut intervals = BTreeMap::<i64, Interval>::new();
        for (used, begun_s) in timed().zip(begun()) {
            let begin_s = begun_s.div_euclid(step_s) * step_s;
            let interval = intervals.entry(begin_s).or_default();
            interval.begin_s = begin_s;
            *if used.is_full { &mut interval.full } else { &mut interval.resumed } += 1;
        }
        Self { step_s, intervals: intervals.into_values().collect() }
    }
}
