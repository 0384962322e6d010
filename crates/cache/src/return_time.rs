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

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ages::{
    self, ALL_BINS, BELOW_HALF, KEPT, LOOSE_OCTAVES, Lateness, OCTAVES, ON_TIME, Row,
    UNKNOWN_TICKS, UP_TO_TWICE, rows,
};
use crate::alike::{Alike, SAMPLED};
use crate::expectation::{Expectation, Trust};
use crate::history::Rhythm;
use crate::interval::{Interval, IntervalClass};

/// 2⁴⁰ / interval, by class.
const PER_TICK: [u64; IntervalClass::COUNT] = {
    let mut rates = [0; IntervalClass::COUNT];
    let mut class = 0;
    while class < rates.len() {
        let ticks = IntervalClass(class as u8).upper_bound_ticks() as u64;
        rates[class] = (1 << 40) / if ticks == 0 { 1 } else { ticks };
        class += 1;
    }
    rates
};

/// The number of waits that end between two calculations.
const BATCH: u32 = 512;
/// The number of waits after which it is calculated first.
const FIRST: u32 = 256;
/// The amount that the end of a wait adds to a count.
pub(crate) const ONE: u32 = 256;
/// The logarithm of the share of a count that fades at each calculation.
pub(crate) const FADE: u32 = 5;
/// The number of sessions for which there is one batch. A larger cache calculates less often.
const SESSIONS_A_BATCH: u64 = 1_024;
/// The most samples of clients still waited for that outlast a calculation, as a share of these clients.
const OLD_SAMPLES: f64 = 0.25;
/// The number of a row's own clients that weigh as much as all others of the same trust.
const WEIGHT_OF_POOL: f64 = 4.0;
/// The same where clients keep an interval: octaves differ more, and have more counts.
const WEIGHT_OF_KEPT: f64 = 2.0;
/// The most strangers that are younger than an age and still waited for, for each that was waited for until then, who are taken
/// to come like those.
const MOST_YOUNGER: f64 = 2.0;
/// The unit of [`ReturnTimes::worth`], per interval.
pub(crate) const UNIT: f64 = 65_536.0;

/// The number of clients without which gaps of a pair of octaves are not taken for waits.
const FEWEST: f64 = 16.0;
/// The least share of them that are back within half of such a gap.
const NEARLY_HALF: f64 = 0.45;
/// The most times as many as of clients of which no gap is known, or as few.
const ABOUT: f64 = 1.5;

/// The unit of the factor of a stage.
const FACTOR: f64 = 256.0;
/// The number of a stage's own clients that weigh as much as those of all stages.
const WEIGHT_OF_STAGES: f64 = 8.0;
/// The deviations by which the share of a stage must differ from that of all stages to count.
const DEVIATIONS: f64 = 2.5;
/// Stages of runs, by pair of octaves.
const STAGES: usize = OCTAVES * Rhythm::STAGES;

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
    /// By pair of octaves and stage: the waits that ended in time or too late, those that ended in time, and how much more a place
    /// is worth for it.
    stage_waited: [AtomicU32; STAGES],
    stage_in_time: [AtomicU32; STAGES],
    stage_factor: [AtomicU32; STAGES],
    alike: Alike,
    /// A bit for each pair of octaves of gaps that are waits.
    between_runs: AtomicU32,
    watched: AtomicU32,
    /// The first looks at clients that are still waited for.
    looks: AtomicU32,
    counted: AtomicU32,
    /// A flag that a calculation is due: zero means no.
    due: AtomicU32,
}

impl Waits {
    /// Returns true if a calculation is due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed) != 0
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
    /// The number of clients that a full cache waits for: its sessions, and its ghosts.
    watched: u64,
}

