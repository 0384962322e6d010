//! A cache under observation. It may be removed or cut short meanwhile, and created again under its name.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rejoin_cache::{Counters, Occupancy};
use rejoin_serve::metrics::Meters;
use rejoin_store::{Error, Store, now_ms};
use serde_json::Value;

use super::reading::Reading;
use crate::stats::history::{Handshakes, History};
use crate::stats::serve::Source;
use crate::watch::Watch;

/// A cache under observation, which is opened again if it is replaced.
#[derive(Debug)]
pub(super) struct Watched {
    folder: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    store: Store,
    watch: Watch,
    history: History,
    /// The reason why the cache of the same name cannot be opened, once this one is removed or cut short.
    problem: Option<String>,
    counted: Counted,
    /// The caches of the name before this one, for as long as servers may use them.
    earlier: VecDeque<Earlier>,
}

/// A cache that another one has replaced. A server that has it goes on with it and counts there: that is seen without the
/// right to look into its process.
#[derive(Debug)]
struct Earlier {
    store: Store,
    counters: Counters,
    /// The time when it was replaced, or when something was counted there last.
    since: Instant,
    is_in_use: bool,
}

/// The last count of sessions by return time, when it was made, and how long it took.
#[derive(Debug)]
struct Counted {
    occupancy: Occupancy,
    at: Instant,
    took: Duration,
}

impl Watched {
    pub(super) fn new(folder: PathBuf, store: Store) -> Self {
        Self { folder, seen: Mutex::new(Seen::new(store)) }
    }

    /// Opens the cache that has replaced the one that was lost, if there is one.
    fn reopen(&self) {
        let name = self.seen().store.name().clone();
        // Opening waits while another process creates the cache, so the lock is not held.
        let opened = Store::open(&self.folder, &name, None);
        let mut seen = self.seen();
        match opened {
            Ok(store) => seen.replace(store),
            Err(Error::NotFound { .. }) => seen.problem = None,
            Err(error) => seen.problem = Some(error.to_string()),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // After a panic the counts are at most a second old.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Watched {
    const SECTIONS: &str = include_str!("../page/cache.html");
    const SCRIPT: &str = include_str!("../page/cache.js");

    fn name(&self) -> String {
        self.seen().store.name().to_string()
    }

    fn sample(&self) {
        if self.seen().is_removed() {
            self.reopen();
        }
        let mut seen = self.seen();
        seen.earlier.retain_mut(Earlier::is_watched_on);
        let now = handshakes(&seen.store);
        seen.history.add(now);
    }

    fn json(&self) -> Value {
        let mut seen = self.seen();
        let mut record = seen.reading().json();
        record["history"] = seen.history.json();
        record["problem"] = seen.problem.as_deref().into();
        record["replaced_in_use"] = seen.is_earlier_in_use().into();
        record
    }

    fn metrics(&self) -> Meters {
        let mut seen = self.seen();
        let mut meters = seen.reading().metrics();
        let help = "1 while servers go on with an earlier cache of the name, which was removed or replaced";
        meters.gauge("cache_replaced_in_use", help, u64::from(seen.is_earlier_in_use()));
        meters
    }
}

impl Seen {
    fn new(store: Store) -> Self {
        let watch = Watch::over(&store);
        let history = History::after(handshakes(&store));
        let counted = Counted::of(&store);
        Self { store, watch, history, problem: None, counted, earlier: VecDeque::new() }
    }

    /// Goes on with the cache that has replaced this one, and keeps an eye on this one.
    fn replace(&mut self, store: Store) {
        let mut earlier = std::mem::take(&mut self.earlier);
        let before = std::mem::replace(self, Self::new(store));
        if earlier.len() == Earlier::MOST {
            earlier.pop_front();
        }
        earlier.push_back(Earlier::new(before.store));
        self.earlier = earlier;
    }

    fn is_earlier_in_use(&self) -> bool {
        self.earlier.iter().any(|earlier| earlier.is_in_use)
    }

    fn is_removed(&self) -> bool {
        self.watch.lost(&self.store).is_some()
    }

    fn reading(&mut self) -> Reading {
        if self.counted.is_due() {
            self.counted = Counted::of(&self.store);
        }
        let mut reading = Reading::with(&self.store, self.counted.occupancy);
        // No process can open it, whatever its name is.
        reading.facts.is_named &= !self.is_removed();
        reading
    }
}

impl Earlier {
    /// The most caches that are watched besides the last one. Each keeps its memory.
    const MOST: usize = 4;
    /// The time after which one where nothing is counted is in use no longer, and is let go.
    const STILL_FOR: Duration = Duration::from_secs(600);

    fn new(store: Store) -> Self {
        let counters = counters(&store);
        Self { store, counters, since: Instant::now(), is_in_use: false }
    }

    /// Looks whether something was counted there since. Returns false if nothing was for long.
    fn is_watched_on(&mut self) -> bool {
        let now = counters(&self.store);
        if now != self.counters {
            (self.counters, self.since, self.is_in_use) = (now, Instant::now(), true);
        }
        self.since.elapsed() < Self::STILL_FOR
    }
}

/// Returns what only servers change.
fn counters(store: &Store) -> Counters {
    // Sessions go when a cache is removed.
    Counters { sessions: 0, ..store.counters() }
}

fn handshakes(store: &Store) -> Handshakes {
    let counters = store.counters();
    Handshakes { full: counters.full_handshakes, resumed: counters.resumed_handshakes }
}

impl Counted {
    /// The share of a processor that counting takes at most, as a divisor.
    const SPARE: u32 = 50;

    fn of(store: &Store) -> Self {
        let at = Instant::now();
        let occupancy = store.occupancy(now_ms());
        Self { occupancy, at, took: at.elapsed() }
    }

    fn is_due(&self) -> bool {
        self.at.elapsed() >= Self::SPARE * self.took
    }
}
