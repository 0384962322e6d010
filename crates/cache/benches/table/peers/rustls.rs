//! The session cache that comes with rustls, through the trait by which its server calls it.

use std::sync::Arc;

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

use super::Peer;
use crate::workload::{Arrival, Value};

pub(crate) fn memory_cache(sessions: u64) -> Box<dyn Peer> {
    Box::new(ServerSessionMemoryCache::new(sessions as usize))
}

impl Peer for Arc<ServerSessionMemoryCache> {
    fn arrive(&mut self, arrival: &Arrival, value: &mut Value) -> bool {
        self.get(&arrival.id).map(|found| value.copy_from_slice(&found)).is_some()
    }

    fn insert(&mut self, arrival: &Arrival, value: &Value) {
        self.put(arrival.id.to_vec(), value.to_vec());
    }
}
