//! The history of a client's own past visits.

use std::hint::select_unpredictable;

use crate::interval::{Interval, IntervalClass, TICK_MS};
use crate::rhythm::{Rhythm, octave};

/// The gaps between a client's visits: the last two, the mean of all, their number, how often they differ, and how long its runs
/// last. These four bytes travel with the client, from a consumed TLS 1.3 ticket to its successor and from an evicted session to the
/// next one.
///
/// From the lowest bit: the classes of the last gap and of the one before, eight bits each, zero if there is none; the mean of the
/// classes, ten bits in quarters, in which each gap weighs as much as any of the last sixteen; the number of gaps, four bits, 15
/// at most; and two bits of doubt. While the last two gaps agree and there is no doubt, mean and number make room for the run: six
/// bits hold how far the mean is from the last gap, two the number in powers of two, three the position in the run and three the
/// length of the run before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct History(u32);

/// The data that a history holds while its last two gaps agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Habit {
    /// The mean class of the gaps, in quarters: within an octave of the last gap.
    mean: u32,
    /// The number of gaps in powers of two, less one: 0 to 3.
    count: u32,
    /// The number of gaps in this run, 7 at most.
    position: u32,
    /// The number of binary digits of the visits in the run before; 0 if that is not known.
    before: u32,
}

impl Habit {
    const NO_OFFSET: u32 = 32;
    const MOST_OFFSET: u32 = 63;
    const COUNT_SHIFT: u32 = 6;
    const POSITION_SHIFT: u32 = 8;
    const BEFORE_SHIFT: u32 = 11;
    const MOST_POSITION: u32 = 7;
    /// The place of an eighth of the offset in what a ghost keeps, above the rest in eight bits.
    const COARSE_OFFSET_SHIFT: u32 = 17;

    /// Makes the habit of a client with so many gaps, of which the last two were the first to agree. If there were gaps before, its
    /// runs are taken to be short.
    fn begin(mean: u32, gaps: u32) -> Self {
        let before = if gaps > 2 { octave(History::SHORT_RUN) } else { 0 };
        Self { mean, count: Self::count(gaps), position: 2, before }
    }

    /// Adds a gap that agrees with the one before.
    fn go_on(self, mean: u32) -> Self {
        let position = (self.position + 1).min(Self::MOST_POSITION);
        // A position that cannot grow stands for many gaps.
        let gaps = if self.position == position { History::MOST_COUNTED } else { position };
        Self { mean, count: self.count.max(Self::count(gaps)), position, ..self }
    }

    fn count(gaps: u32) -> u32 {
        if gaps == History::MOST_COUNTED { 3 } else { gaps.max(2).ilog2() - 1 }
    }

    /// The number of gaps: 2, 4, 8 or 15.
    fn gaps(self) -> u32 {
        (2 << self.count).min(History::MOST_COUNTED)
    }

    /// Begins a run after this one.
    fn begin_run(self) -> Self {
        Self { position: 0, before: octave(self.position + 1), ..self }
    }

    /// The same, without the mean, in eight bits.
    fn coarse(self) -> u32 {
        self.count | self.position << 2 | self.before << 5
    }

    fn from_coarse(coarse: u32, mean: u32) -> Self {
        Self { mean, count: coarse & 3, position: coarse >> 2 & 7, before: coarse >> 5 & 7 }
    }
}

impl History {
    /// The length of a history outside the cache.
    pub const BYTES: usize = 4;
    const MEAN_SHIFT: u32 = 16;
    const MEAN_MASK: u32 = (1 << 10) - 1;
    const COUNT_SHIFT: u32 = 26;
    const MOST_COUNTED: u32 = 15;
    const DOUBT_SHIFT: u32 = 30;
    const MOST_DOUBT: u32 = 3;
    const MOST_WEIGHT: u32 = 16;
    const LONGEST_CLASS: u32 = IntervalClass::LONGEST as u32;
    /// The visits of a run of a client of which no two gaps in a row agree.
    const SHORT_RUN: u32 = 2;
    pub(crate) const COARSE_BITS: u32 = 20;
    pub(crate) const FINER_BITS: u32 = 5;

