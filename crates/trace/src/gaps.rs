//! Heavy-tailed times between two connections of a browser.
//!
//! A person comes back in a minute or in a month: most gaps are short, most of the time passes in
//! long ones, and the last gap says little about the next.

use crate::draws::Draws;
use crate::error::{Error, in_range, number_in_range};
use crate::population::LONGEST_MEAN_MS;

/// The least shape. Closer to 1, the mean gap is thousands of times the least gap.
const LEAST_SHAPE: f64 = 1.001;
const MOST_SHAPE: f64 = 100.0;
/// The largest sigma. At 5, the mean is 268,000 times the median.
pub(crate) const MOST_SIGMA: f64 = 5.0;

/// The distribution of the gaps between the connections of one client.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Gaps {
    /// Pareto's distribution: a gap is longer than t with probability (least / t)^shape.
    Pareto {
        /// The shortest gap, in milliseconds: 1 to [`LONGEST_MEAN_MS`].
        least_ms: u64,
        /// The speed at which long gaps become rare: 1.001 to 100. At 2 and below there is a mean
        /// and no deviation; at 1 there would be no mean, and no steady state.
        shape: f64,
    },
    /// The log-normal distribution: with a sigma of 2, one gap in six is 7.4 times the median or
    /// longer, and one in six is as many times shorter.
    LogNormal {
        /// The median gap, in milliseconds: 1 to [`LONGEST_MEAN_MS`].
        median_ms: u64,
        /// The standard deviation of the natural logarithm: 0 to 5.
        sigma: f64,
    },
}

impl Gaps {
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Pareto { least_ms, shape } => {
                in_range("least_ms", least_ms, 1, LONGEST_MEAN_MS)?;
                number_in_range("shape", shape, LEAST_SHAPE, MOST_SHAPE)
            }
            Self::LogNormal { median_ms, sigma } => {
                in_range("median_ms", median_ms, 1, LONGEST_MEAN_MS)?;
                number_in_range("sigma", sigma, 0.0, MOST_SIGMA)
            }
        }
    }

    /// Returns the mean gap in milliseconds.
    pub fn mean_ms(self) -> f64 {
        match self {
            Self::Pareto { least_ms, shape } => least_ms as f64 * shape / (shape - 1.0),
            Self::LogNormal { median_ms, sigma } => {
                median_ms as f64 * libm::exp(sigma * sigma / 2.0)
            }
        }
    }

    /// Draws a gap in milliseconds.
    pub(crate) fn draw(self, draws: &mut Draws) -> f64 {
        match self {
            Self::Pareto { least_ms, shape } => pareto(least_ms, shape, draws),
            Self::LogNormal { median_ms, sigma } => log_normal(median_ms as f64, sigma, draws),
        }
    }

    /// Draws the rest, at time 0, of a gap that began before.
    ///
    /// A moment falls into a long gap more often than into a short one, in proportion to its
    /// length, and anywhere within it. Gaps weighted by their length have the same distribution
    /// with another parameter: Pareto's with a shape less by 1, the log-normal with a median
    /// e^(sigma²) times as long.
    pub(crate) fn draw_rest(self, draws: &mut Draws) -> f64 {
        let whole = match self {
            Self::Pareto { least_ms, shape } => pareto(least_ms, shape - 1.0, draws),
            Self::LogNormal { median_ms, sigma } => {
                log_normal(median_ms as f64 * libm::exp(sigma * sigma), sigma, draws)
            }
        };
        whole * draws.unit()
    }
}

/// Draws from Pareto's distribution, whose logarithm is exponential.
fn pareto(least_ms: u64, shape: f64, draws: &mut Draws) -> f64 {
    least_ms as f64 * libm::exp(draws.exponential(1.0 / shape))
}

pub(crate) fn log_normal(median_ms: f64, sigma: f64, draws: &mut Draws) -> f64 {
    median_ms * libm::exp(sigma * draws.normal())
}

#[cfg(test)]
mod tests {
    use std::f64::consts::E;

    use super::*;

    const DRAWN: usize = 200_000;

    /// Returns the share of gaps longer than each limit.
    fn longer(gap: impl FnMut() -> f64, limits_ms: [f64; 3]) -> [f64; 3] {
        let gaps: Vec<f64> = std::iter::repeat_with(gap).take(DRAWN).collect();
        let longer = |limit_ms| gaps.iter().filter(|gap| **gap > limit_ms).count();
        limits_ms.map(|limit_ms| longer(limit_ms) as f64 / DRAWN as f64)
    }

    fn assert_near(measured: [f64; 3], expected: [f64; 3]) {
        for (measured, expected) in measured.into_iter().zip(expected) {
            assert!((measured - expected).abs() < 0.004, "{measured} expected {expected}");
        }
    }

    #[test]
    fn paretos_gaps() {
        let gaps = Gaps::Pareto { least_ms: 1_000, shape: 1.5 };
        assert!((gaps.mean_ms() - 3_000.0).abs() < 1e-9);
        let mut draws = Draws::new(1, 0);
        let limits_ms = [1_000.0, 4_000.0, 100_000.0];
        // 4^−1.5 and 100^−1.5.
        assert_near(longer(|| gaps.draw(&mut draws), limits_ms), [1.0, 0.125, 0.001]);
        // The integral of t^−1.5 from t on, by the mean: 2 / (3 √t).
        let rests = longer(|| gaps.draw_rest(&mut draws), limits_ms);
        assert_near(rests, [2.0 / 3.0, 1.0 / 3.0, 2.0 / 30.0]);
    }

    #[test]
    fn log_normal_gaps() {
        let gaps = Gaps::LogNormal { median_ms: 1_000, sigma: 1.0 };
        assert!((gaps.mean_ms() - 1_648.72).abs() < 0.01);
        let mut draws = Draws::new(2, 0);
        let limits_ms = [1.0, E, E * E].map(|times| times * 1_000.0);
        // The normal distribution beyond 0, 1 and 2 deviations.
        let measured = longer(|| gaps.draw(&mut draws), limits_ms);
        assert_near(measured, [0.5, 0.158_66, 0.022_75]);
        // The mean excess over k, by the mean: Φ(1 − z) − k e^(−1/2) Φ(−z) with z = ln k.
        let rests = longer(|| gaps.draw_rest(&mut draws), limits_ms);
        assert_near(rests, [0.538_08, 0.238_42, 0.056_70]);
    }

    #[test]
    fn no_sigma_is_a_period() {
        let gaps = Gaps::LogNormal { median_ms: 60_000, sigma: 0.0 };
        let mut draws = Draws::new(3, 0);
        assert!((0..100).all(|_| gaps.draw(&mut draws) == 60_000.0));
        let halves = longer(|| gaps.draw_rest(&mut draws), [0.0, 30_000.0, 60_000.0]);
        assert_near(halves, [1.0, 0.5, 0.0]);
    }
}
