//! The sessions of one user, and the choice of those that stay.
//!
//! The engine has one entry for each cache key, as long as the sessions under that key. Sessions whose entry it
//! evicts are wiped here. The engine's capacity is a part of all users' capacity, and may grow and shrink.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rejoin_cache::{Cache, Capacity, ContextTag, HeapMemory, NewSession, SecretBytes};

use super::covers::Covers;
use super::stored::{CacheKey, Family, Session, StoredSessions};
use crate::settings::MOST_LIFETIME_S;

/// The bytes that one block of an engine's entry stands for.
pub(super) const UNIT_BYTES: u64 = 512;
/// The size of the engine's blocks: the smallest allowed.
const BLOCK_BYTES: u32 = 8;
/// The fraction of cache keys, one in this many, that may be gone from the engine before their sessions are wiped here.
/// The sweep visits all cache keys.
pub(super) const LATE: usize = 16;

/// The units of capacity for each entry in the index of certificate names.
const UNITS_PER_NOTE: usize = 4;

/// The sessions of one user.
pub(super) struct SessionTable {
    named: HashMap<CacheKey, StoredSessions>,
    covers: Covers,
    engine: Cache<RefCell<HeapMemory>>,
    key: [u8; 16],
    /// The engine's capacity, in units.
    room: u64,
    /// The units in use, including those of sessions that are gone from the engine and not yet from here.
    taken: u64,
    /// The entries that the engine evicted since the last sweep.
    evicted: usize,
}

impl SessionTable {
    pub(super) fn new(room: u64, key: [u8; 16], now_ms: u64) -> Result<Self, rejoin_cache::Error> {
        let engine = engine(room, key, now_ms)?;
        Ok(Self {
            named: HashMap::new(),
            covers: Covers::default(),
            engine,
            key,
            room,
            taken: 0,
            evicted: 0,
        })
    }

    pub(super) fn room(&self) -> u64 {
        self.room
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.min(self.room)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub(super) fn get(&self, name: &CacheKey) -> Option<&StoredSessions> {
        self.named.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &CacheKey) -> Option<&mut StoredSessions> {
        self.named.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&CacheKey, &StoredSessions)> {
        self.named.iter()
    }

    /// Returns the sessions of other names whose certificates may cover this one's.
    pub(super) fn beside(
        &self,
        name: &CacheKey,
    ) -> impl Iterator<Item = (&CacheKey, &StoredSessions)> {
        self.covers.of(name).filter_map(|other| self.named.get_key_value(other))
    }

    /// Notes that a program connects to this origin. Returns the families that have sessions there. `None`: it is
    /// unknown, or was evicted.
    pub(super) fn arrive(&mut self, name: &CacheKey, now_ms: u64) -> Option<Vec<Arc<Family>>> {
        let (id, mut value) = (name.id(), SecretBytes::default());
        let arrival = self.engine.get(now_ms, &id, ContextTag::default(), &mut value);
        if !arrival.found {
            self.remove(name);
            return None;
        }
        let kept = self.named.get_mut(name)?;
        kept.history = arrival.history;
        kept.seen_ms = now_ms;
        kept.drop_old(now_ms);
        Some(kept.families())
    }

    /// Stores a session. The caller must call [`resize`](Self::resize) afterwards.
    pub(super) fn keep(&mut self, name: &CacheKey, session: Session, most: usize, now_ms: u64) {
        self.covers.note(name, &session.family, self.room as usize / UNITS_PER_NOTE);
        let kept =
            self.named.entry(name.clone()).or_insert_with(|| StoredSessions::new(name, now_ms));
        kept.keep(session, most);
    }

    /// Returns the units by which the entry of this key must grow.
    pub(super) fn growth(&self, name: &CacheKey) -> u64 {
        self.named.get(name).map_or(0, |kept| units(kept).saturating_sub(kept.units))
    }

    /// Updates the size of this key's entry in the engine, and wipes the sessions that are evicted for it.
    pub(super) fn resize(&mut self, name: &CacheKey, now_ms: u64) {
        let Some(kept) = self.named.get_mut(name) else { return };
        let units = units(kept);
        if units == kept.units {
            return;
        }
        self.taken = self.taken + units - kept.units;
        kept.units = units;
        match insert(&self.engine, name, kept, now_ms) {
            Ok(evicted) => self.evicted += evicted,
            Err(_) => self.remove(name),
        }
        if self.evicted > 0 && self.evicted * LATE >= self.named.len() {
            self.sweep(now_ms);
        }
    }

    /// Moves to an engine of another size. If the new one is smaller than the entries, it evicts some, and their
    /// sessions are wiped.
    pub(super) fn move_to(&mut self, room: u64, now_ms: u64) -> Result<(), rejoin_cache::Error> {
        self.sweep(now_ms);
        let engine = engine(room, self.key, now_ms)?;
        let mut named: Vec<_> = self.named.iter().collect();
        // In the order of use, the newest last.
        named.sort_by_key(|(_, stored)| stored.seen_ms);
        for (name, stored) in named {
            // The sweep below wipes it if it was refused.
            let _ = insert(&engine, name, stored, now_ms);
        }
        (self.engine, self.room) = (engine, room);
        self.sweep(now_ms);
        Ok(())
    }

    fn remove(&mut self, name: &CacheKey) {
        self.taken -= self.named.remove(name).map_or(0, |stored| stored.units);
    }

    /// Wipes the sessions whose entries are gone from the engine.
    fn sweep(&mut self, now_ms: u64) {
        let (engine, mut value) = (&self.engine, SecretBytes::default());
        let mut stays =
            |name: &CacheKey| engine.peek(now_ms, &name.id(), ContextTag::default(), &mut value);
        self.named.retain(|name, _| stays(name));
        self.covers.retain(|name| self.named.contains_key(name));
        self.taken = self.named.values().map(|stored| stored.units).sum();
        self.evicted = 0;
    }
}

type Engine = Cache<RefCell<HeapMemory>>;

fn engine(room: u64, key: [u8; 16], now_ms: u64) -> Result<Engine, rejoin_cache::Error> {
    let settings = rejoin_cache::Settings {
        block_bytes: BLOCK_BYTES,
        longest_value_bytes: 65_528,
        shards: Some(1),
        ..rejoin_cache::Settings::new(Capacity::Sessions(room))
    };
    Cache::unshared(&settings, key, now_ms)
}

fn units(stored: &StoredSessions) -> u64 {
    stored.bytes().div_ceil(UNIT_BYTES).max(1)
}

/// Inserts a key's entry. Returns the number of entries evicted for it.
fn insert(
    engine: &Engine,
    name: &CacheKey,
    stored: &StoredSessions,
    now_ms: u64,
) -> Result<usize, rejoin_cache::Refusal> {
    let value = vec![0; stored.units as usize * BLOCK_BYTES as usize];
    let expires_ms = now_ms + MOST_LIFETIME_S * 1_000;
    let new = NewSession::new(name.id(), &value, expires_ms, ContextTag::default());
    let new = NewSession { history: stored.history, seen_ms: Some(stored.seen_ms), ..new };
    engine.insert(now_ms, &new).map(|inserted| inserted.evicted as usize)
}
