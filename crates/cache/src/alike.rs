//! Clients that are alike: when one came last says all, and what its gaps were says nothing.
//!
//! Rows of clients with like gaps tell clients apart, and each row learns for itself (see [`crate::return_time`]). If the gaps of
//! all clients are drawn alike, rows differ by chance only; and if some gaps are very long, an age in multiples of a client's mean
//! gap says less than the age. Then one row for all, by age alone, is nearer to the truth.
//!
//! Whether it is so is found by a comparison of how many clients came, of each group, with how many do of all clients of these
//! ages (Mantel, "Evaluation of survival data and two new rank order statistics arising in its consideration", 1966). The ages
//! are those of a sample of the clients waited for, so that it does not matter how long each was waited for. A group has mean
//! gaps of one octave, and last gaps about as far from it. If what is found in the groups differs from what is expected by
//! hardly more than chance, clients are alike in all octaves of which enough are known. There must be several: clients of one
//! mean gap say nothing about those of another.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::ages::{Row, UNKNOWN_BINS, UNKNOWN_TICKS};
use crate::expectation::{Expectation, Trust};
use crate::history::Rhythm;
use crate::interval::{Interval, IntervalClass};
use crate::return_time::{Counts, FADE, ONE, UNIT, add, fade, number, smoothed, worth_of};

/// The number of clients of which one is recorded.
pub(crate) const SAMPLED: u32 = 4;

/// Octaves of mean gaps, up to the longest. The first is that of clients without a known gap.
const OCTAVES: usize = 1 + LONGEST_CLASS as usize / 8;
const LONGEST_CLASS: u8 = 224;
/// Groups of an octave: clients of one known gap or two that agree, and all others by how far the last gap is from the mean.
const GROUPS_OF_OCTAVE: usize = 1 + Rhythm::APART;
const GROUPS: usize = OCTAVES * GROUPS_OF_OCTAVE;

/// The unit of rates: the mean of all clients waited for.
const MEAN_RATE: f64 = 256.0;
/// The highest rate that is told apart, in means.
const HIGHEST_RATE: f64 = 256.0;

/// The most by which groups of clients that are alike differ beyond chance: the square of the share by which more or fewer came
/// than expected. What is learned of each row is hardly ever more exact than such a fifth.
const MOST_DIFFERENCE: f64 = 0.05;
/// The most chance that is put down to the sample, in that of the clients themselves. A sample that is worse shows nothing.
const MOST_BY_SAMPLE: f64 = 1.0;
/// The number of clients expected of an octave without which nothing is said about it.
const FEWEST_EXPECTED: f64 = 16.0;
/// The number of octaves of known gaps in which clients must be alike.
const FEWEST_OCTAVES: u32 = 4;
/// The share by which more or fewer clients of an octave may come than expected.
const MOST_APART: f64 = 1.0 / 3.0;
/// The standard deviations by which they may.
const MOST_DEVIATIONS: f64 = 2.0;

/// Counts by class of age and by group. See [`crate::return_time::Waits`].
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Alike {
    returned: [AtomicU32; UNKNOWN_BINS],
    given_up: [AtomicU32; UNKNOWN_BINS],
    still: [AtomicU32; UNKNOWN_BINS],
    worth: [AtomicU32; UNKNOWN_BINS],
    /// The rate at which clients come.
    rate: [AtomicU32; UNKNOWN_BINS],
    /// The rates of a sample of clients that are waited for, and the number of those that came, since the last comparison.
    rates: [AtomicU32; GROUPS],
    came: [AtomicU32; GROUPS],
    /// By octave, how many were expected to come lately, and how many came.
    expected_lately: [AtomicU32; OCTAVES],
    came_lately: [AtomicU32; OCTAVES],
    /// The difference of the groups lately, as a number of clients, and the number that came.
    difference: AtomicI32,
    compared: AtomicU32,
    /// A bit for each octave of clients that are alike.
    octaves: AtomicU32,
}

impl Alike {
    /// Records the end of a wait for one of so many clients as are [`SAMPLED`].
    pub(crate) fn record(&self, expected: Expectation, age_ticks: u32, returned: bool) {
        if !is_of_past(expected) {
            return;
        }
        let age = class_of(age_ticks);
        if returned {
            add(&self.returned[age], SAMPLED * ONE);
            add(&self.came[group_of(expected)], 1);
        } else {
            add(&self.given_up[age], SAMPLED * ONE);
        }
    }

