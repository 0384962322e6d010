//! The capacity for sessions, and its division among users.
//!
//! A user takes free capacity. When none is left, it takes capacity that other users do not use, then capacity that
//! another user has beyond an equal share. A user that has its share evicts its own sessions.

use std::collections::HashMap;

use super::stored::{CacheKey, StoredSessions};
use super::table::SessionTable;

/// The sessions of all users.
pub(super) struct Users {
    table: HashMap<u32, SessionTable>,
    key: [u8; 16],
    /// The capacity of all users together, in units.
    room: u64,
}

impl Users {
    /// The users with a table of their own; further users share one. What each engine learns takes 120 KB.
    const MOST: u64 = 64;
    /// The least capacity of a user: a few origins.
    const LEAST: u64 = 60;
    /// The uid of the shared table: no user has it (`chown(2)`).
    const OTHERS: u32 = u32::MAX;

    pub(super) fn new(room: u64, key: [u8; 16]) -> Self {
        Self { table: HashMap::new(), key, room: room.max(Self::LEAST) }
    }

    pub(super) fn table(&self, uid: u32) -> Option<&SessionTable> {
        self.table.get(&uid).or_else(|| self.table.get(&Self::OTHERS))
    }

    pub(super) fn table_mut(&mut self, uid: u32) -> Option<&mut SessionTable> {
        let uid = if self.table.contains_key(&uid) { uid } else { Self::OTHERS };
        self.table.get_mut(&uid)
    }

    /// Returns the table of a user that is about to store a session, creating it if needed.
    pub(super) fn made(&mut self, uid: u32, now_ms: u64) -> Option<&mut SessionTable> {
        if !self.table.contains_key(&uid) {
            self.table.retain(|_, table| !table.is_empty());
        }
        let most = Self::MOST.min(self.room / Self::LEAST) as usize;
        let is_known = self.table.contains_key(&uid) || self.table.len() + 1 < most;
        let uid = if is_known { uid } else { Self::OTHERS };
        if !self.table.contains_key(&uid) {
            let part = self.room / (self.table.len() as u64 + 1);
            self.free(Self::LEAST.min(part), uid, now_ms);
            let table = SessionTable::new(self.left().max(1), self.key, now_ms).ok()?;
            self.table.insert(uid, table);
        }
        self.table.get_mut(&uid)
    }

    pub(super) fn get_mut(&mut self, cache_key: &CacheKey) -> Option<&mut StoredSessions> {
        self.table_mut(cache_key.partition.uid)?.get_mut(cache_key)
    }

    /// Updates the size of a key's entry in its user's engine.
    pub(super) fn resize(&mut self, cache_key: &CacheKey, now_ms: u64) {
        let uid = cache_key.partition.uid;
        let uid = if self.table.contains_key(&uid) { uid } else { Self::OTHERS };
        let Some(own) = self.table.get(&uid) else { return };
        let (room, needed) = (own.room(), own.taken() + own.growth(cache_key));
        if needed > room {
            // Doubled, because moving visits all cache keys.
            self.free((2 * room).max(needed) - room, uid, now_ms);
            let more = self.left();
            if let Some(own) = self.table.get_mut(&uid).filter(|_| more > 0) {
                // If a new engine cannot be created, the old one stays.
                let _ = own.move_to((2 * room).max(needed).min(room + more), now_ms);
            }
        }
        if let Some(own) = self.table.get_mut(&uid) {
            own.resize(cache_key, now_ms);
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&CacheKey, &StoredSessions)> {
        self.table.values().flat_map(SessionTable::iter)
    }

    /// Returns the capacity that no engine has.
    fn left(&self) -> u64 {
        let had: u64 = self.table.values().map(SessionTable::room).sum();
        self.room.saturating_sub(had)
    }

    /// Frees this many units, as far as other users do not use them or have them beyond their share.
    fn free(&mut self, units: u64, uid: u32, now_ms: u64) {
        let users = self.table.len() as u64 + u64::from(!self.table.contains_key(&uid));
        let part = self.room / users.max(1);
        let own = self.table.get(&uid).map_or(0, SessionTable::room);
        while self.left() < units {
            let missing = units - self.left();
            let others = self.table.iter_mut().filter(|(of, _)| **of != uid).map(|(_, of)| of);
            // Each user keeps what it uses and a quarter more.
            let used = |of: &SessionTable| (of.taken() + of.taken() / 4).max(Self::LEAST);
            let spare = |of: &SessionTable| match own < part {
                true => of.room().saturating_sub(used(of).min(part)),
                false => of.room().saturating_sub(used(of)),
            };
            let Some(other) = others.max_by_key(|of| spare(of)) else { return };
            let less = spare(other).min(missing.max(other.room() / 16));
            if less == 0 || other.move_to(other.room() - less, now_ms).is_err() {
                return;
            }
        }
    }
}
