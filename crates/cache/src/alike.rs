//! Clients that are alike: when one came last says all, and what its gaps were says nothing.
//!
//! Rows of clients with like gaps tell clients apart, and each row learns for itself (see [`crate::return_time`]). If the gaps of
//! all clients are drawn alike, rows differ by chance only; and if some gaps are very long, an age in multiples of a client's mean
//! gap says less than the age. Then one row for all, by age alone, is nearer to the truth.
//!
//! A test compares, for each group, how many clients came back with how many would have if the group came back like all clients
//! of the same age (Mantel, "Evaluation of survival data and two new rank order statistics arising in its consideration", 1966).
//! Until an age as many returns are expected of a client as the hazards of all clients add up to (Aalen,
//! "Nonparametric inference for a family of counting processes", 1978), so that it does not matter how long each was waited for. They
//! are counted when a wait ends; and of clients still waited for, of which looks find samples, what was added since the last comparison.
//! Without these, groups whose clients came first a short time ago would seem to come more often: only waits that end soon have ended. A
//! group has mean gaps of one octave, and last gaps about as far from it. If what is found in the groups differs from what is expected
//! by hardly more than chance, clients are alike in all octaves of which enough are known. There must be several: clients of one
//! mean gap say nothing about those of another.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::ages::{self, AGES};
use crate::counts::{FADE, add, get, set};
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
/// The factor by which the unit is coarser in which returns are added up that are expected of clients still waited for.
const COARSER: u32 = 16;
/// The logarithm of the share of these sums that fades whenever others are added.
const FADE_OF_WAITING: u32 = 3;
/// The looks at sessions without which nothing new is said about who is still waited for. They are few where most clients come back.
const FEWEST_LOOKS: u32 = 64;
/// The variance by chance of a number that came lately, as a share of it: the older part has faded.
const CHANCE: f64 = 0.5;

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
    /// The counts since the last comparison, by group.
    groups: [Counted; GROUPS],
    /// The looks at sessions since [`Counted::waiting`] were added to [`Known::waiting`], and those before, lately.
    looks: AtomicU32,
    looks_lately: Lately<FADE_OF_WAITING>,
    /// The clients for which each of the latter stands.
    clients_a_look: Number,
    /// The figures from before, by group.
    known: [Known; GROUPS],
    /// A bit for each octave of clients that are alike.
    octaves: AtomicU32,
}

/// The counts of a group since the last comparison.
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
struct Counted {
    /// The returns that were expected of clients for whom the wait ended, and those that came.
    ended: AtomicU32,
    came: AtomicU32,
    /// The returns expected until then of clients that looks found still waited for.
    waiting: AtomicU32,
}

/// The figures of a group from before the last comparison.
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
struct Known {
    /// The returns that looks found lately: see [`Counted::waiting`].
    waiting: Lately<FADE_OF_WAITING>,
    /// The returns that were expected lately, and those that came.
    expected: Lately<FADE>,
    came: Lately<FADE>,
}

/// A number that changes at comparisons only.
#[derive(Debug, bytemuck::Zeroable)]
#[repr(transparent)]
struct Number(AtomicU32);

impl Number {
    /// More than is ever counted.
    const MOST: f32 = 1e12;

    fn get(&self) -> f64 {
        let value = f32::from_bits(get(&self.0));
        // What is no number, or none that was counted, would stay for good.
        if value.abs() <= Self::MOST { value.into() } else { 0.0 }
    }

    fn set(&self, value: f64) {
        set(&self.0, (value as f32).to_bits());
    }
}

/// A number of which a share fades at each comparison, one of 2 to the power of `FADES`.
#[derive(Debug, bytemuck::Zeroable)]
#[repr(transparent)]
struct Lately<const FADES: u32>(Number);

impl<const FADES: u32> Lately<FADES> {
    fn add(&self, more: f64) {
        self.0.set(self.0.get() * (1.0 - 1.0 / f64::from(1 << FADES)) + more);
    }
}

impl Alike {
    /// Records that the wait for one of [`SAMPLED`] clients is over.
    pub(crate) fn ended(&self, expected: Expectation, age_ticks: u32, returned: bool) {
        let (group, class) = (&self.groups[group_of(expected)], ages::class_of(age_ticks));
        let returns = match returned {
            true => get(&self.returns_until[class]),
            false => self.returns_within(class),
        };
        add(&group.ended, returns);
        add(&group.came, returned.into());
    }

    /// Records one of [`SAMPLED`] looks at sessions, whoever's: together they stand for all sessions.
    pub(crate) fn looked(&self) {
        add(&self.looks, 1);
    }

    #[cfg(test)]
    pub(crate) fn looks(&self) -> u32 {
        get(&self.looks)
    }

    /// Records that one of [`SAMPLED`] looks, which stands for as many clients as so many looks at sessions, found a client still waited
    /// for.
    pub(crate) fn are_waited_for(&self, expected: Expectation, age_ticks: u32, clients: u32) {
        let returns = self.returns_within(ages::class_of(age_ticks)) / COARSER;
        add(&self.groups[group_of(expected)].waiting, returns.wrapping_mul(clients));
    }

