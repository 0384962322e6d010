//! The devices of paper 000 §V.A, and when they connect.
//!
//! A device waits, then runs, then waits again, each for a time drawn from an exponential
//! distribution. It connects when a run begins and then at its own interval until the run ends.
//! It always keeps its interval. Runs may have another distribution: [`Runs`].
//!
//! With [`Start::Steady`] it is in its steady state from the first millisecond. An exponential
//! time has no memory: a device is running with probability running / (running + waiting), and the
//! rest of its run, or of its wait, has the distribution of the whole. So has the *past* part of
//! its run, and that, taken modulo its interval, is the time since it last connected.
//! (It is not uniform: because runs end, more devices are at the beginning of an interval than at
//! its end. With a uniform phase the first seconds would have a tenth too many arrivals.)

use crate::claims::Claims;
use crate::error::{Error, in_range};
use crate::interval_mix::IntervalMix;
use crate::runs::Runs;
use crate::speed_up::SpeedUp;

/// The most devices of a population: they take 2.4 GB.
pub const MOST_DEVICES: u64 = 100_000_000;
/// The longest mean of a wait or a run: 34 years.
pub const LONGEST_MEAN_MS: u64 = 1 << 40;
/// The largest standard deviation of a gap: 49 days.
pub const LARGEST_JITTER_MS: u64 = u32::MAX as u64;

/// The settings of a population.
#[derive(Debug, Clone, PartialEq)]
pub struct PopulationSettings {
    /// The number of devices, running or not: 1 to [`MOST_DEVICES`].
    pub devices: u64,
    /// The mean wait between two runs, in milliseconds: 1 to [`LONGEST_MEAN_MS`].
    pub waiting_ms: u64,
    /// The mean length of a run, in milliseconds: 1 to [`LONGEST_MEAN_MS`].
    pub running_ms: u64,
    /// The distribution of the lengths of runs around their mean.
    pub runs: Runs,
    /// The intervals at which devices connect while they run.
    pub intervals: IntervalMix,
    /// The standard deviation of every gap within a run, in milliseconds, at most
    /// [`LARGEST_JITTER_MS`]. Gaps are normal around the interval, cut off at none and at twice
    /// the interval.
    pub jitter_ms: u64,
    /// The state of the devices at time 0.
    pub start: Start,
    /// True if a device knows at the last connection of a run that it is the last. It then
    /// announces [`Event::NOT_BACK_MS`](crate::Event::NOT_BACK_MS) instead of its interval.
    pub departures_known: bool,
    /// The claims of the devices about their return.
    pub claims: Claims,
}

/// The state of a population's devices at time 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// The steady state: most devices wait, some run.
    #[default]
    Steady,
    /// All devices wait, so that none runs at first. The population is within 5 % of its steady
    /// state after three times running × waiting / (running + waiting): 345 s for the paper's.
    ///
    /// The simulator whose figures this project compares with began like this: its trace of 20,000
    /// devices has 526 connections in the first minute, where a steady population has 1,471, and
    /// 1,177 in the third.
    Waiting,
}

impl PopulationSettings {
    /// Returns the settings of paper 000, Table II, "real value": exponential runs of 120 s, waits of
    /// 2,760 s, no jitter. The population starts in its steady state, departures are not known, and all claims
    /// are true.
    pub fn paper(devices: u64) -> Self {
        Self {
            devices,
            waiting_ms: 2_760_000,
            running_ms: 120_000,
            runs: Runs::Exponential,
            intervals: IntervalMix::paper(),
            jitter_ms: 0,
            start: Start::Steady,
            departures_known: false,
            claims: Claims::Truth,
        }
    }
}

/// A population whose settings are all in range.
#[derive(Debug, Clone, PartialEq)]
pub struct Population(PopulationSettings);

impl Population {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`] or [`Error::NumberOutOfRange`], naming the setting and its range.
    pub fn new(settings: PopulationSettings) -> Result<Self, Error> {
        in_range("devices", settings.devices, 1, MOST_DEVICES)?;
        in_range("waiting_ms", settings.waiting_ms, 1, LONGEST_MEAN_MS)?;
        in_range("running_ms", settings.running_ms, 1, LONGEST_MEAN_MS)?;
        in_range("jitter_ms", settings.jitter_ms, 0, LARGEST_JITTER_MS)?;
        settings.runs.check()?;
        settings.claims.check()?;
        Ok(Self(settings))
    }

    /// Returns the settings.
    pub fn settings(&self) -> &PopulationSettings {
        &self.0
    }

    /// Returns the mean number of devices that run at any time in the steady state (paper 000,
    /// appendix, equation 1). A device runs in running / (running + waiting) of the time, with its own
    /// mean run.
    pub fn expected_running(&self) -> f64 {
        self.expected_of_device(|running_ms| running_ms)
    }

    /// Returns the mean number of connections in a second in the steady state, without jitter.
    ///
    /// A run connects when it begins and once for every interval it outlives: with mean r and
    /// interval p, 1 / (1 − e^(−p/r)) times if runs are exponential. That is more than r / p, by about
    /// half a connection a run: 0.0294 a second for each running device of the paper, not 0.025.
    pub fn expected_connections_per_s(&self) -> f64 {
        self.expected_of_device(|running_ms| {
            self.0.intervals.mean(|interval_ms| self.0.runs.connections(running_ms, interval_ms))
        }) * 1_000.0
    }

    /// Returns the sum, over all devices, of what a device does in a run, by the time from the beginning
    /// of a run to that of the next, in milliseconds.
    fn expected_of_device(&self, in_a_run: impl Fn(f64) -> f64) -> f64 {
        let (running_ms, waiting_ms) = (self.0.running_ms as f64, self.0.waiting_ms as f64);
        let of_device = |mean_ms: f64| in_a_run(mean_ms) / (mean_ms + waiting_ms);
        self.0.devices as f64 * self.0.runs.over_devices(running_ms, of_device)
    }

    /// Returns the same population with its time sped up (paper 000 §V.C): waits, runs, intervals,
    /// jitter and a fixed claim are divided, and rounded to the nearest millisecond once, so that
    /// gaps within a run stay exactly the interval.
    ///
    /// # Errors
    /// Returns [`Error::TooFast`] if nothing is left of a setting, [`Error::OutOfRange`] if one becomes
    /// too long.
    pub fn speed_up(&self, by: SpeedUp) -> Result<Self, Error> {
        Self::new(PopulationSettings {
            devices: self.0.devices,
            waiting_ms: by.setting("waiting_ms", self.0.waiting_ms)?,
            running_ms: by.setting("running_ms", self.0.running_ms)?,
            intervals: self.0.intervals.speed_up(by)?,
            jitter_ms: by.ms(self.0.jitter_ms),
            claims: self.0.claims.speed_up(by),
            ..self.0
        })
    }
}
