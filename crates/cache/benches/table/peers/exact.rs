//! Algorithm 1 exactly as in paper 000 (read with "else"): a hash map for the sessions, and an
//! ordered index of return times. With a skip list for the index it is the structure that the paper
//! measured; with a B-tree it is the usual choice of a Rust program.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use crossbeam_skiplist::SkipMap;
use rejoin_cache::Settings;

use super::{Peer, locked};
use crate::workload::{Arrival, Id, Value};

/// A return time, and the client expected then.
type Due = (u64, Id);

/// An ordered set of return times.
trait Index: Default {
    fn add(&mut self, due: Due);
    fn remove(&mut self, due: &Due);
    fn earliest(&self) -> Option<Due>;
    fn latest(&self) -> Option<Due>;
}

impl Index for BTreeMap<Due, ()> {
    fn add(&mut self, due: Due) {
        self.insert(due, ());
    }

    fn remove(&mut self, due: &Due) {
        Self::remove(self, due);
    }

    fn earliest(&self) -> Option<Due> {
        self.first_key_value().map(|(due, ())| *due)
    }

    fn latest(&self) -> Option<Due> {
        self.last_key_value().map(|(due, ())| *due)
    }
}

impl Index for SkipMap<Due, ()> {
    fn add(&mut self, due: Due) {
        self.insert(due, ());
    }

    fn remove(&mut self, due: &Due) {
        Self::remove(self, due);
    }

    fn earliest(&self) -> Option<Due> {
        self.front().map(|entry| *entry.key())
    }

    fn latest(&self) -> Option<Due> {
        self.back().map(|entry| *entry.key())
    }
}

struct Session {
    returns_ms: u64,
    value: Value,
}

struct Sessions<I> {
    capacity: usize,
    sessions: HashMap<Id, Session>,
    index: I,
}

pub(crate) fn btree(sessions: u64) -> Box<dyn Peer> {
    exact::<BTreeMap<Due, ()>>(sessions)
}

pub(crate) fn skip_list(sessions: u64) -> Box<dyn Peer> {
    exact::<SkipMap<Due, ()>>(sessions)
}

fn exact<I: Index + 'static>(sessions: u64) -> Box<dyn Peer> {
    let capacity = sessions as usize;
    let sessions = HashMap::with_capacity(capacity);
    Box::new(Mutex::new(Sessions { capacity, sessions, index: I::default() }))
}

impl<I: Index> Sessions<I> {
    fn arrive(&mut self, arrival: &Arrival, value: &mut Value) -> bool {
        let Some(session) = self.sessions.get_mut(&arrival.id) else {
            return false;
        };
        *value = session.value;
        let returns_ms = arrival.at_ms + u64::from(arrival.interval_ms);
        let before_ms = std::mem::replace(&mut session.returns_ms, returns_ms);
        self.index.remove(&(before_ms, arrival.id));
        self.index.add((returns_ms, arrival.id));
        true
    }

    fn insert(&mut self, arrival: &Arrival, value: &Value) {
        let returns_ms = arrival.at_ms + u64::from(arrival.interval_ms);
        if self.sessions.len() >= self.capacity {
            let Some(victim) = self.victim(arrival.at_ms, returns_ms) else {
                return;
            };
            self.index.remove(&victim);
            self.sessions.remove(&victim.1);
        }
        self.sessions.insert(arrival.id, Session { returns_ms, value: *value });
        self.index.add((returns_ms, arrival.id));
    }

    fn victim(&self, now_ms: u64, returns_ms: u64) -> Option<Due> {
        let overdue = |due: &Due| due.0 + Settings::GRACE_MS < now_ms;
        let latest = || self.index.latest().filter(|due| returns_ms < due.0);
        self.index.earliest().filter(overdue).or_else(latest)
    }
}

impl<I: Index> Peer for Mutex<Sessions<I>> {
    fn arrive(&mut self, arrival: &Arrival, value: &mut Value) -> bool {
        locked(self).arrive(arrival, value)
    }

    fn insert(&mut self, arrival: &Arrival, value: &Value) {
        locked(self).insert(arrival, value);
    }
}
