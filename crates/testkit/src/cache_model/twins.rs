//! The engine and the naive cache, given the same operations and compared after each.

use std::sync::Mutex;

use rejoin_cache::{Arrival, Cache, ContextTag, Counters, History, Layout, Memory, NewSession};
use rejoin_cache::{Region, SecretBytes, Settings, Source};

use super::expectation::Past;
use super::naive::{Answer, Naive, Weighed};
use super::operation::{New, Operation, fill_value, id_of};

/// Both caches. A failing comparison panics and prints the operation.
pub struct Twins<R: Region> {
    cache: Cache<R>,
    naive: Naive,
    /// The history that each client's last lookup returned, by the engine and by the naive cache.
    clients: Vec<(History, Past)>,
    value: SecretBytes,
    new_value: Vec<u8>,
    forged: u64,
    rejected: u64,
    /// Full, and resumed.
    handshakes: [u64; 2],
    step: u64,
    doing: Option<(u64, Operation)>,
}

impl<M: Memory> Twins<Mutex<M>> {
    /// Makes both caches, for `clients` clients.
    pub fn new(
        settings: &Settings,
        hash_key: [u8; 16],
        clients: u16,
        now_ms: u64,
        mut memory: impl FnMut(&Layout) -> M,
    ) -> Self {
        let region = |layout: &Layout| Mutex::new(memory(layout));
        let cache = Cache::on(settings, hash_key, now_ms, region).expect("settings make a cache");
        Self::with(cache, settings, hash_key, clients, now_ms)
    }
}

impl<R: Region> Twins<R> {
    /// Compares a cache that was made with the same settings, hash key and time.
    pub fn with(
        cache: Cache<R>,
        settings: &Settings,
        hash_key: [u8; 16],
        clients: u16,
        now_ms: u64,
    ) -> Self {
        Self {
            cache,
            naive: Naive::new(settings, hash_key, now_ms),
            clients: vec![Default::default(); usize::from(clients)],
            value: SecretBytes::default(),
            new_value: Vec::new(),
            forged: 0,
            rejected: 0,
            handshakes: [0; 2],
            step: 0,
            doing: None,
        }
    }

    /// Applies an operation to both, and compares their answers.
    pub fn apply(&mut self, now_ms: u64, operation: Operation) {
        self.step += 1;
        self.doing = Some((now_ms, operation));
        self.value.clear();
        match operation {
            Operation::Get { client, context } => {
                let arrival = self.cache.get(now_ms, &id_of(client), context, &mut self.value);
                let answer = self.naive.get(now_ms, &id_of(client), context);
                self.arrived(client, arrival, answer);
            }
            Operation::Take { client, context } => {
                let arrival = self.cache.take(now_ms, &id_of(client), context, &mut self.value);
                let answer = self.naive.take(now_ms, &id_of(client), context);
                self.arrived(client, arrival, answer);
            }
            Operation::Peek { client, context } => {
                let found = self.cache.peek(now_ms, &id_of(client), context, &mut self.value);
                let answer = self.naive.peek(now_ms, &id_of(client), context);
                self.compare_value(found, answer.as_deref());
            }
            Operation::Insert { client, new } => self.insert(now_ms, client, new),
            Operation::Hint { client, interval_ms } => {
                let there = self.cache.hint(now_ms, &id_of(client), interval_ms);
                assert_eq!(there, self.naive.hint(now_ms, &id_of(client), interval_ms));
            }
            Operation::Retire { client } => {
                self.cache.retire(&id_of(client));
                self.naive.retire(&id_of(client));
            }
            Operation::Remove { client } => {
                assert_eq!(self.cache.remove(&id_of(client)), self.naive.remove(&id_of(client)));
            }
            Operation::Forged => {
                self.cache.record_forged();
                self.forged += 1;
            }
            Operation::Handshake { resumed } => {
                self.cache.record_handshake(resumed);
                self.handshakes[usize::from(resumed)] += 1;
            }
            Operation::Rejected => {
                self.cache.record_rejected();
                self.rejected += 1;
            }
        }
    }