    /// Records that clients are still waited for: so many times as many as are [`SAMPLED`].
    pub(crate) fn watch(&self, expected: Expectation, age_ticks: u32, samples: u32) {
        if !is_of_past(expected) {
            return;
        }
        let age = class_of(age_ticks);
        add(&self.still[age], samples * SAMPLED * ONE);
        add(&self.rates[group_of(expected)], samples.wrapping_mul(get(&self.rate[age])));
    }

    /// Returns the samples of clients that are still waited for.
    pub(crate) fn samples(&self) -> &[AtomicU32] {
        &self.still
    }

    /// Returns true if some clients are alike.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        get(&self.octaves) != 0
    }

    /// Returns the worth of a place that is kept for a client, if it is of those that are alike.
    pub(crate) fn worth(&self, expected: Expectation, age_ticks: u32) -> Option<u64> {
        if get(&self.octaves) >> octave_of(expected) & 1 == 0 || !is_of_past(expected) {
            return None;
        }
        let per_unit = get(&self.worth[class_of(age_ticks)]);
        Some(u64::from(per_unit) * ((1 << 40) / UNKNOWN_TICKS))
    }

    /// Finds out which clients are alike, and calculates the worth of their places. Each client of the sample stands for so many
    /// that are waited for. Old counts fade.
    pub(crate) fn learn(&self, weight: f64, prior: impl Fn(usize) -> f64) {
        self.compare();
        let row = Row::Unknown;
        let [returned, given_up, still] = [&self.returned, &self.given_up, &self.still]
            .map(|counts| counts.each_ref().map(number));
        let ended = returned.iter().zip(&given_up).map(|(returned, given_up)| returned + given_up);
        let waited = ended.zip(&still).map(|(ended, still)| ended + weight * still).collect();
        let mut hazards = Counts { waited, returned: returned.to_vec() }.hazards(1.0, prior);
        let rate = |bin: usize| match row.end(bin) - row.start(bin) {
            width if width > 0.0 => hazards[bin] / width,
            _ => 0.0,
        };
        let rates: Vec<f64> = (0..hazards.len()).map(rate).collect();
        let of_all: f64 = rates.iter().zip(&still).map(|(rate, still)| rate * still).sum();
        let mean = of_all / still.iter().sum::<f64>();
        if mean > 0.0 {
            for (kept, rate) in self.rate.iter().zip(rates) {
                set(kept, ((rate / mean).min(HIGHEST_RATE) * MEAN_RATE) as u32);
            }
        }
        // The last bin has no end.
        hazards.pop();
        hazards.push(0.0);
        let worth = smoothed(&smoothed(&worth_of(row, hazards)));
        for (kept, worth) in self.worth.iter().zip(worth) {
            set(kept, (worth * UNIT) as u32);
        }
        self.returned.iter().chain(&self.given_up).for_each(fade);
    }

    /// Compares how many clients of each group came with how many were expected.
    fn compare(&self) {
        let taken = |counts: &[AtomicU32; GROUPS]| {
            let taken = counts.each_ref().map(|count| f64::from(get(count)));
            counts.iter().for_each(|count| set(count, 0));
            taken
        };
        let (rates, came) = (taken(&self.rates), taken(&self.came));
        let (all_rates, all_came) = (rates.iter().sum::<f64>(), came.iter().sum::<f64>());
        if all_rates > 0.0 && all_came > 0.0 {
            let a_rate = all_came / all_rates;
            self.compare_groups(&rates.map(|rate| rate * a_rate), &came, a_rate);
        }
        let octaves = (0..OCTAVES).filter(|octave| self.is_alike(*octave));
        let octaves = octaves.fold(0_u32, |octaves, octave| octaves | 1 << octave);
        let difference = f64::from(self.difference.load(Ordering::Relaxed)) / f64::from(ONE);
        let are_alike = difference < MOST_DIFFERENCE * number(&self.compared)
            && (octaves & !1).count_ones() >= FEWEST_OCTAVES;
        set(&self.octaves, if are_alike { octaves } else { 0 });
    }

    /// Adds to the difference of the groups what they differ by beyond chance. What is expected is known by a sample, so that it
    /// differs by chance, too, and all the more the more rates differ. For each unit of a rate `a_rate` clients came.
    fn compare_groups(&self, expected: &[f64; GROUPS], came: &[f64; GROUPS], a_rate: f64) {
        let all_came: f64 = came.iter().sum();
        let rates = self.rate.iter().map(|rate| f64::from(get(rate)));
        let (sum, squares) = rates
            .zip(self.still.iter().map(number))
            .fold((0.0, 0.0), |(sum, squares), (rate, still)| {
                (sum + still * rate, squares + still * rate * rate)
            });
        let by_sample = if sum > 0.0 { a_rate * squares / sum } else { 0.0 };
        let by_chance = 1.0 + by_sample.min(MOST_BY_SAMPLE);
        // One more is expected, so that little is made of groups of hardly any clients.
        let beyond_chance = |(expected, came): (&f64, &f64)| {
            ((came - expected).powi(2) - by_chance * expected) / (expected + 1.0)
        };
        let difference: f64 = expected.iter().zip(came).map(beyond_chance).sum();
        let before = self.difference.load(Ordering::Relaxed);
        let faded = before - before / (1 << FADE);
        let difference = faded.saturating_add((difference * f64::from(ONE)) as i32);
        self.difference.store(difference, Ordering::Relaxed);
        let lately = |count: &AtomicU32, more: f64| {
            fade(count);
            add(count, (more * f64::from(ONE)) as u32);
        };
        lately(&self.compared, all_came);
        let groups = expected.chunks(GROUPS_OF_OCTAVE).zip(came.chunks(GROUPS_OF_OCTAVE));
        for (octave, (expected, came)) in groups.enumerate() {
            lately(&self.expected_lately[octave], expected.iter().sum());
            lately(&self.came_lately[octave], came.iter().sum());
        }
    }

    /// Returns true if about as many clients of an octave came lately as expected.
    fn is_alike(&self, octave: usize) -> bool {
        let [expected, came] =
            [&self.expected_lately, &self.came_lately].map(|of| number(&of[octave]));
        let most_apart = (MOST_APART * expected).max(MOST_DEVIATIONS * expected.sqrt());
        expected >= FEWEST_EXPECTED && (came - expected).abs() <= most_apart
    }
}

