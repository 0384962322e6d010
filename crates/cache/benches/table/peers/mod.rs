//! The caches that are compared, each behind the same three calls.

mod exact;
mod libraries;
pub(crate) mod openssl;
pub(crate) mod ours;
mod rustls;

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::workload::{Arrival, VALUE_BYTES, Value};

/// A full cache of sessions.
pub(crate) trait Peer {
    /// Looks up the session that a client presents, copies it to `value`, and expects the client
    /// again. Returns true if the session was there.
    fn arrive(&mut self, arrival: &Arrival, value: &mut Value) -> bool;

    /// Stores a session, evicting another.
    fn insert(&mut self, arrival: &Arrival, value: &Value);

    /// Finishes deferred work before memory is measured.
    fn settle(&mut self) {}

    /// Returns the bound on its memory in bytes, if it has one.
    fn exact_bytes(&self) -> Option<u64> {
        None
    }

    /// Serves arrivals and returns how many of the returning clients had lost their session: these
    /// make a full handshake and get another. It is a provided method so that it is compiled once
    /// for each peer, without a dynamic call for each arrival.
    fn serve(&mut self, arrivals: &[Arrival]) -> u64 {
        let stored = black_box([7; VALUE_BYTES]);
        let mut value = [0; VALUE_BYTES];
        let mut lost = 0;
        for arrival in arrivals {
            if arrival.first {
                self.insert(arrival, &stored);
            } else if !self.arrive(arrival, &mut value) {
                lost += 1;
                self.insert(arrival, &stored);
            }
            black_box(&mut value);
        }
        lost
    }
}

/// A row of the table.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// Makes a peer for so many sessions.
    pub(crate) make: fn(u64) -> Box<dyn Peer>,
    /// A note on the row for its reader.
    pub(crate) note: Option<&'static str>,
}

/// The rows that the requirements compare.
pub(crate) const PREDICTIVE: &str = "predictive";
pub(crate) const LRU: &str = "lru, ours";
pub(crate) const BTREE: &str = "hash map + BTreeMap";
pub(crate) const SKIP_LIST: &str = "hash map + skip list";
pub(crate) const QUICK_CACHE: &str = "quick_cache";
pub(crate) const SCHNELLRU: &str = "schnellru";
/// The number of contenders, from the first, that race where clients keep no interval too.
pub(crate) const OF_MIXTURES: usize = 4;

const ONE_LOCK: Option<&str> =
    Some("not thread-safe: in one Mutex, as a server would have it; a faster hash than SipHash");
const EXACT: Option<&str> = Some("exact Algorithm 1, return times by hint, in one Mutex");

pub(crate) const CONTENDERS: [Contender; 11] = [
    Contender { name: PREDICTIVE, make: ours::predictive, note: None },
    Contender {
        name: "predictive, hinted",
        make: ours::hinted,
        note: Some("a second call, `hint`, at every return"),
    },
    Contender { name: LRU, make: ours::lru, note: None },
    Contender { name: SCHNELLRU, make: libraries::schnellru, note: ONE_LOCK },
    Contender { name: BTREE, make: exact::btree, note: EXACT },
    Contender { name: SKIP_LIST, make: exact::skip_list, note: EXACT },
    Contender { name: "lru", make: libraries::lru, note: ONE_LOCK },
    Contender {
        name: QUICK_CACHE,
        make: libraries::quick_cache,
        note: Some("a faster hash than SipHash"),
    },
    Contender { name: "moka", make: libraries::moka, note: None },
    Contender {
        name: "OpenSSL",
        make: openssl::internal,
        note: Some(
            "evicts the soonest to expire; a lookup renews nothing and copies nothing; storing \
             includes making the SSL_SESSION",
        ),
    },
    Contender {
        name: "rustls",
        make: rustls::memory_cache,
        note: Some("ServerSessionMemoryCache: first in, first out; get and put allocate"),
    },
];

/// A lock around a peer that a server's threads could not share otherwise.
fn locked<T>(peer: &Mutex<T>) -> MutexGuard<'_, T> {
    peer.lock().unwrap_or_else(PoisonError::into_inner)
}