    /// Returns the bytes for a place where the client itself keeps them, such as an encrypted ticket.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_le_bytes()
    }

    /// Reads a history. Any bytes are one: a gap longer than 49 days becomes one of 49 days.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let read = u32::from_le_bytes(bytes);
        let (mean, count) = (read >> Self::MEAN_SHIFT & Self::MEAN_MASK, read >> Self::COUNT_SHIFT);
        let (gap, before) = (read & 0xff, read >> 8 & 0xff);
        let doubt = read >> Self::DOUBT_SHIFT;
        Self::within_bounds(gap, before, mean, count & Self::MOST_COUNTED, doubt)
    }

    #[inline]
    fn within_bounds(gap: u32, before: u32, mean: u32, count: u32, doubt: u32) -> Self {
        if gap == 0 {
            return Self::default();
        }
        let [gap, before] = [gap, before].map(|gap| gap.min(Self::LONGEST_CLASS));
        let read = Self::of(gap, before, mean, count, doubt);
        if read.has_habit() {
            return read;
        }
        Self::of(gap, before, mean.clamp(4, 4 * Self::LONGEST_CLASS), count.max(1), doubt)
    }

    fn of(gap: u32, before: u32, mean: u32, count: u32, doubt: u32) -> Self {
        Self(
            gap | before << 8
                | mean << Self::MEAN_SHIFT
                | count << Self::COUNT_SHIFT
                | doubt << Self::DOUBT_SHIFT,
        )
    }

    /// Makes the history of a client whose last two gaps agree.
    fn of_habit(gap: u32, before: u32, habit: Habit) -> Self {
        let Habit { mean, count, position, before: run_before } = habit;
        let offset = (mean + Habit::NO_OFFSET).saturating_sub(4 * gap).min(Habit::MOST_OFFSET);
        let run = offset
            | count << Habit::COUNT_SHIFT
            | position << Habit::POSITION_SHIFT
            | run_before << Habit::BEFORE_SHIFT;
        Self(gap | before << 8 | run << Self::MEAN_SHIFT)
    }

    /// Returns what is known while the last two gaps agree.
    #[inline]
    fn habit(self) -> Option<Habit> {
        self.has_habit().then(|| {
            let run = self.0 >> Self::MEAN_SHIFT;
            let mean = 4 * self.gap() + (run & Habit::MOST_OFFSET);
            Habit {
                mean: mean.saturating_sub(Habit::NO_OFFSET).clamp(4, 4 * Self::LONGEST_CLASS),
                count: run >> Habit::COUNT_SHIFT & 3,
                position: run >> Habit::POSITION_SHIFT & 7,
                before: run >> Habit::BEFORE_SHIFT & 7,
            }
        })
    }

    fn gap(self) -> u32 {
        self.0 & 0xff
    }

    fn gap_before(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    /// The mean class of the gaps, in quarters, while the last two do not agree.
    fn mean(self) -> u32 {
        self.0 >> Self::MEAN_SHIFT & Self::MEAN_MASK
    }

    /// The mean and the number of gaps, with the habit that is known already.
    #[inline]
    fn mean_and_count_with(self, habit: Option<Habit>) -> (u32, u32) {
        match habit {
            Some(habit) => (habit.mean, habit.gaps()),
            None => (self.mean(), self.count()),
        }
    }

    /// One for each gap that did not agree with the one before, less two for each that did. A client that keeps no interval has
    /// two gaps that agree by chance, now and then.
    fn doubt(self) -> u32 {
        self.0 >> Self::DOUBT_SHIFT
    }

    /// The number of gaps, while the last two do not agree.
    fn count(self) -> u32 {
        self.0 >> Self::COUNT_SHIFT & Self::MOST_COUNTED
    }

    /// Adds a visit that came `ticks` after the last. If the client's two gaps agree and it was then
    /// away for more than three of them, it has begun a new run of visits: the absence says nothing
    /// about its habit and is not recorded as a gap.
    #[inline(always)]
    pub(crate) fn record(&mut self, ticks: u32) {
        let (gap, habit) = (self.gap(), self.habit());
        if let Some(habit) = habit
            && is_long(ticks, ticks_of(gap))
        {
            *self = Self::of_habit(gap, self.gap_before(), habit.begin_run());
            return;
        }
        let (mean_before, count) = self.mean_and_count_with(habit);
        let class = u32::from(IntervalClass::holding(Interval::from_ticks(ticks)).0).max(1);
        let apart = 4 * class as i32 - mean_before as i32;
        let mean = mean_before as i32 + share(apart, count.min(Self::MOST_WEIGHT - 1) as usize);
        let agrees = gap > 0 && classes_agree(class, gap);
        let doubt = match gap > 0 && !agrees {
            true => (self.doubt() + 1).min(Self::MOST_DOUBT),
            false => self.doubt().saturating_sub(2),
        };
        let (mean, count) = (mean as u32, (count + 1).min(Self::MOST_COUNTED));
        *self = if agrees && doubt == 0 {
            let habit = habit.map_or_else(|| Habit::begin(mean, count), |habit| habit.go_on(mean));
            Self::of_habit(class, gap, habit)
        } else {
            Self::of(class, gap, mean, count, doubt)
        };
    }

    /// Returns the same without gaps that are waits between two runs. Of a client with more than two gaps, or with two that agree,
    /// all count.
    #[inline]
    pub(crate) fn without(self, is_wait: impl Fn(IntervalClass) -> bool) -> Self {
        if self.has_habit() || self.count() > 2 {
            return self;
        }
        let counts = |gap: u32| gap > 0 && !is_wait(IntervalClass(gap as u8));
        let lone = |gap: u32| Self::of(gap, 0, 4 * gap, 1, 0);
        match (counts(self.gap()), counts(self.gap_before())) {
            (true, false) if self.count() == 2 => lone(self.gap()),
            (true, _) => self,
            (false, true) => lone(self.gap_before()),
            (false, false) => Self::default(),
        }
    }

    /// Returns the same with a gap before the last, if the last is longer than that and they are no habit.
    #[inline]
    pub(crate) fn after(self, before: IntervalClass) -> Self {
        let before = u32::from(before.0);
        if self.has_habit() || self.gap() <= before {
            return self;
        }
        Self::of(self.gap(), before, self.mean(), self.count(), self.doubt())
    }

    /// Returns the interval that the client keeps, and whether it does. If its gaps differ, the interval is the mean one.
    #[inline]
    pub fn interval(self) -> Option<(Interval, bool)> {
        let (class, confirmed) = self.class()?;
        Some((class.interval(), confirmed))
    }

    /// Returns the class of the same.
    #[inline]
    pub(crate) fn class(self) -> Option<(IntervalClass, bool)> {
        if self.gap() == 0 {
            return None;
        }
        let has_habit = self.has_habit();
        let class =
            if has_habit { self.gap().max(self.gap_before()) } else { self.mean().div_ceil(4) };
        Some((IntervalClass(class as u8), has_habit))
    }

    /// Returns the stage of the run of a client that keeps an interval. If no two gaps in a row agree, the stage is that of a short
    /// run where one of them is certainly the wait between two runs, and else none.
    #[inline]
    pub(crate) fn stage(self, interval: Interval) -> Rhythm {
        if let Some(Habit { position, before, .. }) = self.habit() {
            return Rhythm::of_run(position, (1 << before) >> 1);
        }
        let is_wait = |gap: u32| gap > 0 && is_long(ticks_of(gap), interval.ticks());
        match (self.count(), is_wait(self.gap()), is_wait(self.gap_before())) {
            (1, false, _) => Rhythm::of_run(1, 0),
            (_, true, false) if self.gap_before() > 0 => Rhythm::of_run(0, Self::SHORT_RUN),
            (_, false, true) => Rhythm::of_run(1, Self::SHORT_RUN),
            _ => Rhythm::NONE,
        }
    }

    /// Returns how the client comes, if it keeps no interval.
    #[inline]
    pub(crate) fn rhythm(self) -> Rhythm {
        Rhythm::of_gaps(4 * self.gap(), self.mean(), self.count())
    }

    /// Returns true if that is not [`Rhythm::NONE`].
    #[inline]
    pub(crate) fn has_rhythm(self) -> bool {
        self.count() >= 2
    }

    /// Returns the shorter of the known gaps, which a hint may not undercut. This stops a client
    /// from gaining a place with the claim to be back sooner than it ever was.
    #[inline]
    pub(crate) fn least(self) -> Option<Interval> {
        let gaps = [self.gap(), self.gap_before()].into_iter().filter(|gap| *gap > 0);
        gaps.min().map(|class| IntervalClass(class as u8).interval())
    }

    /// Returns true if one of the last two gaps agrees with an interval.
    #[inline]
    pub(crate) fn keeps(self, interval: Interval) -> bool {
        let gaps = [self.gap(), self.gap_before()];
        gaps.into_iter().any(|gap| gap > 0 && agree(ticks_of(gap), interval.ticks()))
    }

    /// Packs what a ghost keeps: in [`Self::COARSE_BITS`] the last gap, whether the one before agrees, the mean in two classes, and the run
    /// or else the number. [`Self::FINER_BITS`] above them say the mean more exactly, and the doubt.
    pub(crate) fn packed(self) -> u32 {
        let (coarse, mean) = match self.habit() {
            Some(habit) => {
                let offset = self.0 >> Self::MEAN_SHIFT & Habit::MOST_OFFSET;
                (1 << 8 | habit.coarse() << 9 | (offset / 8) << Habit::COARSE_OFFSET_SHIFT, offset)
            }
            None => ((self.mean() / 8) << 9 | self.count() << 16, self.mean()),
        };
        let finer = (mean % 8) << 2 | self.doubt();
        self.gap() | coarse | finer << Self::COARSE_BITS
    }

    /// Fills in the finer bits of such bits where a hint took their place: the middle of the mean, and one doubt unless there is a habit.
    #[inline]
    pub(crate) fn without_finer(packed: u32) -> u32 {
        let has_habit = packed >> 8 & 1;
        let finer = 1 << (Self::FINER_BITS - 1) | (1 - has_habit);
        packed & ((1 << Self::COARSE_BITS) - 1) | finer << Self::COARSE_BITS
    }

    /// Returns the class of the interval that the client of such bits keeps, if it keeps one.
    #[inline]
    fn class_kept(packed: u32) -> Option<IntervalClass> {
        let gap = packed & 0xff;
        let class = IntervalClass(gap.min(Self::LONGEST_CLASS) as u8);
        (gap > 0 && packed >> 8 & 1 == 1).then_some(class)
    }

    /// Returns what [`Self::class`] and [`Self::rhythm`] do of such bits.
    // Without branches: clients come in no order, so that each would be mispredicted.
    #[inline]
    pub(crate) fn known(packed: u32) -> (IntervalClass, bool, Rhythm) {
        let gap = packed & 0xff;
        let has_habit = packed >> 8 & 1 == 1;
        let mean = Self::mean_of(packed);
        let count = packed >> 16 & Self::MOST_COUNTED;
        let rhythm = Rhythm::of_gaps(4 * gap, mean, count);
        let is_loose = !has_habit & (gap > 0);
        let class = IntervalClass(select_unpredictable(is_loose, mean.div_ceil(4), gap) as u8);
        (class, has_habit & (gap > 0), select_unpredictable(is_loose, rhythm, Rhythm::NONE))
    }

    /// Returns the mean of a client that keeps no interval, from such bits.
    #[inline]
    fn mean_of(packed: u32) -> u32 {
        8 * (packed >> 9 & 0x7f) + (packed >> (Self::COARSE_BITS + 2) & 7)
    }

    #[inline]
    pub(crate) fn from_packed(packed: u32) -> Self {
        let finer = packed >> Self::COARSE_BITS;
        if let Some(class) = Self::class_kept(packed) {
            let gap = u32::from(class.0);
            let offset = 8 * (packed >> Habit::COARSE_OFFSET_SHIFT & 7) + (finer >> 2 & 7);
            let mean = (4 * gap + offset).saturating_sub(Habit::NO_OFFSET);
            let mean = mean.clamp(4, 4 * Self::LONGEST_CLASS);
            return Self::of_habit(gap, gap, Habit::from_coarse(packed >> 9, mean));
        }
        let gap = packed & 0xff;
        let (count, doubt) = (packed >> 16 & Self::MOST_COUNTED, finer & Self::MOST_DOUBT);
        Self::within_bounds(gap, 0, Self::mean_of(packed), count, doubt)
    }

    /// Returns true if the last two gaps agree, and not by chance.
    #[inline]
    fn has_habit(self) -> bool {
        let (gap, before) = (self.gap(), self.gap_before());
        gap > 0 && before > 0 && self.doubt() == 0 && classes_agree(gap, before)
    }
}

