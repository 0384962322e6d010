//! Policies that consist of one list and a choice of its end: FIFO, LRU, MRU.

use std::num::NonZeroU32;

use super::nodes::{List, Nodes};
use super::{Access, Policy};

/// First in, first out: the caches of OpenSSL and PolarSSL (paper 000, Table I). A use changes
/// nothing.
pub type Fifo = Queue<false, false>;

/// Least recently used: the session whose last use is longest ago is evicted. JSSE's cache (paper
/// 000, Table I).
pub type Lru = Queue<true, false>;

/// Most recently used: the session used last is evicted, and the new one is stored.
///
/// It is made for loops longer than the cache (Chou & DeWitt, VLDB 1985). If clients leave for good,
/// it fills up with their sessions and then turns over a single place (paper 000 §VI.B).
pub type Mru = Queue<true, true>;

/// A list of sessions, in order of arrival or of last use.
#[derive(Debug)]
pub struct Queue<const BY_USE: bool, const LAST_GOES: bool> {
    nodes: Nodes<()>,
    list: List,
    capacity: u32,
}

impl<const BY_USE: bool, const LAST_GOES: bool> Queue<BY_USE, LAST_GOES> {
    /// Makes a cache for `capacity` sessions.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self { nodes: Nodes::new(), list: List::EMPTY, capacity: capacity.get() }
    }

    fn discard(&mut self, node: u32) {
        self.list.leave(&mut self.nodes, node);
        self.nodes.discard(node);
    }
}

impl<const BY_USE: bool, const LAST_GOES: bool> Policy for Queue<BY_USE, LAST_GOES> {
    fn access(&mut self, access: &Access) -> bool {
        let found = self.nodes.find(access.key);
        if let Some(node) = found.filter(|node| BY_USE && *node != self.list.last()) {
            self.list.leave(&mut self.nodes, node);
            self.list.join(&mut self.nodes, node);
        }
        found.is_some()
    }

    fn store(&mut self, access: &Access) {
        if self.nodes.find(access.key).is_some() {
            return;
        }
        if self.list.len() == self.capacity {
            self.discard(if LAST_GOES { self.list.last() } else { self.list.first() });
        }
        let node = self.nodes.add(access.key, ());
        self.list.join(&mut self.nodes, node);
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.nodes.find(key);
        found.map(|node| self.discard(node)).is_some()
    }

    fn len(&self) -> usize {
        self.list.len() as usize
    }
}
