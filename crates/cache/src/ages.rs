//! Ages in bins: the time since a client was last heard of, in multiples of its interval.
//!
//! Clients that keep an interval have a row of bins for each trust and two octaves of intervals. Those that keep none have a row for
//! each rhythm and six octaves of mean gaps. Clients about which nothing is known have one more row, with a bin for every class
//! of age, and so have all together, for where they are alike.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::expectation::Expectation;
use crate::interval::{Interval, IntervalClass};
use crate::rhythm::Rhythm;

/// Pairs of octaves of intervals, up to that of the longest.
pub(crate) const OCTAVES: usize = 1 + LONGEST / 16;
const LONGEST: usize = IntervalClass::LONGEST as usize;
/// The pair of octaves that a class is in.
#[inline]
pub(crate) const fn pair_of_octaves(class: IntervalClass) -> usize {
    if class.0 < IntervalClass::LONGEST { class.0 as usize / 16 } else { OCTAVES - 1 }
}

/// The interval assumed for clients about which nothing is known: 65 s.
pub(crate) const UNKNOWN_TICKS: u64 = 1 << 14;
/// Bins in a row by age alone: one for every class of age.
pub(crate) const AGES: usize = 1 + LONGEST;
/// Bins in a row of clients that keep an interval, or of which one gap is known.
pub(crate) const BINS: usize = 60;
/// Those kinds of clients: one gap known, confirmed, claimed, kept.
pub(crate) const KEPT: usize = 4;
/// Bins in a row of clients that keep none: two to the octave, for eight octaves below the mean gap and above.
pub(crate) const LOOSE_BINS: usize = 32;
/// Groups of six octaves of mean gaps.
pub(crate) const LOOSE_OCTAVES: usize = 5;
const FIRST_LOOSE: usize = AGES + KEPT * OCTAVES * BINS;
const FIRST_ALIKE: usize = FIRST_LOOSE + Rhythm::COUNT * LOOSE_OCTAVES * LOOSE_BINS;
pub(crate) const ALL_BINS: usize = FIRST_ALIKE + AGES;

/// Bins of ages, by how many classes (eighths of an octave) they are above or below the interval's.
/// Within an octave of the interval they are as fine as the classes. Below, where clients that come
/// in bursts return, there are two to the octave. Above, there are two to the octave for four
/// octaves, then one.
const FINE: i32 = 8;
const FIRST_FINE_BIN: i32 = 18;
const FIRST_ABOVE_BIN: i32 = FIRST_FINE_BIN + 2 * FINE;
const FIRST_FAR_BIN: i32 = FIRST_ABOVE_BIN + 8;
/// The bin of the interval itself.
pub(crate) const ON_TIME: usize = (FIRST_FINE_BIN + FINE) as usize;
/// The bins of less than half the interval.
pub(crate) const BELOW_HALF: usize = FIRST_FINE_BIN as usize;
/// The bins of up to twice the interval.
pub(crate) const UP_TO_TWICE: usize = FIRST_ABOVE_BIN as usize + 1;

/// The time of a return within a row of clients that keep an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lateness {
    /// In the bin of the interval itself or before.
    OnTime,
    /// Within twice the interval.
    Late,
    TooLate,
}

/// Returns how late a return in a bin is, which is that of a client that keeps an interval.
#[inline]
pub(crate) fn lateness(bin: usize) -> Lateness {
    match (bin - AGES) % BINS {
        0..=ON_TIME => Lateness::OnTime,
        in_row if in_row <= FIRST_ABOVE_BIN as usize => Lateness::Late,
        _ => Lateness::TooLate,
    }
}

/// The lowest number of classes apart that a bin holds.
const fn first_apart(bin: i32) -> i32 {
    if bin <= FIRST_FINE_BIN {
        -FINE - 4 * (FIRST_FINE_BIN - bin)
    } else if bin <= FIRST_ABOVE_BIN {
        bin - FIRST_FINE_BIN - FINE
    } else if bin <= FIRST_FAR_BIN {
        FINE + 4 * (bin - FIRST_ABOVE_BIN)
    } else {
        FINE + 4 * 8 + 8 * (bin - FIRST_FAR_BIN)
    }
}

