//! A speed-up, which runs a population's hour in minutes (paper 000 §V.C: a factor of 6).

use std::str::FromStr;

use crate::error::Error;

/// A factor by which all times are divided: above 0, finite. Below 1 it slows down.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct SpeedUp(f64);

impl SpeedUp {
    /// Checks the factor.
    ///
    /// # Errors
    /// Returns [`Error::BadSpeedUp`] if the factor is not a finite number above 0.
    pub fn new(factor: f64) -> Result<Self, Error> {
        if factor.is_finite() && factor > 0.0 {
            return Ok(Self(factor));
        }
        Err(Error::BadSpeedUp { factor: factor.to_string() })
    }

    /// Returns the factor.
    pub fn factor(self) -> f64 {
        self.0
    }

    /// Divides a time and rounds it to the nearest millisecond. A later time never comes out
    /// earlier.
    pub fn ms(self, ms: u64) -> u64 {
        (ms as f64 / self.0).round() as u64
    }

    /// Divides a setting that must not vanish.
    pub(crate) fn setting(self, name: &'static str, ms: u64) -> Result<u64, Error> {
        match self.ms(ms) {
            0 => Err(Error::TooFast { factor: self.0, name }),
            faster => Ok(faster),
        }
    }
}

impl FromStr for SpeedUp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let factor = text.trim().parse();
        Self::new(factor.map_err(|_| Error::BadSpeedUp { factor: format!("{text:?}") })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    #[test]
    fn only_numbers_above_zero() {
        for text in ["0", "-1", "NaN", "inf", "", "fast", "1\n2"] {
            let error = text.parse::<SpeedUp>().expect_err(text).to_string();
            assert!(error.contains("above 0") && !error.contains('\n'), "{error}");
        }
        assert_eq!(" 2.5 ".parse::<SpeedUp>().expect("a number").factor(), 2.5);
    }

    #[test]
    fn an_event_keeps_all_but_its_times() {
        let event =
            Event { time_ms: 100, client: 9, first_of_run: true, returns_in_ms: Some(60_000) };
        let faster = event.speed_up(SpeedUp::new(6.0).expect("above 0"));
        assert_eq!(faster, Event { time_ms: 17, returns_in_ms: Some(10_000), ..event });
        let slower = event.speed_up(SpeedUp::new(1e-9).expect("above 0"));
        assert_eq!(slower.returns_in_ms, Some(u32::MAX), "as long as can be said");
        let leaving = Event { returns_in_ms: Some(Event::NOT_BACK_MS), ..event };
        let faster = leaving.speed_up(SpeedUp::new(6.0).expect("above 0"));
        assert_eq!(faster.returns_in_ms, leaving.returns_in_ms, "not back is no time");
    }
}
