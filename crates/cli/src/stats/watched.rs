//! A cache that is looked at for as long as anybody likes: it may be removed meanwhile, and made
//! anew under its name.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rejoin_cache::{Counters, Occupancy};
use rejoin_store::{Error, Store, now_ms};
use serde_json::{Value, json};

use super::reading::Reading;

/// See the module's documentation. Any number of threads ask; one of them takes samples.
#[derive(Debug)]
pub(super) struct Watched {
    folder: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    store: Store,
    before: Counters,
    /// The last seconds', oldest first.
    history: VecDeque<Second>,
    /// Since it was removed: why the one of its name that is there now is not looked at instead.
    problem: Option<String>,
    counted: Counted,
}

/// What happened in one second.
#[derive(Debug, Clone, Copy)]
struct Second {
    handshakes: u64,
    resumed: u64,
}

/// When the sessions were last counted by return time, and how long it took.
#[derive(Debug)]
struct Counted {
    occupancy: Occupancy,
    at: Instant,
    took: Duration,
}

impl Watched {
    /// Seconds of which it is known what happened.
    pub(super) const HISTORY_S: usize = 300;

    pub(super) fn new(folder: PathBuf, store: Store) -> Self {
        Self { folder, seen: Mutex::new(Seen::new(store)) }
    }

    /// Looks at what the last second brought. To be called every second.
    pub(super) fn sample(&self) {
        if self.seen().is_removed() {
            self.reopen();
        }
        self.seen().sample();
    }

    /// As one object.
    pub(super) fn json(&self) -> Value {
        let mut seen = self.seen();
        let mut record = seen.reading().json();
        let each = |of: fn(&Second) -> u64| seen.history.iter().map(of).collect::<Vec<_>>();
        record["history"] = json!({
            "most_s": Self::HISTORY_S,
            "handshakes": each(|second| second.handshakes),
            "resumed": each(|second| second.resumed),
        });
        record["problem"] = seen.problem.as_deref().into();
        record
    }

    /// As Prometheus reads it.
    pub(super) fn metrics(&self) -> String {
        self.seen().reading().metrics()
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

impl Seen {
    fn new(store: Store) -> Self {
        let before = store.counters();
        let counted = Counted::of(&store);
        Self { store, before, history: VecDeque::new(), problem: None, counted }
    }

    fn is_removed(&self) -> bool {
        !self.store.facts().is_named
    }

    fn sample(&mut self) {
        let (before, now) = (self.before, self.store.counters());
        let since = |count: fn(&Counters) -> u64| count(&now).saturating_sub(count(&before));
        if self.history.len() == Watched::HISTORY_S {
            self.history.pop_front();
        }
        let resumed = since(|counters| counters.resumed_handshakes);
        let handshakes = resumed + since(|counters| counters.full_handshakes);
        self.history.push_back(Second { handshakes, resumed });
        self.before = now;
    }

    fn reading(&mut self) -> Reading {
        if self.counted.is_due() {
            self.counted = Counted::of(&self.store);
        }
        Reading::with(&self.store, self.counted.occupancy)
    }
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