/// The bin of a class of ages in a row by age alone, then those of a number of classes above the interval's, from the least: in a row
/// of clients that keep an interval, and of clients that keep none.
static BIN_OF: [u8; LOOSE_FROM + LONGEST + 1] = {
    let mut bins = [0; LOOSE_FROM + LONGEST + 1];
    let mut at = 0;
    while at < bins.len() {
        let bin = if at < AGES {
            at
        } else if at <= KEPT_FROM + LONGEST {
            kept_bin_of(at as i32 - KEPT_FROM as i32)
        } else {
            loose_bin_of(at as i32 - LOOSE_FROM as i32)
        };
        bins[at] = bin as u8;
        at += 1;
    }
    bins
};

const fn kept_bin_of(apart: i32) -> usize {
    let mut bin = BINS - 1;
    while bin > 0 && first_apart(bin as i32) > apart {
        bin -= 1;
    }
    bin
}

const fn loose_bin_of(apart: i32) -> usize {
    const MIDDLE: i32 = LOOSE_BINS as i32 / 2;
    const LAST: i32 = LOOSE_BINS as i32 - 1;
    match MIDDLE + apart.div_euclid(4) {
        ..0 => 0,
        bin @ 0..LAST => bin as usize,
        _ => LOOSE_BINS - 1,
    }
}

/// The places in [`BIN_OF`] of the class of the interval.
const KEPT_FROM: usize = AGES + LONGEST;
const LOOSE_FROM: usize = KEPT_FROM + LONGEST + 1 + LONGEST;

/// A row of bins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Row {
    Unknown,
    /// All that are known by nothing but their past, by age alone.
    Alike,
    /// By trust, then by pair of octaves.
    Kept(usize),
    /// By rhythm, then by six octaves.
    Loose(usize),
}

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    let kept = (0..KEPT * OCTAVES).map(Row::Kept);
    let loose = (0..Rhythm::COUNT * LOOSE_OCTAVES).map(Row::Loose);
    [Row::Unknown, Row::Alike].into_iter().chain(kept).chain(loose)
}

impl Row {
    pub(crate) fn bins(self) -> Range<usize> {
        let (start, bins) = match self {
            Self::Unknown => (0, AGES),
            Self::Alike => (FIRST_ALIKE, AGES),
            Self::Kept(row) => (AGES + row * BINS, BINS),
            Self::Loose(row) => (FIRST_LOOSE + row * LOOSE_BINS, LOOSE_BINS),
        };
        start..start + bins
    }

    /// The age at which a bin begins, in multiples of the interval.
    pub(crate) fn start(self, bin: usize) -> f64 {
        match self {
            Self::Unknown | Self::Alike => STARTS[bin],
            Self::Kept(_) => KEPT_STARTS[bin],
            Self::Loose(_) => LOOSE_STARTS[bin],
        }
    }

    /// The age at which it ends.
    pub(crate) fn end(self, bin: usize) -> f64 {
        self.start(bin + 1)
    }
}

/// The ages at which the bins of each row begin, and the last one ends, in multiples of the interval.
const STARTS: [f64; AGES + 1] = {
    let mut starts = [0.0; AGES + 1];
    let mut bin = 1;
    while bin < starts.len() {
        let before = if bin - 1 < LONGEST { bin - 1 } else { LONGEST };
        let ticks = IntervalClass(before as u8).upper_bound_ticks();
        starts[bin] = ticks as f64 / UNKNOWN_TICKS as f64;
        bin += 1;
    }
    starts
};
const KEPT_STARTS: [f64; BINS + 1] = starts(false);
const LOOSE_STARTS: [f64; LOOSE_BINS + 1] = starts(true);

