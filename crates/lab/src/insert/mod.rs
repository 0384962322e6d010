//! What it takes to store a session where there is no room: the table of patch 003 of the JDK (8259886).
//!
//! The patch took JSSE's cache from a search of all its entries to one step. Its table is of two sizes, with a
//! lifetime of a day and with none; here it is of our cache, OpenSSL's own, that of rustls, and JSSE's on each JDK, in
//! one run. Every cache is full before the first insertion that counts, and holds sessions that are all alive.
//! Whatever a cache has to do with a session that it is given, it does; ids, sessions and copies are made
//! before. Native caches take turns, round by round, so that whatever slows the machine down slows them all;
//! figures are of the thread's CPU time, medians over rounds. JSSE's are JMH's, which are of the clock.
//!
//! A hundred sessions come in a second of the caches' own time, whose clients say that they are back in ten, and are
//! not. Our cache by hints alone stores each in the place of one that is overdue (Algorithm 1). As it is by default it
//! learns that nobody comes back, and a small one then refuses nearly all: how many it stored is said.
//!
//! What is not here: hits, and threads (`make bench`).

mod jsse;
mod native;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::median::median;
use crate::{Error, Step};
pub use jsse::{Jmh, installed};
use native::CONTENDERS;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Sizes of the caches, in turn: 1 to [`Settings::MOST_ENTRIES`].
    pub entries: Vec<u32>,
    /// Lifetimes in turn, in seconds; 0: sessions do not end.
    pub lifetimes_s: Vec<u32>,
    /// Rounds of each cache.
    pub rounds: u32,
    /// How JSSE's are measured; `None` leaves them out.
    pub jmh: Option<Jmh>,
}

impl Settings {
    /// As many take 5 GB.
    pub const MOST_ENTRIES: u32 = 4_000_000;
}

/// One cache of one size, with one lifetime.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Whose it is.
    pub cache: String,
    /// Sessions in it.
    pub entries: u32,
    /// How long they live, in seconds; 0: for ever.
    pub lifetime_s: u32,
    /// Nanoseconds of an insertion, the median.
    pub ns: f64,
    /// The least of a round.
    pub least_ns: f64,
    /// The most of a round.
    pub most_ns: f64,
    /// Percent of the sessions that it stored; the others it refused, since theirs are the latest returns. JSSE, rustls
    /// and OpenSSL store all.
    pub stored_percent: f64,
}

impl Row {
    fn new(cache: String, (entries, lifetime_s): (u32, u32), rounds_ns: Vec<f64>) -> Self {
        let least_ns = rounds_ns.iter().copied().fold(f64::INFINITY, f64::min);
        let most_ns = rounds_ns.iter().copied().fold(0.0, f64::max);
        let (ns, stored_percent) = (median(rounds_ns), 100.0);
        Self { cache, entries, lifetime_s, ns, least_ns, most_ns, stored_percent }
    }
}

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// Whether all rows are here. If not, these are the rows that were done.
    pub complete: bool,
    /// Why not, if a Java runtime failed.
    pub failure: Option<String>,
    /// Why JSSE is not among them, and what would help.
    pub left_out: Option<String>,
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
}

/// The patch's own figures, in nanoseconds: entries, lifetime in seconds, before and after.
pub const PATCH_003_NS: [(u32, u32, f64, f64); 4] = [
    (20_480, 86_400, 83_653.0, 146.0),
    (20_480, 0, 107.0, 108.0),
    (204_800, 86_400, 2_057_781.0, 150.0),
    (204_800, 0, 108.0, 106.0),
];

/// Insertions of a round.
const ROUND: usize = 2_000;
/// Before those that are timed, in each round: they bring back into the processor's caches what the others' turns
/// drove out.
const LEAD_IN: usize = 500;

