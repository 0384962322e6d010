//! Properties that the engine must have after any operations, without a model of its policies: a value found is the
//! last one stored under that id in that context, there are never more sessions than fit, and every session is
//! accounted for.

use std::collections::HashMap;

use rejoin_cache::{Cache, ContextTag, Counters, History, NewSession, Refusal};
use rejoin_cache::{SecretBytes, SessionId, Settings};
use rejoin_testkit::cache_model::operation::{New, Operation};

use super::input::{CLIENTS, Input, Small};
use crate::structured;

pub(crate) fn check(bytes: &[u8]) {
    let Some(input) = structured::<Input>(bytes) else { return };
    let mut ledger = Ledger::new(&input.cache);
    for (now_ms, operation) in input.operations {
        ledger.apply(now_ms, operation);
        ledger.check();
    }
    ledger.check_presence();
}

/// A session that was stored, and may have been evicted since.
struct Stored {
    value: Vec<u8>,
    context: ContextTag,
}

struct Ledger {
    settings: Settings,
    cache: Cache,
    stored: HashMap<u16, Stored>,
    history: History,
    value: SecretBytes,
    lookups: u64,
    inserted: u64,
    refused: u64,
    /// Removed, taken, or replaced.
    withdrawn: u64,
}

impl Ledger {
    fn new(small: &Small) -> Self {
        let settings = small.settings();
        Self {
            cache: Cache::new(&settings, small.hash_key, 0).expect("settings make a cache"),
            settings,
            stored: HashMap::new(),
            history: History::default(),
            value: SecretBytes::default(),
            lookups: 0,
            inserted: 0,
            refused: 0,
            withdrawn: 0,
        }
    }

    fn apply(&mut self, now_ms: u64, operation: Operation) {
        let Self { cache, value, .. } = self;
        match operation {
            Operation::Get { client, context } => {
                let arrival = cache.get(now_ms, &id(client), context, value);
                self.lookups += 1;
                self.history = arrival.history;
                self.check_value(arrival.found, client, context);
            }
            Operation::Take { client, context } => {
                let arrival = cache.take(now_ms, &id(client), context, value);
                self.lookups += 1;
                self.check_value(arrival.found, client, context);
                if arrival.found {
                    self.withdrawn += 1;
                    self.stored.remove(&client);
                }
            }
            Operation::Peek { client, context } => {
                let before = cache.counters();
                let found = cache.peek(now_ms, &id(client), context, value);
                assert_eq!(cache.counters(), before);
                self.check_value(found, client, context);
            }
            Operation::Insert { client, new } => self.insert(now_ms, client, new),
            Operation::Hint { client, interval_ms } => {
                let there = self.is_there(client);
                assert_eq!(self.cache.hint(now_ms, &id(client), interval_ms), there);
            }
            Operation::Retire { client } => cache.retire(&id(client)),
            Operation::Remove { client } => {
                let there = self.is_there(client);
                assert_eq!(self.cache.remove(&id(client)), there);
                self.withdrawn += u64::from(there);
                self.stored.remove(&client);
            }
            Operation::Forged | Operation::Rejected | Operation::Handshake { .. } => {}
        }
    }

    fn insert(&mut self, now_ms: u64, client: u16, new: New) {
        self.withdrawn += u64::from(self.is_there(client));
        self.stored.remove(&client);
        let bytes = usize::from(new.value_bytes);
        let value: Vec<u8> = self.inserted.to_le_bytes().into_iter().cycle().take(bytes).collect();
        let session = NewSession {
            id: id(client),
            value: &value,
            expires_ms: new.expires_ms,
            context: new.context,
            history: if new.with_history { self.history } else { History::default() },
            hint_ms: new.hint_ms,
            sibling: new.sibling,
            seen_ms: new.seen_ms,
            source: self.cache.source(&[new.source]),
        };
        match self.cache.insert(now_ms, &session) {
            Ok(inserted) => {
                let block = self.settings.block_bytes.next_multiple_of(8) as usize;
                assert!(inserted.evicted as usize <= bytes.div_ceil(block).max(1));
                assert!(bytes <= self.settings.longest_value_bytes as usize);
                assert!(self.cache.peek(now_ms, &id(client), session.context, &mut self.value));
                self.inserted += 1;
                self.stored.insert(client, Stored { value, context: new.context });
            }
            Err(refusal) => {
                assert!(refusal != Refusal::Expired || new.expires_ms < now_ms + 1_000);
                self.refused += 1;
            }
        }
    }

    fn check_value(&self, found: bool, client: u16, context: ContextTag) {
        if found {
            let stored = self.stored.get(&client).expect("found, and never stored");
            assert_eq!((&*self.value, context), (&*stored.value, stored.context));
        }
    }

    fn check(&self) {
        let counted = self.cache.counters();
        assert!(counted.sessions <= self.cache.capacity_sessions());
        assert_eq!(counted.hits + counted.misses, self.lookups);
        assert!(counted.expired + counted.foreign_context <= counted.misses);
        assert!(counted.wanted_after_eviction <= counted.misses);
        assert!(counted.predictions <= counted.hits);
        assert_eq!(counted.stored, self.inserted);
        let Counters { refused_returns_later, refused_source_share, .. } = counted;
        let Counters { refused_too_large, refused_expired, .. } = counted;
        let refused = refused_returns_later + refused_source_share;
        assert_eq!(refused + refused_too_large + refused_expired, self.refused);
        let evicted = counted.evicted_overdue
            + counted.evicted_latest
            + counted.evicted_oldest
            + counted.evicted_source_share;
        let gone = evicted + counted.expired + self.withdrawn;
        assert_eq!(counted.sessions + gone, counted.stored);
    }

    fn check_presence(&mut self) {
        let there = (0..CLIENTS).filter(|client| self.is_there(*client)).count();
        assert_eq!(there as u64, self.cache.counters().sessions);
    }

    /// Returns true if a session is in memory, even if its lifetime is over. It is not if it was stored before the
    /// cache was made.
    fn is_there(&mut self, client: u16) -> bool {
        let Some(stored) = self.stored.get(&client) else { return false };
        self.cache.peek(0, &id(client), stored.context, &mut self.value)
    }
}

fn id(client: u16) -> SessionId {
    SessionId::new(&client.to_le_bytes()).expect("two bytes")
}