    /// Returns how many returns are expected of a client that does not come until an age: half of those in the last bin count, as in
    /// the hazards.
    fn returns_within(&self, class: usize) -> u32 {
        let before = class.checked_sub(1).map_or(0, |before| get(&self.returns_until[before]));
        before.midpoint(get(&self.returns_until[class]))
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

    /// Finds out which clients are alike, of a cache of so many sessions: compares how many of each group came with how many were
    /// expected.
    pub(crate) fn compare(&self, sessions: u64) {
        self.add_counted(sessions);
        let known = |of: fn(&Known) -> f64| self.known.each_ref().map(of);
        let (expected, came) =
            (known(|group| group.expected.0.get()), known(|group| group.came.0.get()));
        let (all_expected, all_came) = (expected.iter().sum::<f64>(), came.iter().sum::<f64>());
        let share = if all_expected > 0.0 { all_came / all_expected } else { 0.0 };
        let expected = expected.map(|expected| (expected * share).max(0.0));
        let groups = expected.chunks(GROUPS_OF_OCTAVE).zip(came.chunks(GROUPS_OF_OCTAVE));
        let octaves = groups.enumerate().fold(0_u32, |octaves, (octave, (expected, came))| {
            let is_alike = is_octave_alike(expected.iter().sum(), came.iter().sum());
            octaves | u32::from(is_alike) << octave
        });
        let difference: f64 = expected.into_iter().zip(came).map(beyond_chance).sum();
        let are_alike = difference < MOST_DIFFERENCE * all_came
            && (octaves & !1).count_ones() >= FEWEST_OCTAVES;
        set(&self.octaves, if are_alike { octaves } else { 0 });
    }

    /// Adds what was counted since the last comparison to what is known.
    fn add_counted(&self, sessions: u64) {
        let take = |count: &AtomicU32| f64::from(count.swap(0, Ordering::Relaxed));
        let was_looked = get(&self.looks) >= FEWEST_LOOKS;
        let before = self.clients_a_look.get();
        if was_looked {
            self.looks_lately.add(take(&self.looks));
            let samples = sessions as f64 / f64::from(SAMPLED);
            self.clients_a_look.set(samples / self.looks_lately.0.get());
        }
        for (counted, known) in self.groups.iter().zip(&self.known) {
            let mut expected = take(&counted.ended) / ONE_RETURN;
            if was_looked {
                expected -= known.waiting.0.get() * before;
                known.waiting.add(take(&counted.waiting) * f64::from(COARSER) / ONE_RETURN);
                expected += known.waiting.0.get() * self.clients_a_look.get();
            }
            known.expected.add(expected);
            known.came.add(take(&counted.came));
        }
    }
}

/// Returns by how much a group differs beyond chance. One more is expected, so that little is made of groups of hardly any clients.
fn beyond_chance((expected, came): (f64, f64)) -> f64 {
    ((came - expected).powi(2) - CHANCE * expected) / (expected + 1.0)
}

/// Returns true if about as many clients of an octave came lately as expected.
fn is_octave_alike(expected: f64, came: f64) -> bool {
    let most_apart = (MOST_APART * expected).max(MOST_DEVIATIONS * expected.sqrt());
    expected >= FEWEST_EXPECTED && (came - expected).abs() <= most_apart
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

    impl Alike {
        fn is_waited_for(&self, expected: Expectation, age_ticks: u32) {
            self.looked();
            self.are_waited_for(expected, age_ticks, 1);
        }
    }

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
            alike.compare(1);
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
        let counted = |group: &Counted, count| {
            [&group.ended, &group.came, &group.waiting].into_iter().for_each(|to| set(to, count));
        };
        for count in [0, 1, u32::MAX] {
            for number in [0.0, 1e38, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                alike.groups.iter().for_each(|group| counted(group, count));
                alike.returns_until.iter().chain([&alike.looks]).for_each(|of| set(of, count));
                let known =
                    alike.known.iter().flat_map(|of| [&of.waiting.0, &of.expected.0, &of.came.0]);
                known
                    .chain([&alike.looks_lately.0, &alike.clients_a_look])
                    .for_each(|of| of.set(number.into()));
                alike.is_waited_for(loose(10, 0), AGE_TICKS);
                alike.are_waited_for(loose(10, 0), AGE_TICKS, u32::MAX);
                alike.expect(&[1.0; AGES]);
                alike.compare(u64::MAX);
                let numbers =
                    alike.known.iter().flat_map(|of| [&of.waiting.0, &of.expected.0, &of.came.0]);
                assert!(numbers.chain([&alike.looks_lately.0]).all(|of| of.get().is_finite()));
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
            let before = get(&alike.groups[group_of(loose(10, 0))].ended);
            alike.ended(loose(10, 0), age_ticks, returned);
            let expected = get(&alike.groups[group_of(loose(10, 0))].ended) - before;
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
            alike.compare(1);
        }
        assert_eq!(get(&alike.octaves).count_ones(), 6);
    }

    /// Some groups have many that wait since a short time ago, so that only those who came have ended.
    #[test]
    fn who_is_still_waited_for_was_expected_too() {
        let octaves = |are_looked_at: bool| {
            let alike: Box<Alike> = bytemuck::zeroed_box();
            let mut hazards = [0.0; AGES];
            hazards[ages::class_of(1_000)] = 0.4;
            alike.expect(&hazards);
            for client in (10..16).map(|octave| loose(octave, 0)) {
                (0..400).for_each(|_| alike.ended(client, 1_000, true));
                for _ in 0..600 {
                    match octave_of(client) {
                        ..13 => alike.ended(client, 2_000, false),
                        _ if are_looked_at => alike.is_waited_for(client, 2_000),
                        _ => {}
                    }
                }
            }
            alike.compare(3 * 600 * u64::from(SAMPLED));
            get(&alike.octaves).count_ones()
        };
        assert_eq!(octaves(true), 6);
        assert_eq!(octaves(false), 0, "half of the groups seem to come more often");
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
