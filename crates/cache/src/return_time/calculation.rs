//! The calculation of what places are worth, from the counts.

use std::ops::Deref;

use super::{ReturnTimes, Waits};
use crate::ages::{BELOW_HALF, KEPT, LOOSE_OCTAVES, OCTAVES, ON_TIME, Row, UP_TO_TWICE};
use crate::counts::{fade, get, is_some, number, numbers, set};
use crate::expectation::Trust;
use crate::hazards::{Counts, Hazards, returned_by, smoothed, worth_of};
use crate::rhythm::Rhythm;

/// The most samples of clients still waited for that outlast a calculation, as a share of these clients.
const OLD_SAMPLES: f64 = 0.25;
/// The number of a row's own clients that weigh as much as all others of the same trust.
const WEIGHT_OF_POOL: f64 = 4.0;
/// The same where clients keep an interval: octaves differ more, and have more counts.
const WEIGHT_OF_KEPT: f64 = 2.0;
/// The unit of [`ReturnTimes::worth`], per interval.
pub(super) const UNIT: f64 = 65_536.0;

/// The number of times as much that a place is worth whose client keeps no interval and of which two gaps or more are known. It has come again
/// and again, and will go on; worth counts the next return only. Found by trial, between 1.1 and 1.3.
pub(super) const WORTH_OF_GOING_ON: f64 = 1.2;
/// The number of clients without which gaps of a pair of octaves are not taken for waits.
const FEWEST: f64 = 16.0;
/// The least share of them that are back within half of such a gap.
const NEARLY_HALF: f64 = 0.45;
/// The most times as many as of clients of which no gap is known, or as few.
const ABOUT: f64 = 1.5;

impl<W: Deref<Target = Waits>> ReturnTimes<W> {
    /// Finds the pairs of octaves in which a gap is a wait, whether the application gives intervals or not. Those without enough
    /// clients are none: once gaps do not count, nothing more is learned of them, and they are tried again.
    pub(super) fn find_waits(&self, known: &[Row], pools: &Pools) {
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
        set(&self.waits.between_runs, waits);
    }

    /// Forgets half of the samples of clients that are still waited for, or more where there are enough without them: they have
    /// grown older since.
    pub(super) fn forget_samples(&self) {
        let watched = f64::from(get(&self.waits.watched));
        let kept = (OLD_SAMPLES * self.of.watched as f64 / watched.max(1.0)).min(0.5);
        let samples = self.waits.still.iter().chain([&self.waits.watched]);
        for count in samples.filter(|count| is_some(count)) {
            set(count, (f64::from(get(count)) * kept) as u32);
        }
    }

    pub(super) fn fade(&self, row: Row) {
        self.waits.waited[row.bins()].iter().chain(&self.waits.returned[row.bins()]).for_each(fade);
    }

    /// Calculates the worth of a row's places.
    pub(super) fn calculate(&self, row: Row, pools: &Pools) {
        let hazards = self.hazards(row, pools);
        if matches!(row, Row::Alike) {
            self.waits.alike.expect(&hazards);
        }
        self.set_worth(row, hazards);
    }

    /// Sets the worth of a row's places to what follows from its hazards. Clients that keep no interval have no age at which they come,
    /// nor have all together, so that what differs between neighbouring bins of theirs is mostly chance, and is smoothed.
    pub(super) fn set_worth(&self, row: Row, hazards: Hazards) {
        let mut worth = worth_of(row, hazards);
        if matches!(row, Row::Loose(_) | Row::Alike) {
            worth = smoothed(&smoothed(&worth));
        }
        let unit = if matches!(row, Row::Loose(_)) { UNIT * WORTH_OF_GOING_ON } else { UNIT };
        for (kept, worth) in self.waits.worth[row.bins()].iter().zip(worth) {
            set(kept, (worth * unit) as u32);
        }
    }

    /// Returns the hazards of a row. Where it has few counts, other intervals of the same trust stand
    /// in for it.
    pub(super) fn hazards(&self, row: Row, pools: &Pools) -> Hazards {
        let hazards = match row {
            Row::Unknown => return self.hazards_of_strangers(),
            Row::Alike => self.counts(row).hazards(1.0, |bin| self.prior(row, bin)),
            Row::Kept(at) => {
                let pool = &pools.kept[at / OCTAVES];
                self.counts(row).hazards(WEIGHT_OF_KEPT, |bin| pool[bin])
            }
            Row::Loose(at) => {
                let pool = &pools.loose[at / LOOSE_OCTAVES];
                self.counts(row).hazards(WEIGHT_OF_POOL, |bin| pool[bin])
            }
        };
        without_the_last(hazards)
    }

    /// Returns the hazards of clients of which no gap is known.
    pub(super) fn hazards_of_strangers(&self) -> Hazards {
        let counts = self.counts(Row::Unknown);
        let hazards = counts.hazards(1.0, |bin| self.prior(Row::Unknown, bin));
        without_the_last(counts.wary_of_a_flood(hazards, &self.still(Row::Unknown)))
    }

    /// Returns the hazards of all of these rows of each trust and rhythm together. Where there are none of a kind, its hazards are
    /// empty.
    pub(super) fn pools(&self, rows: &[Row]) -> Pools {
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
        let watched = f64::from(get(&self.waits.watched));
        if watched > 0.0 { self.of.watched as f64 / watched } else { 0.0 }
    }

    /// Returns the assumed chance of a return, which counts as one client: most of it where the
    /// return is expected, the rest in proportion to time, up to an eighth of an interval.
    fn prior(&self, row: Row, bin: usize) -> f64 {
        let eighths = ((row.end(bin) - row.start(bin)) * 8.0).min(1.0);
        match row {
            Row::Unknown | Row::Alike if bin == usize::from(self.of.prior.0) => 0.3,
            Row::Unknown | Row::Alike => 0.005 * eighths,
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

/// Returns hazards with none in the last bin, which has no end.
fn without_the_last(mut hazards: Hazards) -> Hazards {
    if let Some(last) = hazards.last_mut() {
        *last = 0.0;
    }
    hazards
}

/// The hazards of clients of a kind, whatever their interval.
pub(super) struct Pools {
    kept: [Hazards; KEPT],
    /// By rhythm.
    loose: Vec<Hazards>,
}
