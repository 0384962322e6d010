//! Stages of runs: how many visits of a stage are followed by another in time, as against all visits of like intervals.

use std::sync::atomic::AtomicU32;

use crate::ages::{self, Lateness, OCTAVES};
use crate::counts::{ONE, add, fade, get, number, set};
use crate::expectation::Expectation;
use crate::rhythm::Rhythm;

/// The unit of the factor of a stage.
const FACTOR: f64 = 256.0;
/// The number of a stage's own clients that weigh as much as those of all stages.
const WEIGHT_OF_STAGES: f64 = 8.0;
/// The deviations by which the share of a stage must differ from that of all stages to count.
const DEVIATIONS: f64 = 2.5;
/// Stages of runs, by pair of octaves.
const STAGES: usize = OCTAVES * Rhythm::STAGES;

/// Counts by pair of octaves and stage. See [`crate::return_time::Waits`].
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Stages {
    /// The waits that ended in time or too late.
    waited: [AtomicU32; STAGES],
    in_time: [AtomicU32; STAGES],
    /// How many times as much a place is worth.
    factor: [AtomicU32; STAGES],
}

impl Stages {
    /// Records the end of a wait for a client in a stage of its run, in a bin of a row of clients that keep an interval. One that was
    /// given up on before it was due says nothing.
    #[inline]
    pub(crate) fn record(&self, expected: Expectation, bin: usize, returned: bool) {
        let Some(stage) = stage_of(expected) else { return };
        let lateness = ages::lateness(bin);
        if returned || lateness > Lateness::OnTime {
            add(&self.waited[stage], ONE);
        }
        if returned && lateness < Lateness::TooLate {
            add(&self.in_time[stage], ONE);
        }
    }

    /// Multiplies the worth of a place by the factor of its client's stage.
    #[inline]
    pub(crate) fn worth(&self, expected: Expectation, worth: u64) -> u64 {
        let Some(stage) = stage_of(expected) else { return worth };
        (worth / FACTOR as u64).saturating_mul(u64::from(get(&self.factor[stage])))
    }

    /// Calculates how many times as many clients of each stage are back in time as of all stages of their octaves. A stage that
    /// differs by no more than chance is as all are.
    pub(crate) fn calculate(&self) {
        let octaves = |counts: &[AtomicU32; STAGES]| -> Vec<[f64; Rhythm::STAGES]> {
            let (octaves, _) = counts.as_chunks::<{ Rhythm::STAGES }>();
            octaves.iter().map(|stages| std::array::from_fn(|at| number(&stages[at]))).collect()
        };
        let (factors, _) = self.factor.as_chunks::<{ Rhythm::STAGES }>();
        let counts = octaves(&self.waited).into_iter().zip(octaves(&self.in_time));
        for (factors, (waited, in_time)) in factors.iter().zip(counts) {
            let all = (in_time.iter().sum::<f64>() + 0.5) / (waited.iter().sum::<f64>() + 1.0);
            for ((factor, waited), in_time) in factors.iter().zip(waited).zip(in_time) {
                let apart = (in_time - waited * all).abs();
                let deviation = (waited * all * (1.0 - all)).sqrt();
                let share = (in_time + WEIGHT_OF_STAGES * all) / (waited + WEIGHT_OF_STAGES);
                let times = if apart > DEVIATIONS * deviation { share / all } else { 1.0 };
                set(factor, (times * FACTOR) as u32);
            }
        }
    }

    /// Takes a share of all counts away.
    pub(crate) fn fade(&self) {
        self.waited.iter().chain(&self.in_time).for_each(fade);
    }
}

/// Returns the stage of a client's run, by pair of octaves of its interval.
#[inline]
fn stage_of(expected: Expectation) -> Option<usize> {
    Some(ages::pair_of_octaves(expected.class()) * Rhythm::STAGES + expected.rhythm().stage()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::Trust;
    use crate::interval::IntervalClass;

    /// Of all stages but one, half of the clients are back in time. Returns how many times as much places of that one are worth, of
    /// whose clients so many of a thousand are back.
    fn times_if(back: u32) -> f64 {
        let stages: Box<Stages> = bytemuck::zeroed_box();
        let minute = IntervalClass(8 * 10 + 15);
        let stage =
            |gaps| Expectation::new(Trust::Kept, minute).with_rhythm(Rhythm::of_run(gaps, 0));
        let (in_time, too_late) = (minute.upper_bound_ticks(), 4 * minute.upper_bound_ticks());
        let record = |expected: Expectation, is_back: bool| {
            let age = if is_back { in_time } else { too_late };
            stages.record(expected, ages::bin_of(expected, age), is_back);
        };
        (0..1_000).for_each(|at| record(stage(1), at < back));
        (0..100_000).for_each(|at| record(stage(9), at % 2 == 0));
        stages.calculate();
        stages.worth(stage(1), 1 << 40) as f64 / (1_u64 << 40) as f64
    }

    #[test]
    fn a_stage_counts_if_it_differs_by_more_than_chance() {
        assert_eq!([465, 500, 535].map(times_if), [1.0; 3]);
        for (back, expected) in [(400, 0.8), (600, 1.2), (900, 1.8)] {
            assert!((times_if(back) - expected).abs() < 0.03, "{}", times_if(back));
        }
    }
}
