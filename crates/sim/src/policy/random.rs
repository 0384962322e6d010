//! Random eviction.

use std::num::NonZeroU32;

use hashbrown::HashTable;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::nodes::hash;
use super::{Access, Policy};

/// Random eviction, with the same chance for every session (paper 000's RR).
///
/// Whatever the order of arrivals, it does neither very well nor very badly. (libCacheSim's
/// `Random` is no yardstick: it does not choose evenly.)
#[derive(Debug)]
pub struct RandomEviction {
    keys: Vec<u64>,
    /// The place of each key in `keys`.
    index: HashTable<u32>,
    random: ChaCha8Rng,
    capacity: u32,
}

impl RandomEviction {
    /// Makes a cache for `capacity` sessions. The same seed evicts the same on every platform.
    pub fn new(capacity: NonZeroU32, seed: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        // Another stream than the draws of a population with the same seed.
        key[8..24].copy_from_slice(b"random eviction\0");
        let random = ChaCha8Rng::from_seed(key);
        Self { keys: Vec::new(), index: HashTable::new(), random, capacity: capacity.get() }
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.index.find(hash(key), |&at| self.keys[at as usize] == key).copied()
    }

    /// Draws a number below `bound`, uniform to one part in 2³².
    fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.random.next_u64()) * u128::from(bound)) >> 64) as u32
    }

    /// Removes a key; the last key takes its place.
    fn discard(&mut self, at: u32) {
        let gone = self.keys.swap_remove(at as usize);
        if let Ok(entry) = self.index.find_entry(hash(gone), |&other| other == at) {
            entry.remove();
        }
        if let Some(&moved) = self.keys.get(at as usize) {
            let was_at = self.keys.len() as u32;
            let place = self.index.find_mut(hash(moved), |&other| other == was_at);
            place.into_iter().for_each(|place| *place = at);
        }
    }
}

impl Policy for RandomEviction {
    fn access(&mut self, access: &Access) -> bool {
        self.find(access.key).is_some()
    }

    fn store(&mut self, access: &Access) {
        if self.find(access.key).is_some() {
            return;
        }
        if self.keys.len() == self.capacity as usize {
            let victim = self.below(self.capacity);
            self.discard(victim);
        }
        let at = self.keys.len() as u32;
        self.keys.push(access.key);
        let keys = &self.keys;
        self.index.insert_unique(hash(access.key), at, |&other| hash(keys[other as usize]));
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.find(key);
        found.map(|at| self.discard(at)).is_some()
    }

    fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least χ² that a fair choice among ten exceeds once in 10,000 times.
    const UNLIKELY: f64 = 33.7;

    fn store(cache: &mut RandomEviction, key: u64) {
        cache.store(&Access { key, now_ms: 0, next: u64::MAX, returns_in_ms: None });
    }

    fn chi_square(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
    }

    #[test]
    fn every_rank_of_age_is_as_likely_to_go() {
        for seed in 0..5 {
            let mut cache = RandomEviction::new(NonZeroU32::new(10).expect("not zero"), seed);
            let mut by_age: Vec<u64> = (0..10).collect();
            by_age.iter().for_each(|&key| store(&mut cache, key));
            let mut counts = [0; 10];
            for key in 10..100_000 {
                store(&mut cache, key);
                let gone: Vec<usize> =
                    (0..10).filter(|&rank| cache.find(by_age[rank]).is_none()).collect();
                assert_eq!(gone.len(), 1, "one goes, and it is not the new one");
                counts[gone[0]] += 1;
                by_age.remove(gone[0]);
                by_age.push(key);
            }
            assert!(chi_square(&counts) < UNLIKELY, "seed {seed}: {counts:?}");
        }
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let survivors = |seed| {
            let mut cache = RandomEviction::new(NonZeroU32::new(50).expect("not zero"), seed);
            (0..1_000).for_each(|key| store(&mut cache, key));
            cache.keys
        };
        assert_eq!(survivors(1), survivors(1));
        assert_ne!(survivors(1), survivors(2));
    }
}
