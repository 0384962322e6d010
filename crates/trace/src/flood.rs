//! A flood: clients that connect once, claim to return, and never do.
//!
//! It costs its sender a full handshake each, and every session it leaves takes the place of one
//! that would have been resumed, for as long as its claim is believed. It comes at random, so
//! that its gaps are exponential.

use crate::draws::Draws;
use crate::error::{Error, in_range};
use crate::event::Event;

/// The most clients of a flood in a second.
pub const MOST_PER_S: u64 = 1_000_000;

/// What a flood is to be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloodSettings {
    /// How many clients come in a second, in the mean: 1 to [`MOST_PER_S`].
    pub per_s: u64,
    /// In how many milliseconds each claims to return, if it claims anything.
    pub claims_ms: Option<u32>,
}

/// A flood that can be: every setting is in its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flood(FloodSettings);

impl Flood {
    /// # Errors
    /// [`Error::OutOfRange`], naming the setting and its range.
    pub fn new(settings: FloodSettings) -> Result<Self, Error> {
        in_range("per_s", settings.per_s, 1, MOST_PER_S)?;
        Ok(Self(settings))
    }

    /// What it was made from.
    pub fn settings(&self) -> &FloodSettings {
        &self.0
    }

    /// How many connections there are in a second, in the mean.
    pub fn expected_connections_per_s(&self) -> f64 {
        self.0.per_s as f64
    }

    /// All its connections in order of time, without end, from time 0 on.
    ///
    /// The same seed gives the same connections on every platform. Takes no memory and a constant
    /// time an event. Clients are numbered from 0 as they come; each begins a run.
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
