//! The optimum: a cache that knows the future.

use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use hashbrown::HashTable;

use super::nodes::hash;
use super::{Access, Policy};

/// The optimum, which evicts the session that is wanted last, or never again (Bélády, "A study of
/// replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966; optimal by
/// Mattson, Gecsei, Slutz & Traiger, 1970).
///
/// With *bypass* that may be the new session, which is then not stored. A TLS server is free to do
/// that, so this is its optimum. A cache that must store every session, as libCacheSim's does, can
/// get no more hits than the variant without.
#[derive(Debug)]
pub struct Clairvoyant {
    sessions: HashTable<Session>,
    /// The times at which sessions are wanted, the last on top. Times that have passed stay below
    /// those to come, and are swept when they are the greater part.
    latest: BinaryHeap<Session>,
    capacity: usize,
    bypass: bool,
}

/// A session's next use, ordered by `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Session {
    next: u64,
    key: u64,
}

/// The number of passed times up to which a sweep is not worth it.
const FEW: usize = 64;

impl Clairvoyant {
    /// Makes a cache for `capacity` sessions that may refuse a new session.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self {
            sessions: HashTable::new(),
            latest: BinaryHeap::new(),
            capacity: capacity.get() as usize,
            bypass: true,
        }
    }

    /// Makes a cache that stores every session that was not there.
    pub fn without_bypass(capacity: NonZeroU32) -> Self {
        Self { bypass: false, ..Self::new(capacity) }
    }

    fn find(&self, key: u64) -> Option<&Session> {
        self.sessions.find(hash(key), |session| session.key == key)
    }

    fn expect(&mut self, session: Session) {
        if self.latest.len() > 2 * self.sessions.len() + FEW {
            let sessions = &self.sessions;
            self.latest.retain(|expected| {
                sessions.find(hash(expected.key), |session| session == expected).is_some()
            });
        }
        self.latest.push(session);
    }

    /// Returns the session wanted last.
    fn last_wanted(&mut self) -> Option<Session> {
        while let Some(&last) = self.latest.peek() {
            if self.find(last.key) == Some(&last) {
                return Some(last);
            }
            self.latest.pop();
        }
        None
    }
}

impl Policy for Clairvoyant {
    fn access(&mut self, access: &Access) -> bool {
        let &Access { key, next, .. } = access;
        let found = self.sessions.find_mut(hash(key), |session| session.key == key);
        let hit = found.map(|session| session.next = next).is_some();
        if hit {
            self.expect(Session { next, key });
        }
        hit
    }

    fn store(&mut self, access: &Access) {
        let &Access { key, next, .. } = access;
        if self.find(key).is_some() {
            return;
        }
        if self.sessions.len() == self.capacity
            && let Some(last) = self.last_wanted()
        {
            if self.bypass && last.next <= next {
                return;
            }
            self.remove(last.key);
        }
        self.sessions.insert_unique(hash(key), Session { next, key }, |other| hash(other.key));
        self.expect(Session { next, key });
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.sessions.find_entry(hash(key), |session| session.key == key);
        found.map(|entry| entry.remove()).is_ok()
    }

    fn len(&self) -> usize {
        self.sessions.len()
    }
}
