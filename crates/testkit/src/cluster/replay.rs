//! A trace replayed through a machine's own cache and through Valkey.

use std::cell::RefCell;

use rejoin_cache::{
    Cache, Capacity, ContextTag, HeapMemory, NewSession, Policy, Prediction, SecretBytes,
    SessionId, Settings,
};
use rejoin_cluster::sessions::{Bounds, ENTRY_OVERHEAD_BYTES, Entry, Past, returns_ms};
use rejoin_cluster::{Link, Sessions};
use rejoin_tickets::{KeyRing, Schedule};
use rejoin_trace::{Event, Population, PopulationSettings};

/// The start of every trace, in Unix time.
pub const BEGAN_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 86_400_000;

/// Returns the arrivals of paper 000's devices, and a capacity of six sessions for ten devices that run.
pub fn devices(devices: u64, seconds: u64) -> (Vec<Event>, u64) {
    let population = Population::new(PopulationSettings::paper(devices)).expect("in range");
    let sessions = (population.expected_running() * 0.6) as u64;
    let events = population.arrivals(1).take_while(|event| event.time_ms < 1_000 * seconds);
    (events.collect(), sessions)
}

/// Replays the arrivals in a machine's cache. Returns the hits in per cent of the arrivals that do not begin a run.
pub fn in_process(events: &[Event], sessions: u64) -> f64 {
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
        let new = NewSession::new(id, &[7; 150], now_ms + DAY_MS, ContextTag(0));
        let new = NewSession { hint_ms: Some(hint_ms), ..new };
        let _refused = cache.insert(now_ms, &new);
    }
    rate(hits, events)
}

/// Replays the arrivals in Valkey. Returns the hits as [`in_process`] does, and how many sessions were offered to
/// Valkey, whether it stored or refused them.
pub async fn in_valkey(sessions: &Sessions, events: &[Event]) -> (f64, u64) {
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

/// The sessions of a cluster with one shard, for this many.
pub fn one_shard(link: Link, name: &str, sessions: u64) -> Sessions {
    let bytes = sessions * (ENTRY_OVERHEAD_BYTES + 1_024);
    let bounds = Bounds { shards: 1, sessions, bytes, grace_ms: Settings::GRACE_MS };
    Sessions::new(link, name, &[3; 32], bounds, &ring(1)).expect("in range")
}

/// A ring of one key, which seals at [`BEGAN_MS`].
pub fn ring(secret: u8) -> KeyRing {
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
