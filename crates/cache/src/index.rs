//! From an id to its slot: open addressing with linear probing, half full at most.
//!
//! A bucket is the slot and eight bits of the id's hash, so that a probe rarely touches a slot
//! that is not the one. Removal shifts the cluster back: there are no tombstones to sweep.

/// Zero is empty; else eight bits of hash above the slot plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct Bucket(u32);

const SLOT_BITS: u32 = 24;

impl Bucket {
    pub(crate) const EMPTY: Self = Self(0);

    fn new(slot: u32, hash: u64) -> Self {
        Self(tag(hash) | (slot + 1))
    }

    fn slot(self) -> u32 {
        (self.0 & ((1 << SLOT_BITS) - 1)).wrapping_sub(1)
    }
}

fn tag(hash: u64) -> u32 {
    ((hash >> 32) as u32) << SLOT_BITS
}

/// Where a probe starts: the low half of the hash, scaled. (The high bits chose the shard.)
fn home(buckets: &[Bucket], hash: u64) -> usize {
    ((u64::from(hash as u32) * buckets.len() as u64) >> 32) as usize
}

fn after(buckets: &[Bucket], at: usize) -> usize {
    if at + 1 == buckets.len() { 0 } else { at + 1 }
}

/// The slot with this hash that `is_it` accepts.
pub(crate) fn find(
    buckets: &[Bucket],
    hash: u64,
    mut is_it: impl FnMut(u32) -> bool,
) -> Option<u32> {
    let tag = tag(hash);
    let mut at = home(buckets, hash);
    for _ in 0..buckets.len() {
        let bucket = buckets[at];
        if bucket == Bucket::EMPTY {
            return None;
        }
        if bucket.0 & !((1 << SLOT_BITS) - 1) == tag && is_it(bucket.slot()) {
            return Some(bucket.slot());
        }
        at = after(buckets, at);
    }
    None
}

/// Adds a slot whose id is not there yet.
pub(crate) fn insert(buckets: &mut [Bucket], hash: u64, slot: u32) {
    let mut at = home(buckets, hash);
    while buckets[at] != Bucket::EMPTY {
        at = after(buckets, at);
    }
    buckets[at] = Bucket::new(slot, hash);
}

/// Removes a slot, and moves those behind it in its cluster to where a probe will find them.
pub(crate) fn remove(
    buckets: &mut [Bucket],
    hash: u64,
    slot: u32,
    mut hash_of: impl FnMut(u32) -> u64,
) {
    let gone = Bucket::new(slot, hash);
    let mut hole = home(buckets, hash);
    for _ in 0..buckets.len() {
        if buckets[hole] == gone || buckets[hole] == Bucket::EMPTY {
            break;
        }
        hole = after(buckets, hole);
    }
    let mut at = hole;
    for _ in 0..buckets.len() {
        at = after(buckets, at);
        if buckets[at] == Bucket::EMPTY {
            break;
        }
        let from = home(buckets, hash_of(buckets[at].slot()));
        let away = |start: usize, end: usize| (end + buckets.len() - start) % buckets.len();
        if away(from, at) >= away(hole, at) {
            buckets[hole] = buckets[at];
            hole = at;
        }
    }
    buckets[hole] = Bucket::EMPTY;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every hash lands in one of four homes, so that clusters are long and wrap around.
    fn hash_of(slot: u32) -> u64 {
        u64::from(slot) << 32 | (u64::from(slot % 4) << 30) | 0x3fff_ffff
    }

    #[test]
    fn clusters_survive_removal_in_any_order() {
        for stride in [1, 3, 7, 11] {
            let mut buckets = [Bucket::EMPTY; 32];
            (0..16).for_each(|slot| insert(&mut buckets, hash_of(slot), slot));
            for gone in (0..16).map(|i| i * stride % 16) {
                remove(&mut buckets, hash_of(gone), gone, hash_of);
                assert_eq!(find(&buckets, hash_of(gone), |slot| slot == gone), None);
                let left =
                    (0..16).filter(|&s| find(&buckets, hash_of(s), |slot| slot == s).is_some());
                let filled = buckets.iter().filter(|bucket| **bucket != Bucket::EMPTY);
                assert_eq!(left.count(), filled.count());
            }
            assert!(buckets.iter().all(|bucket| *bucket == Bucket::EMPTY));
        }
    }
}
