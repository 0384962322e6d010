//! The cost of storing a session in a full cache: the table of patch 003 of the JDK (8259886).
//!
//! The patch took JSSE's cache from a search of all its entries to one step. Its table is of two sizes, with a
//! lifetime of a day and with none; here it is of our cache, OpenSSL's own, that of rustls, and JSSE's on each JDK, in
//! one run. Every cache is full before the first insertion that counts, and holds sessions that are all alive.
//! Each cache does all that it must do with a session; ids, sessions and copies are made before. Native caches take turns, round by round, so that a disturbance slows them all;
//! figures are of the thread's CPU time, medians over rounds. JSSE's are JMH's, which are of the clock.
//!
//! A hundred sessions come in a second of the caches' own time, whose clients say that they are back in ten, and are
//! not. Our cache by hints alone stores each in the place of one that is overdue (Algorithm 1). As it is by default it
//! learns that no client returns, and a small one then refuses nearly all: the outcome says how many it stored.
//!
//! Not measured: hits, and threads (`make bench`).

mod jsse;
mod native;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use rejoin_report::median;
use serde::Serialize;

use crate::Error;
use crate::experiment::{Ended, Step, Turns, crossed};
pub use jsse::{Jmh, installed};
use native::CONTENDERS;

/// The settings of the measurement.
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
    /// The largest number of entries, which take 5 GB.
    pub const MOST_ENTRIES: u32 = 4_000_000;
}

/// One cache of one size, with one lifetime.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The cache's name.
    pub cache: String,
    /// False if the machine did not keep up.
    pub kept_up: bool,
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
        let kept_up = true;
        Self { cache, kept_up, entries, lifetime_s, ns, least_ns, most_ns, stored_percent }
    }
}

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How the experiment ended: native caches count by size and lifetime, JSSE's by Java runtime.
    #[serde(flatten)]
    pub ended: Ended,
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
    began: impl FnMut(&Step),
) -> Result<Outcome, Error> {
    if settings.entries.iter().any(|n| !(1..=Settings::MOST_ENTRIES).contains(n)) {
        return Err(Error::Settings("entries: give numbers from 1 to 4000000"));
    }
    let cells = crossed(&settings.entries, &settings.lifetimes_s);
    let more = u64::from(settings.rounds) * (LEAD_IN + ROUND) as u64;
    if !cells.iter().all(|(entries, lifetime_s)| native::outlives(*lifetime_s, *entries, more)) {
        let what = "sessions would end while they are in a full cache: give a lifetime of an hour and \
                    15 ms for each entry, or 0";
        return Err(Error::Settings(what));
    }
    let javas: &[PathBuf] = settings.jmh.as_ref().map_or(&[], |jmh| &jmh.javas);
    // Now, and not behind minutes of work.
    settings.jmh.iter().try_for_each(Jmh::check)?;
    let left_out = match &settings.jmh {
        None => Some(jsse::LEFT_OUT.to_owned()),
        Some(_) => javas.is_empty().then(|| jsse::NO_JAVA.to_owned()),
    };
    let native = cells.into_iter().map(Cell::Native);
    let cells = native.chain(javas.iter().map(|java| Cell::Java(java)));
    let mut turns = Turns::new(cells.clone().count());
    let mut rows = turns.run(cells.clone(), stop, began, |cell, _| match (cell, &settings.jmh) {
        (Cell::Java(java), Some(jmh)) => {
            jmh.rows(java, &settings.entries, &settings.lifetimes_s).map(Some)
        }
        (Cell::Native(cell), _) => native_rows(cell, settings.rounds, stop),
        (Cell::Java(_), None) => Ok(None),
    });
    let ended = turns.ended(rows.concat().is_empty())?;
    // The first failure ends the loop: rows are of the first cells.
    for (rows, cell) in rows.iter_mut().zip(cells) {
        let kept_up = !ended.doubts(cell);
        rows.iter_mut().for_each(|row| row.kept_up = kept_up);
    }
    Ok(Outcome { ended, left_out, rows: rows.concat() })
}

/// A step of the measurement.
#[derive(Clone, Copy)]
enum Cell<'a> {
    /// All native caches, with so many entries and a lifetime.
    Native((u32, u32)),
    /// JSSE's cache on a Java runtime.
    Java(&'a Path),
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native((entries, lifetime_s)) => {
                write!(f, "{entries} entries, lifetime {lifetime_s} s")
            }
            Self::Java(java) => write!(f, "{}", java.display()),
        }
    }
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

    /// Cells of one name would be judged as rounds of one, by their median.
    #[test]
    fn each_size_and_lifetime_has_a_name_of_its_own() {
        let cells = crossed(&[20_480, 204_800], &[86_400, 0]).into_iter().map(Cell::Native);
        let names: Vec<String> = cells.map(|cell| cell.to_string()).collect();
        assert_eq!(names[0], "20480 entries, lifetime 86400 s");
        assert_eq!(rejoin_report::distinct(names.clone()), names);
    }

    #[test]
    fn told_to_stop_it_says_what_there_is() {
        let settings =
            Settings { entries: vec![1_000], lifetimes_s: vec![0], rounds: 1, jmh: None };
        let outcome = measure(&settings, &AtomicBool::new(true), |_| {}).expect("measured");
        assert!(!outcome.ended.complete && outcome.rows.is_empty() && outcome.left_out.is_some());
    }
}
