//! Random operations on one shard, compared with a model that is a sorted list.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rejoin_cache::{ContextTag, Refusal, SecretBytes, SessionId};
use rejoin_cluster::Sessions;
use rejoin_cluster::sessions::{Bounds, ENTRY_OVERHEAD_BYTES, Entry, NEVER_MS, Past, Put};
use rejoin_testkit::cluster::{link, replay};
use rejoin_testkit::valkey::Valkey;

const OPERATIONS: u64 = 6_000;
const BOUNDS: Bounds = Bounds { shards: 1, sessions: 20, bytes: 20 * 700, grace_ms: 2_000 };
const LONGEST_VALUE_BYTES: usize = 1_000;

struct Held {
    id: u64,
    bytes: u64,
    returns_ms: u64,
    expires_ms: u64,
}

impl Held {
    fn is_expected(&self) -> bool {
        self.returns_ms <= self.expires_ms
    }

    fn is_overdue(&self, now_ms: u64) -> bool {
        self.is_expected() && self.returns_ms + BOUNDS.grace_ms < now_ms
    }

    /// Returns the sort key: by return time; clients not expected back come last, the first to expire at the very end.
    fn place(&self) -> (bool, u64) {
        if self.is_expected() {
            (false, self.returns_ms)
        } else {
            (true, u64::MAX - self.expires_ms)
        }
    }
}

/// The sessions of the shard, in eviction order.
#[derive(Default)]
struct Model(Vec<Held>);

impl Model {
    fn put(&mut self, now_ms: u64, new: Held) -> Put {
        self.remove(new.id);
        let mut evicted = 0;
        while self.0.len() as u64 >= BOUNDS.sessions || self.bytes() + new.bytes > BOUNDS.bytes {
            let last = self.0.last().expect("no room, though it is empty");
            if self.0[0].is_overdue(now_ms) {
                self.0.remove(0);
            } else if new.is_expected() && new.place() < last.place() {
                self.0.pop();
            } else {
                return Put::Refused(Refusal::ReturnsLater);
            }
            evicted += 1;
        }
        self.insert(new);
        Put::Stored { evicted }
    }

    fn evict(&mut self, now_ms: u64, most: usize) -> usize {
        let overdue = self.0.iter().take(most).take_while(|held| held.is_overdue(now_ms)).count();
        self.0.drain(..overdue);
        let over = |held: &&Held| !held.is_expected() && held.expires_ms <= now_ms;
        let expired = self.0.iter().rev().take(most - overdue).take_while(over).count();
        self.0.truncate(self.0.len() - expired);
        overdue + expired
    }

    fn expect(&mut self, id: u64, returns_ms: u64) -> bool {
        let held = self.remove(id);
        held.map(|held| self.insert(Held { returns_ms, ..held })).is_some()
    }

    fn insert(&mut self, new: Held) {
        let at = self.0.partition_point(|held| held.place() < new.place());
        self.0.insert(at, new);
    }

    fn remove(&mut self, id: u64) -> Option<Held> {
        let at = self.0.iter().position(|held| held.id == id)?;
        Some(self.0.remove(at))
    }

    fn get(&self, id: u64) -> Option<&Held> {
        self.0.iter().find(|held| held.id == id)
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|held| held.bytes).sum()
    }
}

const CLIENTS: usize = 60;

#[tokio::test]
async fn bounds_hold_exactly_and_the_right_ones_go() {
    let valkey = Valkey::start(&[]);
    let (link, ring) = (link(&valkey).await, replay::ring(1));
    let sessions = Sessions::new(link, "shop", &[3; 32], BOUNDS, &ring).expect("in range");
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let mut model = Model::default();
    let mut now_ms = replay::BEGAN_MS;
    // A session that was taken is not stored again: its client has a new one.
    let mut generations = [0; CLIENTS];
    for operation in 0..OPERATIONS {
        now_ms += random.random_range(0..300);
        let client = random.random_range(0..CLIENTS);
        let number = (client + CLIENTS * generations[client]) as u64;
        // No two times are the same.
        let time = |after_ms: u64| (now_ms + after_ms) / OPERATIONS * OPERATIONS + operation;
        let expires_ms = time(random.random_range(2 * OPERATIONS..25_000));
        let returns_ms = match random.random_range(0..8) {
            0 => NEVER_MS,
            _ => time(random.random_range(0..30_000)),
        };
        let (id, past) = (id(number), Past::default());
        match random.random_range(0..12) {
            0..6 => {
                let value = SecretBytes::from(vec![7; random.random_range(0..LONGEST_VALUE_BYTES)]);
                let bytes = value.len() as u64 + 13 + 44 + 12 + ENTRY_OVERHEAD_BYTES;
                let context = ContextTag(0);
                let entry = Entry { id: &id, context, value: &value, expires_ms, past, returns_ms };
                let put = sessions.put(now_ms, &entry).await.expect("an answer");
                let held = Held { id: number, bytes, returns_ms, expires_ms };
                assert_eq!(put, model.put(now_ms, held), "{operation}");
            }
            6..8 => {
                let expires_ms = model.get(number).map_or(expires_ms, |held| held.expires_ms);
                let there = sessions.expect(&id, past, returns_ms, expires_ms).await;
                assert_eq!(
                    there.expect("an answer"),
                    model.expect(number, returns_ms),
                    "{operation}"
                );
            }
            8 => {
                let taken = sessions.take(now_ms, &id).await.expect("an answer");
                generations[client] += 1;
                let held = model.remove(number).filter(|held| held.expires_ms > now_ms);
                assert_eq!(taken.is_some(), held.is_some(), "{operation}");
            }
            9 => {
                let removed = sessions.remove(&id).await.expect("an answer");
                assert_eq!(removed, model.remove(number).is_some(), "{operation}");
            }
            10 => {
                let most = random.random_range(0..16);
                // As from a machine whose clock is ahead.
                let now_ms = now_ms + random.random_range(0..25_000);
                let evicted = sessions.evict(now_ms, 0, 0, most).await.expect("an answer");
                assert_eq!(evicted as usize, model.evict(now_ms, most as usize), "{operation}");
            }
            _ => {
                let found = sessions.get(now_ms, &id).await.expect("an answer");
                let held = model.get(number).filter(|held| held.expires_ms > now_ms);
                let lifetimes =
                    (found.map(|found| found.expires_ms), held.map(|held| held.expires_ms));
                assert_eq!(lifetimes.0, lifetimes.1, "{operation}");
            }
        }
        let counts = sessions.counts(0).await.expect("counts");
        let (held, bytes) = (model.0.len() as u64, model.bytes());
        assert_eq!((counts.sessions, counts.bytes), (held, bytes), "{operation}");
        assert!(held <= BOUNDS.sessions && bytes <= BOUNDS.bytes);
    }
    let counts = sessions.counts(0).await.expect("counts");
    let kinds = [counts.overdue, counts.latest, counts.expired, counts.refused];
    assert!(kinds.into_iter().all(|count| count > 20), "{counts:?}");
    assert_eq!(valkey.say("HLEN rejoin:{shop.0}:values"), counts.sessions.to_string());
}

fn id(number: u64) -> SessionId {
    SessionId::new(&number.to_le_bytes()).expect("eight bytes")
}