/// Returns the same of a row whose bins begin at classes above the interval's.
const fn starts<const N: usize>(is_loose: bool) -> [f64; N] {
    let mut starts = [0.0; N];
    let mut bin = 1;
    while bin < N {
        let first = if is_loose {
            4 * (bin as i32 - LOOSE_BINS as i32 / 2)
        } else {
            first_apart(bin as i32)
        };
        starts[bin] = times(first - 1);
        bin += 1;
    }
    starts
}

/// Returns how many times as long as the interval an age is that is so many classes above it.
const fn times(classes: i32) -> f64 {
    (8 + classes.rem_euclid(8)) as f64 / 8.0 * power_of_two(classes.div_euclid(8))
}

/// Returns 2^`exponent`, exactly, for exponents of normal numbers: -1,022 to 1,023.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1_023) as u64) << 52)
}

/// The class of an age, which is its bin in a row by age alone.
#[inline]
pub(crate) fn class_of(age_ticks: u32) -> usize {
    usize::from(IntervalClass::holding(Interval::from_ticks(age_ticks)).0)
}

/// The bin, among all, that holds an age of clients that are alike.
#[inline]
pub(crate) fn alike_bin_of(age_ticks: u32) -> usize {
    FIRST_ALIKE + class_of(age_ticks)
}

/// The bin, among all, that holds an age.
#[inline]
pub(crate) fn bin_of(expected: Expectation, age_ticks: u32) -> usize {
    measured(expected, age_ticks).bin
}

/// An age of a client, as measured by its interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// The bin, among all, that holds it.
    pub(crate) bin: usize,
    /// 2⁴⁰ / interval.
    pub(crate) per_tick: u64,
}

/// Measures an age by the interval of a client.
#[inline]
pub(crate) fn measured(expected: Expectation, age_ticks: u32) -> Measured {
    let is_irregular = expected.is_irregular();
    // Clients of either kind come in no order, so that a branch would be mispredicted.
    let rhythm = select_unpredictable(is_irregular, usize::from(expected.rhythm().0), 0);
    let Scale { first, from } =
        SCALES[usize::from(is_irregular) * Expectation::COUNT + expected.index()];
    let in_row = usize::from(BIN_OF[usize::from(from) + class_of(age_ticks)]);
    let bin = usize::from(first) + rhythm * LOOSE_OCTAVES * LOOSE_BINS + in_row;
    Measured { bin, per_tick: PER_TICK[usize::from(from)] }
}

/// 2⁴⁰ / interval, by [`Scale::from`].
static PER_TICK: [u64; LOOSE_FROM + 1] = {
    let mut rates = [0; LOOSE_FROM + 1];
    rates[0] = (1 << 40) / UNKNOWN_TICKS;
    let mut class = 0;
    while class <= LONGEST {
        let ticks = IntervalClass(class as u8).upper_bound_ticks() as u64;
        let rate = (1 << 40) / if ticks == 0 { 1 } else { ticks };
        rates[KEPT_FROM - class] = rate;
        rates[LOOSE_FROM - class] = rate;
        class += 1;
    }
    rates
};

/// The row of a client, and where its bins begin.
#[derive(Debug, Clone, Copy)]
struct Scale {
    /// The first bin of the row. If the client keeps no interval, it is that of rhythm zero, if there were one.
    first: u16,
    /// The place in [`BIN_OF`] of the lowest class of ages.
    from: u16,
}

impl Scale {
    const fn of(expected: Expectation, is_irregular: bool) -> Self {
        let class = match expected.class() {
            IntervalClass(class @ ..IntervalClass::LONGEST) => class as usize,
            _ => LONGEST,
        };
        let (first, from) = if is_irregular {
            let rhythms = LOOSE_OCTAVES * LOOSE_BINS;
            (FIRST_LOOSE - rhythms + class / 48 * LOOSE_BINS, LOOSE_FROM - class)
        } else if expected.index() == Expectation::UNKNOWN.index() {
            (0, 0)
        } else {
            let row = expected.trust() as usize * OCTAVES + pair_of_octaves(expected.class());
            (AGES + row * BINS, KEPT_FROM - class)
        };
        Self { first: first as u16, from: from as u16 }
    }
}

