//! Times in logs: `25/Nov/2026:15:49:27 +0100` of nginx and Apache, `25/Nov/2026:15:49:27.123` of HAProxy, ISO 8601, and
//! seconds since 1970.

/// The years in which logs are taken to be written: others are malformed, so that no line stretches a trace by centuries.
const YEARS: std::ops::RangeInclusive<u64> = 2000..=2099;
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
/// Bounds of numbers: larger ones count in milliseconds, and larger ones yet in microseconds.
const MOST_S: f64 = 1e11;
const MOST_MS: f64 = 1e14;

/// A time, and whether it said how far it is from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Milliseconds since 1970. A time without a zone is read as UTC.
    pub(crate) ms: u64,
    pub(crate) has_zone: bool,
}

/// Reads a time as logs have it between brackets.
pub(crate) fn in_brackets(text: &[u8]) -> Option<Moment> {
    let mut rest = Rest(text);
    let day = rest.number(2)?;
    rest.one_of(b"/")?;
    let month = 1 + MONTHS.iter().position(|name| rest.0.starts_with(name))? as u64;
    rest.0 = &rest.0[3..];
    rest.one_of(b"/")?;
    let year = rest.number(4)?;
    rest.one_of(b":")?;
    let of_day = rest.of_day()?;
    moment((year, month, day), of_day, rest)
}

/// Reads a time in ISO 8601, in brackets' form, or as a number.
pub(crate) fn any(text: &[u8]) -> Option<Moment> {
    in_brackets(text).or_else(|| iso(text)).or_else(|| {
        let number: f64 = str::from_utf8(text).ok()?.trim().parse().ok()?;
        let seconds = match number {
            n if n < MOST_S => n,
            n if n < MOST_MS => n / 1e3,
            n => n / 1e6,
        };
        let ms = (seconds * 1e3).round();
        let within =
            (first_ms(*YEARS.start()) as f64..first_ms(*YEARS.end() + 1) as f64).contains(&ms);
        within.then_some(Moment { ms: ms as u64, has_zone: true })
    })
}

fn iso(text: &[u8]) -> Option<Moment> {
    let mut rest = Rest(text);
    let year = rest.number(4)?;
    rest.one_of(b"-")?;
    let month = rest.number(2)?;
    rest.one_of(b"-")?;
    let day = rest.number(2)?;
    rest.one_of(b"T ")?;
    let of_day = rest.of_day()?;
    moment((year, month, day), of_day, rest)
}

/// Adds the zone, which must be all that is left.
fn moment(date: (u64, u64, u64), of_day_ms: u64, mut rest: Rest<'_>) -> Option<Moment> {
    let (year, month, day) = date;
    let possible = YEARS.contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let ms = possible.then(|| days(year, month, day) * 86_400_000 + of_day_ms)?;
    if rest.0.is_empty() {
        return Some(Moment { ms, has_zone: false });
    }
    if rest.0 == b"Z" {
        return Some(Moment { ms, has_zone: true });
    }
    let _ = rest.one_of(b" ");
    let ahead = rest.one_of(b"+-")? == b'+';
    let hours = rest.number(2)?;
    let _ = rest.one_of(b":");
    let minutes = rest.number(2)?;
    let offset_ms = (hours * 60 + minutes) * 60_000;
    let ms = if ahead { ms.checked_sub(offset_ms)? } else { ms + offset_ms };
    (rest.0.is_empty() && hours < 24 && minutes < 60).then_some(Moment { ms, has_zone: true })
}

fn first_ms(year: u64) -> u64 {
    days(year, 1, 1) * 86_400_000
}

/// Returns the days from 1970 to a date after it, in the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_year = year * 365 + year / 4 - year / 100 + year / 400;
    let before_month = (month * 153 + 2) / 5;
    // 1 March of year 0 is 719,468 days before 1970.
    before_year + before_month + day - 1 - 719_468
}

/// Returns a time since 1970 as a date and a time of day: `2026-11-25 15:49:27`, UTC.
pub fn utc(ms: u64) -> String {
    let (day, second) = (ms / 86_400_000, ms / 1_000 % 86_400);
    // The inverse of `days`: eras of 400 years, years that begin in March.
    let days = day + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year + u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The part of a text that is not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// Takes a number of exactly so many digits.
    fn number(&mut self, digits: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        let add = |sum: u64, digit: &u8| {
            digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0'))
        };
        number.iter().try_fold(0, add)
    }

    /// Takes one of these bytes.
    fn one_of(&mut self, known: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        known.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    /// Takes `15:49:27`, with a fraction or without, in milliseconds.
    fn of_day(&mut self) -> Option<u64> {
        let hour = self.number(2)?;
        self.one_of(b":")?;
        let minute = self.number(2)?;
        self.one_of(b":")?;
        let second = self.number(2)?;
        let mut ms = 0;
        if self.one_of(b".,").is_some() {
            let mut unit = 100;
            while let Some(digit) = self.0.first().filter(|digit| digit.is_ascii_digit()) {
                ms += u64::from(digit - b'0') * unit;
                unit /= 10;
                self.0 = &self.0[1..];
            }
        }
        // A minute may have a leap second.
        (hour < 24 && minute < 60 && second <= 60)
            .then_some((hour * 3_600 + minute * 60 + second) * 1_000 + ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds as `date -d … +%s` prints them.
    const MS: u64 = 1_795_621_767_000;

    #[test]
    fn every_form_is_the_same_moment() {
        for text in [
            "25/Nov/2026:15:49:27 +0000",
            "25/Nov/2026:16:49:27 +0100",
            "2026-11-25T15:49:27Z",
            "2026-11-25T09:49:27-06:00",
            "2026-11-25 15:49:27",
            "25/Nov/2026:15:49:27",
            "1795621767",
            "1795621767.000",
            "1795621767000",
            "1795621767000000",
        ] {
            assert_eq!(any(text.as_bytes()).map(|at| at.ms), Some(MS), "{text}");
        }
        let haproxy = in_brackets(b"25/Nov/2026:15:49:27.123").expect("a time");
        assert_eq!(haproxy, Moment { ms: MS + 123, has_zone: false });
        assert_eq!(any(b"29/Feb/2028:00:00:00 +0000").map(|at| at.ms), Some(1_835_395_200_000));
    }

    #[test]
    fn a_time_is_shown_as_it_is_read() {
        assert_eq!(utc(MS + 999), "2026-11-25 15:49:27");
        for day in 0..=first_ms(2100) / 86_400_000 {
            let ms = day * 86_400_000 + day % 86_400 * 1_000;
            let shown = utc(ms);
            if (first_ms(2000)..first_ms(2100)).contains(&ms) {
                assert_eq!(any(shown.as_bytes()).map(|at| at.ms), Some(ms), "{shown}");
            }
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "-",
            "NaN",
            "inf",
            "1e300",
            "-1",
            "12",
            "25/Nov/2026",
            "25/Foo/2026:15:49:27 +0000",
            "25/Nov/1999:15:49:27 +0000",
            "25/Nov/9999:15:49:27 +0000",
            "32/Nov/2026:15:49:27 +0000",
            "25/Nov/2026:25:49:27 +0000",
            "25/Nov/2026:15:49:27 +9900",
            "25/Nov/2026:15:49:27 +0000x",
        ] {
            assert_eq!(any(text.as_bytes()), None, "{text}");
        }
    }
}
