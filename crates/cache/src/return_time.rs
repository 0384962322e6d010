//! When a client comes back, learned from those that did.
//!
//! The cache knows a client by its [`Expectation`]: the interval it keeps, and how far that is
//! trusted, or else the mean of its gaps and its rhythm. Clients of which these are alike share a row of counts: how
//! many were waited for until which age (the time since they were last seen, in multiples of their
//! interval), and how many of those came back at that age. The counts give the hazard of a return
//! at each age (Kaplan & Meier, "Nonparametric estimation from incomplete observations", 1958: a
//! client that is given up on counts until then, and so does a sample of those that are still
//! waited for). The hazards give the *worth* of a place in the
//! cache: the greatest ratio, over all times that the cache might go on waiting, of the chance of a
//! return to the time that the place is taken. Where a row has few counts, all rows of the same
//! trust or rhythm together stand in for it.
//!
//! Runs of visits may have a memory, and clients habits. So of clients that keep the application's interval the stages of
//! their runs are counted, too: how many visits of a stage were followed by another in time, as against all visits. A place
//! is worth as many times as much.
//!
//! The gap between two runs of visits is no interval of a client, though it is the only gap known of a client whose run had one
//! visit. So it is learned by pair of octaves if such clients come back long before, about as soon as those of which no gap is
//! known. Then such a gap does not count.
//!
//! Where clients are alike whatever their gaps were, they are weighed by age alone ([`crate::alike`]).
//!
//! The session worth least is evicted. A client that keeps its interval is worth more the closer
//! its return is, and little once it is overdue; a client that comes in bursts is worth most when
//! it has just been there. The engine learns by itself which is which, how long to wait for late
//! clients, and that some kinds of clients never return.
//!
//! One table serves all shards, and all processes that share a cache, so that a small shard learns
//! from all clients. It takes [`ReturnTimes::BYTES`]. It is lock-free; its figures are approximate
//! under concurrency. Counts are whole numbers; only [`ReturnTimes::learn`], once in some hundred
//! arrivals, calculates with fractions.

mod calculation;

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ages::{self, ALL_BINS, Measured, Row, UNKNOWN_TICKS, rows};
use crate::alike::{self, Alike, SAMPLED};
use crate::counts::{ONE, add, get, is_some};
use crate::expectation::{Expectation, Trust};
use crate::interval::{Interval, IntervalClass};
use crate::punctuality::Punctuality;
use crate::stages::Stages;

/// The number of waits that end between two calculations.
const BATCH: u32 = 512;
/// The number of waits after which it is calculated first.
const FIRST: u32 = 256;
/// The number of sessions for which there is one batch. A larger cache calculates less often.
const SESSIONS_A_BATCH: u64 = 1_024;
/// The number of clients still waited for, as counted by looks, after which it is calculated in any case, so that no count of them
/// wraps where no wait ends.
const MOST_WATCHED: u32 = 1 << 22;
/// The number of clients still waited for, as counted by looks, after which the worth of strangers is calculated anew. In large caches
/// that is once in some hundred evictions.
const WATCHED_A_CALCULATION: u32 = 1 << 12;
/// How many times as much the ghost of a client is worth that keeps no interval and of which two gaps or more are known. Found by
/// trial: with 2 and with 16 about as many clients are resumed.
const WORTH_OF_PAST: u64 = 4;

/// The table itself: plain atomics of which every value is valid, so that it may lie in memory that
/// processes share. It is all zeros until a cache or a [`ReturnTimes`] has been made on it.
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct Waits {
    waited: [AtomicU32; ALL_BINS],
    returned: [AtomicU32; ALL_BINS],
    worth: [AtomicU32; ALL_BINS],
    /// Clients that were still waited for lately: samples, and their number.
    still: [AtomicU32; ALL_BINS],
    stages: Stages,
    alike: Alike,
    punctuality: Punctuality,
    /// A bit for each pair of octaves of gaps that are waits.
    between_runs: AtomicU32,
    watched: AtomicU32,
    /// The first looks at clients that are still waited for.
    looks: AtomicU32,
    counted: AtomicU32,
    /// The calculation that is due: [`Due`].
    due: AtomicU32,
}

/// A calculation that is due. Zero means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Due {
    /// That of strangers, of whom there may be many more than a moment ago.
    OfStrangers = 1,
    OfAll,
}

impl Waits {
    /// Returns true if a calculation is due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        is_some(&self.due)
    }
}

