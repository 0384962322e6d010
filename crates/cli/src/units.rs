//! The units of arguments and of tables: bytes and times, each read in one way and printed in one.

use std::ops::RangeInclusive;
use std::str::FromStr;

use rejoin_cache::Capacity;

/// A number of bytes: `4096`, `36KB`, `64MiB`, `2GiB`. The units count in 1,024s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse()? {
            Capacity::Bytes(bytes) | Capacity::Sessions(bytes) => Ok(Self(bytes)),
        }
    }
}

/// Returns a parser of sizes within a range of bytes.
pub(crate) fn bytes_in(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let Bytes(bytes) = text.parse()?;
        let fits = u32::try_from(bytes).ok().filter(|bytes| range.contains(bytes));
        fits.ok_or_else(|| format!("give {} to {} bytes", range.start(), range.end()))
    }
}

/// A time in milliseconds: `500ms`, `30s`, `5m`, `1h` or `7d`; a number without a unit is seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) ms: u64,
}

impl Time {
    /// The longest time, about a century.
    const LONGEST_MS: f64 = 3.2e12;
    /// `min` before `m`, and `ms` before `s`, which it ends in.
    const UNITS: [(&str, f64); 6] =
        [("ms", 1.0), ("s", 1e3), ("min", 60e3), ("m", 60e3), ("h", 3_600e3), ("d", 86_400e3)];
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let with_unit = |(unit, ms)| Some((text.strip_suffix(unit)?.trim_end(), ms));
        let (number, unit_ms) = Self::UNITS.into_iter().find_map(with_unit).unwrap_or((text, 1e3));
        let ms = number.parse::<f64>().map(|number| (number * unit_ms).round());
        let possible = ms.ok().filter(|ms| (0.0..=Self::LONGEST_MS).contains(ms));
        let ms = possible.ok_or("write a time as 500ms, 30s, 5m or 1h, a century at most")?;
        Ok(Self { ms: ms as u64 })
    }
}

/// Reads a time above zero.
pub(crate) fn above_zero(text: &str) -> Result<Time, String> {
    let time: Time = text.parse()?;
    (time.ms > 0).then_some(time).ok_or_else(|| "give a time above 0, such as 30s".to_owned())
}

/// Returns a parser of times that are whole seconds within a range.
pub(crate) fn seconds_in(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let Time { ms } = text.parse()?;
        let whole = u32::try_from(ms / 1_000).ok().filter(|s| ms % 1_000 == 0 && range.contains(s));
        whole.ok_or_else(|| format!("give {} to {} whole seconds", range.start(), range.end()))
    }
}

/// Returns a number of bytes with its unit: `5.50 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut number = bytes as f64;
    let mut unit = 0;
    while number >= 1_000.0 && unit + 1 < units.len() {
        number /= 1_024.0;
        unit += 1;
    }
    let number = if unit == 0 { bytes.to_string() } else { figure(number) };
    format!("{number} {}", units[unit])
}

/// Returns a time in its two largest units: `11 h 3 min`, `2 h`, `90 s`.
pub(crate) fn time(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let largest = units.iter().position(|(unit, _)| seconds >= 2 * unit || seconds == *unit);
    let Some(largest) = largest else { return format!("{seconds} s") };
    let (unit, name) = units[largest];
    let first = format!("{} {name}", seconds / unit);
    match units.get(largest + 1).map(|(next, name)| (seconds % unit / next, name)) {
        None | Some((0, _)) => first,
        Some((rest, name)) => format!("{first} {rest} {name}"),
    }
}

/// Returns a number with about three digits.
pub(crate) fn figure(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => rejoin_sim::report::thousands(number),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// Returns a percentage with one decimal, or none if it is 0. A rate below 100 is never shown as 100.
pub(crate) fn percent(percent: f64) -> String {
    let shown = if percent < 100.0 { percent.min(99.9) } else { percent };
    let text = format!("{shown:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_short() {
        assert_eq!([98.04, 100.0, 99.99, 97.95].map(percent), ["98", "100", "99.9", "98"]);
    }

    #[test]
    fn sizes_have_units() {
        let known = [
            ("7", 7),
            ("7B", 7),
            ("36KB", 36 << 10),
            ("36 kB", 36 << 10),
            ("64KiB", 64 << 10),
            ("2MB", 2 << 20),
            ("2GiB", 2 << 30),
        ];
        for (text, bytes) in known {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for wrong in ["", "MiB", "1TB", "1.5MB", "-1", "99999999999GiB"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
        let parse = bytes_in(8..=4_096);
        assert_eq!((parse("4KiB"), parse("8")), (Ok(4_096), Ok(8)));
        assert!(parse("7").is_err() && parse("5KiB").is_err());
    }

    #[test]
    fn times_have_units_and_are_seconds_without() {
        let known = [
            ("0.25", 250),
            ("500ms", 500),
            ("30s", 30_000),
            ("30 s", 30_000),
            ("5m", 300_000),
            ("5min", 300_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
            ("0", 0),
        ];
        for (text, ms) in known {
            assert_eq!(text.parse(), Ok(Time { ms }), "{text}");
        }
        for wrong in ["", "-1", "NaN", "inf", "soon", "s", "5 weeks", "1e99"] {
            assert!(wrong.parse::<Time>().is_err(), "{wrong}");
        }
        assert!(above_zero("0").is_err() && above_zero("1ms").is_ok());
        let parse = seconds_in(1..=3_600);
        assert_eq!((parse("1h"), parse("90")), (Ok(3_600), Ok(90)));
        assert!(parse("2h").is_err() && parse("500ms").is_err());
    }

    #[test]
    fn what_is_printed_is_short() {
        assert_eq!([999, 1_000, 5 << 20].map(bytes), ["999 bytes", "0.977 KiB", "5.00 MiB"]);
        let times = [0, 59, 60, 90, 150, 3_600, 5_460, 39_780, 86_400, 90_000, 604_800].map(time);
        let expected = [
            "0 s",
            "59 s",
            "1 min",
            "90 s",
            "2 min 30 s",
            "1 h",
            "91 min",
            "11 h 3 min",
            "1 d",
            "25 h",
            "7 d",
        ];
        assert_eq!(times, expected);
    }
}