    fn arrived(&mut self, client: u16, arrival: Arrival, answer: Answer) {
        self.compare_value(arrival.found, answer.value.as_deref());
        let interval = arrival.history.interval().map(|(interval, kept)| (interval.as_ms(), kept));
        assert_eq!(interval, answer.past.interval_ms());
        assert_eq!(arrival.history == History::default(), answer.past == Past::default());
        self.clients[usize::from(client)] = (arrival.history, answer.past);
    }

    fn insert(&mut self, now_ms: u64, client: u16, new: New) {
        self.new_value.resize(usize::from(new.value_bytes), 0);
        fill_value(client, self.step, &mut self.new_value);
        let known = Some(self.clients[usize::from(client)]).filter(|_| new.with_history);
        let (history, past) = known.unwrap_or_default();
        let session = NewSession {
            id: id_of(client),
            value: &self.new_value,
            expires_ms: new.expires_ms,
            context: new.context,
            history,
            hint_ms: new.hint_ms,
            sibling: new.sibling,
            seen_ms: new.seen_ms,
            source: match new.source {
                0 => Source::UNKNOWN,
                number => self.cache.source(&[number]),
            },
        };
        let inserted = self.cache.insert(now_ms, &session).map(|inserted| inserted.evicted);
        assert_eq!(inserted, self.naive.insert(now_ms, &session, past));
    }

    fn compare_value(&self, found: bool, expected: Option<&[u8]>) {
        assert_eq!(found, expected.is_some(), "found");
        assert!(*self.value == *expected.unwrap_or_default(), "another value");
    }

    pub fn compare_counters(&self) {
        let expected = Counters {
            forged: self.forged,
            rejected: self.rejected,
            full_handshakes: self.handshakes[0],
            resumed_handshakes: self.handshakes[1],
            ..self.naive.counters()
        };
        assert_eq!(self.cache.counters(), expected);
    }

    /// Compares when clients are expected back, at any time.
    pub fn compare_occupancy(&self, now_ms: u64) {
        assert_eq!(self.cache.occupancy(now_ms), self.naive.occupancy(now_ms), "at {now_ms} ms");
    }

    /// Compares everything, leaving no trace.
    pub fn compare_all(&mut self, now_ms: u64, contexts: &[ContextTag]) {
        for client in 0..self.clients.len() as u16 {
            contexts.iter().for_each(|&context| {
                self.apply(now_ms, Operation::Peek { client, context });
            });
        }
        self.compare_counters();
        self.compare_parts();
    }

    /// Checks that everything in the cache fits together.
    pub fn compare_parts(&self) {
        let checked = self.cache.check().into_iter().map(|shard| shard.expect("makes sense"));
        let sessions: u64 = checked.map(|shard| shard.sessions).sum();
        assert_eq!(sessions, self.naive.counters().sessions);
        assert_eq!(self.cache.emptied(), 0);
    }

    pub fn happened(&self) -> Happened {
        Happened {
            counters: self.cache.counters(),
            epoch_moves: self.naive.epoch_moves(),
            weighed: self.naive.weighed(),
        }
    }
}

/// The events of a run, so that a test can see that it tested something.
#[derive(Debug, Default)]
pub struct Happened {
    pub counters: Counters,
    pub epoch_moves: u64,
    pub weighed: Weighed,
}

impl Happened {
    pub fn plus(self, other: &Self) -> Self {
        Self {
            counters: self.counters.plus(&other.counters),
            epoch_moves: self.epoch_moves + other.epoch_moves,
            weighed: self.weighed.plus(&other.weighed),
        }
    }
}

impl<R: Region> Drop for Twins<R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("step {}, at (ms): {:?}", self.step, self.doing);
        }
    }
}
