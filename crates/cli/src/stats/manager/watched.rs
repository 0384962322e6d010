//! A manager under observation. It may end meanwhile, and be started again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rejoin_manager::client::Manager;
use rejoin_serve::metrics::Meters;
use serde_json::Value;

use super::reading::Reading;
use crate::stats::history::{Handshakes, History};
use crate::stats::serve::Source;

/// A manager under observation, which is asked once a second, whatever the number of readers.
#[derive(Debug)]
pub(super) struct Watched {
    manager: Manager,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The last snapshot.
    reading: Reading,
    history: History,
    /// The reason why there is no newer snapshot.
    problem: Option<String>,
}

impl Watched {
    pub(super) fn new(reading: Reading, manager: Manager) -> Self {
        let history = History::after(handshakes(&reading));
        Self { manager, seen: Mutex::new(Seen { reading, history, problem: None }) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // After a panic the counts are at most a second old.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Watched {
    const SECTIONS: &str = include_str!("../page/manager.html");
    const SCRIPT: &str = include_str!("../page/manager.js");

    fn name(&self) -> String {
        format!("the manager at {}", self.seen().reading.socket)
    }

    fn sample(&self) {
        // Reading may take seconds, so the lock is not held.
        let read = Reading::of(&self.manager);
        let mut seen = self.seen();
        match read {
            Ok(reading) => {
                seen.history.add(handshakes(&reading));
                seen.reading = reading;
                seen.problem = None;
            }
            Err(error) => {
                seen.history.add_nothing();
                seen.problem = Some(error.to_string());
            }
        }
    }

    fn json(&self) -> Value {
        let seen = self.seen();
        let mut record = seen.reading.json();
        record["history"] = seen.history.json();
        record["problem"] = seen.problem.as_deref().into();
        record
    }

    fn metrics(&self) -> Meters {
        let seen = self.seen();
        seen.reading.metrics(seen.problem.is_none())
    }
}

fn handshakes(reading: &Reading) -> Handshakes {
    let of = &reading.stats.handshakes;
    Handshakes { full: of.full, resumed: of.resumed }
}
