//! A flood: clients that connect once or a few times, claim to return, and never do.
//!
//! Each connection costs its sender a full handshake. Every session that it leaves takes the place
//! of one that would have been resumed, for as long as its claim is believed. Clients come at
//! random, so that the gaps are exponential.

use std::collections::VecDeque;

use crate::draws::Draws;
use crate::error::{Error, in_range};
use crate::event::Event;

/// The most clients of a flood in a second.
pub const MOST_PER_S: u64 = 1_000_000;
/// The most visits of each client of a flood.
pub const MOST_VISITS: u64 = 100;
/// The longest time between two of them, in milliseconds: an hour.
pub const LONGEST_PAUSE_MS: u64 = 3_600_000;

/// The settings of a flood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloodSettings {
    /// The mean number of clients in a second: 1 to [`MOST_PER_S`].
    pub per_s: u64,
    /// The time in which each client claims to return, in milliseconds, if it claims anything.
    pub claims_ms: Option<u32>,
    /// The number of times that each client comes: 1 to [`MOST_VISITS`].
    pub visits: u64,
    /// The time from one visit to the next, in milliseconds: 1 to [`LONGEST_PAUSE_MS`].
    pub every_ms: u64,
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
        in_range("visits", settings.visits, 1, MOST_VISITS)?;
        in_range("every_ms", settings.every_ms, 1, LONGEST_PAUSE_MS)?;
        Ok(Self(settings))
    }

    /// Returns the settings.
    pub fn settings(&self) -> &FloodSettings {
        &self.0
    }

    /// Returns the mean number of connections in a second.
    pub fn expected_connections_per_s(&self) -> f64 {
        (self.0.per_s * self.0.visits) as f64
    }

    /// Returns all its connections in order of time, without end, from time 0 on.
    ///
    /// The same seed gives the same connections on every platform. It takes constant time per event, and memory for the
    /// clients that come again. Clients are numbered from 0 as they come; each begins a run.
    pub fn arrivals(&self, seed: u64) -> FloodArrivals {
        FloodArrivals::new(self, Draws::new(seed, 0))
    }
}

/// The connections of a [`Flood`], in order of time, without end.
#[derive(Debug, Clone)]
pub struct FloodArrivals {
    /// The time at which the next new client comes, with its fraction: many come in one millisecond.
    next_ms: f64,
    clients: u64,
    /// Clients that come again, in order of time.
    returning: VecDeque<Returning>,
    mean_gap_ms: f64,
    settings: FloodSettings,
    draws: Draws,
}

/// A client that comes again, and how often from then on.
#[derive(Debug, Clone, Copy)]
struct Returning {
    at_ms: f64,
    client: u64,
    visits: u64,
}

impl FloodArrivals {
    pub(crate) fn new(flood: &Flood, draws: Draws) -> Self {
        let settings = flood.settings().clone();
        let mean_gap_ms = 1_000.0 / settings.per_s as f64;
        let returning = VecDeque::new();
        let mut flood = Self { next_ms: 0.0, clients: 0, returning, mean_gap_ms, settings, draws };
        flood.next_ms = flood.draws.exponential(mean_gap_ms);
        flood
    }

    fn new_client(&mut self) -> Returning {
        let (at_ms, client) = (self.next_ms, self.clients);
        self.clients += 1;
        self.next_ms += self.draws.exponential(self.mean_gap_ms);
        Returning { at_ms, client, visits: self.settings.visits }
    }
}

impl Iterator for FloodArrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let is_first = self.returning.front().is_some_and(|front| front.at_ms <= self.next_ms);
        let again = if is_first { self.returning.pop_front() } else { None };
        let FloodSettings { visits: all, every_ms, claims_ms, .. } = self.settings;
        let Returning { at_ms, client, visits } = again.unwrap_or_else(|| self.new_client());
        if visits > 1 {
            let at_ms = at_ms + every_ms as f64;
            self.returning.push_back(Returning { at_ms, client, visits: visits - 1 });
        }
        let first_of_run = visits == all;
        Some(Event { time_ms: at_ms as u64, client, first_of_run, returns_in_ms: claims_ms })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}
