//! Decoded values, found again by the bytes that they were decoded from.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Decoded values, such as the certificates of clients that come back (patch 002 of the JDK's server: tickets
/// bring the same certificates again and again).
///
/// A value is found by all of the bytes that it was decoded from, which are compared one by one. The hash only gives
/// the place. If there is no room, the least recently used values are dropped.
///
/// Any number of threads may use it. None waits: if another thread uses the same part, a value is decoded again.
pub struct Interner<V> {
    seed: [u64; 2],
    keeps: bool,
    shards: [Mutex<Shard<V>>; SHARDS],
}

const SHARDS: usize = 16;
/// One in so many values is kept if others must be dropped for it.
const ONE_IN: u64 = 8;

struct Shard<V> {
    /// The entries, by the hash of their bytes.
    entries: BTreeMap<u64, Entry<V>>,
    /// The hashes, by the last use of their entry.
    by_age: BTreeMap<u64, u64>,
    /// The count of uses.
    clock: u64,
    /// The count of values that came while there was no room.
    turned_away: u64,
    bytes: usize,
    most_bytes: usize,
}

struct Entry<V> {
    source: Box<[u8]>,
    value: V,
    bytes: usize,
    used: u64,
}

impl<V: Clone> Interner<V> {
    /// Makes an interner for values of up to `most_bytes` in all, in sixteen separate parts; with 0 it keeps nothing.
    /// `seed` should be random, and unknown to those who choose the bytes.
    pub fn new(most_bytes: usize, seed: [u64; 2]) -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(Shard::new(most_bytes / SHARDS)));
        Self { seed, keeps: most_bytes >= SHARDS, shards }
    }

    /// Returns true if anything can be kept at all.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// Returns the value decoded from exactly these bytes. `None` if it is not here, or another thread uses the part
    /// where it would be.
    pub fn get(&self, source: &[u8]) -> Option<V> {
        let hash = self.hash(source);
        lock(self.shard(hash))?.get(hash, source)
    }

    /// Returns true if a value from these bytes, which takes `bytes`, is worth keeping. If others must be dropped for
    /// it, one in eight is. So when values recur in a cycle that is larger than the room, most of the kept ones stay
    /// until they recur, and little is spent on the others.
    pub fn wants(&self, source: &[u8], bytes: usize) -> bool {
        lock(self.shard(self.hash(source))).is_some_and(|mut shard| shard.wants(bytes))
    }

    /// Keeps the value decoded from these bytes, which takes `bytes` in all. It is not kept if it takes more than a
    /// sixteenth of the room, or if another thread uses its part.
    pub fn insert(&self, source: &[u8], value: V, bytes: usize) {
        let hash = self.hash(source);
        let Some(mut shard) = lock(self.shard(hash)) else { return };
        let gone = shard.insert(hash, source, value, bytes);
        drop(shard);
        // Dropping them may take long, and needs no lock.
        drop(gone);
    }

    /// Returns the number of kept values, and the bytes that they take, as given to [`Interner::insert`].
    pub fn kept(&self) -> (usize, usize) {
        let shards = self.shards.iter().filter_map(lock);
        shards.fold((0, 0), |(values, bytes), shard| {
            (values + shard.entries.len(), bytes + shard.bytes)
        })
    }

    fn hash(&self, source: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed[0]);
        hasher.write_u64(self.seed[1]);
        hasher.write(source);
        hasher.finish()
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<V>> {
        &self.shards[hash as usize % SHARDS]
    }
}

impl<V: Clone> Shard<V> {
    fn new(most_bytes: usize) -> Self {
        let (entries, by_age) = (BTreeMap::new(), BTreeMap::new());
        Self { entries, by_age, clock: 0, turned_away: 0, bytes: 0, most_bytes }
    }

    fn get(&mut self, hash: u64, source: &[u8]) -> Option<V> {
        let entry = self.entries.get_mut(&hash).filter(|entry| *entry.source == *source)?;
        self.by_age.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.by_age.insert(entry.used, hash);
        Some(entry.value.clone())
    }

    fn wants(&mut self, bytes: usize) -> bool {
        if self.bytes + bytes <= self.most_bytes {
            return true;
        }
        self.turned_away += 1;
        bytes <= self.most_bytes && self.turned_away.is_multiple_of(ONE_IN)
    }

    /// Inserts an entry, and returns those that were dropped for it.
    fn insert(&mut self, hash: u64, source: &[u8], value: V, bytes: usize) -> Vec<Entry<V>> {
        if bytes > self.most_bytes {
            return Vec::new();
        }
        let mut gone: Vec<_> = self.remove(hash).into_iter().collect();
        while self.bytes + bytes > self.most_bytes
            && let Some((_, oldest)) = self.by_age.first_key_value()
        {
            gone.extend(self.remove(*oldest));
        }
        self.clock += 1;
        self.bytes += bytes;
        self.by_age.insert(self.clock, hash);
        self.entries.insert(hash, Entry { source: source.into(), value, bytes, used: self.clock });
        gone
    }

