//! Sizes of responses.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::model::KB;

/// Bytes of a response's body, its head not counted: [`Size::LEAST_BYTES`] to
/// [`Size::MOST_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Size {
    bytes: u32,
}

impl Size {
    /// The smallest.
    pub const LEAST_BYTES: u32 = 1;
    /// The largest: each server holds two responses of its size.
    pub const MOST_BYTES: u32 = 64 << 20;
    /// The paper's three, and one more, for a line needs four.
    pub const DEFAULT: [Self; 4] = [
        Self { bytes: 30 },
        Self { bytes: 36 << 10 },
        Self { bytes: 256 << 10 },
        Self { bytes: 1 << 20 },
    ];

    /// In bytes.
    pub fn bytes(self) -> u32 {
        self.bytes
    }

    /// In KB of 1,024 bytes.
    pub fn kb(self) -> f64 {
        f64::from(self.bytes) / KB
    }
}

/// Bytes, or with `KB` or `MB`, which are 1,024 and 1,048,576 as in the paper, or `KiB` or `MiB`.
impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim_start() {
            "" | "B" => 0,
            "KB" | "KiB" => 10,
            "MB" | "MiB" => 20,
            "GB" | "GiB" => 30,
            _ => return Err("write sizes as 30, 36KB or 1MB".to_owned()),
        };
        let number: u64 = number.parse().map_err(|_| "write sizes as 30, 36KB or 1MB")?;
        let bytes = number.checked_mul(1 << shift).and_then(|bytes| u32::try_from(bytes).ok());
        let possible = bytes.filter(|bytes| (Self::LEAST_BYTES..=Self::MOST_BYTES).contains(bytes));
        let bytes = possible.ok_or("a response has 1 byte to 64MB")?;
        Ok(Self { bytes })
    }
}

/// Writes a size as the paper does.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes } = *self;
        match bytes {
            _ if bytes % (1 << 20) == 0 => write!(f, "{} MB", bytes >> 20),
            _ if bytes % (1 << 10) == 0 => write!(f, "{} KB", bytes >> 10),
            _ => write!(f, "{bytes} B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for (text, bytes, shown) in [
            ("30", 30, "30 B"),
            ("36KB", 36_864, "36 KB"),
            ("36 KiB", 36_864, "36 KB"),
            ("1048576", 1 << 20, "1 MB"),
            ("64MB", 64 << 20, "64 MB"),
        ] {
            let size: Size = text.parse().expect(text);
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, shown));
        }
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        for text in ["0", "0KB", "65MB", "10GB", "99999999999999GB"] {
            assert_eq!(text.parse::<Size>(), Err("a response has 1 byte to 64MB".to_owned()));
        }
        for text in ["", "KB", "-1", "1.5MB", "many"] {
            assert!(text.parse::<Size>().expect_err(text).starts_with("write sizes"), "{text}");
        }
    }
}
