//! Rejoin's cache, called as its users call it.

use std::hint::black_box;

use rejoin_cache::{Cache, Capacity, ContextTag, NewSession, Policy, SecretBytes};
use rejoin_cache::{SessionId, Settings};

use super::Peer;
use crate::workload::{Arrival, START_MS, VALUE_BYTES, Value};

const HASH_KEY: [u8; 16] = *b"not random here!";
const CONTEXT: ContextTag = ContextTag(1);
/// The lifetime of a session: two hours, the default of many servers.
const LIFETIME_MS: u64 = 7_200_000;

struct Ours {
    cache: Cache,
    out: SecretBytes,
    hinted: bool,
}

pub(crate) fn predictive(sessions: u64) -> Box<dyn Peer> {
    ours(sessions, Policy::Predictive, false)
}

pub(crate) fn hinted(sessions: u64) -> Box<dyn Peer> {
    ours(sessions, Policy::Predictive, true)
}

pub(crate) fn lru(sessions: u64) -> Box<dyn Peer> {
    ours(sessions, Policy::Lru, false)
}

fn ours(sessions: u64, policy: Policy, hinted: bool) -> Box<dyn Peer> {
    Box::new(Ours { cache: cache(sessions, policy, None), out: SecretBytes::default(), hinted })
}

pub(crate) fn cache(sessions: u64, policy: Policy, shards: Option<u32>) -> Cache {
    let mut settings = Settings::new(Capacity::Sessions(sessions));
    settings.policy = policy;
    settings.shards = shards;
    settings.block_bytes = VALUE_BYTES as u32;
    Cache::new(&settings, HASH_KEY, START_MS).expect("the settings are in range")
}

fn session_id(arrival: &Arrival) -> SessionId {
    SessionId::new(&arrival.id).expect("32 bytes are allowed")
}

/// Looks up a returning client. Returns true if its session was there.
pub(crate) fn arrive(cache: &Cache, arrival: &Arrival, out: &mut SecretBytes) -> bool {
    let found = cache.get(arrival.at_ms, &session_id(arrival), CONTEXT, out).found;
    black_box(out);
    found
}

/// Stores a session that expires at `expires_ms`.
pub(crate) fn store(cache: &Cache, arrival: &Arrival, value: &[u8], expires_ms: u64) {
    let new = NewSession {
        hint_ms: Some(u64::from(arrival.interval_ms)),
        ..NewSession::new(session_id(arrival), value, expires_ms, CONTEXT)
    };
    // A refusal is the policy's decision, and its cost counts.
    let _ = black_box(cache.insert(arrival.at_ms, &new));
}

impl Peer for Ours {
    fn arrive(&mut self, arrival: &Arrival, _value: &mut Value) -> bool {
        let found = arrive(&self.cache, arrival, &mut self.out);
        if found && self.hinted {
            let interval_ms = u64::from(arrival.interval_ms);
            self.cache.hint(arrival.at_ms, &session_id(arrival), interval_ms);
        }
        found
    }

    fn insert(&mut self, arrival: &Arrival, value: &Value) {
        store(&self.cache, arrival, value, arrival.at_ms + LIFETIME_MS);
    }

    fn exact_bytes(&self) -> Option<u64> {
        Some(self.cache.capacity_bytes())
    }
}