impl Clientele {
    /// Makes the prior of a cache of so many sessions, which waits for so many clients and expects them at `prior` until
    /// something is known about them.
    pub(crate) fn new(sessions: u64, clients: u64, prior: Interval) -> Self {
        let batches = (sessions / SESSIONS_A_BATCH).clamp(1, 64).next_power_of_two() as u32;
        Self { prior: IntervalClass::holding(prior), batch: BATCH * batches, watched: clients }
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
        self.calculate_stages();
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
        if let Some(stage) = stage_of(expected) {
            self.record_stage(stage, bin, returned);
        }
        let counted = add(&self.waits.counted, 1);
        if counted.is_multiple_of(SAMPLED) {
            self.record_sample(counted, expected, age_ticks, returned);
        }
    }

    /// Records the same of one client of some, and that a calculation is due.
    // Not inlined: few come so far.
    #[inline(never)]
    fn record_sample(&self, counted: u32, expected: Expectation, age_ticks: u32, returned: bool) {
        self.waits.alike.record(expected, age_ticks, returned);
        if counted.is_multiple_of(FIRST)
            && (counted & (self.of.batch - 1) == 0 || self.is_early(counted))
        {
            self.waits.due.store(1, Ordering::Relaxed);
        }
    }

    /// Records the end of a wait for a client in a stage of its run. One that was given up on before it was due says nothing.
    #[inline]
    fn record_stage(&self, stage: usize, bin: usize, returned: bool) {
        let lateness = ages::lateness(bin);
        if returned || lateness > Lateness::OnTime {
            add(&self.waits.stage_waited[stage], ONE);
        }
        if returned && lateness < Lateness::TooLate {
            add(&self.waits.stage_in_time[stage], ONE);
        }
    }

    /// Records that so many clients are still waited for, who were last seen `age_ticks` ago.
    #[inline]
    pub fn watch(&self, expected: Expectation, age_ticks: u32, clients: u32) {
        self.watch_in(ages::bin_of(expected, age_ticks), expected, age_ticks, clients);
    }

    /// Records that a client is still waited for, and returns the worth of its place.
    #[inline]
    pub fn look(&self, expected: Expectation, age_ticks: u32) -> u64 {
        let bin = ages::bin_of(expected, age_ticks);
        self.watch_in(bin, expected, age_ticks, 1);
        self.worth_by(expected, age_ticks, bin)
    }

