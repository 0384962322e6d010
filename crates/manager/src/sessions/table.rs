//! The places of one user, and which of them stay.
//!
//! All that are kept are in the engine, one entry each, as long as the place's sessions are big. What it
//! drops is wiped here. Its room is a part of all users' room, and may grow and shrink.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rejoin_cache::{Cache, Capacity, ContextTag, HeapMemory, NewSession, SecretBytes};

use super::covers::Covers;
use super::stored::{CacheKey, Family, Session, StoredSessions};
use crate::settings::MOST_LIFETIME_S;

/// The engine's entries stand for so many bytes a block.
pub(super) const UNIT_BYTES: u64 = 512;
/// The engine's own block: as small as it allows.
const BLOCK_BYTES: u32 = 8;
/// One place in so many may be gone from the engine before it is wiped here: looking for them
/// takes as long as there are places.
pub(super) const LATE: usize = 16;

/// Units of room for each note of what a certificate covers.
const UNITS_PER_NOTE: usize = 4;

/// See the module's documentation.
pub(super) struct SessionTable {
    named: HashMap<CacheKey, StoredSessions>,
    covers: Covers,
    engine: Cache<RefCell<HeapMemory>>,
    key: [u8; 16],
    /// The engine's room, in units.
    room: u64,
    /// What the places take, those included that are gone from the engine and not yet from here.
    taken: u64,
    /// Entries that the engine dropped since places were last compared with it.
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

    /// Other names' places whose certificates may be for this one's.
    pub(super) fn beside(
        &self,
        name: &CacheKey,
    ) -> impl Iterator<Item = (&CacheKey, &StoredSessions)> {
        self.covers.of(name).filter_map(|other| self.named.get_key_value(other))
    }

    /// A program comes to this place. The families that have sessions there; `None` if it is not
    /// known, or has to go.
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

    /// Stores a session. It is to be resized afterwards.
    pub(super) fn keep(&mut self, name: &CacheKey, session: Session, most: usize, now_ms: u64) {
        self.covers.note(name, &session.family, self.room as usize / UNITS_PER_NOTE);
        let kept =
            self.named.entry(name.clone()).or_insert_with(|| StoredSessions::new(name, now_ms));
        kept.keep(session, most);
    }

    /// The units by which a place has grown since the engine was told.
    pub(super) fn growth(&self, name: &CacheKey) -> u64 {
        self.named.get(name).map_or(0, |kept| units(kept).saturating_sub(kept.units))
    }

    /// Tells the engine how big a place is now; those that have to go for it are wiped.
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

    /// Moves to an engine of another size. Those for which there is no room are wiped: of one smaller
    /// than what is taken, it decides which.
    pub(super) fn move_to(&mut self, room: u64, now_ms: u64) -> Result<(), rejoin_cache::Error> {
        self.sweep(now_ms);
        let engine = engine(room, self.key, now_ms)?;
        let mut named: Vec<_> = self.named.iter().collect();
        // As they came: who was heard of last is inserted last.
        named.sort_by_key(|(_, cache_key)| cache_key.seen_ms);
        for (name, cache_key) in named {
            // Wiped below if it is not there.
            let _ = insert(&engine, name, cache_key, now_ms);
        }
        (self.engine, self.room) = (engine, room);
        self.sweep(now_ms);
        Ok(())
    }

    fn remove(&mut self, name: &CacheKey) {
        self.taken -= self.named.remove(name).map_or(0, |cache_key| cache_key.units);
    }

    /// Wipes the places that are gone from the engine.
    fn sweep(&mut self, now_ms: u64) {
        let (engine, mut value) = (&self.engine, SecretBytes::default());
        let mut stays =
            |name: &CacheKey| engine.peek(now_ms, &name.id(), ContextTag::default(), &mut value);
        self.named.retain(|name, _| stays(name));
        self.covers.retain(|name| self.named.contains_key(name));
        self.taken = self.named.values().map(|cache_key| cache_key.units).sum();
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

fn units(cache_key: &StoredSessions) -> u64 {
    cache_key.bytes().div_ceil(UNIT_BYTES).max(1)
}

/// Returns how many others had to go.
fn insert(
    engine: &Engine,
    name: &CacheKey,
    cache_key: &StoredSessions,
    now_ms: u64,
) -> Result<usize, rejoin_cache::Refusal> {
    let value = vec![0; cache_key.units as usize * BLOCK_BYTES as usize];
    let new = NewSession {
        id: name.id(),
        value: &value,
        expires_ms: now_ms + MOST_LIFETIME_S * 1_000,
        context: ContextTag::default(),
        history: cache_key.history,
        hint_ms: None,
        sibling: false,
        seen_ms: Some(cache_key.seen_ms),
    };
    engine.insert(now_ms, &new).map(|inserted| inserted.evicted as usize)
}
