//! The index from ids to slots: groups of eight entries, of which a probe compares all at once.
//!
//! An entry is the slot and its tag, seven bits of the id's hash. The hash tells the group in which a probe begins. If that is full,
//! the entry goes to the next that is not, and each full one counts that it was passed. A probe ends at the first group that
//! none has passed, which is mostly the first of all. Removal moves nothing, and leaves no tombstones to sweep.

/// The entries of a group.
const ENTRIES: usize = 8;

/// Eight entries, 73 % of them in use at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Group {
    /// The tags, each in the lower bits of a byte; zero in an empty place. The bytes' top bits together are the number of entries that
    /// passed.
    tags: u64,
    slots: [[u8; 3]; ENTRIES],
}

/// The bits of tags.
const TAGS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
/// The bits of the number of those that passed. If all are set there may have been more, and the number stays.
const PASSED: u64 = !TAGS;
/// One that passed.
const ONE: u64 = 1 << 7;

impl Group {
    pub(crate) const EMPTY: Self = Self { tags: 0, slots: [[0; 3]; ENTRIES] };
    /// Returns the number of groups for so many slots.
    pub(crate) const fn count(slots: usize) -> usize {
        (slots * 11).div_ceil(8 * ENTRIES) + 1
    }

    /// Returns the number of entries.
    pub(crate) fn entries(&self) -> u32 {
        ENTRIES as u32 - self.places(0).0.count_ones()
    }

    /// Returns the places that have this tag.
    #[inline]
    fn places(&self, tag: u64) -> Places {
        let differ = (self.tags & TAGS) ^ (tag * 0x0101_0101_0101_0101);
        // In a byte of zero the sum has no top bit.
        Places(!(differ + TAGS) & PASSED)
    }

    #[inline]
    fn slot(&self, place: usize) -> u32 {
        let [low, middle, high] = self.slots[place];
        u32::from_le_bytes([low, middle, high, 0])
    }

    #[inline]
    fn was_passed(&self) -> bool {
        self.tags & PASSED != 0
    }

    #[inline]
    fn set(&mut self, place: usize, tag: u64, slot: u32) {
        let [low, middle, high, _] = slot.to_le_bytes();
        self.slots[place] = [low, middle, high];
        self.tags |= tag << (8 * place);
    }

    #[inline]
    fn clear(&mut self, place: usize) {
        self.tags &= !(0x7f << (8 * place));
    }

    /// Counts one more that passed. What is carried runs through the bits of the tags, which are all set for that.
    #[cold]
    fn pass(&mut self) {
        if self.tags & PASSED != PASSED {
            self.tags = self.tags & TAGS | (self.tags | TAGS).wrapping_add(ONE) & PASSED;
        }
    }

    /// Counts one less.
    #[cold]
    fn pass_back(&mut self) {
        if self.was_passed() && self.tags & PASSED != PASSED {
            self.tags = self.tags & TAGS | ((self.tags & PASSED) - ONE) & PASSED;
        }
    }
}

/// Places in a group: the top bits of their bytes.
#[derive(Clone, Copy)]
struct Places(u64);

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let place = self.0.trailing_zeros() as usize / 8;
        (self.0 != 0).then(|| {
            self.0 &= self.0 - 1;
            place
        })
    }
}

/// Returns the tag of a hash; never zero.
#[inline]
fn tag(hash: u64) -> u64 {
    ((hash >> 32) & 0x7f).max(1)
}

/// Returns the group in which a probe begins: the low half of the hash, scaled. (The high bits chose the shard.)
#[inline]
fn home(groups: &[Group], hash: u64) -> usize {
    ((u64::from(hash as u32) * groups.len() as u64) >> 32) as usize
}

#[inline]
fn after(groups: &[Group], at: usize) -> usize {
    if at + 1 == groups.len() { 0 } else { at + 1 }
}

/// Returns the slot with this hash that `is_it` accepts.
#[inline]
pub(crate) fn find(groups: &[Group], hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
    place(groups, hash, |group, place| {
        let slot = group.slot(place);
        is_it(slot).then_some(slot)
    })
    .map(|(_, slot)| slot)
}

