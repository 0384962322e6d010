//! The index from ids to slots: open addressing with linear probing, two thirds full at most.
//!
//! A bucket holds the slot, its distance from where its probe starts, and four bits of the id's
//! hash. A probe therefore hardly touches a wrong slot, and removal shifts the rest of the cluster
//! back without touching any slot: there are no tombstones to sweep.

/// A bucket: zero if empty, else the distance in four bits, four bits of hash, and the slot plus
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct Bucket(u32);

const SLOT_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// This distance or a greater one, which the slot's hash tells.
const FAR: usize = 15;

impl Bucket {
    pub(crate) const EMPTY: Self = Self(0);

    /// Returns the number of buckets for so many slots.
    pub(crate) const fn count(slots: usize) -> usize {
        slots + slots.div_ceil(2) + 1
    }

    fn new(slot: u32, hash: u64, distance: usize) -> Self {
        Self(mark(hash, distance) | (slot + 1))
    }

    fn slot(self) -> u32 {
        (self.0 & SLOT_MASK).wrapping_sub(1)
    }

    /// Returns the distance, or `None` if it is far.
    fn distance(self) -> Option<usize> {
        let distance = (self.0 >> (SLOT_BITS + 4)) as usize;
        (distance < FAR).then_some(distance)
    }

    fn moved(self, distance: usize) -> Self {
        Self(self.0 & !(0xf << (SLOT_BITS + 4)) | (distance.min(FAR) as u32) << (SLOT_BITS + 4))
    }
}

/// Returns the part of a bucket that is not the slot.
#[inline]
fn mark(hash: u64, distance: usize) -> u32 {
    let tag = (hash >> 32) as u32 & 0xf;
    ((distance.min(FAR) as u32) << 4 | tag) << SLOT_BITS
}

/// Returns where a probe starts: the low half of the hash, scaled. (The high bits chose the shard.)
#[inline]
fn home(buckets: &[Bucket], hash: u64) -> usize {
    ((u64::from(hash as u32) * buckets.len() as u64) >> 32) as usize
}

#[inline]
fn after(buckets: &[Bucket], at: usize) -> usize {
    if at + 1 == buckets.len() { 0 } else { at + 1 }
}

/// Returns the slot with this hash that `is_it` accepts.
#[inline]
pub(crate) fn find(
    buckets: &[Bucket],
    hash: u64,
    mut is_it: impl FnMut(u32) -> bool,
) -> Option<u32> {
    const STEP: u32 = 1 << (SLOT_BITS + 4);
    let home = home(buckets, hash);
    let (mut at, mut mark) = (home, mark(hash, 0));
    loop {
        let bucket = *buckets.get(at)?;
        if bucket == Bucket::EMPTY {
            return None;
        }
        if bucket.0 & !SLOT_MASK == mark && is_it(bucket.slot()) {
            return Some(bucket.slot());
        }
        // The mark of the next distance.
        mark += if mark < FAR as u32 * STEP { STEP } else { 0 };
        at = after(buckets, at);
        if at == home {
            return None;
        }
    }
}

/// Adds a slot whose id is not there yet. Returns true if there was an empty bucket, as there always
/// is unless another process wrote to the memory.
pub(crate) fn insert(buckets: &mut [Bucket], hash: u64, slot: u32) -> bool {
    let mut at = home(buckets, hash);
    for distance in 0..buckets.len() {
        if buckets[at] == Bucket::EMPTY {
            buckets[at] = Bucket::new(slot, hash, distance);
            return true;
        }
        at = after(buckets, at);
    }
    false
}

/// Removes a slot and moves those behind it in its cluster to where a probe finds them. Calls
/// `hash_of` only for those far from where their probe starts. Returns true if the slot was there.
pub(crate) fn remove(
    buckets: &mut [Bucket],
    hash: u64,
    slot: u32,
    mut hash_of: impl FnMut(u32) -> u64,
) -> bool {
    let mut hole = home(buckets, hash);
    for _ in 0..buckets.len() {
        if buckets[hole] == Bucket::EMPTY {
            return false;
        }
        if buckets[hole].slot() == slot {
            break;
        }
        hole = after(buckets, hole);
    }
    let (mut at, mut from_hole) = (hole, 0);
    for _ in 0..buckets.len() {
        at = after(buckets, at);
        from_hole += 1;
        let bucket = buckets[at];
        if bucket == Bucket::EMPTY {
            break;
        }
        let distance = bucket.distance().unwrap_or_else(|| {
            let home = home(buckets, hash_of(bucket.slot()));
            (at + buckets.len() - home) % buckets.len()
        });
        if distance >= from_hole {
            buckets[hole] = bucket.moved(distance - from_hole);
            (hole, from_hole) = (at, 0);
        }
    }
    buckets[hole] = Bucket::EMPTY;
    true
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
        for stride in [1, 5, 7, 19] {
            let mut buckets = [Bucket::EMPTY; Bucket::count(36)];
            (0..36).for_each(|slot| assert!(insert(&mut buckets, hash_of(slot), slot)));
            for gone in (0..36).map(|i| i * stride % 36) {
                assert!(remove(&mut buckets, hash_of(gone), gone, hash_of));
                assert_eq!(find(&buckets, hash_of(gone), |slot| slot == gone), None);
                let left =
                    (0..36).filter(|&s| find(&buckets, hash_of(s), |slot| slot == s).is_some());
                let filled = buckets.iter().filter(|bucket| **bucket != Bucket::EMPTY);
                assert_eq!(left.count(), filled.count());
            }
            assert!(buckets.iter().all(|bucket| *bucket == Bucket::EMPTY));
        }
    }
}
