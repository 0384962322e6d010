//! Whole numbers along an axis.

/// Numbers further apart than this would crowd at the left of a linear axis.
const LINEAR_RATIO_MAX: f64 = 50.0;

/// An axis from 0 to the largest number, or a logarithmic one from the smallest where numbers lie far apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    /// 0 if linear.
    least: f64,
    most: f64,
}

impl Axis {
    /// Returns an axis for these numbers. Zero counts as 1.
    pub fn new(numbers: impl Iterator<Item = u32>) -> Self {
        let (least, most) = numbers.fold((u32::MAX, 1), |(least, most), number| {
            (least.min(number.max(1)), most.max(number))
        });
        let (least, most) = (f64::from(least.min(most)), f64::from(most));
        if most / least > LINEAR_RATIO_MAX {
            Self { least, most }
        } else {
            Self { least: 0.0, most }
        }
    }

    /// Returns true if equal lengths are equal ratios, and not equal differences.
    pub fn is_logarithmic(&self) -> bool {
        self.least > 0.0
    }

    /// Returns the position of a number, from 0 to 1.
    pub fn share(&self, number: u32) -> f64 {
        let number = f64::from(number);
        if self.is_logarithmic() {
            (number.max(self.least) / self.least).ln() / (self.most / self.least).ln()
        } else {
            number / self.most
        }
    }

    /// Returns round numbers to label the axis with: about `wanted`, at most twice as many.
    pub fn ticks(&self, wanted: u32) -> Vec<u32> {
        if !self.is_logarithmic() {
            let rough = self.most / f64::from(wanted);
            let power = 10_f64.powf(rough.max(1.0).log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
            let step = step.into_iter().find(|step| *step >= rough).unwrap_or(power);
            let count = (self.most / step).floor() as u32;
            return (0..=count).map(|at| (f64::from(at) * step) as u32).collect();
        }
        let within = |factors: &[u32]| -> Vec<u32> {
            let powers = (0..10).map(|power| 10_u32.pow(power));
            let sizes =
                powers.flat_map(|ten| factors.iter().filter_map(move |m| ten.checked_mul(*m)));
            sizes.filter(|size| (self.least..=self.most).contains(&f64::from(*size))).collect()
        };
        let finest = [&[1, 2, 5][..], &[1, 3], &[1]];
        finest
            .into_iter()
            .map(within)
            .find(|ticks| ticks.len() <= wanted as usize)
            .unwrap_or_else(|| within(&[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_nothing() {
        let axis = Axis::new([200, 1_300, 4_000].into_iter());
        assert_eq!(axis.ticks(8), [0, 500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500, 4_000]);
        assert_eq!((axis.share(0), axis.share(1_000), axis.share(4_000)), (0.0, 0.25, 1.0));
        assert_eq!(Axis::new([3].into_iter()).ticks(8), [0, 1, 2, 3]);
        assert_eq!(Axis::new([1].into_iter()).ticks(8), [0, 1]);
        assert_eq!(Axis::new([0].into_iter()).ticks(8), [0, 1]);
    }

    #[test]
    fn numbers_far_apart_stand_on_a_logarithmic_axis() {
        let axis = Axis::new([100, 10_000].into_iter());
        assert!(axis.is_logarithmic());
        assert_eq!(axis.ticks(8), [100, 200, 500, 1_000, 2_000, 5_000, 10_000]);
        assert_eq!(axis.ticks(5), [100, 300, 1_000, 3_000, 10_000]);
        assert_eq!((axis.share(100), axis.share(1_000), axis.share(10_000)), (0.0, 0.5, 1.0));
        let widest = Axis::new([1, u32::MAX].into_iter());
        assert_eq!(widest.ticks(4).len(), 10);
        assert_eq!(widest.share(u32::MAX), 1.0);
    }
}