/// Returns true if a client is expected by nothing but its past.
#[inline]
fn is_of_past(expected: Expectation) -> bool {
    expected.trust <= Trust::Confirmed && !expected.is_never()
}

#[inline]
fn class_of(age_ticks: u32) -> usize {
    usize::from(IntervalClass::holding(Interval::from_ticks(age_ticks)).0)
}

#[inline]
fn octave_of(expected: Expectation) -> usize {
    usize::from(expected.class.0.min(LONGEST_CLASS)) / 8
}

#[inline]
fn group_of(expected: Expectation) -> usize {
    octave_of(expected) * GROUPS_OF_OCTAVE + expected.rhythm.apart()
}

fn get(count: &AtomicU32) -> u32 {
    count.load(Ordering::Relaxed)
}

fn set(count: &AtomicU32, to: u32) {
    count.store(to, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_TICKS: u32 = 15_000;

    /// A client that keeps no interval, with a mean gap of an octave and the last gap so many octaves away.
    fn loose(octave: u8, apart: i32) -> Expectation {
        let class = IntervalClass(8 * octave + 3);
        Expectation { rhythm: Rhythm::new(apart, 3), ..Expectation::new(Trust::Loose, class) }
    }

    /// Compares groups in which so many of a thousand clients of one age come, and returns the octaves that are alike.
    fn alike_if(coming: &[(Expectation, u32)]) -> Vec<usize> {
        let alike: Box<Alike> = bytemuck::zeroed_box();
        set(&alike.rate[class_of(AGE_TICKS)], MEAN_RATE as u32);
        for _ in 0..4 {
            for (expected, coming) in coming {
                alike.watch(*expected, AGE_TICKS, 1_000);
                (0..*coming).for_each(|_| alike.record(*expected, AGE_TICKS, true));
            }
            alike.compare();
        }
        let octaves = get(&alike.octaves);
        (0..OCTAVES).filter(|octave| octaves >> octave & 1 != 0).collect()
    }

    #[test]
    fn clients_are_alike_if_their_gaps_say_nothing() {
        let all = |coming: [u32; 5]| {
            let octaves = (10..15).map(|octave| loose(octave, 0));
            alike_if(&octaves.zip(coming).collect::<Vec<_>>())
        };
        assert_eq!(all([100; 5]), [10, 11, 12, 13, 14]);
        assert_eq!(all([90, 110, 100, 95, 105]), [10, 11, 12, 13, 14]);
        assert!(all([50, 70, 100, 140, 200]).is_empty(), "those of long gaps come more often");
        assert!(all([100, 100, 100, 0, 0]).is_empty(), "there are two kinds of clients");
    }

    #[test]
    fn an_octave_in_which_they_differ_is_left_out() {
        let coming = (10..15).map(|octave| (loose(octave, 0), 400));
        let all: Vec<_> = coming.chain([(loose(9, 0), 0), (loose(15, 0), 400)]).collect();
        assert!(alike_if(&all).is_empty());
        let few = |alike: &Alike| {
            alike.watch(loose(9, 0), AGE_TICKS, 50);
            alike.compare();
            get(&alike.octaves)
        };
        let alike: Box<Alike> = bytemuck::zeroed_box();
        set(&alike.rate[class_of(AGE_TICKS)], MEAN_RATE as u32);
        let mut octaves = 0;
        for _ in 0..8 {
            for octave in 10..15 {
                alike.watch(loose(octave, 0), AGE_TICKS, 1_000);
                (0..400).for_each(|_| alike.record(loose(octave, 0), AGE_TICKS, true));
            }
            octaves = few(&alike);
        }
        assert_eq!(
            octaves,
            0b1_1111 << 10,
            "twenty of octave 9 were expected each time, and none came"
        );
    }

    #[test]
    fn any_numbers_can_be_compared() {
        let alike: Box<Alike> = bytemuck::zeroed_box();
        for number in [0, 1, u32::MAX] {
            let all = alike.rates.iter().chain(&alike.came).chain(&alike.expected_lately);
            all.chain(&alike.still).chain(&alike.returned).for_each(|count| set(count, number));
            for difference in [i32::MIN, i32::MAX] {
                alike.difference.store(difference, Ordering::Relaxed);
                alike.learn(1.0, |_| 0.0);
            }
        }
    }

    #[test]
    fn what_the_last_gap_says_counts() {
        let of = |apart: i32, coming| (10..15).map(move |octave| (loose(octave, apart), coming));
        assert_eq!(alike_if(&of(-2, 100).chain(of(2, 100)).collect::<Vec<_>>()).len(), 5);
        assert!(alike_if(&of(-2, 150).chain(of(2, 50)).collect::<Vec<_>>()).is_empty());
    }

    #[test]
    fn clients_of_few_mean_gaps_say_nothing_about_others() {
        let of = |octaves: std::ops::Range<u8>| {
            let strangers = (Expectation::UNKNOWN, 100);
            let others = octaves.map(|octave| (loose(octave, 0), 100));
            alike_if(&std::iter::once(strangers).chain(others).collect::<Vec<_>>())
        };
        assert!(of(10..13).is_empty());
        assert_eq!(of(10..14), [0, 10, 11, 12, 13]);
        let few: Vec<_> = (10..14).map(|octave| (loose(octave, 0), 3)).collect();
        assert!(alike_if(&few).is_empty(), "twelve came of each octave");
    }

    #[test]
    fn who_keeps_the_interval_of_the_application_is_not_asked() {
        for trust in [Trust::Claimed, Trust::Kept] {
            let clients = (10..15).map(|octave| Expectation::new(trust, IntervalClass(8 * octave)));
            assert!(alike_if(&clients.map(|of| (of, 100)).collect::<Vec<_>>()).is_empty());
        }
        let clients = (10..15).map(|at| Expectation::new(Trust::Confirmed, IntervalClass(8 * at)));
        assert_eq!(alike_if(&clients.map(|of| (of, 100)).collect::<Vec<_>>()).len(), 5);
    }
}
