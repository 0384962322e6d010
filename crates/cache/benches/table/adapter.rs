//! A comparison of Rejoin behind rustls's traits with the session cache that comes with rustls.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rejoin_cache::{Cache, Capacity, Hints, Settings};
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

use crate::race::{median, timed};
use crate::workload::{Id, VALUE_BYTES, new_id};

/// The store as a server would get it.
fn rejoin(sessions: u64) -> Arc<dyn StoresServerSessions> {
    // The store adds the time of the client's last full handshake.
    let block_bytes = (VALUE_BYTES + size_of::<u32>()) as u32;
    let settings = Settings { block_bytes, ..Settings::new(Capacity::Sessions(sessions)) };
    let cache = Cache::new(&settings, [5; 16], rejoin_rustls::now_ms()).expect("valid settings");
    rejoin_rustls::ServerSessions::new(Arc::new(cache), DAY_MS, Hints::Never)
}

const DAY_MS: u64 = 86_400_000;

/// A full store, and the ids in it.
struct Stocked {
    store: Arc<dyn StoresServerSessions>,
    random: ChaCha8Rng,
    ids: Vec<Id>,
}

impl Stocked {
    fn new(store: Arc<dyn StoresServerSessions>, sessions: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(0);
        let ids: Vec<Id> = (0..sessions).map(|_| new_id(&mut random)).collect();
        for id in &ids {
            store.put(id.to_vec(), vec![7; VALUE_BYTES]);
        }
        Self { store, random, ids }
    }

    /// Returns the nanoseconds in which one client uses up its session and gets another.
    fn resume(&mut self, times: usize) -> f64 {
        let mut found = 0;
        let exchanged: Vec<(Id, Id)> = (0..times)
            .map(|_| {
                let at = self.random.random_range(0..self.ids.len());
                let new = new_id(&mut self.random);
                (std::mem::replace(&mut self.ids[at], new), new)
            })
            .collect();
        let (ns, ()) = timed(|| {
            for (old, new) in &exchanged {
                found += usize::from(self.store.take(old).is_some());
                self.store.put(new.to_vec(), vec![7; VALUE_BYTES]);
            }
        });
        // The ids fill shards unevenly, so a shard may have refused or evicted a few of them.
        assert!(found * 10 > times * 9, "{found} of {times} sessions were there");
        ns / times as f64
    }
}

/// Measures how many times faster Rejoin's take and put are.
pub(crate) fn speedup(sessions: u64, rounds: usize) -> f64 {
    let mut theirs = Stocked::new(ServerSessionMemoryCache::new(sessions as usize), sessions);
    let mut ours = Stocked::new(rejoin(sessions), sessions);
    let pair = |_| theirs.resume(50) / ours.resume(20_000);
    median((0..rounds).map(pair).collect())
}