/// Returns what a gap `apart` from the mean of so many others moves it: one of so many and one parts, rounded, half of one away from
/// zero.
#[inline]
fn share(apart: i32, others: usize) -> i32 {
    /// 2²⁰ / (2 × parts), rounded up: exact for all that two classes can be apart.
    const RECIPROCALS: [u32; History::MOST_WEIGHT as usize] = {
        let mut reciprocals = [0; History::MOST_WEIGHT as usize];
        let mut at = 0;
        while at < reciprocals.len() {
            reciprocals[at] = (1_u32 << 20).div_ceil(2 * (at as u32 + 1));
            at += 1;
        }
        reciprocals
    };
    let halves = 2 * apart.unsigned_abs() + others as u32 + 1;
    let share = (u64::from(halves) * u64::from(RECIPROCALS[others])) >> 20;
    share as i32 * apart.signum()
}

const fn ticks_of(class: u32) -> u32 {
    IntervalClass(class as u8).upper_bound_ticks()
}

/// Returns true if a gap of one class agrees with an interval of another.
#[inline]
fn classes_agree(gap: u32, interval: u32) -> bool {
    /// The shortest and the longest gap that agree, by the class of the interval.
    const AGREEING: [[u8; 2]; IntervalClass::COUNT] = {
        let mut agreeing = [[0; 2]; IntervalClass::COUNT];
        let mut interval = 0;
        while interval < agreeing.len() {
            let (mut shortest, mut longest) = (interval as u8, interval as u8);
            while shortest > 0 && agree(ticks_of(shortest as u32 - 1), ticks_of(interval as u32)) {
                shortest -= 1;
            }
            while longest < u8::MAX
                && agree(ticks_of(longest as u32 + 1), ticks_of(interval as u32))
            {
                longest += 1;
            }
            agreeing[interval] = [shortest, longest];
            interval += 1;
        }
        agreeing
    };
    let [shortest, longest] = AGREEING[interval as usize & 0xff];
    (u32::from(shortest)..=u32::from(longest)).contains(&gap)
}

