//! The lengths of runs: how long a device connects before it waits again.
//!
//! An exponential run has no memory: however long it has lasted, the rest of it has the same
//! distribution. Of log-normal runs the longer have more left, and a device with a habit runs about
//! as long as before.

use crate::draws::Draws;
use crate::error::{Error, number_in_range};
use crate::gaps::{MOST_SIGMA, log_normal};

/// The distribution of the lengths of runs. Every one has the mean of the population's settings.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Runs {
    /// The exponential distribution, which is paper 000's.
    #[default]
    Exponential,
    /// The log-normal distribution, the same for all devices.
    LogNormal {
        /// The standard deviation of the natural logarithm: 0 to 5. At 1.5, half the runs are
        /// shorter than a third of the mean.
        sigma: f64,
    },
    /// Habits: every device has a typical run for life, and its own runs are close to that.
    Habits {
        /// The standard deviation of the natural logarithm of the devices' mean runs, which are
        /// log-normal: 0 to 5.
        sigma: f64,
        /// The standard deviation of the natural logarithm of one device's runs, which are
        /// log-normal, too: 0 to 5.
        within: f64,
    },
}

impl Runs {
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Exponential => Ok(()),
            Self::LogNormal { sigma } => number_in_range("sigma", sigma, 0.0, MOST_SIGMA),
            Self::Habits { sigma, within } => {
                number_in_range("sigma", sigma, 0.0, MOST_SIGMA)?;
                number_in_range("within", within, 0.0, MOST_SIGMA)
            }
        }
    }

    /// Draws the mean run of a device, in milliseconds, from that of the population. It takes no draw
    /// if all devices have the same.
    pub(crate) fn draw_mean(self, population_ms: f64, draws: &mut Draws) -> f64 {
        match self {
            Self::Habits { sigma, .. } => log_normal(median(population_ms, sigma), sigma, draws),
            Self::Exponential | Self::LogNormal { .. } => population_ms,
        }
    }

    /// Draws a run, in milliseconds, of a device with this mean.
    pub(crate) fn draw(self, mean_ms: f64, draws: &mut Draws) -> f64 {
        match self {
            Self::Exponential => draws.exponential(mean_ms),
            Self::LogNormal { sigma } | Self::Habits { within: sigma, .. } => {
                log_normal(median(mean_ms, sigma), sigma, draws)
            }
        }
    }

    /// Draws a run under way at some moment: its past and its rest, in milliseconds.
    ///
    /// A moment falls into a long run more often than into a short one, in proportion to its length,
    /// and anywhere within it. Log-normal runs weighted by their length have a median e^(sigma²)
    /// times as long. Of an exponential run past and rest are independent, and each is as long as
    /// a whole one.
    pub(crate) fn draw_under_way(self, mean_ms: f64, draws: &mut Draws) -> (f64, f64) {
        match self {
            Self::Exponential => (draws.exponential(mean_ms), draws.exponential(mean_ms)),
            Self::LogNormal { sigma } | Self::Habits { within: sigma, .. } => {
                let median_ms = mean_ms * libm::exp(sigma * sigma / 2.0);
                let whole_ms = log_normal(median_ms, sigma, draws);
                let past_ms = whole_ms * draws.unit();
                (past_ms, whole_ms - past_ms)
            }
        }
    }

    /// Returns the mean, over all devices, of a function of a device's mean run.
    pub(crate) fn over_devices(self, population_ms: f64, of: impl Fn(f64) -> f64) -> f64 {
        match self {
            Self::Habits { sigma, .. } => log_normal_mean(population_ms, sigma, of),
            Self::Exponential | Self::LogNormal { .. } => of(population_ms),
        }
    }

    /// Returns the mean number of connections in a run of a device with this mean: one when it begins
    /// and one for every interval that it outlives.
    pub(crate) fn connections(self, mean_ms: f64, interval_ms: f64) -> f64 {
        match self {
            Self::Exponential => {
                let outlived = -(-interval_ms / mean_ms).exp_m1();
                1.0 / outlived
            }
            Self::LogNormal { sigma } | Self::Habits { within: sigma, .. } => {
                log_normal_mean(mean_ms, sigma, |run_ms| (run_ms / interval_ms).ceil().max(1.0))
            }
        }
    }
}

/// Returns the median of the log-normal distribution with this mean.
fn median(mean: f64, sigma: f64) -> f64 {
    mean * libm::exp(-sigma * sigma / 2.0)
}

