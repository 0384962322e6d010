//! Durations as operators write them.

use std::str::FromStr;

/// A number of seconds, written as `90s`, `30m`, `12h` or `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub u64);

/// A text that is no duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a time as 90s, 30m, 12h or 7d")]
pub struct NoTime;

impl FromStr for Seconds {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, NoTime> {
        let unit_at = text.len().checked_sub(1).ok_or(NoTime)?;
        let (number, unit) = text.split_at_checked(unit_at).ok_or(NoTime)?;
        let unit_s = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(NoTime),
        };
        let number: u64 = number.parse().map_err(|_| NoTime)?;
        number.checked_mul(unit_s).map(Self).ok_or(NoTime)
    }
}