/// Learned return times; see the module's documentation. By default they own their table.
#[derive(Debug, Clone, Copy)]
pub struct ReturnTimes<W = Box<Waits>> {
    of: Clientele,
    waits: W,
}

/// The prior knowledge about a cache's clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clientele {
    prior: IntervalClass,
    /// The number of waits that end between two calculations, once there were so many: a power of two.
    batch: u32,
    sessions: u64,
    /// The number of clients that a full cache waits for ([`Layout::clients`](crate::Layout)).
    watched: u64,
}

impl Clientele {
    /// Makes the prior of a cache of so many sessions, which waits for so many clients and expects them at `prior` until
    /// something is known about them.
    pub(crate) fn new(sessions: u64, clients: u64, prior: Interval) -> Self {
        let batches = (sessions / SESSIONS_A_BATCH).clamp(1, 64).next_power_of_two() as u32;
        Self {
            prior: IntervalClass::holding(prior),
            batch: BATCH * batches,
            sessions,
            watched: clients,
        }
    }
}

impl ReturnTimes {
    /// The size of a table, whatever the size of the cache.
    pub const BYTES: usize = size_of::<Waits>();

    /// Makes a table for a cache of so many sessions, which waits for so many clients and expects them at `prior` until
    /// something is known about them.
    pub fn new(sessions: u64, clients: u64, prior: Interval) -> Self {
        let table = Self::over(bytemuck::zeroed_box(), Clientele::new(sessions, clients, prior));
        table.format();
        table
    }
}

impl<W: Deref<Target = Waits>> ReturnTimes<W> {
    /// Makes a view over a table that lies elsewhere.
    #[inline]
    pub(crate) fn over(waits: W, of: Clientele) -> Self {
        Self { of, waits }
    }

    /// Turns a table of zeros into one that knows nothing but the prior.
    pub(crate) fn format(&self) {
        let rows: Vec<Row> = rows().collect();
        let pools = self.pools(&rows);
        rows.into_iter().for_each(|row| self.calculate(row, &pools));
        self.waits.stages.calculate();
    }

    /// Records that a wait of `age_ticks` for a client is over: it has returned, or is given up on.
    #[inline(always)]
    pub fn record(&self, expected: Expectation, age_ticks: u32, returned: bool) {
        if expected.is_never() {
            return;
        }
        let bin = ages::bin_of(expected, age_ticks);
        add(&self.waits.waited[bin], ONE);
        if returned {
            add(&self.waits.returned[bin], ONE);
        }
        self.waits.stages.record(expected, bin, returned);
        let counted = add(&self.waits.counted, 1);
        if counted.is_multiple_of(SAMPLED) {
            self.record_sample(counted, expected, age_ticks, returned);
        }
    }

    /// Records that a client came, if it keeps the application's interval: in time if its age is no more than the upper bound of its
    /// class. The age counts from as much before it was last seen as it was due before that bound.
    #[inline]
    pub fn came(&self, expected: Expectation, age_ticks: u32) {
        if expected.trust() >= Trust::Claimed {
            self.waits.punctuality.came(expected.class(), age_ticks);
        }
    }

    /// Adds to the expectation when the client is due, from the application's hint: nearly all clients with like intervals have come by
    /// then.
    #[inline]
    pub fn with_due(&self, expected: Expectation, hint: Interval) -> Expectation {
        match expected.trust() {
            Trust::Claimed | Trust::Kept => expected.exactly(self.waits.punctuality.due(hint)),
            Trust::Loose | Trust::Confirmed => expected,
        }
    }

    /// Records the same of one client of [`SAMPLED`], and that a calculation is due.
    // Not inlined: few come so far.
    #[inline(never)]
    fn record_sample(&self, counted: u32, expected: Expectation, age_ticks: u32, returned: bool) {
        if alike::may_be(expected) {
            let bin = ages::alike_bin_of(age_ticks);
            add(&self.waits.waited[bin], SAMPLED * ONE);
            if returned {
                add(&self.waits.returned[bin], SAMPLED * ONE);
            }
            self.waits.alike.ended(expected, age_ticks, returned);
        }
        if counted.is_multiple_of(FIRST)
            && (counted & (self.of.batch - 1) == 0
                || self.is_early(counted.wrapping_sub(1), counted))
        {
            self.call_for(Due::OfAll);
        }
    }

    fn call_for(&self, calculation: Due) {
        self.waits.due.fetch_max(calculation as u32, Ordering::Relaxed);
    }