/// Scales by index of the expectation, and then those of clients that keep no interval.
static SCALES: [Scale; 2 * Expectation::COUNT] = {
    let mut scales = [Scale { first: 0, from: 0 }; 2 * Expectation::COUNT];
    let mut at = 0;
    while at < scales.len() {
        let expected = Expectation::from_index(at % Expectation::COUNT);
        scales[at] = Scale::of(expected, at >= Expectation::COUNT);
        at += 1;
    }
    scales
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::Trust;

    fn ticks_of(class: u8) -> u32 {
        IntervalClass(class).upper_bound_ticks()
    }

    #[test]
    fn a_bin_holds_the_classes_between_its_start_and_the_next() {
        let mut before = 0;
        let kept = BIN_OF[AGES..=KEPT_FROM + LONGEST].iter().copied().map(i32::from);
        for (at, bin) in kept.enumerate() {
            let apart = at as i32 - LONGEST as i32;
            assert!(bin == 0 || first_apart(bin) <= apart, "{apart} below bin {bin}");
            assert!(bin == BINS as i32 - 1 || apart < first_apart(bin + 1), "{apart}: {bin}");
            assert!(bin == before || bin == before + 1);
            before = bin;
        }
        assert_eq!(usize::from(BIN_OF[KEPT_FROM]), ON_TIME);
        let starts = |row: Row, bins| (0..bins).map(|bin| row.start(bin)).collect::<Vec<_>>();
        assert!(starts(Row::Kept(0), BINS + 1).is_sorted_by(|a, b| a < b));
        assert!(starts(Row::Loose(0), LOOSE_BINS + 1).is_sorted_by(|a, b| a < b));
        assert!(starts(Row::Unknown, 226)[1..].is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn an_age_is_within_its_bin() {
        let of = |class: u8| Expectation::new(Trust::Kept, IntervalClass(class));
        let loose = |class| {
            Expectation::new(Trust::Loose, IntervalClass(class)).with_rhythm(Rhythm::new(1, 5))
        };
        let all = (64..=224).step_by(5).flat_map(|class| [of(class), loose(class)]);
        for known in all {
            let (class, bins) = (
                usize::from(known.class().0),
                if known.is_irregular() { LOOSE_BINS } else { BINS },
            );
            let row = match known.is_irregular() {
                true => Row::Loose(usize::from(known.rhythm().0 - 1) * LOOSE_OCTAVES + class / 48),
                false => Row::Kept(usize::from(known.trust() as u8) * OCTAVES + class / 16),
            };
            for age_class in 8..=224 {
                for age_ticks in [ticks_of(age_class - 1) + 1, ticks_of(age_class)] {
                    // Classes and bins divide an octave evenly, each from a border of its own.
                    let age = f64::from(age_ticks) / f64::from(known.class().upper_bound_ticks());
                    let eighth = 9.0 / 8.0;
                    let bin = bin_of(known, age_ticks) - row.bins().start;
                    assert!(row.start(bin) < age * eighth, "{age_ticks} in {bin} of {known:?}");
                    let last = bin == bins - 1;
                    assert!(last || age <= row.end(bin) * eighth, "{age_ticks}: {bin}, {known:?}");
                    let (row, age) = (Row::Unknown, f64::from(age_ticks) / UNKNOWN_TICKS as f64);
                    let bin = bin_of(Expectation::UNKNOWN, age_ticks);
                    assert!(row.start(bin) < age && age <= row.end(bin), "{age_ticks} in {bin}");
                }
            }
        }
    }
}
