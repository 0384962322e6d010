//! A flood: clients that connect once, claim to return, and never do.
//!
//! Each connection costs its sender a full handshake. Every session that it leaves takes the place
//! of one that would have been resumed, for as long as its claim is believed. Connections come at
//! random, so that the gaps are exponential.

use crate::draws::Draws;
use crate::error::{Error, in_range};
use crate::event::Event;

/// The most clients of a flood in a second.
pub const MOST_PER_S: u64 = 1_000_000;

/// The settings of a flood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloodSettings {
    /// The mean number of clients in a second: 1 to [`MOST_PER_S`].
    pub per_s: u64,
    /// The time in which each client claims to return, in milliseconds, if it claims anything.
    pub claims_ms: Option<u32>,
}

/// A flood whose settings are all in range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flood(FloodSettings);

impl Flood {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`], naming the setting and its range.
    pub fn new(settings: FloodSettings) -> Result<Self, Error> {
        in_range("per_s", settings.per_s, 1, MOST_PER_S)?;
        Ok(Self(settings))
    }

    /// Returns the settings.
    pub fn settings(&self) -> &FloodSettings {
        &self.0
    }

    /// Returns the mean number of connections in a second.
    pub fn expected_connections_per_s(&self) -> f64 {
        self.0.per_s as f64
    }

    /// Returns all its connections in order of time, without end, from time 0 on.
    ///
    /// The same seed gives the same connections on every platform. It takes no memory and constant
    /// time per event. Clients are numbered from 0 as they come; each begins a run.
    pub fn arrivals(&self, seed: u64) -> FloodArrivals {
        FloodArrivals::new(self, Draws::new(seed, 0))
    }
}

/// The connections of a [`Flood`], in order of time, without end.
#[derive(Debug, Clone)]
pub struct FloodArrivals {
    /// The time that has passed, with its fraction: many come in one millisecond.
    now_ms: f64,
    clients: u64,
    mean_gap_ms: f64,
    claims_ms: Option<u32>,
    draws: Draws,
}

impl FloodArrivals {
    pub(crate) fn new(flood: &Flood, draws: Draws) -> Self {
        let FloodSettings { per_s, claims_ms } = *flood.settings();
        Self { now_ms: 0.0, clients: 0, mean_gap_ms: 1_000.0 / per_s as f64, claims_ms, draws }
    }
}

impl Iterator for FloodArrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.now_ms += self.draws.exponential(self.mean_gap_ms);
        let client = self.clients;
        self.clients += 1;
        let (time_ms, returns_in_ms) = (self.now_ms as u64, self.claims_ms);
        Some(Event { time_ms, client, first_of_run: true, returns_in_ms })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}
