//! Random draws that are the same on every platform.
//!
//! The generator is ChaCha8 with its key written out below. The logarithm and the cosine are those
//! of `libm`, computed in software: those of the standard library are the platform's and may differ
//! in the last bit. The crate `rand` is not used, because its ways of drawing may change from one
//! release to the next.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

#[derive(Debug, Clone)]
pub(crate) struct Draws(ChaCha8Rng);

impl Draws {
    /// Makes the generator of a seed and a stream. The key is the seed, little-endian, then zeros;
    /// the nonce is the stream. Streams of one seed are independent of each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(stream);
        Self(generator)
    }

    /// Draws a whole number below `bound`, uniform to one part in 2⁶⁴.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws from the exponential distribution with the given mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -libm::log(self.unit()) * mean
    }

    /// Draws from the normal distribution with mean 0 and standard deviation 1 (Box and Muller's, one
    /// of the pair).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// Draws uniformly from the 2⁵³ multiples of 2⁻⁵³ above 0 and up to 1, whose logarithms are all
    /// finite.
    pub(crate) fn unit(&mut self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        ((self.0.next_u64() >> 11) + 1) as f64 / STEPS
    }
}

/// Rounds to the nearest millisecond.
pub(crate) fn whole_ms(ms: f64) -> u64 {
    ms.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(draw: impl FnMut() -> f64) -> (f64, f64) {
        let drawn: Vec<f64> = std::iter::repeat_with(draw).take(100_000).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
        (mean, variance.sqrt())
    }

    #[test]
    fn means_and_deviations() {
        let mut draws = Draws::new(5, 0);
        let (mean, deviation) = moments(|| draws.exponential(100.0));
        assert!((mean - 100.0).abs() < 1.5 && (deviation - 100.0).abs() < 2.0);
        let (mean, deviation) = moments(|| draws.normal());
        assert!(mean.abs() < 0.015 && (deviation - 1.0).abs() < 0.015);
        let (mean, _) = moments(|| draws.below(10) as f64);
        assert!((mean - 4.5).abs() < 0.05);
    }
}