/// Returns the mean of a function over the log-normal distribution with this mean, to about a
/// hundredth: the sum over eight deviations on both sides, and sigma more where long times weigh most.
fn log_normal_mean(mean: f64, sigma: f64, of: impl Fn(f64) -> f64) -> f64 {
    const STEPS_A_DEVIATION: i32 = 32;
    let median = median(mean, sigma);
    let most = 8 + sigma.ceil() as i32;
    let (mut sum, mut weights) = (0.0, 0.0);
    for step in -8 * STEPS_A_DEVIATION..=most * STEPS_A_DEVIATION {
        let deviations = f64::from(step) / f64::from(STEPS_A_DEVIATION);
        let weight = libm::exp(-deviations * deviations / 2.0);
        sum += weight * of(median * libm::exp(sigma * deviations));
        weights += weight;
    }
    sum / weights
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: usize = 400_000;
    const SHAPES: [Runs; 4] = [
        Runs::Exponential,
        Runs::LogNormal { sigma: 1.0 },
        Runs::LogNormal { sigma: 0.0 },
        Runs::Habits { sigma: 0.8, within: 0.3 },
    ];

    fn mean(drawn: impl FnMut() -> f64) -> f64 {
        std::iter::repeat_with(drawn).take(DRAWN).sum::<f64>() / DRAWN as f64
    }

    fn assert_near(measured: f64, expected: f64, runs: Runs) {
        assert!((measured / expected - 1.0).abs() < 0.015, "{measured}, {expected}: {runs:?}");
    }

    #[test]
    fn all_have_the_mean_of_the_population() {
        let mut draws = Draws::new(1, 0);
        for runs in SHAPES {
            let drawn = mean(|| {
                let mean_ms = runs.draw_mean(120_000.0, &mut draws);
                runs.draw(mean_ms, &mut draws)
            });
            assert_near(drawn, 120_000.0, runs);
        }
    }

    #[test]
    fn a_device_with_a_habit_keeps_to_it() {
        let mut draws = Draws::new(2, 0);
        let runs = Runs::Habits { sigma: 1.5, within: 0.3 };
        let mut own = |runs: Runs| {
            let mean_ms = runs.draw_mean(1_000.0, &mut draws);
            [mean_ms, runs.draw(mean_ms, &mut draws), runs.draw(mean_ms, &mut draws)]
        };
        for [mean_ms, first_ms, second_ms] in std::iter::repeat_with(|| own(runs)).take(1_000) {
            for run_ms in [first_ms, second_ms] {
                // Four and a half deviations.
                assert!((0.24..4.1).contains(&(run_ms / mean_ms)), "{run_ms} of {mean_ms}");
            }
        }
        let same = own(Runs::Habits { sigma: 1.5, within: 0.0 });
        assert!(same[1] == same[0] && same[2] == same[0]);
    }

    /// The mean of a run that a moment falls into is the mean square by the mean: e^(sigma²) means.
    #[test]
    fn a_run_under_way_is_a_long_one() {
        let mut draws = Draws::new(3, 0);
        for (runs, whole) in SHAPES.into_iter().zip([2.0, 1.0_f64.exp(), 1.0, 0.09_f64.exp()]) {
            let mut past_and_rest = [0.0, 0.0];
            for _ in 0..DRAWN {
                let (past, rest) = runs.draw_under_way(1.0, &mut draws);
                past_and_rest[0] += past / DRAWN as f64;
                past_and_rest[1] += rest / DRAWN as f64;
            }
            past_and_rest.into_iter().for_each(|part| assert_near(part, whole / 2.0, runs));
        }
    }

    #[test]
    fn as_many_connections_as_are_drawn() {
        let mut draws = Draws::new(4, 0);
        for runs in SHAPES {
            for interval_ms in [15.0, 60.0, 1_000.0] {
                let drawn = mean(|| (runs.draw(120.0, &mut draws) / interval_ms).ceil());
                assert_near(runs.connections(120.0, interval_ms), drawn, runs);
            }
        }
        let habits = Runs::Habits { sigma: 1.5, within: 0.3 };
        let share = |mean: f64| mean / (mean + 23.0);
        let drawn = mean(|| share(habits.draw_mean(1.0, &mut draws)));
        assert_near(habits.over_devices(1.0, share), drawn, habits);
    }
}