    fn remove(&mut self, hash: u64) -> Option<Entry<V>> {
        let entry = self.entries.remove(&hash)?;
        self.by_age.remove(&entry.used);
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

impl<V> std::fmt::Debug for Interner<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interner").finish_non_exhaustive()
    }
}

/// Locks a part. `None` if another thread uses it.
fn lock<V>(shard: &Mutex<Shard<V>>) -> Option<MutexGuard<'_, Shard<V>>> {
    match shard.try_lock() {
        Ok(shard) => Some(shard),
        // A panic in between has left nothing worse than a value that is not found.
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn as_a_list_would_do() {
        let mut random = ChaCha8Rng::seed_from_u64(8);
        let mut shard = Shard::new(100);
        // The newest last.
        let mut model: Vec<(u8, u32, usize)> = Vec::new();
        for value in 0..20_000_u32 {
            let key: u8 = random.random_range(0..30);
            if random.random_range(0..3) > 0 {
                let at = model.iter().position(|(known, ..)| *known == key);
                let expected = at.map(|at| model.remove(at));
                model.extend(expected);
                assert_eq!(shard.get(key.into(), &[key]), expected.map(|(_, value, _)| value));
            } else {
                let bytes = random.random_range(1..30)
                    * usize::from(random.random_range(0..20) > 0)
                    + 101 * usize::from(random.random_range(0..20) == 0);
                shard.insert(key.into(), &[key], value, bytes);
                if bytes <= 100 {
                    model.retain(|(known, ..)| *known != key);
                    while model.iter().map(|(.., bytes)| bytes).sum::<usize>() + bytes > 100 {
                        model.remove(0);
                    }
                    model.push((key, value, bytes));
                }
            }
            assert_eq!(shard.bytes, model.iter().map(|(.., bytes)| bytes).sum::<usize>());
            assert_eq!((shard.entries.len(), shard.by_age.len()), (model.len(), model.len()));
        }
    }

    #[test]
    fn one_hash_is_not_one_value() {
        let mut shard = Shard::new(100);
        shard.insert(7, b"one", 1, 10);
        assert_eq!((shard.get(7, b"other"), shard.get(7, b"one")), (None, Some(1)));
        shard.insert(7, b"other", 2, 20);
        assert_eq!((shard.get(7, b"other"), shard.get(7, b"one")), (Some(2), None));
        assert_eq!(shard.bytes, 20);
    }

    #[test]
    fn whatever_comes_the_bound_holds() {
        let interner = Interner::new(16_000, [3; 2]);
        assert!(interner.keeps());
        for n in 0..10_000_u32 {
            interner.insert(&n.to_le_bytes(), n, 100);
        }
        let (values, bytes) = interner.kept();
        assert_eq!((values, bytes), (160, 16_000));
        assert_eq!(interner.get(&9_999_u32.to_le_bytes()), Some(9_999));
        assert_eq!(interner.get(&0_u32.to_le_bytes()), None);
        let nothing = Interner::new(0, [3; 2]);
        nothing.insert(b"one", 1, 1);
        assert!(!nothing.keeps() && nothing.kept() == (0, 0));
    }

    #[test]
    fn of_twice_as_many_as_fit_a_third_is_found() {
        let mut shard = Shard::new(1_000);
        let mut come = |all: std::ops::Range<u8>| {
            let (mut found, mut kept) = (0, 0);
            for n in all.cycle().take(1_000) {
                if shard.get(n.into(), &[n]) == Some(n) {
                    found += 1;
                } else if shard.wants(100) {
                    kept += 1;
                    shard.insert(n.into(), &[n], n, 100);
                }
            }
            (found, kept)
        };
        let (found, kept) = come(0..20);
        assert!(found > 333 && kept < 100, "{found} found, {kept} kept");
        // Those of another year come, and are found in the end.
        let (found, kept) = come(100..108);
        assert!(found > 800 && kept < 100, "{found} found, {kept} kept");
        assert!((100..108).all(|n| shard.get(n.into(), &[n]) == Some(n)));
        assert!(!shard.wants(1_001));
    }

    #[test]
    fn threads_find_their_own() {
        let interner = Interner::new(1 << 20, [3; 2]);
        let found = std::thread::scope(|scope| {
            let look = |first: u32| {
                let interner = &interner;
                scope.spawn(move || {
                    let all = (0..50_000).map(|n| (first + n) % 997);
                    all.filter(|n| {
                        let found = interner.get(&n.to_le_bytes());
                        assert!(found.is_none_or(|found| found == *n));
                        interner.insert(&n.to_le_bytes(), *n, 100);
                        found.is_some()
                    })
                    .count()
                })
            };
            let threads: Vec<_> = (0..4).map(|thread| look(thread * 250)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
        });
        assert!(found > 50_000, "{found}");
    }
}