    /// Records that a look at a session found its client still waited for, who was last seen `age_ticks` ago.
    pub fn look(&self, expected: Expectation, age_ticks: u32) {
        if !expected.is_never() {
            let mut looks = self.begin_looks();
            looks.look(expected, age_ticks);
            looks.end();
        }
    }

    /// Records that so many clients without a session are still waited for, who were last seen `age_ticks` ago.
    pub fn watch(&self, expected: Expectation, age_ticks: u32, clients: u32) {
        if expected.is_never() {
            return;
        }
        add(&self.waits.still[ages::bin_of(expected, age_ticks)], ONE * clients);
        let before = get(&self.waits.watched);
        let samples = (before % SAMPLED + clients) / SAMPLED;
        if self.watch_sample(expected, age_ticks, samples) {
            self.waits.alike.are_waited_for(expected, age_ticks, samples);
        }
        self.watched(clients, 1);
    }

    /// Records that clients are still waited for: so many times [`SAMPLED`]. Returns true if they may be alike.
    fn watch_sample(&self, expected: Expectation, age_ticks: u32, samples: u32) -> bool {
        let may_be_alike = alike::may_be(expected) && samples > 0;
        if may_be_alike {
            add(&self.waits.still[ages::alike_bin_of(age_ticks)], samples * SAMPLED * ONE);
        }
        may_be_alike
    }

    /// Records that the client of one session of [`SAMPLED`] is still waited for.
    // Not inlined: few come so far.
    #[inline(never)]
    fn look_at_sample(&self, expected: Expectation, age_ticks: u32) {
        self.waits.alike.looked();
        if self.watch_sample(expected, age_ticks, 1) {
            self.waits.alike.are_waited_for(expected, age_ticks, 1);
        }
    }

    /// Counts clients that are still waited for, and the looks at them, after which a calculation may be due.
    fn watched(&self, clients: u32, looks: u32) {
        let watched = add(&self.waits.watched, clients);
        if watched % WATCHED_A_CALCULATION < clients {
            self.call_for(Due::OfStrangers);
        }
        if watched % MOST_WATCHED < clients {
            self.call_for(Due::OfAll);
        }
        let before = get(&self.waits.looks);
        if before < self.of.batch {
            let after = add(&self.waits.looks, looks);
            if self.is_early(before, after) {
                self.call_for(Due::OfAll);
            }
        }
    }

    /// Begins a series of looks at sessions.
    #[inline]
    pub(crate) fn begin_looks(&self) -> Looks<'_> {
        let are_alike = self.waits.alike.is_any();
        Looks { times: self.lent(), first: get(&self.waits.watched), looks: 0, are_alike }
    }

    fn lent(&self) -> ReturnTimes<&Waits> {
        ReturnTimes { of: self.of, waits: &self.waits }
    }

    /// Returns true if it is time for a calculation while there were not as many waits as between two later on: the count has reached
    /// another power of two.
    #[inline]
    fn is_early(&self, before: u32, after: u32) -> bool {
        let reached = 1 << (after | 1).ilog2();
        before < reached && (FIRST..self.of.batch).contains(&reached)
    }

    /// Returns the worth of a place that is kept for a client last seen `age_ticks` ago.
    #[inline]
    pub fn worth(&self, expected: Expectation, age_ticks: u32) -> u64 {
        let measured = ages::measured(expected, age_ticks);
        self.worth_by(expected, age_ticks, measured, self.waits.alike.is_any())
    }

    /// Returns the same of the place of a ghost. With it is lost what is known of its client. For a client that keeps an interval that
    /// is found out again in two visits, and for one that keeps none in many.
    pub(crate) fn worth_of_ghost(&self, expected: Expectation, age_ticks: u32) -> u64 {
        let worth = self.worth(expected, age_ticks);
        if expected.is_irregular() { worth.saturating_mul(WORTH_OF_PAST) } else { worth }
    }

    #[inline]
    fn worth_by(
        &self,
        expected: Expectation,
        age_ticks: u32,
        measured: Measured,
        are_alike: bool,
    ) -> u64 {
        match are_alike {
            true => self.worth_if_alike(expected, age_ticks, measured),
            false => self.worth_in(expected, measured),
        }
    }

    // Not inlined: clients are seldom alike.
    #[inline(never)]
    fn worth_if_alike(&self, expected: Expectation, age_ticks: u32, measured: Measured) -> u64 {
        if self.waits.alike.holds(expected) {
            let worth = get(&self.waits.worth[ages::alike_bin_of(age_ticks)]);
            return u64::from(worth) * ((1 << 40) / UNKNOWN_TICKS);
        }
        self.worth_in(expected, measured)
    }

    #[inline]
    fn worth_in(&self, expected: Expectation, measured: Measured) -> u64 {
        let Measured { bin, per_tick } = measured;
        let per_interval = get(&self.waits.worth[bin]);
        self.waits.stages.worth(expected, u64::from(per_interval).saturating_mul(per_tick))
    }

    /// Calculates the worth of places from the counts, if enough were added since the last time; old
    /// counts fade. It takes some ten microseconds, and up to two hundred where clients of every
    /// interval and trust come, so it must not be called under a lock.
    pub fn learn(&self) {
        let due = &self.waits.due;
        if !is_some(due) {
            return;
        }
        match due.swap(0, Ordering::Relaxed) {
            0 => {}
            of if of == Due::OfStrangers as u32 => {
                self.set_worth(Row::Unknown, self.hazards_of_strangers());
            }
            _ => self.learn_of_all(),
        }
    }

    fn learn_of_all(&self) {
        let is_known = |row: &Row| self.waits.waited[row.bins()].iter().any(is_some);
        let known: Vec<Row> = rows().filter(is_known).collect();
        let pools = self.pools(&known);
        self.find_waits(&known, &pools);
        self.waits.alike.compare(self.of.sessions);
        known.into_iter().for_each(|row| {
            self.calculate(row, &pools);
            self.fade(row);
        });
        self.forget_samples();
        self.waits.stages.calculate();
        self.waits.stages.fade();
    }

    /// Returns true if a gap, of no more than two, is known to be a wait between two runs.
    #[inline]
    pub fn is_wait(&self, gap: IntervalClass) -> bool {
        get(&self.waits.between_runs) >> ages::pair_of_octaves(gap) & 1 != 0
    }
}

