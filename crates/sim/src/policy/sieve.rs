//! SIEVE: a FIFO queue with a hand that goes through it and spares used sessions.

use std::num::NonZeroU32;

use super::nodes::{List, NONE, Nodes};
use super::{Access, Policy};

/// SIEVE (Zhang, Yang, Yue, Vigfusson & Rashmi, NSDI 2024).
///
/// The hand goes from old to new. It spares a session that was used since it last passed; the first
/// other session is evicted. New sessions join at the end towards which the hand moves.
#[derive(Debug)]
pub struct Sieve {
    /// The nodes; the note is true if a session was used since the hand passed.
    nodes: Nodes<bool>,
    list: List,
    /// The node at which the hand goes on, or [`NONE`] for the oldest.
    hand: u32,
    capacity: u32,
}

impl Sieve {
    /// Makes a cache for `capacity` sessions.
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
