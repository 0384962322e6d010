//! A cache that is looked at for as long as anybody likes: it may be removed meanwhile, and made
//! anew under its name.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rejoin_cache::Occupancy;
use rejoin_store::{Error, Store, now_ms};
use serde_json::Value;

use super::reading::Reading;
use crate::stats::history::{Handshakes, History};
use crate::stats::serve::Source;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Watched {
    folder: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    store: Store,
    history: History,
    /// Since it was removed: why the one of its name that is there now is not looked at instead.
    problem: Option<String>,
    counted: Counted,
}

/// When the sessions were last counted by return time, and how long it took.
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

    /// Takes the cache that has the name of the one removed, if there is one.
    fn reopen(&self) {
        let name = self.seen().store.name().clone();
        // It may take as long as another is making it: without the lock.
        let opened = Store::open(&self.folder, &name, None);
        let mut seen = self.seen();
        match opened {
            Ok(store) => *seen = Seen::new(store),
            Err(Error::NotFound { .. }) => seen.problem = None,
            Err(error) => seen.problem = Some(error.to_string()),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Whoever panicked has left counts that are a second old.
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
        let now = handshakes(&seen.store);
        seen.history.add(now);
    }

    fn json(&self) -> Value {
        let mut seen = self.seen();
        let mut record = seen.reading().json();
        record["history"] = seen.history.json();
        record["problem"] = seen.problem.as_deref().into();
        record
    }

    fn metrics(&self) -> String {
        self.seen().reading().metrics()
    }
}

impl Seen {
    fn new(store: Store) -> Self {
        let history = History::after(handshakes(&store));
        let counted = Counted::of(&store);
        Self { store, history, problem: None, counted }
    }

    fn is_removed(&self) -> bool {
        !self.store.facts().is_named
    }

    fn reading(&mut self) -> Reading {
        if self.counted.is_due() {
            self.counted = Counted::of(&self.store);
        }
        Reading::with(&self.store, self.counted.occupancy)
    }
}

fn handshakes(store: &Store) -> Handshakes {
    let counters = store.counters();
    Handshakes { full: counters.full_handshakes, resumed: counters.resumed_handshakes }
}

impl Counted {
    /// However often it is asked for, counting takes one part in so many of a processor.
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
