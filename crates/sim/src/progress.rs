//! The progress of a simulation, and its stop from another thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The progress of a simulation, shared by the threads that run it and those that watch it.
#[derive(Debug, Default)]
pub struct Progress {
    stop: AtomicBool,
    /// The work done, in parts of a pass for each cell, or in those of other work.
    done: AtomicU64,
    total: AtomicU64,
}

/// The number of parts in which a pass is counted.
const PARTS: f64 = 1e6;

impl Progress {
    /// Ends the simulation soon; it keeps what is finished.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns true if it was told to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the part of the simulation that is done: 0 to 1.
    pub fn part_over(&self) -> f64 {
        let total = self.total.load(Ordering::Relaxed).max(1);
        self.done.load(Ordering::Relaxed) as f64 / total as f64
    }

    /// Begins work that prepares a simulation, of so many parts.
    pub fn prepare(&self, parts: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(parts, Ordering::Relaxed);
    }

    /// Counts parts of such work as done.
    pub fn advance(&self, parts: u64) {
        self.done.fetch_add(parts, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self, cells: usize) {
        self.prepare(cells as u64 * PARTS as u64);
    }

    /// Starts to follow one pass of so many cells.
    pub(crate) fn pass(&self, cells: usize) -> PassProgress<'_> {
        PassProgress { progress: self, cells: cells as u64, done: 0 }
    }
}

/// The progress of one pass within the whole.
#[derive(Debug)]
pub(crate) struct PassProgress<'a> {
    progress: &'a Progress,
    cells: u64,
    done: u64,
}

impl PassProgress<'_> {
    /// Sets the part of the pass that is done. It never goes back.
    pub(crate) fn set(&mut self, part: f64) {
        let done = (part.clamp(0.0, 1.0) * PARTS) as u64;
        let more = done.saturating_sub(self.done);
        self.done += more;
        self.progress.done.fetch_add(more * self.cells, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_before_a_simulation_is_counted_apart() {
        let progress = Progress::default();
        progress.prepare(400);
        progress.advance(100);
        assert_eq!(progress.part_over(), 0.25);
        progress.begin(2);
        assert_eq!(progress.part_over(), 0.0);
        progress.pass(1).set(0.5);
        assert_eq!(progress.part_over(), 0.25);
    }
}
