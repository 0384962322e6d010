//! Clients that are alike: when one came last says all, and what its gaps were says nothing.
//!
//! Rows of clients with like gaps tell clients apart, and each row learns for itself (see [`crate::return_time`]). If the gaps of
//! all clients are drawn alike, rows differ by chance only; and if some gaps are very long, an age in multiples of a client's mean
//! gap says less than the age. Then one row for all, by age alone, is nearer to the truth.
//!
//! A test compares, for each group, how many clients came back with how many would have if the group came back like all clients
//! of the same age (Mantel, "Evaluation of survival data and two new rank order statistics arising in its consideration", 1966).
//! When a wait ends, as many returns were expected of it as the hazards of all clients add up to at that age (Aalen,
//! "Nonparametric inference for a family of counting processes", 1978), so that it does not matter how long each was waited for. A
//! group has mean gaps of one octave, and last gaps about as far from it. If what is found in the groups differs from what is expected
//! by hardly more than chance, clients are alike in all octaves of which enough are known. There must be several: clients of one
//! mean gap say nothing about those of another.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::ages::{self, AGES};
use crate::counts::{FADE, ONE, add, fade, get, number, set};
use crate::expectation::{Expectation, Trust};
use crate::interval::IntervalClass;
use crate::rhythm::Rhythm;

/// The number of clients of which one is compared.
pub(crate) const SAMPLED: u32 = 4;

/// Octaves of mean gaps, up to the longest. The first is that of clients without a known gap.
const OCTAVES: usize = 1 + IntervalClass::LONGEST as usize / 8;
/// Groups of an octave: clients of one known gap or two that agree, and all others by how far the last gap is from the mean.
const GROUPS_OF_OCTAVE: usize = 1 + Rhythm::APART;
const GROUPS: usize = OCTAVES * GROUPS_OF_OCTAVE;

/// The unit of expected returns.
const ONE_RETURN: f64 = 4_096.0;
/// The most returns that are expected of a client.
const MOST_RETURNS: f64 = 16.0;

/// The most by which groups of clients that are alike differ beyond chance: the square of the share by which more or fewer came
/// than expected, an eighth. With a fifth, clients whose rates differ by 2.5 times counted as alike: once they are weighed by age alone,
/// those that come seldom lose their places before anything is known of them, and the others are alike indeed.
const MOST_DIFFERENCE: f64 = 0.015;
/// The number of clients expected of an octave without which nothing is said about it.
const FEWEST_EXPECTED: f64 = 16.0;
/// The number of octaves of known gaps in which clients must be alike.
const FEWEST_OCTAVES: u32 = 4;
/// The share by which more or fewer clients of an octave may come than expected.
const MOST_APART: f64 = 1.0 / 3.0;
/// The standard deviations by which they may.
const MOST_DEVIATIONS: f64 = 2.0;

