//! Set-associative FIFO: a key belongs to one small set, and each set is a FIFO.

use std::num::NonZeroU32;
use std::ops::Range;

use super::nodes::hash;
use super::{Access, Policy};

/// First in, first out in each of many small sets: the caches of NSS and CyaSSL, whose threads
/// lock one set at a time (paper 000 §III). CyaSSL's largest has 11 ways.
///
/// A set has a limited number of ways. If the capacity is not a multiple of it, some sets have about
/// one way less, so that all sets together have exactly the capacity. A key's set is chosen by its
/// hash, as evenly as at random, so that some sets overflow while others have room: the fewer the
/// ways, the more it is like random eviction.
#[derive(Debug)]
pub struct SetAssociativeFifo {
    /// The ways of the first set, oldest first, then those of the second, and so on.
    ways: Vec<u64>,
    /// The number of ways of each set that are in use.
    used: Vec<u32>,
    stored: usize,
}

impl SetAssociativeFifo {
    /// Makes a cache for `capacity` sessions, with at most `ways` to a set.
    pub fn new(capacity: NonZeroU32, ways: NonZeroU32) -> Self {
        let sets = capacity.get().div_ceil(ways.get()) as usize;
        Self { ways: vec![0; capacity.get() as usize], used: vec![0; sets], stored: 0 }
    }

    fn set_of(&self, key: u64) -> usize {
        ((u128::from(hash(key)) * self.used.len() as u128) >> 64) as usize
    }

    /// Returns all ways of a set.
    fn ways_of(&self, set: usize) -> Range<usize> {
        let start =
            |set: usize| (set as u64 * self.ways.len() as u64 / self.used.len() as u64) as usize;
        start(set)..start(set + 1)
    }

    /// Finds a key among the ways of its set.
    fn find(&self, set: usize, key: u64) -> Option<usize> {
        let ways = self.ways_of(set);
        let used = &self.ways[ways.start..][..self.used[set] as usize];
        used.iter().position(|&other| other == key)
    }

    /// Frees the way at `at`; those behind it move up.
    fn discard(&mut self, set: usize, at: usize) {
        let ways = self.ways_of(set);
        let used = self.used[set] as usize;
        self.ways[ways.start..][at..used].rotate_left(1);
        self.used[set] -= 1;
        self.stored -= 1;
    }
}

impl Policy for SetAssociativeFifo {
    fn access(&mut self, access: &Access) -> bool {
        self.find(self.set_of(access.key), access.key).is_some()
    }

    fn store(&mut self, access: &Access) {
        let set = self.set_of(access.key);
        if self.find(set, access.key).is_some() {
            return;
        }
        let ways = self.ways_of(set);
        if self.used[set] as usize == ways.len() {
            self.discard(set, 0);
        }
        self.ways[ways.start + self.used[set] as usize] = access.key;
        self.used[set] += 1;
        self.stored += 1;
    }

    fn remove(&mut self, key: u64) -> bool {
        let set = self.set_of(key);
        self.find(set, key).map(|at| self.discard(set, at)).is_some()
    }

    fn len(&self) -> usize {
        self.stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Fifo;

    fn number(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).expect("not zero")
    }

    #[test]
    fn the_sets_share_the_capacity_evenly() {
        for (capacity, ways) in [(1, 4), (3, 4), (4, 4), (5, 4), (600, 11), (605, 11), (1_300, 8)] {
            let cache = SetAssociativeFifo::new(number(capacity), number(ways));
            let sizes: Vec<_> =
                (0..cache.used.len()).map(|set| cache.ways_of(set).len() as u32).collect();
            assert_eq!(sizes.iter().sum::<u32>(), capacity);
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            let (least, most) = (*least.expect("a set"), *most.expect("a set"));
            assert!(most <= ways && most - least <= 1 && least > 0, "{sizes:?}");
        }
    }

    #[test]
    fn every_set_is_a_fifo() {
        let mut cache = SetAssociativeFifo::new(number(50), number(4));
        let sizes = (0..cache.used.len()).map(|set| number(cache.ways_of(set).len() as u32));
        let mut fifos: Vec<Fifo> = sizes.map(Fifo::new).collect();
        let mut draw = 1_u64;
        for _ in 0..100_000 {
            draw = hash(draw + 1);
            let access = Access { key: draw % 100, now_ms: 0, next: u64::MAX, returns_in_ms: None };
            let fifo = &mut fifos[cache.set_of(access.key)];
            if draw >> 60 == 0 {
                assert_eq!(cache.remove(access.key), fifo.remove(access.key));
                continue;
            }
            assert_eq!(cache.access(&access), fifo.access(&access));
            cache.store(&access);
            fifo.store(&access);
            assert_eq!(cache.len(), fifos.iter().map(Policy::len).sum::<usize>());
        }
    }
}
