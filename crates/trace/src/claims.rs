//! Claims: the return times that clients announce, true or not.
//!
//! A share of liars is a group of its own in a [`Mixture`](crate::Mixture): two populations, one
//! truthful and one not. Claims use no random draws, so the same devices connect at the same times
//! whatever they claim, and the gain of a lie can be seen device by device.

use crate::error::{Error, in_range};
use crate::event::Event;
use crate::speed_up::SpeedUp;

/// The largest exaggeration: a thousand times the truth.
const MOST_PERMILLE: u64 = 1_000_000;

/// The claims of a population's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claims {
    /// The truth, as far as the device knows it.
    #[default]
    Truth,
    /// No claim.
    Nothing,
    /// A number of thousandths of the truth, 0 to 1,000,000, to the nearest millisecond.
    /// *Shading*: at 970, a device that returns in 60 s claims 58.2 s, and is kept where an
    /// honest one is not. A device that will not be back still says so.
    Permille(u32),
    /// A fixed claim, in milliseconds, whatever the truth.
    Fixed(u32),
}

impl Claims {
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Permille(permille) => {
                in_range("claims_permille", u64::from(permille), 0, MOST_PERMILLE)
            }
            Self::Truth | Self::Nothing | Self::Fixed(_) => Ok(()),
        }
    }

    /// Returns the claim of a device that knows its return time.
    pub(crate) fn of(self, known_ms: u32) -> Option<u32> {
        match self {
            Self::Nothing => None,
            Self::Fixed(ms) => Some(ms),
            Self::Permille(permille) if known_ms != Event::NOT_BACK_MS => {
                let claim = (u64::from(known_ms) * u64::from(permille) + 500) / 1_000;
                // The longest claim that is a time.
                Some(claim.min(u64::from(Event::NOT_BACK_MS - 1)) as u32)
            }
            Self::Truth | Self::Permille(_) => Some(known_ms),
        }
    }

    /// Returns the same claims with all times divided.
    pub(crate) fn speed_up(self, by: SpeedUp) -> Self {
        match self {
            Self::Fixed(ms) if ms != Event::NOT_BACK_MS => {
                let faster = by.ms(u64::from(ms)).min(u64::from(Event::NOT_BACK_MS));
                Self::Fixed(faster as u32)
            }
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_truth_is_rounded_and_never_becomes_a_departure() {
        assert_eq!(Claims::Permille(970).of(60_000), Some(58_200));
        assert_eq!(Claims::Permille(970).of(17), Some(16), "16.49");
        assert_eq!(Claims::Permille(500).of(1), Some(1), "0.5");
        assert_eq!(Claims::Permille(0).of(60_000), Some(0));
        assert_eq!(Claims::Permille(1_000_000).of(u32::MAX - 1), Some(u32::MAX - 1));
        for permille in [0, 970, 1_000_000] {
            assert_eq!(Claims::Permille(permille).of(Event::NOT_BACK_MS), Some(u32::MAX));
        }
    }

    #[test]
    fn other_claims() {
        for known_ms in [0, 60_000, Event::NOT_BACK_MS] {
            assert_eq!(Claims::Truth.of(known_ms), Some(known_ms));
            assert_eq!(Claims::Nothing.of(known_ms), None);
            assert_eq!(Claims::Fixed(1_000).of(known_ms), Some(1_000));
        }
        let told = Claims::Permille(1_000_001).check().expect_err("too much").to_string();
        assert_eq!(told, "claims_permille is 1,000,001: it must be between 0 and 1,000,000");
    }

    #[test]
    fn only_a_fixed_claim_is_a_time() {
        let by = SpeedUp::new(6.0).expect("above 0");
        assert_eq!(Claims::Fixed(60_000).speed_up(by), Claims::Fixed(10_000));
        for claims in [Claims::Truth, Claims::Permille(970), Claims::Fixed(Event::NOT_BACK_MS)] {
            assert_eq!(claims.speed_up(by), claims);
        }
    }
}
