//! ARC: one list for recency, one for frequency, and ghosts of both to balance them.

use std::num::NonZeroU32;

use super::nodes::{List, Nodes};
use super::{Access, Policy};

/// Adaptive replacement, ARC (Megiddo & Modha, FAST 2003, Fig. 4), with a real-valued target as in
/// libCacheSim.
///
/// Sessions used once are in T1, those used again in T2. B1 and B2 have the ghosts of evicted
/// sessions, no more than there is room for sessions. A ghost that comes back moves the target of
/// T1's length towards the list from which it was evicted.
#[derive(Debug)]
pub struct AdaptiveReplacement {
    /// The nodes; the note is the list of a node.
    nodes: Nodes<usize>,
    lists: [List; 4],
    /// The target length of T1.
    target: f64,
    capacity: u32,
}

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

impl AdaptiveReplacement {
    /// Makes a cache for `capacity` sessions, and as many ghosts.
    pub fn new(capacity: NonZeroU32) -> Self {
        let capacity = capacity.get();
        Self { nodes: Nodes::new(), lists: [List::EMPTY; 4], target: 0.0, capacity }
    }

    fn len_of(&self, list: usize) -> u64 {
        u64::from(self.lists[list].len())
    }

    /// Finds a session; ghosts are left out.
    fn find(&self, key: u64) -> Option<u32> {
        self.nodes.find(key).filter(|&node| matches!(*self.nodes.note(node), T1 | T2))
    }

    fn move_to(&mut self, list: usize, node: u32) {
        let before = std::mem::replace(self.nodes.note_mut(node), list);
        self.lists[before].leave(&mut self.nodes, node);
        self.lists[list].join(&mut self.nodes, node);
    }

    fn discard(&mut self, node: u32) {
        let list = *self.nodes.note(node);
        self.lists[list].leave(&mut self.nodes, node);
        self.nodes.discard(node);
    }

    fn discard_oldest(&mut self, list: usize) {
        if self.lists[list].len() > 0 {
            self.discard(self.lists[list].first());
        }
    }

    /// Handles cases II and III: a ghost came back.
    fn revive(&mut self, node: u32, ghosts: usize) {
        let step = |these: u64, others: u64| (others as f64 / these as f64).max(1.0);
        let (b1, b2) = (self.len_of(B1), self.len_of(B2));
        if ghosts == B1 {
            self.target = (self.target + step(b1, b2)).min(f64::from(self.capacity));
        } else {
            self.target = (self.target - step(b2, b1)).max(0.0);
        }
        self.replace(ghosts == B2);
        self.move_to(T2, node);
    }

    /// Handles case IV: the key is unknown.
    fn welcome(&mut self, key: u64) {
        let capacity = u64::from(self.capacity);
        let known: u64 = (T1..=B2).map(|list| self.len_of(list)).sum();
        if self.len_of(T1) == capacity {
            self.discard_oldest(T1);
        } else if self.len_of(T1) + self.len_of(B1) == capacity {
            self.discard_oldest(B1);
            self.replace(false);
        } else {
            if known == 2 * capacity {
                self.discard_oldest(B2);
            }
            self.replace(false);
        }
        let node = self.nodes.add(key, T1);
        self.lists[T1].join(&mut self.nodes, node);
    }

    /// Turns a session into a ghost if there is no room.
    fn replace(&mut self, for_ghost_of_t2: bool) {
        if self.len() < self.capacity as usize {
            return;
        }
        let t1 = self.len_of(T1) as f64;
        let beyond = t1 > self.target || (for_ghost_of_t2 && t1 == self.target);
        if self.lists[T2].len() == 0 || (self.lists[T1].len() > 0 && beyond) {
            self.move_to(B1, self.lists[T1].first());
        } else {
            self.move_to(B2, self.lists[T2].first());
        }
    }
}

impl Policy for AdaptiveReplacement {
    fn access(&mut self, access: &Access) -> bool {
        let found = self.find(access.key);
        found.map(|node| self.move_to(T2, node)).is_some()
    }

    fn store(&mut self, access: &Access) {
        match self.nodes.find(access.key).map(|node| (node, *self.nodes.note(node))) {
            None => self.welcome(access.key),
            Some((node, ghosts @ (B1 | B2))) => self.revive(node, ghosts),
            Some(_) => {}
        }
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.find(key);
        found.map(|node| self.discard(node)).is_some()
    }

    fn len(&self) -> usize {
        (self.lists[T1].len() + self.lists[T2].len()) as usize
    }
}