/// A series of looks at sessions, one after the other. What they count together is counted at its end.
pub(crate) struct Looks<'a> {
    times: ReturnTimes<&'a Waits>,
    /// The number of clients that were watched before.
    first: u32,
    looks: u32,
    /// True if some clients are alike.
    are_alike: bool,
}

impl Looks<'_> {
    /// Records that a client is still waited for, and returns the worth of its place.
    #[inline]
    pub(crate) fn look(&mut self, expected: Expectation, age_ticks: u32) -> u64 {
        let measured = ages::measured(expected, age_ticks);
        add(&self.times.waits.still[measured.bin], ONE);
        self.looks += 1;
        if self.first.wrapping_add(self.looks).is_multiple_of(SAMPLED) {
            self.times.look_at_sample(expected, age_ticks);
        }
        self.times.worth_by(expected, age_ticks, measured, self.are_alike)
    }

    /// Returns the worth of a place that is not counted.
    #[inline]
    pub(crate) fn worth(&self, expected: Expectation, age_ticks: u32) -> u64 {
        let measured = ages::measured(expected, age_ticks);
        self.times.worth_by(expected, age_ticks, measured, self.are_alike)
    }

    #[inline]
    pub(crate) fn end(self) {
        self.times.watched(self.looks, self.looks);
    }
}

#[cfg(test)]
mod tests {
    use super::calculation::{UNIT, WORTH_OF_GOING_ON};
    use super::*;
    use crate::ages::OCTAVES;
    use crate::counts::set;
    use crate::expectation::Trust;
    use crate::hazards::smoothed;
    use crate::history::History;
    use crate::rhythm::Rhythm;

    /// 15,360 ticks: a minute, nearly.
    const MINUTE: Expectation = Expectation::new(Trust::Confirmed, IntervalClass(8 * 10 + 15));

    fn table() -> ReturnTimes {
        ReturnTimes::new(1, 1, Interval::from_ms(60_000))
    }

    /// Records as many waits as make the table learn, `batches` times.
    fn batches(table: &ReturnTimes, batches: u32, of: Expectation, age_ticks: u32, returned: bool) {
        for _ in 0..batches {
            (0..BATCH).for_each(|_| table.record(of, age_ticks, returned));
            table.learn();
        }
    }

    fn interval_ticks(of: Expectation) -> u32 {
        of.class().upper_bound_ticks()
    }

    fn ticks_of(class: u8) -> u32 {
        IntervalClass(class).upper_bound_ticks()
    }

