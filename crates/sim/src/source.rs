//! The sources of a simulation's requests.

use rejoin_trace::{Event, Mixture};

use crate::error::Error;

/// Arrivals that can be played again and again.
///
/// This crate opens no file: an implementation elsewhere opens a trace in a file.
pub trait Source: Sync {
    /// Returns the arrivals from the beginning, in order of time. The same seed gives the same ones.
    ///
    /// # Errors
    /// Returns [`Error::Open`] or [`Error::Trace`].
    fn open(&self, seed: u64) -> Result<Box<dyn Pass + '_>, Error>;

    /// Estimates the part of a pass that is done, 0 to 1, after so many events, the last of them at
    /// `time_ms`.
    fn part_over(&self, time_ms: u64, events: u64) -> f64;
}

/// Arrivals being played: any iterator of events, taken many at a time.
pub trait Pass: Send {
    /// Adds so many events, or fewer if there are no more.
    ///
    /// # Errors
    /// Returns [`Error::Trace`].
    fn read(&mut self, events: &mut Vec<Event>, most: usize) -> Result<(), Error>;
}

impl<I: Iterator<Item = Result<Event, rejoin_trace::Error>> + Send> Pass for I {
    fn read(&mut self, events: &mut Vec<Event>, most: usize) -> Result<(), Error> {
        for event in self.take(most) {
            events.push(event?);
        }
        Ok(())
    }
}

/// Arrivals drawn for each seed, up to a time.
#[derive(Debug)]
pub struct Drawn<'a> {
    /// The clients that arrive.
    pub mixture: &'a Mixture,
    /// The time before which they arrive, in milliseconds.
    pub end_ms: u64,
}

impl Source for Drawn<'_> {
    fn open(&self, seed: u64) -> Result<Box<dyn Pass + '_>, Error> {
        let end_ms = self.end_ms;
        let arrivals = self.mixture.arrivals(seed);
        Ok(Box::new(arrivals.take_while(move |event| event.time_ms < end_ms).map(Ok)))
    }

    fn part_over(&self, time_ms: u64, _: u64) -> f64 {
        time_ms as f64 / self.end_ms.max(1) as f64
    }
}

/// Arrivals in memory that are still to be read.
struct InMemory<'a> {
    left: &'a [Event],
}

impl Pass for InMemory<'_> {
    fn read(&mut self, events: &mut Vec<Event>, most: usize) -> Result<(), Error> {
        let (read, left) = self.left.split_at(most.min(self.left.len()));
        events.extend_from_slice(read);
        self.left = left;
        Ok(())
    }
}

/// Arrivals in memory, the same for every seed.
impl Source for [Event] {
    fn open(&self, _: u64) -> Result<Box<dyn Pass + '_>, Error> {
        Ok(Box::new(InMemory { left: self }))
    }

    fn part_over(&self, _: u64, events: u64) -> f64 {
        events as f64 / self.len().max(1) as f64
    }
}
