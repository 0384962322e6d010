//! SIEVE: a FIFO queue that a hand goes through, sparing what was used.

use std::num::NonZeroU32;

use super::nodes::{List, NONE, Nodes};
use super::{Access, Policy};

/// SIEVE (Zhang, Yang, Yue, Vigfusson & Rashmi, NSDI 2024).
///
/// The hand goes from old to new. A session that was used since the hand last passed it is
/// spared; the first that was not goes. New sessions join at the end the hand moves to.
#[derive(Debug)]
pub struct Sieve {
    /// Noted: used since the hand passed.
    nodes: Nodes<bool>,
    list: List,
    /// Where the hand goes on, or [`NONE`]: at the oldest.
    hand: u32,
    capacity: u32,
}

impl Sieve {
    /// Room for `capacity` sessions.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self { nodes: Nodes::new(), list: List::EMPTY, hand: NONE, capacity: capacity.get() }
    }

    fn evict(&mut self) {
        loop {
            let node = if self.hand == NONE { self.list.first() } else { self.hand };
            if !std::mem::take(self.nodes.note_mut(node)) {
                self.hand = node;
                return self.discard(node);
            }
            self.hand = self.nodes.later(node);
        }
    }

    fn discard(&mut self, node: u32) {
        if self.hand == node {
            self.hand = self.nodes.later(node);
        }
        self.list.leave(&mut self.nodes, node);
        self.nodes.discard(node);
    }
}

impl Policy for Sieve {
    fn access(&mut self, access: &Access) -> bool {
        let found = self.nodes.find(access.key);
        found.map(|node| *self.nodes.note_mut(node) = true).is_some()
    }

    fn store(&mut self, access: &Access) {
        if self.nodes.find(access.key).is_some() {
            return;
        }
        if self.list.len() == self.capacity {
            self.evict();
        }
        let node = self.nodes.add(access.key, false);
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