    #[inline]
    fn watch_in(&self, bin: usize, expected: Expectation, age_ticks: u32, clients: u32) {
        if expected.is_never() {
            return;
        }
        add(&self.waits.still[bin], ONE * clients);
        let before = add(&self.waits.watched, clients).wrapping_sub(clients);
        let samples = (before % SAMPLED + clients) / SAMPLED;
        if samples > 0 {
            self.waits.alike.watch(expected, age_ticks, samples);
        }
        if self.waits.looks.load(Ordering::Relaxed) < self.of.batch {
            let looks = add(&self.waits.looks, 1);
            if self.is_early(looks) {
                self.waits.due.store(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns true if it is time for a calculation while there were not as many waits as between two later on.
    #[inline]
    fn is_early(&self, counted: u32) -> bool {
        (FIRST..self.of.batch).contains(&counted) && counted.is_power_of_two()
    }

    /// Returns the worth of a place that is kept for a client last seen `age_ticks` ago.
    #[inline]
    pub fn worth(&self, expected: Expectation, age_ticks: u32) -> u64 {
        self.worth_by(expected, age_ticks, ages::bin_of(expected, age_ticks))
    }

    #[inline]
    fn worth_by(&self, expected: Expectation, age_ticks: u32, bin: usize) -> u64 {
        if self.waits.alike.is_any() {
            return self.worth_if_alike(expected, age_ticks, bin);
        }
        self.worth_in(bin, expected)
    }

    // Not inlined: clients are seldom alike.
    #[inline(never)]
    fn worth_if_alike(&self, expected: Expectation, age_ticks: u32, bin: usize) -> u64 {
        let alike = self.waits.alike.worth(expected, age_ticks);
        alike.unwrap_or_else(|| self.worth_in(bin, expected))
    }

    #[inline]
    fn worth_in(&self, bin: usize, expected: Expectation) -> u64 {
        let per_tick = if expected.is_unknown() {
            (1 << 40) / UNKNOWN_TICKS
        } else {
            PER_TICK[usize::from(expected.class.0)]
        };
        let per_interval = self.waits.worth[bin].load(Ordering::Relaxed);
        let worth = u64::from(per_interval).saturating_mul(per_tick);
        let Some(stage) = stage_of(expected) else { return worth };
        let factor = self.waits.stage_factor[stage].load(Ordering::Relaxed);
        (worth / FACTOR as u64).saturating_mul(u64::from(factor))
    }

    /// Calculates the worth of places from the counts, if enough were added since the last time; old
    /// counts fade. It takes some ten microseconds, and up to two hundred where clients of every
    /// interval and trust come, so it must not be called under a lock.
    pub fn learn(&self) {
        let due = &self.waits.due;
        if due.load(Ordering::Relaxed) != 0 && due.swap(0, Ordering::Relaxed) != 0 {
            let is_known = |row: &Row| self.waits.waited[row.bins()].iter().any(is_some);
            let known: Vec<Row> = rows().filter(is_known).collect();
            let pools = self.pools(&known);
            self.find_waits(&known, &pools);
            self.waits.alike.learn(self.sample_weight(), |bin| self.prior(Row::Unknown, bin));
            known.into_iter().for_each(|row| {
                self.calculate(row, &pools);
                self.fade(row);
            });
            self.forget_samples();
            self.calculate_stages();
            self.waits.stage_waited.iter().chain(&self.waits.stage_in_time).for_each(fade);
        }
    }

    /// Returns true if a gap, of no more than two, is known to be a wait between two runs.
    #[inline]
    pub fn is_wait(&self, gap: IntervalClass) -> bool {
        self.waits.between_runs.load(Ordering::Relaxed) >> (gap.0 / 16) & 1 != 0
    }

    /// Finds the pairs of octaves in which a gap is a wait, whether the application gives intervals or not. Those without enough
    /// clients are none: once gaps do not count, nothing more is learned of them, and they are tried again.
    fn find_waits(&self, known: &[Row], pools: &Pools) {
        const LOOSE: usize = Trust::Loose as usize;
        const KEPT: usize = Trust::Kept as usize;
        let unknown = self.hazards(Row::Unknown, pools);
        let claimed = returned_by(&pools.kept[Trust::Claimed as usize], UP_TO_TWICE);
        let is_wait = |row: Row, strangers: f64| {
            let clients: f64 = self.counts(row).waited.iter().sum();
            let back = returned_by(&self.hazards(row, pools), BELOW_HALF);
            clients >= FEWEST
                && back >= NEARLY_HALF
                && (strangers / ABOUT..=strangers * ABOUT).contains(&back)
        };
        let waits = known.iter().fold(0, |waits, row| {
            let Row::Kept(at) = *row else { return waits };
            let (trust, pair) = (at / OCTAVES, at % OCTAVES);
            let strangers = match trust {
                // By half of a gap in the middle of the two octaves.
                LOOSE => returned_by(&unknown, 16 * pair + 1),
                KEPT => claimed,
                _ => return waits,
            };
            waits | u32::from(is_wait(*row, strangers)) << pair
        });
        self.waits.between_runs.store(waits, Ordering::Relaxed);
    }

    /// Forgets half of the samples of clients that are still waited for, or more where there are enough without them: they have
    /// grown older since.
    fn forget_samples(&self) {
        let watched = f64::from(self.waits.watched.load(Ordering::Relaxed));
        let kept = (OLD_SAMPLES * self.of.watched as f64 / watched.max(1.0)).min(0.5);
        let samples = self.waits.still.iter().chain(self.waits.alike.samples());
        for count in samples.chain(std::iter::once(&self.waits.watched)) {
            match count.load(Ordering::Relaxed) {
                0 => {}
                some => count.store((f64::from(some) * kept) as u32, Ordering::Relaxed),
            }
        }
    }

    fn fade(&self, row: Row) {
        self.waits.waited[row.bins()].iter().chain(&self.waits.returned[row.bins()]).for_each(fade);
    }

    /// Calculates how many times as many clients of each stage are back in time as of all stages of their octaves. A stage that
    /// differs by no more than chance is as all are.
    fn calculate_stages(&self) {
        let octaves = |counts: &[AtomicU32; STAGES]| -> Vec<[f64; Rhythm::STAGES]> {
            let (octaves, _) = counts.as_chunks::<{ Rhythm::STAGES }>();
            octaves.iter().map(|stages| std::array::from_fn(|at| number(&stages[at]))).collect()
        };
        let (factors, _) = self.waits.stage_factor.as_chunks::<{ Rhythm::STAGES }>();
        let counts =
            octaves(&self.waits.stage_waited).into_iter().zip(octaves(&self.waits.stage_in_time));
        for (factors, (waited, in_time)) in factors.iter().zip(counts) {
            let all = (in_time.iter().sum::<f64>() + 0.5) / (waited.iter().sum::<f64>() + 1.0);
            for ((factor, waited), in_time) in factors.iter().zip(waited).zip(in_time) {
                let apart = (in_time - waited * all).abs();
                let deviation = (waited * all * (1.0 - all)).sqrt();
                let share = (in_time + WEIGHT_OF_STAGES * all) / (waited + WEIGHT_OF_STAGES);
                let times = if apart > DEVIATIONS * deviation { share / all } else { 1.0 };
                factor.store((times * FACTOR) as u32, Ordering::Relaxed);
            }
        }
    }

    /// Calculates the worth of a row's places. Clients that keep no interval have no age at which they come, so that what differs
    /// between neighbouring bins of theirs is mostly chance, and is smoothed.
    fn calculate(&self, row: Row, pools: &Pools) {
        let mut worth = worth_of(row, self.hazards(row, pools));
        if matches!(row, Row::Loose(_)) {
            worth = smoothed(&smoothed(&worth));
        }
        for (kept, worth) in self.waits.worth[row.bins()].iter().zip(worth) {
            kept.store((worth * UNIT) as u32, Ordering::Relaxed);
        }
    }

    /// Returns the hazards of a row. Where it has few counts, other intervals of the same trust stand
    /// in for it.
    fn hazards(&self, row: Row, pools: &Pools) -> Hazards {
        let mut hazards = match row {
            Row::Unknown => {
                let counts = self.counts(row);
                let hazards = counts.hazards(1.0, |bin| self.prior(row, bin));
                counts.wary_of_a_flood(hazards, &self.still(row))
            }
            Row::Kept(at) => {
                let pool = &pools.kept[at / OCTAVES];
                self.counts(row).hazards(WEIGHT_OF_KEPT, |bin| pool[bin])
            }
            Row::Loose(at) => {
                let pool = &pools.loose[at / LOOSE_OCTAVES];
                self.counts(row).hazards(WEIGHT_OF_POOL, |bin| pool[bin])
            }
        };
        // The last bin has no end.
        hazards.pop();
        hazards.push(0.0);
        hazards
    }

    /// Returns the hazards of all of these rows of each trust and rhythm together. Where there are none of a kind, its hazards are
    /// empty.
    fn pools(&self, rows: &[Row]) -> Pools {
        let pool = |is_of_it: &dyn Fn(&Row) -> bool| {
            let rows = rows.iter().filter(|row| is_of_it(row));
            let counts = rows.map(|row| self.counts(*row)).reduce(Counts::plus);
            counts.unwrap_or_else(|| Counts::none(0))
        };
        let kept = std::array::from_fn(|trust| {
            let counts = pool(&|row| matches!(row, Row::Kept(at) if at / OCTAVES == trust));
            counts.hazards(1.0, |bin| self.prior(Row::Kept(trust * OCTAVES), bin))
        });
        let all = pool(&|row| matches!(row, Row::Loose(_)));
        let all = all.hazards(1.0, |bin| self.prior(Row::Loose(0), bin));
        let loose = (0..Rhythm::COUNT).map(|rhythm| {
            let counts = pool(&|row| matches!(row, Row::Loose(at) if at / LOOSE_OCTAVES == rhythm));
            counts.hazards(WEIGHT_OF_POOL, |bin| all[bin])
        });
        Pools { kept, loose: loose.collect() }
    }

    fn counts(&self, row: Row) -> Counts {
        let mut waited = numbers(&self.waits.waited[row.bins()]);
        waited.iter_mut().zip(self.still(row)).for_each(|(waited, still)| *waited += still);
        Counts { waited, returned: numbers(&self.waits.returned[row.bins()]) }
    }

    /// Returns how many clients of each bin are still waited for.
    fn still(&self, row: Row) -> Vec<f64> {
        let weight = self.sample_weight();
        self.waits.still[row.bins()].iter().map(|count| weight * number(count)).collect()
    }

    /// Returns for how many clients each stands of which a sample is known.
    fn sample_weight(&self) -> f64 {
        let watched = f64::from(self.waits.watched.load(Ordering::Relaxed));
        if watched > 0.0 { self.of.watched as f64 / watched } else { 0.0 }
    }

    /// Returns the assumed chance of a return, which counts as one client: most of it where the
    /// return is expected, the rest in proportion to time, up to an eighth of an interval.
    fn prior(&self, row: Row, bin: usize) -> f64 {
        let eighths = ((row.end(bin) - row.start(bin)) * 8.0).min(1.0);
        match row {
            Row::Unknown if bin == usize::from(self.of.prior.0) => 0.3,
            Row::Unknown => 0.005 * eighths,
            Row::Kept(kept) if bin == ON_TIME => match kept / OCTAVES {
                0 => 0.15,
                2 => 0.5,
                _ => 0.6,
            },
            Row::Kept(_) => 0.01 * eighths,
            Row::Loose(_) => 0.05 * eighths,
        }
    }
}

/// The hazards of clients of a kind, whatever their interval.
struct Pools {
    kept: [Hazards; KEPT],
    /// By rhythm.
    loose: Vec<Hazards>,
}

/// The chance, for each bin, that a client waited for until then returns in that bin.
type Hazards = Vec<f64>;

/// Returns the worth of a row's places. For each age the hazards give how long places were taken until then and how many clients
/// came back. The worth at an age is the steepest way from there to any later age, along the upper hull of these points.
pub(crate) fn worth_of(row: Row, hazards: Hazards) -> Vec<f64> {
    let (mut time, mut returned, mut waiting) = (0.0, 0.0, 1.0);
    let mut points = Vec::with_capacity(hazards.len() + 1);
    points.push((time, returned));
    let mut start = row.start(0);
    for (bin, hazard) in hazards.into_iter().enumerate() {
        let end = row.end(bin);
        time += waiting * (end - std::mem::replace(&mut start, end));
        returned += waiting * hazard;
        waiting *= 1.0 - hazard;
        points.push((time, returned));
    }
    let steepness = |from: (f64, f64), to: (f64, f64)| {
        let taken = to.0 - from.0;
        if taken > 0.0 { (to.1 - from.1) / taken } else { 0.0 }
    };
    let mut hull = Vec::with_capacity(points.len());
    hull.extend(points.pop());
    let mut worth = Vec::with_capacity(points.len());
    for point in points.into_iter().rev() {
        while let [.., further, nearest] = hull[..]
            && steepness(point, nearest) <= steepness(point, further)
        {
            hull.pop();
        }
        worth.push(hull.last().map_or(0.0, |nearest| steepness(point, *nearest)));
        hull.push(point);
    }
    worth.reverse();
    worth
}

/// Returns the mean of each worth, which counts twice, and its neighbours that are not more than four times as much or as little.
pub(crate) fn smoothed(worth: &[f64]) -> Vec<f64> {
    let mean = |at: usize| {
        let own = worth[at];
        let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
        let near = neighbours
            .filter_map(|at| worth.get(at))
            .filter(|other| (own / 4.0..=own * 4.0).contains(*other));
        let (sum, count) = near.fold((2.0 * own, 2.0), |(sum, count), of| (sum + of, count + 1.0));
        sum / count
    };
    (0..worth.len()).map(mean).collect()
}

/// Returns the share of clients that are back within the first bins.
fn returned_by(hazards: &Hazards, bins: usize) -> f64 {
    1.0 - hazards.iter().take(bins).fold(1.0, |waiting, hazard| waiting * (1.0 - hazard))
}

/// The counts of a row's bins: how many waits ended in each, and how many of those in a return.
pub(crate) struct Counts {
    pub(crate) waited: Vec<f64>,
    pub(crate) returned: Vec<f64>,
}

impl Counts {
    fn none(bins: usize) -> Self {
        Self { waited: vec![0.0; bins], returned: vec![0.0; bins] }
    }

    fn plus(mut self, other: Self) -> Self {
        let add = |to: &mut [f64], more: &[f64]| to.iter_mut().zip(more).for_each(|(a, b)| *a += b);
        add(&mut self.waited, &other.waited);
        add(&mut self.returned, &other.returned);
        self
    }

    /// Returns the hazards, with an assumed chance that counts as so many clients.
    pub(crate) fn hazards(&self, clients: f64, assumed: impl Fn(usize) -> f64) -> Hazards {
        let hazard = |(bin, exposed): (usize, f64)| {
            // Counts read while others add to them may show more returns than waits.
            let hazard = (self.returned[bin] + clients * assumed(bin)) / (exposed + clients);
            hazard.min(1.0)
        };
        self.exposed().into_iter().enumerate().map(hazard).collect()
    }

    /// Returns how many clients were waited for in each bin.
    fn exposed(&self) -> Vec<f64> {
        let mut exposed = vec![0.0; self.waited.len()];
        let mut waiting = 0.0;
        for bin in (0..exposed.len()).rev() {
            waiting += self.waited[bin];
            // A client given up on within the bin was waited for during half of it.
            exposed[bin] = waiting - 0.5 * (self.waited[bin] - self.returned[bin]);
        }
        exposed
    }

    /// Returns the hazards as far as clients that are still waited for may be trusted to come like those before them. Where they
    /// are many more than those that were waited for until an age, there is a flood of them, which will not come as they did.
    /// Until it is known better, the clients beyond count as if they had been waited for until then in vain.
    fn wary_of_a_flood(&self, hazards: Hazards, still: &[f64]) -> Hazards {
        let mut younger = 0.0;
        let wary = |((hazard, exposed), still): ((f64, f64), &f64)| {
            // One is assumed.
            let known = exposed.max(0.0) + 1.0;
            let beyond = (younger - MOST_YOUNGER * known).max(0.0);
            younger += still;
            hazard * known / (known + beyond)
        };
        hazards.into_iter().zip(self.exposed()).zip(still).map(wary).collect()
    }
}

/// Adds to a count, and returns the sum. A count to which two threads add at once may lose one of the two.
#[inline]
pub(crate) fn add(count: &AtomicU32, more: u32) -> u32 {
    let sum = count.load(Ordering::Relaxed).wrapping_add(more);
    count.store(sum, Ordering::Relaxed);
    sum
}

/// Returns the numbers that counts stand for.
fn numbers(counts: &[AtomicU32]) -> Vec<f64> {
    counts.iter().map(number).collect()
}

/// Returns the number that a count stands for.
pub(crate) fn number(count: &AtomicU32) -> f64 {
    f64::from(count.load(Ordering::Relaxed)) / f64::from(ONE)
}

/// Takes a share of a count away. Two threads may do so at once: neither takes what the other has taken.
pub(crate) fn fade(count: &AtomicU32) {
    if count.load(Ordering::Relaxed) == 0 {
        return;
    }
    let faded = |count: u32| Some(count - count.div_ceil(1 << FADE));
    let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, faded);
}

/// Returns the stage of a client's run, by pair of octaves of its interval.
#[inline]
fn stage_of(expected: Expectation) -> Option<usize> {
    let octaves = usize::from(expected.class.0.min(224)) / 16;
    Some(octaves * Rhythm::STAGES + expected.rhythm.stage()?)
}

fn is_some(count: &AtomicU32) -> bool {
    count.load(Ordering::Relaxed) > 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::expectation::Trust;
    use crate::history::History;

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
        of.class.upper_bound_ticks()
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
            table.waits.waited[bin].store(waited, Ordering::Relaxed);
            table.waits.returned[bin].store(below(waited + 1), Ordering::Relaxed);
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
            for ((bin, at), best) in row.bins().enumerate().zip(best) {
                let exact = best * UNIT;
                let worth = f64::from(table.waits.worth[at].load(Ordering::Relaxed));
                let error = (worth - exact).abs();
                assert!(error <= 1.0 + exact * 1e-9, "{row:?}, bin {bin}: {worth}, not {exact}");
            }
        }
    }

    #[test]
    fn what_differs_little_is_smoothed() {
        let worth = [8.0, 16.0, 8.0, 100.0, 24.0];
        let expected = [32.0 / 3.0, 48.0 / 4.0, 32.0 / 3.0, 100.0, 24.0];
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(smoothed(&worth).iter().zip(&expected).all(close), "{:?}", smoothed(&worth));
    }

    /// Ten wait: one is given up on in the first bin, four return in the second, and the other
    /// five are given up on in the third. One more is assumed.
    #[test]
    fn who_is_given_up_on_counts_until_then() {
        let counts =
            Counts { waited: vec![1.0, 4.0, 5.0, 0.0], returned: vec![0.0, 4.0, 0.0, 0.0] };
        let expected = [0.1 / 10.5, 4.1 / 10.0, 0.1 / 3.5, 0.1];
        for (hazard, expected) in counts.hazards(1.0, |_| 0.1).into_iter().zip(expected) {
            assert!((hazard - expected).abs() < 1e-12, "{hazard}, not {expected}");
        }
    }

    /// Forty were waited for until the third bin, and one more is assumed. 123 younger ones are still waited for, which is 41 more
    /// than twice as many.
    #[test]
    fn a_flood_of_strangers_is_not_taken_to_come_like_those_before() {
        let counts = Counts { waited: vec![100.0, 23.0, 40.0], returned: vec![0.0, 0.0, 40.0] };
        let still = [100.0, 23.0, 0.0];
        let wary = |hazards: [f64; 3]| counts.wary_of_a_flood(hazards.to_vec(), &still);
        let expected = [0.1, 0.2, 0.5 * 41.0 / (41.0 + 41.0)];
        for (hazard, expected) in wary([0.1, 0.2, 0.5]).into_iter().zip(expected) {
            assert!((hazard - expected).abs() < 1e-12, "{hazard}, not {expected}");
        }
        assert_eq!(counts.wary_of_a_flood(vec![0.1, 0.2, 0.5], &[82.0, 0.0, 9.0])[2], 0.5);
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
            sampled.waits.due.store(1, Ordering::Relaxed);
            sampled.learn();
            sampled.worth(Expectation::UNKNOWN, 2_000)
        };
        let [none, few, many] = [1, FIRST, 20 * FIRST].map(worth_if);
        assert!(few > none / 4, "{few} of {none}: some are waited for");
        assert!(many < few / 8, "{many} of {few}");
    }

