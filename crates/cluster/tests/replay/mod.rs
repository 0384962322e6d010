//! A trace, through the cache of a machine and through Valkey.

#![allow(dead_code, reason = "each test uses some of it")]

use std::cell::RefCell;

use rejoin_cache::{
    Cache, Capacity, ContextTag, HeapMemory, History, NewSession, Policy, Prediction, SecretBytes,
    SessionId, Settings,
};
use rejoin_cluster::sessions::{Bounds, ENTRY_OVERHEAD_BYTES, Entry, Past, returns_ms};
use rejoin_cluster::{Link, Sessions};
use rejoin_tickets::{KeyRing, Schedule};
use rejoin_trace::{Event, Population, PopulationSettings};

/// Where the traces begin, in Unix time.
pub(crate) const BEGAN_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 86_400_000;

/// The arrivals of paper 000's devices, and six sessions for ten that run.
pub(crate) fn devices(devices: u64, seconds: u64) -> (Vec<Event>, u64) {
    let population = Population::new(PopulationSettings::paper(devices)).expect("in range");
    let sessions = (population.expected_running() * 0.6) as u64;
    let events = population.arrivals(1).take_while(|event| event.time_ms < 1_000 * seconds);
    (events.collect(), sessions)
}

/// Hits among arrivals that do not begin a run.
pub(crate) fn in_process(events: &[Event], sessions: u64) -> f64 {
    let settings = Settings {
        policy: Policy::Predictive,
        prediction: Prediction::Hint,
        shards: Some(1),
        ..Settings::new(Capacity::Sessions(sessions))
    };
    let cache: Cache<RefCell<HeapMemory>> =
        Cache::unshared(&settings, [0; 16], BEGAN_MS).expect("a cache");
    let mut value = SecretBytes::default();
    let mut hits = 0;
    for event in events {
        let (now_ms, id, hint_ms) = seen(event);
        let found = cache.get(now_ms, &id, ContextTag(0), &mut value).found;
        hits += u64::from(found && !event.first_of_run);
        if found {
            cache.hint(now_ms, &id, hint_ms);
            continue;
        }
        let new = NewSession {
            id,
            value: &[7; 150],
            expires_ms: now_ms + DAY_MS,
            context: ContextTag(0),
            history: History::default(),
            hint_ms: Some(hint_ms),
            sibling: false,
            seen_ms: None,
        };
        let _refused = cache.insert(now_ms, &new);
    }
    rate(hits, events)
}

/// As [`in_process`], and how many sessions were stored or refused.
pub(crate) async fn in_valkey(sessions: &Sessions, events: &[Event]) -> (f64, u64) {
    let value = SecretBytes::from(vec![7; 150]);
    let (mut hits, mut puts) = (0, 0);
    for event in events {
        let (now_ms, id, hint_ms) = seen(event);
        let past = Past::default();
        let returns_ms = returns_ms(Prediction::Hint, now_ms, past.history, Some(hint_ms), 60_000);
        let expires_ms = now_ms + DAY_MS;
        if let Some(found) = sessions.get(now_ms, &id).await.expect("an answer") {
            hits += u64::from(!event.first_of_run);
            let expected = sessions.expect(&id, past, returns_ms, found.expires_ms).await;
            assert!(expected.expect("an answer"));
            continue;
        }
        let context = ContextTag(0);
        let entry = Entry { id: &id, context, value: &value, expires_ms, past, returns_ms };
        sessions.put(now_ms, &entry).await.expect("an answer");
        puts += 1;
    }
    (rate(hits, events), puts)
}

/// One shard for so many sessions.
pub(crate) fn one_shard(link: Link, name: &str, sessions: u64) -> Sessions {
    let bytes = sessions * (ENTRY_OVERHEAD_BYTES + 1_024);
    let bounds = Bounds { shards: 1, sessions, bytes, grace_ms: Settings::GRACE_MS };
    Sessions::new(link, name, &[3; 32], bounds, &ring(1)).expect("in range")
}

/// One key, which seals now.
pub(crate) fn ring(secret: u8) -> KeyRing {
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(BEGAN_MS / 1_000, &mut [secret; 32]).expect("a key");
    ring
}

fn seen(event: &Event) -> (u64, SessionId, u64) {
    let id = SessionId::new(&event.client.to_le_bytes()).expect("eight bytes");
    (BEGAN_MS + event.time_ms, id, event.returns_in_ms.expect("devices tell").into())
}

fn rate(hits: u64, events: &[Event]) -> f64 {
    let later = events.iter().filter(|event| !event.first_of_run).count();
    100.0 * hits as f64 / later as f64
}