/// Measures one combination after the other until `stop` is set. `began` is told of each, and how many there are.
///
/// # Errors
/// Settings that cannot be; OpenSSL's; a cache that does not keep what it was given; a Java runtime that cannot be
/// started. If it fails later, what was measured by then is the outcome.
pub fn measure(
    settings: &Settings,
    stop: &AtomicBool,
    mut began: impl FnMut(&Step),
) -> Result<Outcome, Error> {
    if settings.entries.iter().any(|n| !(1..=Settings::MOST_ENTRIES).contains(n)) {
        return Err(Error::Settings("entries: give numbers from 1 to 4000000"));
    }
    let cells: Vec<(u32, u32)> = settings
        .entries
        .iter()
        .flat_map(|entries| settings.lifetimes_s.iter().map(|lifetime| (*entries, *lifetime)))
        .collect();
    let more = u64::from(settings.rounds) * (LEAD_IN + ROUND) as u64;
    if !cells.iter().all(|(entries, lifetime_s)| native::outlives(*lifetime_s, *entries, more)) {
        let what = "sessions would end while they are in a full cache: give a lifetime of an hour and \
                    15 ms for each entry, or 0";
        return Err(Error::Settings(what));
    }
    let javas: &[PathBuf] = settings.jmh.as_ref().map_or(&[], |jmh| &jmh.javas);
    // Now, and not behind minutes of work.
    settings.jmh.iter().try_for_each(Jmh::check)?;
    let of = cells.len() + javas.len();
    let left_out = match &settings.jmh {
        None => Some(jsse::LEFT_OUT.to_owned()),
        Some(_) => javas.is_empty().then(|| jsse::NO_JAVA.to_owned()),
    };
    let mut outcome = Outcome { complete: false, failure: None, left_out, rows: Vec::new() };
    for (done, cell) in cells.iter().enumerate() {
        began(&Step { done, of, what: format!("{} entries", cell.0) });
        match native_rows(*cell, settings.rounds, stop)? {
            Some(rows) => outcome.rows.extend(rows),
            None => return Ok(outcome),
        }
    }
    for (at, java) in javas.iter().enumerate() {
        began(&Step { done: cells.len() + at, of, what: java.display().to_string() });
        let Some(jmh) = settings.jmh.as_ref().filter(|_| !stop.load(Ordering::Relaxed)) else {
            return Ok(outcome);
        };
        match jmh.rows(java, &settings.entries, &settings.lifetimes_s) {
            Ok(rows) => outcome.rows.extend(rows),
            // Ctrl-C is told to the whole group of processes.
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(outcome),
            Err(error) => {
                outcome.failure = Some(error.to_string());
                return Ok(outcome);
            }
        }
    }
    outcome.complete = true;
    Ok(outcome)
}

/// `None` if it was stopped.
fn native_rows(
    cell: (u32, u32),
    rounds: u32,
    stop: &AtomicBool,
) -> Result<Option<Vec<Row>>, Error> {
    let mut lanes = Vec::new();
    for contender in CONTENDERS {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        lanes.push((native::Filled::new(contender, cell)?, Vec::new()));
    }
    for _ in 0..rounds {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        for (filled, rounds_ns) in &mut lanes {
            filled.round(LEAD_IN)?;
            rounds_ns.push(filled.round(ROUND)?);
        }
    }
    let rows = lanes.into_iter().map(|(filled, rounds_ns)| {
        let stored_percent = filled.stored_percent()?;
        Ok(Row { stored_percent, ..Row::new(filled.name(), cell, rounds_ns) })
    });
    rows.collect::<Result<_, Error>>().map(Some)
}

/// A cache that does not do what it is measured for.
fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let what = "a full cache cannot be measured here; try other --entries";
    Error::System { what, source: io::Error::other(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cache_takes_what_it_is_given_and_drops_another() {
        for cell in [(3_000, 86_400), (3_000, 0)] {
            let rows = native_rows(cell, 3, &AtomicBool::new(false));
            let rows = rows.expect("measured").expect("not stopped");
            assert_eq!(rows.len(), CONTENDERS.len());
            assert!(rows.iter().all(|row| row.ns > 1.0 && row.least_ns <= row.ns), "{rows:?}");
            assert!(rows[1..].iter().all(|row| row.stored_percent == 100.0), "{rows:?}");
        }
    }

    #[test]
    fn sessions_that_would_end_in_a_full_cache_are_refused() {
        let settings = |lifetime_s| Settings {
            entries: vec![1_000_000],
            lifetimes_s: vec![lifetime_s],
            rounds: 1,
            jmh: None,
        };
        let stopped = AtomicBool::new(true);
        for (lifetime_s, is_possible) in
            [(7_200, false), (15_025, false), (15_026, true), (0, true)]
        {
            let outcome = measure(&settings(lifetime_s), &stopped, |_| {});
            assert_eq!(outcome.is_ok(), is_possible, "{lifetime_s}");
        }
    }

    #[test]
    fn told_to_stop_it_says_what_there_is() {
        let settings =
            Settings { entries: vec![1_000], lifetimes_s: vec![0], rounds: 1, jmh: None };
        let outcome = measure(&settings, &AtomicBool::new(true), |_| {}).expect("measured");
        assert!(!outcome.complete && outcome.rows.is_empty() && outcome.left_out.is_some());
    }
}