    /// Fills a row with counts of any size and returns among them; the same every time (xorshift).
    fn fill_at_random(table: &ReturnTimes, row: Row) {
        let mut state = 0x9e37_79b9_u32;
        let mut below = |bound: u32| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state % bound
        };
        for bin in row.bins() {
            let size = below(14);
            let waited = below(1 << size) * ONE / 16;
            set(&table.waits.waited[bin], waited);
            set(&table.waits.returned[bin], below(waited + 1));
        }
    }

    /// Returns the chance of a return over the time taken, for a wait from the start of `bin` until
    /// the best of all ends.
    fn best_of_all(row: Row, hazards: &[f64], bin: usize) -> f64 {
        let (mut time, mut returned, mut waiting, mut best) = (0.0, 0.0, 1.0, 0.0_f64);
        for (bin, hazard) in hazards.iter().enumerate().skip(bin) {
            time += waiting * (row.end(bin) - row.start(bin));
            returned += waiting * hazard;
            waiting *= 1.0 - hazard;
            if time > 0.0 {
                best = best.max(returned / time);
            }
        }
        best
    }

    #[test]
    fn a_place_is_worth_the_best_of_all_ways_to_wait() {
        for row in [Row::Unknown, Row::Kept(17), Row::Kept(OCTAVES + 9), Row::Loose(11)] {
            let table = table();
            fill_at_random(&table, row);
            let pools = table.pools(&[row]);
            table.calculate(row, &pools);
            let hazards = table.hazards(row, &pools);
            let best: Vec<f64> =
                (0..hazards.len()).map(|bin| best_of_all(row, &hazards, bin)).collect();
            let is_loose = matches!(row, Row::Loose(_));
            let best = if is_loose { smoothed(&smoothed(&best)) } else { best };
            let unit = if is_loose { WORTH_OF_GOING_ON * UNIT } else { UNIT };
            for ((bin, at), best) in row.bins().enumerate().zip(best) {
                let exact = best * unit;
                let worth = f64::from(get(&table.waits.worth[at]));
                let error = (worth - exact).abs();
                assert!(error <= 1.0 + exact * 1e-9, "{row:?}, bin {bin}: {worth}, not {exact}");
            }
        }
    }

    #[test]
    fn the_ghost_of_whom_much_is_known_is_worth_more() {
        let table = table();
        batches(&table, 8, Expectation::UNKNOWN, 15_000, true);
        let loose = Expectation::new(Trust::Loose, MINUTE.class());
        let irregular = loose.with_rhythm(Rhythm::new(1, 2));
        for (expected, times) in
            [(irregular, WORTH_OF_PAST), (loose, 1), (MINUTE, 1), (Expectation::UNKNOWN, 1)]
        {
            let worth = table.worth(expected, 15_000);
            assert!(worth > 0, "{expected:?}");
            assert_eq!(table.worth_of_ghost(expected, 15_000), times * worth, "{expected:?}");
        }
    }

    /// A flood of strangers comes while no wait ends: what they are worth falls before the next calculation of all.
    #[test]
    fn a_flood_of_strangers_is_noticed_at_once() {
        let table = ReturnTimes::new(100_000, 100_000, Interval::from_ms(60_000));
        batches(&table, 4, Expectation::UNKNOWN, 15_000, true);
        let worth = || table.worth(Expectation::UNKNOWN, 14_000);
        let before = worth();
        for _ in 0..4 {
            assert_eq!(get(&table.waits.due), 0);
            table.watch(Expectation::UNKNOWN, 8_000, WATCHED_A_CALCULATION / 4);
        }
        table.learn();
        assert!(worth() < before / 2, "{} of {before}", worth());
        table.call_for(Due::OfAll);
        table.call_for(Due::OfStrangers);
        assert_eq!(get(&table.waits.due), Due::OfAll as u32);
    }

    /// Those that may be alike are as many of all sessions as of all looks.
    #[test]
    fn a_look_counts_whoever_is_found() {
        let table = table();
        let claimed = Expectation::new(Trust::Claimed, MINUTE.class());
        for of in [MINUTE, claimed, Expectation::UNKNOWN] {
            let before = table.waits.alike.looks();
            (0..8 * SAMPLED).for_each(|_| table.look(of, 15_000));
            assert_eq!(table.waits.alike.looks() - before, 8, "{of:?}");
        }
    }

    #[test]
    fn where_no_wait_ends_no_count_wraps() {
        const CLIENTS: u32 = 1_000;
        let table = table();
        for _ in 0..3 * (MOST_WATCHED / CLIENTS) {
            table.watch(Expectation::UNKNOWN, 15_000, CLIENTS);
            table.learn();
            assert!(get(&table.waits.watched) <= MOST_WATCHED + CLIENTS);
        }
    }

    #[test]
    fn in_a_flood_strangers_are_worth_less() {
        let worth_if = |young: u32| {
            let table = ReturnTimes::new(1, 100_000, Interval::from_ms(60_000));
            (0..FIRST).for_each(|_| table.record(Expectation::UNKNOWN, 60_000, true));
            table.record(MINUTE, 1, false);
            table.watch(Expectation::UNKNOWN, 2_000, young);
            let sampled =
                ReturnTimes { of: Clientele { watched: young.into(), ..table.of }, ..table };
            set(&sampled.waits.due, 1);
            sampled.learn();
            sampled.worth(Expectation::UNKNOWN, 2_000)
        };
        let [none, few, many] = [1, FIRST, 20 * FIRST].map(worth_if);
        assert!(few > none / 4, "{few} of {none}: some are waited for");
        assert!(many < few / 8, "{many} of {few}");
    }

    #[test]
    fn what_an_interval_has_not_shown_others_of_its_trust_say() {
        let table = table();
        let interval = interval_ticks(MINUTE);
        let other = Expectation::new(MINUTE.trust(), IntervalClass(MINUTE.class().0 - 24));
        let seldom = |table: &ReturnTimes| table.record(other, 1, false);
        let late = |of: Expectation| table.worth(of, 2 * interval_ticks(of));
        seldom(&table);
        let before = late(other);
        batches(&table, 8, MINUTE, 5 * interval / 2, true);
        assert!(late(other) > 4 * before, "{} after {before}", late(other));
        let of_another_trust = Expectation::new(Trust::Loose, other.class());
        let untouched = ReturnTimes::new(1, 1, Interval::from_ms(60_000));
        assert_eq!(late(of_another_trust), untouched.worth(of_another_trust, 2 * interval / 8));
    }

    #[test]
    fn what_never_returns_is_worth_little() {
        let table = table();
        let prior = table.worth(MINUTE, 0);
        batches(&table, 8, MINUTE, 4 * interval_ticks(MINUTE), false);
        assert!(table.worth(MINUTE, 0) < prior / 20, "{prior} before");
        let other = Expectation::new(Trust::Loose, MINUTE.class());
        assert_eq!(table.worth(other, 0), self::table().worth(other, 0), "of another row");
    }

    #[test]
    fn what_is_periodic_is_worth_most_just_before_it_is_due() {
        let table = table();
        batches(&table, 8, MINUTE, interval_ticks(MINUTE), true);
        let class = MINUTE.class().0;
        let worth = |age_class: u8| table.worth(MINUTE, ticks_of(age_class));
        let waiting: Vec<u64> = (class - 24..=class).map(worth).collect();
        assert!(waiting.is_sorted(), "{waiting:?}");
        assert!(worth(class) > 4 * worth(class - 24));
        assert!(worth(class + 1) < worth(class - 24) / 8, "it is late");
    }

    #[test]
    fn what_comes_in_bursts_is_worth_most_at_once() {
        let table = table();
        let interval = interval_ticks(MINUTE);
        for _ in 0..8 {
            batches(&table, 1, MINUTE, interval / 32, true);
            batches(&table, 1, MINUTE, 2 * interval, false);
        }
        assert!(table.worth(MINUTE, 0) > 20 * table.worth(MINUTE, interval / 4));
    }

    #[test]
    fn of_those_unknown_is_learned_too() {
        let (table, second) = (table(), 250);
        let soon = second / 2;
        let prior = table.worth(Expectation::UNKNOWN, soon);
        batches(&table, 8, Expectation::UNKNOWN, second, true);
        let returning = table.worth(Expectation::UNKNOWN, soon);
        assert!(returning > 8 * prior);
        batches(&table, 40, Expectation::UNKNOWN, 2 * second, false);
        assert!(table.worth(Expectation::UNKNOWN, soon) < returning / 2);
    }

    #[test]
    fn the_past_fades() {
        let (table, faithful) = (table(), table());
        let interval = interval_ticks(MINUTE);
        batches(&table, 1_000, MINUTE, 4 * interval, false);
        batches(&table, 100, MINUTE, interval, true);
        batches(&faithful, 100, MINUTE, interval, true);
        assert!(table.worth(MINUTE, 0) > faithful.worth(MINUTE, 0) / 2);
        // A count to which nothing is added any more vanishes in the end.
        let other = Expectation::new(Trust::Loose, MINUTE.class());
        batches(&table, 2_000, other, interval, true);
        assert_eq!(get(&table.waits.waited[ages::bin_of(MINUTE, interval)]), 0);
    }

    #[test]
    fn of_those_still_waited_for_is_learned_before_they_are_given_up_on() {
        let (table, unaware) = (table(), table());
        for table in [&table, &unaware] {
            (0..BATCH / 2).for_each(|_| table.record(MINUTE, interval_ticks(MINUTE), true));
        }
        // Nobody has been given up on, and yet most have not come back.
        (0..BATCH).for_each(|_| table.watch(MINUTE, 4 * interval_ticks(MINUTE), 1));
        let many = ReturnTimes { of: Clientele { watched: 10_000, ..table.of }, ..table };
        let unaware = ReturnTimes { of: many.of, ..unaware };
        for table in [&many, &unaware] {
            table.call_for(Due::OfAll);
            table.learn();
        }
        let (aware, unaware) = (many.worth(MINUTE, 0), unaware.worth(MINUTE, 0));
        assert!(aware < unaware / 20, "{aware}, and {unaware} if they do not count");
    }

    #[test]
    fn old_samples_make_way_for_new_ones() {
        let left = |clients: u64, samples: u32| {
            let table = ReturnTimes::new(1, clients, Interval::from_ms(60_000));
            (0..samples).for_each(|_| table.watch(MINUTE, 1, 1));
            table.forget_samples();
            let left = get(&table.waits.watched);
            let bin = ages::bin_of(MINUTE, 1);
            assert_eq!(get(&table.waits.still[bin]), ONE * left);
            left
        };
        assert_eq!(left(1_000, 300), 150);
        assert_eq!(left(1_000, 4_000), 250);
        assert_eq!(left(1_000, 0), 0);
    }

    #[test]
    fn a_large_cache_calculates_early_and_then_less_often() {
        let table = ReturnTimes::new(
            16 * SESSIONS_A_BATCH,
            16 * SESSIONS_A_BATCH,
            Interval::from_ms(60_000),
        );
        let mut due_after = Vec::new();
        for waits in 1..=2 * 16 * BATCH {
            table.record(MINUTE, 1, true);
            if get(&table.waits.due) == Due::OfAll as u32 {
                due_after.push(waits / FIRST);
                table.learn();
            }
        }
        assert_eq!(due_after, [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn nobody_waits_for_what_is_never_expected() {
        let table = table();
        table.record(Expectation::NEVER, 1, false);
        table.watch(Expectation::NEVER, 1, 1);
        assert!(!table.waits.waited.iter().chain(&table.waits.still).any(is_some));
    }

    /// Clients whose gaps are all drawn from one distribution, or from one of each client's own. Each comes six times.
    #[test]
    fn clients_that_are_alike_are_weighed_by_age_alone() {
        const CLIENTS: usize = 401;
        const VISITS: u32 = 6;
        let worths = |are_alike: bool| {
            let table = ReturnTimes::new(1, CLIENTS as u64, Interval::from_ms(60_000));
            let mut clients = [(History::default(), 0, 0, 0); CLIENTS];
            let mut state = 0x9e37_79b9_u32;
            let mut turn = (0..CLIENTS).cycle();
            for now in (0..1_000_000).step_by(100) {
                for at in turn.by_ref().take(100) {
                    let (history, seen, ..) = clients[at];
                    table.look(Expectation::learned(history), now - seen);
                }
                for (at, client) in clients.iter_mut().enumerate() {
                    let (mut history, seen, visits, due) = *client;
                    if now < due {
                        continue;
                    }
                    table.record(Expectation::learned(history), now - seen, true);
                    table.learn();
                    history.record(now - seen);
                    if visits % VISITS == 0 {
                        history = History::default();
                    }
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let octave = if are_alike { state >> 29 } else { at as u32 % 8 };
                    let gap = (100 << octave) + (state >> 8) % (100 << octave);
                    *client = (history, now, visits + 1, now + gap);
                }
            }
            [8, 10, 12].map(|octave| {
                let expected = Expectation::new(Trust::Loose, IntervalClass(8 * (octave - 2)));
                table.worth(expected.with_rhythm(Rhythm::new(0, 4)), 3_000)
            })
        };
        let [short, middle, long] = worths(true);
        assert!(short == middle && middle == long, "{short}, {middle}, {long}");
        let [short, middle, long] = worths(false);
        assert!(short != middle && middle != long, "{short}, {middle}, {long}");
    }

    #[test]
    fn one_client_of_some_is_a_sample() {
        let table = table();
        let sampled = || table.waits.still[Row::Alike.bins()].iter().map(get).sum::<u32>() / ONE;
        (0..4 * SAMPLED).for_each(|_| table.watch(Expectation::UNKNOWN, 1, 1));
        assert_eq!(sampled(), 4 * SAMPLED);
        table.watch(Expectation::UNKNOWN, 1, SAMPLED - 1);
        assert_eq!(sampled(), 4 * SAMPLED);
        table.watch(Expectation::UNKNOWN, 1, 3 * SAMPLED + 1);
        assert_eq!(sampled(), 8 * SAMPLED);
    }

    /// Nine in ten clients come again at the beginning of a run, and three in ten later.
    #[test]
    fn a_place_is_worth_more_where_more_runs_go_on() {
        let table = table();
        let kept = Expectation::new(Trust::Kept, MINUTE.class());
        let stage = |gaps| kept.with_rhythm(Rhythm::of_run(gaps, 0));
        for at in 0..40_000_u32 {
            let (expected, back) = if at % 2 == 0 { (stage(1), 9) } else { (stage(9), 3) };
            match at / 2 % 10 < back {
                true => table.record(expected, 15_000, true),
                false => table.record(expected, 60_000, false),
            }
            table.learn();
        }
        let worth = |expected| table.worth(expected, 5_000) as f64;
        let base = worth(Expectation::new(Trust::Kept, MINUTE.class()));
        assert!((worth(stage(1)) / base - 0.9 / 0.6).abs() < 0.05);
        assert!((worth(stage(9)) / base - 0.3 / 0.6).abs() < 0.05);
        assert!((worth(stage(3)) / base - 1.0).abs() < 0.01, "nothing is known of this one");
    }

    /// Clients of which a gap of an hour is known are back after a minute. Then the gap was a wait if others are, too.
    #[test]
    fn a_gap_that_says_nothing_is_a_wait() {
        const HOUR: IntervalClass = IntervalClass(8 * 16 + 14);
        let is_wait_if = |clients: [Expectation; 2], tenths_back: [u32; 2]| {
            let table = table();
            for at in 0..40 * BATCH {
                for (expected, back) in clients.into_iter().zip(tenths_back) {
                    match at % 10 < back {
                        true => table.record(expected, 15_000, true),
                        false => table.record(expected, 900_000, back == 0),
                    }
                }
                table.learn();
            }
            let is_wait = table.is_wait(HOUR);
            assert!(!table.is_wait(MINUTE.class()));
            batches(&table, 400, MINUTE, 15_000, true);
            assert!(!table.is_wait(HOUR), "nothing was learned of it for long");
            is_wait
        };
        let claimed = Expectation::new(Trust::Claimed, MINUTE.class());
        let pairs = [(Trust::Loose, Expectation::UNKNOWN), (Trust::Kept, claimed)];
        for (trust, others) in pairs {
            let of = [Expectation::new(trust, HOUR), others];
            assert!(is_wait_if(of, [7, 7]), "{of:?}");
            assert!(is_wait_if(of, [6, 8]), "{of:?}");
            assert!(!is_wait_if(of, [5, 9]), "{of:?}: they come less often");
            assert!(!is_wait_if(of, [9, 5]), "{of:?}: they come more often");
            assert!(!is_wait_if(of, [3, 3]), "{of:?}: hardly anybody comes");
            assert!(!is_wait_if(of, [0, 7]), "{of:?}: nobody comes before an hour");
        }
    }

    /// Clients given up on before they were due say nothing about a stage.
    #[test]
    fn who_was_not_waited_for_is_not_counted() {
        let table = table();
        let rhythm = Rhythm::of_run(1, 0);
        let expected = Expectation::new(Trust::Kept, MINUTE.class()).with_rhythm(rhythm);
        let other = expected.with_rhythm(Rhythm::of_run(4, 0));
        for _ in 0..5_000 {
            table.record(expected, 3_000, false);
            table.record(expected, 15_000, true);
            table.record(other, 15_000, true);
            table.learn();
        }
        let worth = [expected, other].map(|expected| table.worth(expected, 5_000) as f64);
        assert!((worth[0] / worth[1] - 1.0).abs() < 0.01, "{worth:?}");
    }
}
