//! The intervals between a device's connections, and how many devices have each.

use std::fmt;
use std::str::FromStr;

use crate::draws::Draws;
use crate::error::Error;
use crate::speed_up::SpeedUp;

/// Intervals with weights: the distribution P of paper 000 §V.A.
///
/// As text, `60:23,30:13,15:2`: seconds, which may have a fraction and are rounded to the
/// millisecond, and a whole weight each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntervalMix(Vec<Share>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    interval_ms: u32,
    weight: u32,
}

impl IntervalMix {
    /// Makes a mix of pairs of an interval in milliseconds, 1 to 4,294,967,295 (49 days), and a
    /// weight.
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`] for another interval, [`Error::WeightlessMix`] if there is no
    /// weight above 0.
    pub fn new(shares: impl IntoIterator<Item = (u64, u32)>) -> Result<Self, Error> {
        let share = |(interval_ms, weight)| Share::new(interval_ms, weight);
        let mix = Self(shares.into_iter().map(share).collect::<Result<_, _>>()?);
        if mix.total_weight() == 0 {
            return Err(Error::WeightlessMix);
        }
        Ok(mix)
    }

    /// Returns the mix measured with 38 applications: 23 returned every 60 s, 13 every 30 s, 2 every
    /// 15 s (paper 000 §V.C). Every application has the same weight here, whatever its downloads.
    pub fn paper() -> Self {
        let share = |(interval_ms, weight)| Share { interval_ms, weight };
        Self([(60_000, 23), (30_000, 13), (15_000, 2)].map(share).to_vec())
    }

    /// Returns each interval in milliseconds with its weight, as given.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().map(|share| (share.interval_ms, share.weight))
    }

    /// Returns the same mix with every interval divided, and rounded to the nearest millisecond.
    ///
    /// # Errors
    /// Returns [`Error::TooFast`] if nothing is left of an interval, [`Error::OutOfRange`] if it becomes
    /// too long.
    pub fn speed_up(&self, by: SpeedUp) -> Result<Self, Error> {
        let faster = self.iter().map(|(interval_ms, weight)| {
            Ok((by.setting("an interval", u64::from(interval_ms))?, weight))
        });
        Self::new(faster.collect::<Result<Vec<_>, Error>>()?)
    }

    /// Returns the mean over the mix of a function of the interval in milliseconds.
    pub(crate) fn mean(&self, of: impl Fn(f64) -> f64) -> f64 {
        let weighted = |(interval_ms, weight)| of(f64::from(interval_ms)) * f64::from(weight);
        self.iter().map(weighted).sum::<f64>() / self.total_weight() as f64
    }

    /// Draws an interval in milliseconds, each in proportion to its weight.
    pub(crate) fn draw(&self, draws: &mut Draws) -> u32 {
        let mut ticket = draws.below(self.total_weight());
        for Share { interval_ms, weight } in &self.0 {
            match ticket.checked_sub(u64::from(*weight)) {
                Some(rest) => ticket = rest,
                None => return *interval_ms,
            }
        }
        unreachable!("a ticket is below the sum of the weights")
    }

    fn total_weight(&self) -> u64 {
        self.0.iter().map(|share| u64::from(share.weight)).sum()
    }
}

/// The default is [`Self::paper`].
impl Default for IntervalMix {
    fn default() -> Self {
        Self::paper()
    }
}

impl FromStr for IntervalMix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let entries = text.split(',').filter(|_| !text.trim().is_empty());
        Self::new(entries.map(parse).collect::<Result<Vec<_>, _>>()?)
    }
}

impl fmt::Display for IntervalMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (interval_ms, weight)) in self.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}:{weight}", f64::from(interval_ms) / 1_000.0)?;
        }
        Ok(())
    }
}

impl Share {
    fn new(interval_ms: u64, weight: u32) -> Result<Self, Error> {
        let (least, most) = (1, u64::from(u32::MAX));
        match u32::try_from(interval_ms) {
            Ok(interval_ms @ 1..) => Ok(Self { interval_ms, weight }),
            _ => Err(Error::OutOfRange { name: "interval_ms", value: interval_ms, least, most }),
        }
    }
}

/// Parses `seconds:weight` as milliseconds and weight.
fn parse(entry: &str) -> Result<(u64, u32), Error> {
    let parsed = || {
        let (seconds, weight) = entry.split_once(':')?;
        let seconds: f64 = seconds.trim().parse().ok().filter(|seconds| *seconds >= 0.0)?;
        Some(((seconds * 1_000.0).round() as u64, weight.trim().parse().ok()?))
    };
    parsed().ok_or_else(|| Error::BadMix { entry: entry.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["60:23,30:13,15:2", "0.001:1", "2.5:7,4294967.295:0"] {
            assert_eq!(text.parse::<IntervalMix>().expect(text).to_string(), text);
        }
        assert_eq!(
            " 60 : 23 ,30:13, 15:2".parse::<IntervalMix>().expect("spaces"),
            IntervalMix::paper()
        );
        assert_eq!("0.0014:1".parse::<IntervalMix>().expect("rounded").to_string(), "0.001:1");
    }

    #[test]
    fn what_is_no_mix_is_told_in_one_line() {
        let message = |text: &str| {
            let error = text.parse::<IntervalMix>().expect_err(text).to_string();
            assert!(!error.contains('\n'), "{error}");
            error
        };
        for text in
            ["60", "60:", ":1", "60:1,", "60:1;30:2", "-1:1", "NaN:1", "1:-1", "1:0.5", "\n:1"]
        {
            assert!(message(text).contains("such as 60:23,30:13,15:2"), "{text}");
        }
        for text in ["", "  ", "60:0", "60:0,30:0"] {
            assert!(message(text).contains("at least one"), "{text}");
        }
        for text in ["0:1", "0.0001:1", "4294968:1", "inf:1", "1e300:1"] {
            assert!(message(text).contains("between 1 and 4,294,967,295"), "{text}");
        }
    }

    #[test]
    fn weights_are_shares() {
        let mix: IntervalMix = "60:3,30:0,15:1".parse().expect("a mix");
        let mut draws = Draws::new(1, 0);
        let drawn: Vec<u32> = (0..40_000).map(|_| mix.draw(&mut draws)).collect();
        let of = |interval_ms| drawn.iter().filter(|drawn| **drawn == interval_ms).count();
        assert_eq!(of(30_000), 0);
        assert!(of(60_000).abs_diff(30_000) < 400 && of(60_000) + of(15_000) == 40_000);
    }
}
