//! Many threads on one cache: values stay whole, no session is taken twice, and the counts add up
//! when all are done.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rejoin_cache::{Cache, Capacity, ContextTag, Counters, NewSession, Policy, Refusal};
use rejoin_cache::{SecretBytes, SessionId, Settings};

use rejoin_testkit::random::Random;

/// The number of operations of each thread.
const OPERATIONS: u64 = 150_000;
const CLIENTS: u64 = 600;
const SESSIONS: u64 = 200;
const CONTEXT: ContextTag = ContextTag(3);

/// The answers that one thread got.
#[derive(Default)]
struct Told {
    hits: u64,
    misses: u64,
    stored: u64,
    evicted: u64,
    refused: u64,
    /// The serial numbers of the sessions taken.
    taken: Vec<u64>,
}

fn id(client: u64) -> SessionId {
    SessionId::new(&client.to_le_bytes()).expect("eight bytes")
}

/// Makes a value of a serial number, and bytes that follow from it and the client. It never takes
/// more than one block, so that one eviction makes enough room.
fn fill(client: u64, serial: u64, value: &mut SecretBytes) {
    let mut random = Random::new(client << 40 | serial);
    let bytes = value.resize(8 + random.below(185) as usize);
    bytes.fill_with(|| random.next() as u8);
    bytes[..8].copy_from_slice(&serial.to_le_bytes());
}

/// Returns the serial number of a value, after a check that it is as it was stored.
fn serial_of(client: u64, value: &SecretBytes) -> u64 {
    let serial = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
    let mut stored = SecretBytes::default();
    fill(client, serial, &mut stored);
    assert!(**value == *stored, "another session's bytes");
    serial
}

fn work(cache: &Cache, clock_ms: &AtomicU64, thread: u64) -> Told {
    let (mut told, mut value) = (Told::default(), SecretBytes::default());
    let mut random = Random::new(thread);
    for step in 0..OPERATIONS {
        // The clock is read before the lock is taken, as in any program, so shards see it step back.
        let now_ms = clock_ms.fetch_add(random.of_any_size(8), Ordering::Relaxed);
        let client = random.below(CLIENTS);
        match random.below(16) {
            0..6 => {
                let arrival = cache.get(now_ms, &id(client), CONTEXT, &mut value);
                told.looked_up(arrival.found.then(|| serial_of(client, &value)));
            }
            6 => {
                let arrival = cache.take(now_ms, &id(client), CONTEXT, &mut value);
                let serial = arrival.found.then(|| serial_of(client, &value));
                told.looked_up(serial);
                told.taken.extend(serial);
            }
            7 => {
                let found = cache.peek(now_ms, &id(client), CONTEXT, &mut value);
                found.then(|| serial_of(client, &value));
            }
            8 => drop(cache.hint(now_ms, &id(client), random.of_any_size(20))),
            9 => cache.retire(&id(client)),
            10 => drop(cache.remove(&id(client))),
            _ => {
                fill(client, thread << 32 | step, &mut value);
                let expires_ms = now_ms + 1_000 + random.of_any_size(32);
                let new = NewSession {
                    hint_ms: Some(random.of_any_size(20)),
                    sibling: random.once_in(10),
                    ..NewSession::new(id(client), &value, expires_ms, CONTEXT)
                };
                match cache.insert(now_ms, &new) {
                    Ok(inserted) => {
                        told.stored += 1;
                        told.evicted += u64::from(inserted.evicted);
                    }
                    Err(refusal) => {
                        assert_eq!(refusal, Refusal::ReturnsLater);
                        told.refused += 1;
                    }
                }
            }
        }
    }
    told
}

impl Told {
    fn looked_up(&mut self, found: Option<u64>) {
        self.hits += u64::from(found.is_some());
        self.misses += u64::from(found.is_none());
    }
}

fn counts_add_up(policy: Policy, shards: u32) {
    let capacity = Capacity::Sessions(SESSIONS);
    let settings = Settings { policy, shards: Some(shards), ..Settings::new(capacity) };
    let cache = Cache::new(&settings, [5; 16], 0).expect("settings make a cache");
    let clock_ms = AtomicU64::new(0);
    let told: Vec<Told> = thread::scope(|scope| {
        let (cache, clock_ms) = (&cache, &clock_ms);
        let start = |thread| scope.spawn(move || work(cache, clock_ms, thread));
        let threads = [0, 1, 2, 3].map(start);
        threads.map(|thread| thread.join().expect("no thread panics")).into()
    });
    let sum = |count: fn(&Told) -> u64| told.iter().map(count).sum::<u64>();
    let Counters { hits, misses, stored, sessions, .. } = cache.counters();
    let counted = cache.counters();
    assert_eq!((hits, misses), (sum(|t| t.hits), sum(|t| t.misses)));
    assert_eq!(stored, sum(|t| t.stored));
    assert_eq!(counted.refused_returns_later, sum(|t| t.refused));
    let evicted = counted.evicted_overdue + counted.evicted_latest + counted.evicted_oldest;
    assert_eq!(evicted, sum(|t| t.evicted));
    let taken: BTreeSet<u64> = told.iter().flat_map(|told| told.taken.iter().copied()).collect();
    assert_eq!(taken.len() as u64, sum(|t| t.taken.len() as u64), "somebody got one twice");

    let mut value = SecretBytes::default();
    let is_there = |client: &u64| cache.peek(0, &id(*client), CONTEXT, &mut value);
    let there = (0..CLIENTS).filter(is_there).count() as u64;
    assert_eq!(sessions, there);
    assert!(there <= SESSIONS && hits > 0 && evicted > 0 && !taken.is_empty());
}

#[test]
fn counts_add_up_with_one_shard() {
    counts_add_up(Policy::Predictive, 1);
}

#[test]
fn counts_add_up_with_many_shards() {
    counts_add_up(Policy::Predictive, 16);
}

#[test]
fn counts_add_up_under_lru() {
    counts_add_up(Policy::Lru, 4);
}

#[test]
fn of_those_who_race_for_a_session_one_gets_it() {
    const RACED: u64 = 20_000;
    let settings = Settings::new(Capacity::Sessions(2 * RACED));
    let cache = Cache::new(&settings, [5; 16], 0).expect("settings make a cache");
    let race = |start: &Barrier| {
        let mut value = SecretBytes::default();
        start.wait();
        let taken = |client: &u64| cache.take(1, &id(*client), CONTEXT, &mut value).found;
        (0..RACED).filter(taken).count() as u64
    };
    for _ in 0..10 {
        for client in 0..RACED {
            let new = NewSession::new(id(client), &[], u64::MAX, CONTEXT);
            assert!(cache.insert(0, &new).is_ok());
        }
        let start = Barrier::new(3);
        let taken = thread::scope(|scope| {
            let racers = [(); 3].map(|()| scope.spawn(|| race(&start)));
            racers.map(|racer| racer.join().expect("no thread panics"))
        });
        assert_eq!(taken.iter().sum::<u64>(), RACED);
    }
}