/// What is compared. See [`crate::return_time::Waits`].
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Alike {
    /// The number of returns that are expected of a client until each age.
    returns_until: [AtomicU32; AGES],
    /// By group, how many returns were expected of clients for whom the wait ended since the last comparison, and how many came.
    returns_expected: [AtomicU32; GROUPS],
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
    /// Records that the wait for one of [`SAMPLED`] clients is over.
    pub(crate) fn ended(&self, expected: Expectation, age_ticks: u32, returned: bool) {
        let (group, class) = (group_of(expected), ages::class_of(age_ticks));
        let returns = get(&self.returns_until[class]);
        // Of one that is given up on half of the time in the last bin counts, as in the hazards.
        let before = if returned { returns } else { self.returns_before(class) };
        add(&self.returns_expected[group], before.midpoint(returns));
        add(&self.came[group], returned.into());
    }

    /// Returns how many returns are expected of a client before an age.
    fn returns_before(&self, class: usize) -> u32 {
        class.checked_sub(1).map_or(0, |before| get(&self.returns_until[before]))
    }

    /// Returns true if some clients are alike.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        get(&self.octaves) != 0
    }

    /// Returns true if a client is of those that are alike.
    pub(crate) fn holds(&self, expected: Expectation) -> bool {
        may_be(expected) && get(&self.octaves) >> octave_of(expected) & 1 != 0
    }

    /// Sets how many returns are expected of clients from now on, from the hazards of all by age.
    pub(crate) fn expect(&self, hazards: &[f64]) {
        let mut returns: f64 = 0.0;
        for (kept, hazard) in self.returns_until.iter().zip(hazards) {
            returns = (returns + hazard).min(MOST_RETURNS);
            set(kept, (returns * ONE_RETURN) as u32);
        }
    }

    /// Finds out which clients are alike: compares how many of each group came with how many were expected.
    pub(crate) fn compare(&self) {
        let taken = |counts: &[AtomicU32; GROUPS]| {
            let taken = counts.each_ref().map(|count| f64::from(get(count)));
            counts.iter().for_each(|count| set(count, 0));
            taken
        };
        let (expected, came) = (taken(&self.returns_expected), taken(&self.came));
        let (all_expected, all_came) = (expected.iter().sum::<f64>(), came.iter().sum::<f64>());
        if all_expected > 0.0 && all_came > 0.0 {
            let share = all_came / all_expected;
            self.compare_groups(&expected.map(|expected| expected * share), &came);
        }
        let octaves = (0..OCTAVES).filter(|octave| self.is_alike(*octave));
        let octaves = octaves.fold(0_u32, |octaves, octave| octaves | 1 << octave);
        let difference = f64::from(self.difference.load(Ordering::Relaxed)) / f64::from(ONE);
        let are_alike = difference < MOST_DIFFERENCE * number(&self.compared)
            && (octaves & !1).count_ones() >= FEWEST_OCTAVES;
        set(&self.octaves, if are_alike { octaves } else { 0 });
    }

    /// Adds to the difference of the groups what they differ by beyond chance.
    fn compare_groups(&self, expected: &[f64; GROUPS], came: &[f64; GROUPS]) {
        let all_came: f64 = came.iter().sum();
        // One more is expected, so that little is made of groups of hardly any clients.
        let beyond_chance = |(expected, came): (&f64, &f64)| {
            ((came - expected).powi(2) - expected) / (expected + 1.0)
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
pub(crate) fn may_be(expected: Expectation) -> bool {
    expected.trust() <= Trust::Confirmed && !expected.is_never()
}

#[inline]
fn octave_of(expected: Expectation) -> usize {
    usize::from(expected.class().0.min(IntervalClass::LONGEST)) / 8
}

#[inline]
fn group_of(expected: Expectation) -> usize {
    octave_of(expected) * GROUPS_OF_OCTAVE + expected.rhythm().apart()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_TICKS: u32 = 15_000;

    /// A client that keeps no interval, with a mean gap of an octave and the last gap so many octaves away.
    fn loose(octave: u8, apart: i32) -> Expectation {
        let class = IntervalClass(8 * octave + 3);
        Expectation::new(Trust::Loose, class).with_rhythm(Rhythm::new(apart, 3))
    }

    /// Compares groups of clients of one age of which so many were waited for and so many came, several times, and returns the octaves
    /// that are alike.
    fn compared(times: u32, groups: &[(Expectation, u32, u32)]) -> Vec<usize> {
        let alike: Box<Alike> = bytemuck::zeroed_box();
        alike.expect(&[0.001; AGES]);
        for _ in 0..times {
            for (expected, waited, came) in groups {
                (0..*waited).for_each(|at| alike.ended(*expected, AGE_TICKS, at < *came));
            }
            alike.compare();
        }
        let octaves = get(&alike.octaves);
        (0..OCTAVES).filter(|octave| octaves >> octave & 1 != 0).collect()
    }

    /// Does so with groups of which a thousand are waited for.
    fn alike_if(coming: &[(Expectation, u32)]) -> Vec<usize> {
        let groups: Vec<_> = coming.iter().map(|(of, came)| (*of, 1_000, *came)).collect();
        compared(4, &groups)
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
        let alike = (10..15).map(|octave| (loose(octave, 0), 1_000, 400));
        let few: Vec<_> = alike.clone().chain([(loose(9, 0), 50, 0)]).collect();
        let why = "twenty of octave 9 were expected each time, and none came";
        assert_eq!(compared(8, &few), [10, 11, 12, 13, 14], "{why}");
        let many: Vec<_> = alike.chain([(loose(9, 0), 1_000, 0)]).collect();
        assert!(compared(8, &many).is_empty(), "there are two kinds of clients");
    }

    #[test]
    fn any_numbers_can_be_compared() {
        let alike: Box<Alike> = bytemuck::zeroed_box();
        for number in [0, 1, u32::MAX] {
            let all =
                alike.returns_expected.iter().chain(&alike.came).chain(&alike.expected_lately);
            all.chain(&alike.returns_until).for_each(|count| set(count, number));
            for difference in [i32::MIN, i32::MAX] {
                alike.difference.store(difference, Ordering::Relaxed);
                alike.expect(&[1.0; AGES]);
                alike.compare();
            }
        }
    }

    #[test]
    fn who_was_waited_for_for_longer_was_expected_more() {
        let alike: Box<Alike> = bytemuck::zeroed_box();
        let (soon, late) = (ages::class_of(1_000), ages::class_of(8_000));
        let mut hazards = [0.0; AGES];
        (hazards[soon], hazards[late]) = (0.5, 0.25);
        alike.expect(&hazards);
        for (age_ticks, returned, returns) in [
            (500, false, 0.0),
            (1_000, false, 0.25),
            (1_000, true, 0.5),
            (2_000, false, 0.5),
            (8_000, true, 0.75),
        ] {
            let before = get(&alike.returns_expected[group_of(loose(10, 0))]);
            alike.ended(loose(10, 0), age_ticks, returned);
            let expected = get(&alike.returns_expected[group_of(loose(10, 0))]) - before;
            assert_eq!(f64::from(expected), returns * ONE_RETURN, "{age_ticks}");
        }
    }

    /// Those that come after long gaps are given up on early, so that fewer of them come.
    #[test]
    fn how_long_clients_are_waited_for_says_nothing() {
        let alike: Box<Alike> = bytemuck::zeroed_box();
        let mut hazards = [0.0; AGES];
        (hazards[ages::class_of(1_000)], hazards[ages::class_of(8_000)]) = (0.2, 0.5);
        alike.expect(&hazards);
        for _ in 0..4 {
            for client in (10..16).map(|octave| loose(octave, 0)) {
                (0..200).for_each(|_| alike.ended(client, 1_000, true));
                if octave_of(client) < 13 {
                    (0..800).for_each(|_| alike.ended(client, 2_000, false));
                } else {
                    (0..400).for_each(|_| alike.ended(client, 8_000, true));
                    (0..400).for_each(|_| alike.ended(client, 16_000, false));
                }
            }
            alike.compare();
        }
        assert_eq!(get(&alike.octaves).count_ones(), 6);
        assert!(alike.difference.load(Ordering::Relaxed) < 0, "less than chance would make");
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
        let may = |trust| may_be(Expectation::new(trust, IntervalClass(80)));
        let all = [Trust::Loose, Trust::Confirmed, Trust::Claimed, Trust::Kept];
        assert_eq!(all.map(may), [true, true, false, false]);
        assert_eq!([Expectation::UNKNOWN, Expectation::NEVER].map(may_be), [true, false]);
    }
}
