//! Caches of other crates, made as their documentation says and with their own hash function.

use std::num::NonZeroUsize;
use std::sync::Mutex;

use schnellru::{ByLength, LruMap};

use super::{Peer, locked};
use crate::workload::{Arrival, Id, Value};

pub(crate) fn lru(sessions: u64) -> Box<dyn Peer> {
    let capacity = NonZeroUsize::new(sessions as usize).expect("a cache of sessions");
    Box::new(Mutex::new(lru::LruCache::<Id, Value>::new(capacity)))
}

impl Peer for Mutex<lru::LruCache<Id, Value>> {
    fn arrive(&mut self, arrival: &Arrival, value: &mut Value) -> bool {
        let mut cache = locked(self);
        cache.get(&arrival.id).map(|found| *value = *found).is_some()
    }

    fn insert(&mut self, arrival: &Arrival, value: &Value) {
        let mut cache = locked(self);
        cache.put(arrival.id, *value);
    }
}

pub(crate) fn schnellru(sessions: u64) -> Box<dyn Peer> {
    Box::new(Mutex::new(LruMap::<Id, Value>::new(ByLength::new(sessions as u32))))
}

impl Peer for Mutex<LruMap<Id, Value>> {
    fn arrive(&mut self, arrival: &Arrival, value: &mut Value) -> bool {
        let mut cache = locked(self);
        cache.get(&arrival.id).map(|found| *value = *found).is_some()
    }

    fn insert(&mut self, arrival: &Arrival, value: &Value) {
        let mut cache = locked(self);
        cache.insert(arrival.id, *value);
    }
}

pub(crate) fn quick_cache(sessions: u64) -> Box<dyn Peer> {
    Box::new(quick_cache::sync::Cache::<Id, Value>::new(sessions as usize))
}

impl Peer for quick_cache::sync::Cache<Id, Value> {
    fn arrive(&mut self, arrival: &Arrival, value: &mut Value) -> bool {
        self.get(&arrival.id).map(|found| *value = found).is_some()
    }

    fn insert(&mut self, arrival: &Arrival, value: &Value) {
        Self::insert(self, arrival.id, *value);
    }
}

pub(crate) fn moka(sessions: u64) -> Box<dyn Peer> {
    Box::new(moka::sync::Cache::<Id, Value>::new(sessions))
}

impl Peer for moka::sync::Cache<Id, Value> {
    fn arrive(&mut self, arrival: &Arrival, value: &mut Value) -> bool {
        self.get(&arrival.id).map(|found| *value = found).is_some()
    }

    fn insert(&mut self, arrival: &Arrival, value: &Value) {
        Self::insert(self, arrival.id, *value);
    }

    fn settle(&mut self) {
        self.run_pending_tasks();
    }
}
