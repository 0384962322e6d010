//! Exact counts on a small trace, so that no change to a policy goes unnoticed, and a second LRU
//! that must agree to the last hit. `data/README.md` describes the trace.

use std::collections::HashMap;

use rejoin_cache::{Cache, Capacity, ContextTag, Counters, NewSession, Policy, Prediction};
use rejoin_cache::{SecretBytes, SessionId, Settings};

static TRACE: &[u8] = include_bytes!("../data/paper-000-sixteenth.bin");

/// The request of a device.
#[derive(Clone, Copy)]
struct Request {
    now_ms: u64,
    device: u16,
    /// The time until the same device's next request, if it makes one.
    next_ms: Option<u64>,
}

fn requests() -> Vec<Request> {
    let mut next = HashMap::new();
    let read = |record: &[u8]| {
        let [s0, s1, d0, d1] = *record else { panic!("record of {} bytes", record.len()) };
        let now_ms = u64::from(u16::from_le_bytes([s0, s1])) * 1_000;
        let device = u16::from_le_bytes([d0, d1]);
        let next_ms = next.insert(device, now_ms).map(|next: u64| next - now_ms);
        Request { now_ms, device, next_ms }
    };
    let mut requests: Vec<Request> = TRACE.chunks(4).rev().map(read).collect();
    requests.reverse();
    requests
}

/// Plays the trace: every device presents its session and gets one if it has none; hints are true.
fn replay(settings: &Settings) -> Counters {
    let cache = Cache::new(settings, [7; 16], 0).expect("settings make a cache");
    let mut value = SecretBytes::default();
    for Request { now_ms, device, next_ms } in requests() {
        let bytes = device.to_le_bytes();
        let id = SessionId::new(&bytes).expect("two bytes");
        let arrival = cache.get(now_ms, &id, ContextTag::default(), &mut value);
        if arrival.found {
            next_ms.map(|interval_ms| cache.hint(now_ms, &id, interval_ms));
            continue;
        }
        let new = NewSession {
            history: arrival.history,
            hint_ms: next_ms,
            ..NewSession::new(id, &bytes, u64::MAX, ContextTag::default())
        };
        // Refusals are among the counts.
        let _ = cache.insert(now_ms, &new);
    }
    cache.counters()
}

fn settings(policy: Policy, prediction: Prediction, sessions: u64) -> Settings {
    Settings { policy, prediction, ..Settings::new(Capacity::Sessions(sessions)) }
}

#[test]
fn predictive_eviction_counts() {
    use Prediction::{Both, Hint, Learned};
    // Columns: prediction, sessions; hits, evicted overdue, evicted latest, refused.
    const GOLDENS: [(Prediction, u64, [u64; 4]); 12] = [
        (Hint, 12, [1534, 150, 422, 3043]),
        (Hint, 37, [2999, 534, 664, 927]),
        (Hint, 62, [3653, 802, 521, 123]),
        (Hint, 81, [3822, 819, 404, 35]),
        (Learned, 12, [1314, 507, 262, 3066]),
        (Learned, 37, [2660, 978, 662, 824]),
        (Learned, 62, [3467, 1333, 225, 74]),
        (Learned, 81, [3631, 1412, 32, 5]),
        (Both, 12, [1650, 22, 633, 2844]),
        (Both, 37, [3316, 117, 1089, 602]),
        (Both, 62, [3767, 299, 837, 196]),
        (Both, 81, [3853, 405, 655, 167]),
    ];
    let replayed = GOLDENS.map(|(prediction, sessions, _)| {
        let counted = replay(&settings(Policy::Predictive, prediction, sessions));
        assert_eq!(counted.hits + counted.misses, 5_161);
        let Counters { hits, evicted_overdue, evicted_latest, .. } = counted;
        let counts = [hits, evicted_overdue, evicted_latest, counted.refused_returns_later];
        (prediction, sessions, counts)
    });
    assert_eq!(replayed, GOLDENS);
}

#[test]
fn lru_counts() {
    // Columns: sessions; hits.
    const GOLDENS: [(u64, u64); 4] = [(12, 7), (37, 1083), (62, 2775), (81, 3613)];
    let replayed = GOLDENS.map(|(sessions, _)| {
        let counted = replay(&settings(Policy::Lru, Prediction::Both, sessions));
        assert_eq!(counted.evicted_oldest, counted.stored - sessions);
        (sessions, counted.hits)
    });
    assert_eq!(replayed, GOLDENS);
}

#[test]
fn lru_is_lru() {
    for sessions in [1, 2, 5, 12, 37, 62, 81, 200, 500, 1_000] {
        let counted = replay(&settings(Policy::Lru, Prediction::Both, sessions));
        assert_eq!((sessions, counted.hits), (sessions, straightforward_lru(sessions as usize)));
    }
}

/// Counts the hits of a list with the last used at its end.
fn straightforward_lru(sessions: usize) -> u64 {
    let mut list: Vec<u16> = Vec::new();
    let mut hits = 0;
    for Request { device, .. } in requests() {
        match list.iter().position(|&other| other == device) {
            Some(at) => {
                list.remove(at);
                hits += 1;
            }
            None if list.len() == sessions => {
                list.remove(0);
            }
            None => {}
        }
        list.push(device);
    }
    hits
}