    #[test]
    fn no_chance_is_above_one() {
        let counts = Counts { waited: vec![0.0, 1.0], returned: vec![8.0, 8.0] };
        for hazard in counts.hazards(1.0, |_| 0.1) {
            assert!((0.0..=1.0).contains(&hazard), "{hazard}");
        }
    }

    #[test]
    fn no_count_fades_below_nothing() {
        let (table, row, done) = (table(), Row::Unknown, AtomicBool::new(false));
        let counts = &table.waits.waited[row.bins()];
        let most = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    table.fade(row);
                }
            });
            let mut most = 0;
            for _ in 0..20_000 {
                counts.iter().for_each(|count| count.store(1, Ordering::Relaxed));
                table.fade(row);
                let left = counts.iter().map(|count| count.load(Ordering::Relaxed));
                most = left.fold(most, u32::max);
            }
            done.store(true, Ordering::Relaxed);
            most
        });
        assert_eq!(most, 0);
    }

    #[test]
    fn what_an_interval_has_not_shown_others_of_its_trust_say() {
        let table = table();
        let interval = interval_ticks(MINUTE);
        let other = Expectation { class: IntervalClass(MINUTE.class.0 - 24), ..MINUTE };
        let seldom = |table: &ReturnTimes| table.record(other, 1, false);
        let late = |of: Expectation| table.worth(of, 2 * interval_ticks(of));
        seldom(&table);
        let before = late(other);
        batches(&table, 8, MINUTE, 5 * interval / 2, true);
        assert!(late(other) > 4 * before, "{} after {before}", late(other));
        let of_another_trust = Expectation { trust: Trust::Loose, ..other };
        let untouched = ReturnTimes::new(1, 1, Interval::from_ms(60_000));
        assert_eq!(late(of_another_trust), untouched.worth(of_another_trust, 2 * interval / 8));
    }

    #[test]
    fn what_never_returns_is_worth_little() {
        let table = table();
        let prior = table.worth(MINUTE, 0);
        batches(&table, 8, MINUTE, 4 * interval_ticks(MINUTE), false);
        assert!(table.worth(MINUTE, 0) < prior / 20, "{prior} before");
        let other = Expectation { trust: Trust::Loose, ..MINUTE };
        assert_eq!(table.worth(other, 0), self::table().worth(other, 0), "of another row");
    }

    #[test]
    fn what_is_periodic_is_worth_most_just_before_it_is_due() {
        let table = table();
        batches(&table, 8, MINUTE, interval_ticks(MINUTE), true);
        let class = MINUTE.class.0;
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
        let other = Expectation { trust: Trust::Loose, ..MINUTE };
        batches(&table, 2_000, other, interval, true);
        assert_eq!(table.waits.waited[ages::bin_of(MINUTE, interval)].load(Ordering::Relaxed), 0);
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
            table.waits.due.store(1, Ordering::Relaxed);
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
            let left = table.waits.watched.load(Ordering::Relaxed);
            let bin = ages::bin_of(MINUTE, 1);
            assert_eq!(table.waits.still[bin].load(Ordering::Relaxed), ONE * left);
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
            if table.waits.due.load(Ordering::Relaxed) == 1 {
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
                    table.watch(Expectation::learned(history), now - seen, 1);
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
                table.worth(Expectation { rhythm: Rhythm::new(0, 4), ..expected }, 3_000)
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
        let sampled = || -> u32 {
            let samples = table.waits.alike.samples().iter();
            samples.map(|count| count.load(Ordering::Relaxed)).sum::<u32>() / ONE
        };
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
        let stage = |gaps| Expectation {
            rhythm: Rhythm::of_run(gaps, 0),
            ..Expectation::new(Trust::Kept, MINUTE.class)
        };
        for at in 0..40_000_u32 {
            let (expected, back) = if at % 2 == 0 { (stage(1), 9) } else { (stage(9), 3) };
            match at / 2 % 10 < back {
                true => table.record(expected, 15_000, true),
                false => table.record(expected, 60_000, false),
            }
            table.learn();
        }
        let worth = |expected| table.worth(expected, 5_000) as f64;
        let base = worth(Expectation::new(Trust::Kept, MINUTE.class));
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
            assert!(!table.is_wait(MINUTE.class));
            batches(&table, 400, MINUTE, 15_000, true);
            assert!(!table.is_wait(HOUR), "nothing was learned of it for long");
            is_wait
        };
        let claimed = Expectation::new(Trust::Claimed, MINUTE.class);
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
        let expected = Expectation { rhythm, ..Expectation::new(Trust::Kept, MINUTE.class) };
        let other = Expectation { rhythm: Rhythm::of_run(4, 0), ..expected };
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