/// Returns true if a gap is too long to be within a run of visits at this interval.
fn is_long(gap_ticks: u32, interval_ticks: u32) -> bool {
    u64::from(gap_ticks) > 3 * u64::from(interval_ticks)
}

/// Returns true if a gap is within a fifth of the interval and half a second.
const fn agree(gap_ticks: u32, interval_ticks: u32) -> bool {
    const HALF_A_SECOND: u32 = (500 / TICK_MS) as u32;
    gap_ticks.abs_diff(interval_ticks) <= interval_ticks / 5 + HALF_A_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(gaps: &[u32]) -> History {
        let mut history = History::default();
        gaps.iter().for_each(|&gap| history.record(gap));
        history
    }

    #[test]
    fn a_new_run_keeps_the_habit() {
        let steady = history(&[15_000, 15_010]);
        assert_eq!(history(&[15_000, 15_010, 690_000]).interval(), steady.interval());
        assert_ne!(history(&[15_000, 15_010, 30_000]).interval(), steady.interval());
        assert_eq!(steady.interval(), Some((Interval::from_ticks(15_360), true)));
        assert_eq!(history(&[15_000, 690_000]).interval().map(|(_, agreed)| agreed), Some(false));
        // A run's end before the habit was known does not stand in its way for long.
        assert!(history(&[15_000, 690_000, 15_000, 15_000]).has_habit());
    }

    #[test]
    fn a_stage_is_how_long_this_run_has_lasted_and_the_one_before() {
        const MINUTE: u32 = 15_000;
        const WAIT: u32 = 690_000;
        let stage = |gaps: &[u32]| history(gaps).stage(Interval::from_ticks(MINUTE));
        assert_eq!(stage(&[MINUTE]), Rhythm::of_run(1, 0));
        assert_eq!(stage(&[MINUTE; 2]), Rhythm::of_run(2, 0));
        assert_eq!(stage(&[MINUTE; 30]), Rhythm::of_run(30, 0));
        let long = [&[MINUTE; 30][..], &[WAIT]].concat();
        assert_eq!(stage(&long), Rhythm::of_run(0, 31));
        assert_eq!(stage(&[&long[..], &[MINUTE; 3]].concat()), Rhythm::of_run(3, 31));
        assert_eq!(stage(&[&long[..], &[MINUTE, WAIT]].concat()), Rhythm::of_run(0, 2));
        assert_eq!(stage(&[&long[..], &[WAIT]].concat()), Rhythm::of_run(0, 1));
        // Short runs, whose gaps never agree.
        assert_eq!(stage(&[MINUTE, WAIT]), Rhythm::of_run(0, 2));
        assert_eq!(stage(&[MINUTE, WAIT, MINUTE]), Rhythm::of_run(1, 2));
        assert_eq!(stage(&[MINUTE, WAIT, MINUTE, MINUTE]), Rhythm::of_run(2, 2));
        // A client that is only late.
        assert_eq!(stage(&[MINUTE, 2 * MINUTE]), Rhythm::NONE);
        assert_eq!(stage(&[]), Rhythm::NONE);
        let stages = (0..20).flat_map(|gaps| (0..20).map(move |before| (gaps, before)));
        let stages: std::collections::BTreeSet<_> =
            stages.filter_map(|(gaps, before)| Rhythm::of_run(gaps, before).stage()).collect();
        assert!(stages.into_iter().eq(0..Rhythm::STAGES));
    }

    /// The gaps of a client that is late now and then count as before.
    #[test]
    fn the_mean_outlives_a_habit() {
        let jittery = [9_000, 15_000, 15_000, 16_000, 9_000];
        let (mean, confirmed) = history(&jittery).class().expect("gaps");
        assert!(!confirmed);
        let expected = IntervalClass::holding(Interval::from_ticks(12_500));
        assert!(mean.0.abs_diff(expected.0) <= 1, "{mean:?}");
    }

    #[test]
    fn a_share_is_rounded() {
        for (apart, others) in (-896..=896).flat_map(|apart| (0..16).map(move |of| (apart, of))) {
            let exact = (f64::from(apart) / (others + 1) as f64).round();
            assert_eq!(f64::from(share(apart, others)), exact, "{apart} of {others}");
        }
    }

    #[test]
    fn classes_agree_if_their_bounds_do() {
        for (gap, interval) in (0..256).flat_map(|gap| (0..256).map(move |of| (gap, of))) {
            let expected = agree(ticks_of(gap), ticks_of(interval));
            assert_eq!(classes_agree(gap, interval), expected, "{gap} of {interval}");
        }
    }

    #[test]
    fn gaps_that_agree_by_chance_are_no_habit() {
        let by_chance = [1_000, 9_000, 300, 20_000, 20_000];
        assert!(!history(&by_chance).has_habit());
        let (_, confirmed) = history(&by_chance).interval().expect("gaps");
        assert!(!confirmed);
        assert!(history(&[&by_chance[..], &[20_000; 2]].concat()).has_habit());
    }

    #[test]
    fn a_rhythm_is_the_last_gap_from_the_mean_and_how_many_there_are() {
        let mean = |gaps: &[u32]| history(gaps).class().expect("gaps").0;
        let of_four = mean(&[1_024, 4_096, 1_024, 4_096]);
        assert!(of_four.0.abs_diff(IntervalClass::holding(Interval::from_ticks(2_048)).0) <= 1);
        assert_eq!(history(&[1_024]).rhythm(), Rhythm::NONE);
        assert_eq!(history(&[1_024, 4_096]).rhythm(), Rhythm::new(1, 2));
        assert_eq!(history(&[1_024, 4_096, 1_024, 4_096]).rhythm(), Rhythm::new(1, 4));
        assert_eq!(history(&[4_096, 1_024, 4_096, 1_024]).rhythm(), Rhythm::new(-1, 3));
        let long = [&[1_024, 9_000].repeat(20)[..], &[1 << 20]].concat();
        assert_eq!(history(&long).rhythm(), Rhythm::new(9, 99));
    }

    #[test]
    fn of_one_or_two_gaps_waits_do_not_count() {
        const MINUTE: u32 = 15_000;
        const WAIT: u32 = 690_000;
        let without =
            |gaps: &[u32]| history(gaps).without(|gap| gap.upper_bound_ticks() >= 2 * WAIT / 3);
        for waits in [&[][..], &[WAIT], &[WAIT, 2 * WAIT]] {
            assert_eq!(without(waits), History::default(), "{waits:?}");
        }
        for gaps in [[WAIT, MINUTE], [MINUTE, WAIT]] {
            assert_eq!(without(&gaps), history(&[MINUTE]), "{gaps:?}");
        }
        let others = [&[MINUTE][..], &[MINUTE, 2 * MINUTE], &[WAIT; 2], &[MINUTE, WAIT, MINUTE]];
        for gaps in others {
            assert_eq!(without(gaps), history(gaps), "{gaps:?}");
        }
    }

    #[test]
    fn bytes_say_the_same_everywhere() {
        for gaps in [&[][..], &[1], &[15_000], &[15_000, 690_000], &[u32::MAX, 7]] {
            let before = history(gaps);
            assert_eq!(History::from_bytes(before.to_bytes()), before, "{gaps:?}");
        }
        assert_eq!(history(&[1]).to_bytes(), [1, 0, 4, 4]);
        // The mean is the last gap, 15 gaps count, the run has lasted for seven, and the run before is not known.
        assert_eq!(history(&[0; 20]).to_bytes(), [1, 1, 32 | 3 << 6, 7]);
    }

    #[test]
    fn any_bytes_are_a_history() {
        for bytes in (0..=u32::MAX).step_by(65_521).map(u32::to_le_bytes).chain([[0xff; 4]]) {
            let mut history = History::from_bytes(bytes);
            let known = history.class().is_some();
            assert!(known != (history == History::default()), "{bytes:?}");
            assert!(
                history
                    .class()
                    .is_none_or(|(class, _)| (1..=IntervalClass::LONGEST).contains(&class.0))
            );
            assert!(usize::from(history.rhythm().0) <= Rhythm::COUNT);
            history.record(77);
            assert!(history.class().is_some());
        }
    }

    /// All bits that [`History::packed`] can return.
    #[test]
    fn what_is_known_of_a_ghost_is_what_its_history_says() {
        for packed in 0..1 << (History::COARSE_BITS + History::FINER_BITS) {
            let (gap, mean) = (packed & 0xff, History::mean_of(packed));
            let (is_kept, count) = (packed >> 8 & 1 == 1, packed >> 16 & History::MOST_COUNTED);
            if gap > 224 || gap > 0 && !is_kept && (count == 0 || !(4..=4 * 224).contains(&mean)) {
                continue;
            }
            let history = History::from_packed(packed);
            let (class, confirmed) = history.class().unwrap_or((IntervalClass(0), false));
            let rhythm = if confirmed { Rhythm::NONE } else { history.rhythm() };
            assert_eq!(History::known(packed), (class, confirmed, rhythm), "{packed:#x}");
        }
    }

    #[test]
    fn a_ghost_remembers_the_habit() {
        let long = [&[15_000; 9][..], &[690_000, 15_000]].concat();
        let others =
            [&[15_000][..], &[15_000; 2], &[9_000, 15_000, 15_000], &[], &[1, u32::MAX, 1]];
        for gaps in others.into_iter().chain([&long[..]]) {
            let before = history(gaps);
            let after = History::from_packed(before.packed());
            assert!(before.packed() < 1 << (History::COARSE_BITS + History::FINER_BITS));
            assert_eq!(after.has_habit(), before.has_habit(), "{gaps:?}");
            assert_eq!(after.interval().is_some(), before.interval().is_some(), "{gaps:?}");
            assert_eq!(after.packed(), before.packed(), "{gaps:?}");
            if before.has_habit() {
                let minute = Interval::from_ticks(15_000);
                assert_eq!(after.stage(minute), before.stage(minute), "{gaps:?}");
            }
        }
    }

    /// A client of which the session is evicted at each visit.
    #[test]
    fn a_ghost_knows_the_mean_as_exactly_as_the_session_did() {
        let habit = [&[9_000; 9][..], &[15_000; 200]].concat();
        let loose = [&[1_000, 9_000].repeat(9)[..], &[30_000, 90_000].repeat(50)].concat();
        for gaps in [&habit, &loose] {
            let (mut kept, mut evicted) = (History::default(), History::default());
            for gap in gaps {
                kept.record(*gap);
                evicted.record(*gap);
                evicted = History::from_packed(evicted.packed());
                let mean = |history: History| history.mean_and_count_with(history.habit());
                assert_eq!(mean(evicted), mean(kept), "{gap}");
            }
        }
    }
}
