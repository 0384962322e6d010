//! S3-FIFO: a small queue on probation, a main queue, and a queue of ghosts.

use std::num::NonZeroU32;

use super::nodes::{List, Nodes};
use super::{Access, Policy};

/// S3-FIFO (Yang, Zhang, Qiu, Yue & Rashmi, SOSP 2023), with libCacheSim's parameters: a tenth of
/// the capacity small, nine tenths as many ghosts, two uses to pass from small to main.
///
/// A new session joins the small queue, or main if its ghost is still there. The oldest of the
/// small queue is evicted and leaves a ghost, unless it was used twice since it came: then it
/// passes on to main. The oldest of main is evicted unless it was used; each round there costs it
/// one use, of three at most.
///
/// As in libCacheSim, the small queue may be as long as the cache until main has filled up, and
/// main may be a little over its share after many have passed at once. Below 20 sessions
/// libCacheSim stores nothing; here the small queue has room for one at least.
#[derive(Debug)]
pub struct S3Fifo {
    nodes: Nodes<Note>,
    queues: [List; 3],
    capacity: u32,
}

#[derive(Debug, Clone, Copy)]
struct Note {
    queue: usize,
    uses: u8,
}

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOSTS: usize = 2;

/// The number of uses that take a session from the small queue to main.
const USES_TO_PASS: u8 = 2;
/// The most uses that count.
const MOST_USES: u8 = 3;

impl S3Fifo {
    /// Makes a cache for `capacity` sessions.
    pub fn new(capacity: NonZeroU32) -> Self {
        Self { nodes: Nodes::new(), queues: [List::EMPTY; 3], capacity: capacity.get() }
    }

    fn main_capacity(&self) -> u32 {
        self.capacity - (self.capacity / 10).max(1)
    }

    fn ghosts_capacity(&self) -> u32 {
        (u64::from(self.capacity) * 9 / 10) as u32
    }

    /// Finds a session; ghosts are left out.
    fn find(&self, key: u64) -> Option<u32> {
        self.nodes.find(key).filter(|&node| self.nodes.note(node).queue != GHOSTS)
    }

    fn move_to(&mut self, queue: usize, node: u32, uses: u8) {
        let before = std::mem::replace(self.nodes.note_mut(node), Note { queue, uses });
        self.queues[before.queue].leave(&mut self.nodes, node);
        self.queues[queue].join(&mut self.nodes, node);
    }

    fn discard(&mut self, node: u32) {
        let queue = self.nodes.note(node).queue;
        self.queues[queue].leave(&mut self.nodes, node);
        self.nodes.discard(node);
    }

    /// Evicts one session, or passes all of the small queue on to main.
    fn make_room(&mut self) {
        if self.queues[MAIN].len() > self.main_capacity() || self.queues[SMALL].len() == 0 {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    fn evict_from_small(&mut self) {
        while self.queues[SMALL].len() > 0 {
            let oldest = self.queues[SMALL].first();
            if self.nodes.note(oldest).uses < USES_TO_PASS {
                return self.make_ghost(oldest);
            }
            self.move_to(MAIN, oldest, 0);
        }
    }

    fn evict_from_main(&mut self) {
        loop {
            let oldest = self.queues[MAIN].first();
            match self.nodes.note(oldest).uses {
                0 => return self.discard(oldest),
                uses => self.move_to(MAIN, oldest, uses - 1),
            }
        }
    }

    fn make_ghost(&mut self, node: u32) {
        self.move_to(GHOSTS, node, 0);
        if self.queues[GHOSTS].len() > self.ghosts_capacity() {
            self.discard(self.queues[GHOSTS].first());
        }
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, access: &Access) -> bool {
        let Some(node) = self.find(access.key) else { return false };
        let note = self.nodes.note_mut(node);
        note.uses = (note.uses + 1).min(MOST_USES);
        true
    }

    fn store(&mut self, access: &Access) {
        let found = self.nodes.find(access.key);
        let ghost = match found.map(|node| (node, self.nodes.note(node).queue)) {
            Some((node, GHOSTS)) => Some(node),
            Some(_) => return,
            None => None,
        };
        // The ghost goes before room is made, so that the ghosts have one more place.
        ghost.into_iter().for_each(|ghost| self.discard(ghost));
        while self.len() == self.capacity as usize {
            self.make_room();
        }
        let queue = if ghost.is_some() { MAIN } else { SMALL };
        let node = self.nodes.add(access.key, Note { queue, uses: 0 });
        self.queues[queue].join(&mut self.nodes, node);
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.find(key);
        found.map(|node| self.discard(node)).is_some()
    }

    fn len(&self) -> usize {
        (self.queues[SMALL].len() + self.queues[MAIN].len()) as usize
    }
}