/// Returns the group of the place with this hash that `is_it` accepts, and what that returns.
#[inline]
fn place<T>(
    groups: &[Group],
    hash: u64,
    mut is_it: impl FnMut(&Group, usize) -> Option<T>,
) -> Option<(usize, T)> {
    let (home, tag) = (home(groups, hash), tag(hash));
    let mut at = home;
    loop {
        let group = groups.get(at)?;
        for place in group.places(tag) {
            if let Some(found) = is_it(group, place) {
                return Some((at, found));
            }
        }
        if !group.was_passed() {
            return None;
        }
        at = after(groups, at);
        if at == home {
            return None;
        }
    }
}

/// Adds a slot whose id is not there yet. Returns true if there was an empty place, as there always
/// is unless another process wrote to the memory.
#[inline]
pub(crate) fn insert(groups: &mut [Group], hash: u64, slot: u32) -> bool {
    let mut at = home(groups, hash);
    for _ in 0..groups.len() {
        if let Some(place) = groups[at].places(0).next() {
            groups[at].set(place, tag(hash), slot);
            return true;
        }
        groups[at].pass();
        at = after(groups, at);
    }
    false
}

/// Removes a slot. Returns true if it was there.
#[inline]
pub(crate) fn remove(groups: &mut [Group], hash: u64, slot: u32) -> bool {
    let found = place(groups, hash, |group, place| (group.slot(place) == slot).then_some(place));
    let Some((group, place)) = found else { return false };
    groups[group].clear(place);
    let mut passed = home(groups, hash);
    while passed != group {
        groups[passed].pass_back();
        passed = after(groups, passed);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every hash has one of four homes and one of two tags, so that many groups are passed, and the last, too.
    fn hash_of(slot: u32) -> u64 {
        u64::from(slot % 2) << 32 | u64::from(slot % 4) << 30 | 0x3fff_ffff
    }

    #[test]
    fn all_are_found_whatever_is_removed() {
        const SLOTS: u32 = 1_200;
        for stride in [1, 7, 11, 101] {
            let mut groups = [Group::EMPTY; Group::count(SLOTS as usize)];
            (0..SLOTS).for_each(|slot| assert!(insert(&mut groups, hash_of(slot), slot)));
            assert!(groups.iter().any(|group| group.tags & PASSED == PASSED), "more than counted");
            for (left, gone) in (0..SLOTS).rev().zip((0..SLOTS).map(|i| i * stride % SLOTS)) {
                assert!(remove(&mut groups, hash_of(gone), gone));
                assert!(!remove(&mut groups, hash_of(gone), gone));
                if left % 50 > 0 {
                    continue;
                }
                let is_found = |slot: &u32| {
                    find(&groups, hash_of(*slot), |other| other == *slot) == Some(*slot)
                };
                assert_eq!((0..SLOTS).filter(is_found).count(), left as usize);
                assert_eq!(groups.iter().map(Group::entries).sum::<u32>(), left);
            }
        }
    }

    #[test]
    fn no_count_stays_when_those_that_passed_are_gone() {
        const SLOTS: u32 = 64;
        let mut groups = [Group::EMPTY; Group::count(SLOTS as usize)];
        for _ in 0..3 {
            (0..SLOTS).for_each(|slot| assert!(insert(&mut groups, hash_of(slot), slot)));
            assert!(groups.iter().any(Group::was_passed));
            (0..SLOTS).for_each(|slot| assert!(remove(&mut groups, hash_of(slot), slot)));
            assert!(groups.iter().all(|group| group.tags == 0));
        }
    }

    #[test]
    fn a_full_index_ends_every_probe() {
        let mut groups = [Group::EMPTY; 2];
        (0..16).for_each(|slot| assert!(insert(&mut groups, hash_of(slot), slot)));
        assert!(!insert(&mut groups, hash_of(16), 16));
        assert_eq!(find(&groups, hash_of(16), |slot| slot == 16), None);
        assert!(!remove(&mut groups, hash_of(16), 16));
    }
}
