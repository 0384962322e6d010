//! LFU, which evicts the session used least often.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::nodes::{List, Nodes};
use super::{Access, Policy};

/// Least frequently used. Uses are counted while a session is there, its creation included. Of
/// sessions with equal counts, the one that reached its count first is evicted, as in libCacheSim.
#[derive(Debug)]
pub struct Lfu {
    /// The nodes; the note is the number of uses.
    nodes: Nodes<u64>,
    /// The sessions of each count that occurs, in order of reaching it.
    by_uses: BTreeMap<u64, List>,
    stored: u32,
    capacity: u32,
}

impl Lfu {
    /// Makes a cache for `capacity` sessions.
    pub fn new(capacity: NonZeroU32) -> Self {
        let capacity = capacity.get();
        Self { nodes: Nodes::new(), by_uses: BTreeMap::new(), stored: 0, capacity }
    }

    fn join(&mut self, node: u32) {
        let uses = *self.nodes.note(node);
        self.by_uses.entry(uses).or_insert(List::EMPTY).join(&mut self.nodes, node);
    }

    fn leave(&mut self, node: u32) {
        let uses = *self.nodes.note(node);
        if let Some(list) = self.by_uses.get_mut(&uses) {
            list.leave(&mut self.nodes, node);
            if list.len() == 0 {
                self.by_uses.remove(&uses);
            }
        }
    }

    fn discard(&mut self, node: u32) {
        self.leave(node);
        self.nodes.discard(node);
        self.stored -= 1;
    }
}

impl Policy for Lfu {
    fn access(&mut self, access: &Access) -> bool {
        let Some(node) = self.nodes.find(access.key) else { return false };
        self.leave(node);
        *self.nodes.note_mut(node) += 1;
        self.join(node);
        true
    }

    fn store(&mut self, access: &Access) {
        if self.nodes.find(access.key).is_some() {
            return;
        }
        if self.stored == self.capacity
            && let Some((_, least)) = self.by_uses.first_key_value()
        {
            self.discard(least.first());
        }
        let node = self.nodes.add(access.key, 1);
        self.join(node);
        self.stored += 1;
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.nodes.find(key);
        found.map(|node| self.discard(node)).is_some()
    }

    fn len(&self) -> usize {
        self.stored as usize
    }
}
