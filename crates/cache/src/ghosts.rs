//! Ghosts: clients whose session was evicted or refused. A client that comes back soon after is
//! counted as wanted, and its history is known when its next session is stored.
//!
//! A ghost takes eight bytes: 16 bits of the id's hash, 24 of the time the client was seen, 10 of
//! its expectation, 13 of its history. Eight share a cache line, chosen by hash; when it is full,
//! the ghost worth least makes way. If one client is mistaken for another (once in ten thousand
//! misses), or one seen more than three days ago for a recent one, the expectation is wrong, and
//! nothing else.

use crate::History;
use crate::expectation::Expectation;

/// The number of ghosts in a cache line.
const GHOSTS: usize = 8;

/// Eight ghosts; a zero is an empty place.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct GhostSet([u64; GHOSTS]);

impl GhostSet {
    pub(crate) const GHOSTS: usize = GHOSTS;
}

/// The record of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// The client's [`tag`].
    pub(crate) tag: u16,
    /// The time since it was last seen.
    pub(crate) age_ticks: u32,
    pub(crate) expected: Expectation,
    pub(crate) history: History,
}

const TAG_SHIFT: u32 = 48;
const SEEN_SHIFT: u32 = 24;
const SEEN_MASK: u64 = (1 << 24) - 1;
const EXPECTED_SHIFT: u32 = 13;
const HISTORY_MASK: u32 = (1 << 13) - 1;
/// Ticks in the unit of [`SEEN_MASK`]: 16 ms, so that the field wraps after three days.
const UNIT_TICKS: u32 = 4;

impl Ghost {
    fn packed(&self, now: u32) -> u64 {
        let known = (self.expected.index() as u32) << EXPECTED_SHIFT | self.history.coarse();
        let seen = units(now.saturating_sub(self.age_ticks));
        u64::from(self.tag) << TAG_SHIFT | seen << SEEN_SHIFT | u64::from(known)
    }

    fn unpacked(packed: u64, now: u32) -> Self {
        let known = packed as u32;
        let age = units(now).wrapping_sub(packed >> SEEN_SHIFT) & SEEN_MASK;
        Self {
            tag: (packed >> TAG_SHIFT) as u16,
            age_ticks: age as u32 * UNIT_TICKS,
            expected: Expectation::from_index((known >> EXPECTED_SHIFT) as usize),
            history: History::from_coarse(known & HISTORY_MASK),
        }
    }
}

/// Remembers a client. Returns the ghost that had to make way, which is the client itself if there
/// is no place at all.
pub(crate) fn add(
    sets: &mut [GhostSet],
    hash: u64,
    now: u32,
    ghost: &Ghost,
    worth: impl Fn(&Ghost) -> u64,
) -> Option<Ghost> {
    let Some(GhostSet(ghosts)) = set_of(sets, hash) else { return Some(*ghost) };
    let worth_of =
        |place: u64| if place == 0 { 0 } else { 1 + worth(&Ghost::unpacked(place, now)) };
    let least = ghosts.iter_mut().min_by_key(|place| worth_of(**place))?;
    let before = std::mem::replace(least, ghost.packed(now));
    (before != 0).then(|| Ghost::unpacked(before, now))
}

/// Removes a client and returns its record.
pub(crate) fn take(sets: &mut [GhostSet], hash: u64, now: u32) -> Option<Ghost> {
    let GhostSet(ghosts) = set_of(sets, hash)?;
    let tag = u64::from(tag(hash));
    let ghost = ghosts.iter_mut().find(|ghost| **ghost >> TAG_SHIFT == tag)?;
    Some(Ghost::unpacked(std::mem::take(ghost), now))
}

fn units(ticks: u32) -> u64 {
    u64::from(ticks / UNIT_TICKS) & SEEN_MASK
}

fn set_of(sets: &mut [GhostSet], hash: u64) -> Option<&mut GhostSet> {
    let at = (u64::from(hash as u32) * sets.len() as u64) >> 32;
    sets.get_mut(at as usize)
}

/// Returns the bits of an id's hash by which a ghost is recognised; never zero.
pub(crate) fn tag(hash: u64) -> u16 {
    ((hash >> 32) as u16).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ghost(client: u64, age_ticks: u32) -> Ghost {
        let (expected, history) = (Expectation::UNKNOWN, History::default());
        Ghost { tag: tag(client << 32), age_ticks, expected, history }
    }

    fn younger(ghost: &Ghost) -> u64 {
        u64::from(u32::MAX - ghost.age_ticks)
    }

    #[test]
    fn the_least_makes_way() {
        let mut sets = [GhostSet([0; 8])];
        let ages = [20, 80, 40, 60, 8, 72, 32, 48];
        for (client, age) in (1..).zip(ages) {
            assert_eq!(add(&mut sets, client << 32, 100, &ghost(client, age), younger), None);
        }
        let lost = add(&mut sets, 9 << 32, 100, &ghost(9, 76), younger);
        assert_eq!(lost, Some(ghost(2, 80)));
        let lost = add(&mut sets, 10 << 32, 100, &ghost(10, 0), younger);
        assert_eq!(lost, Some(ghost(9, 76)), "the newcomer may have been seen before any other");
        assert_eq!(take(&mut sets, 2 << 32, 104), None);
        assert_eq!(take(&mut sets, 3 << 32, 104), Some(ghost(3, 44)));
        assert_eq!(take(&mut sets, 3 << 32, 104), None);
    }

    #[test]
    fn time_may_wrap() {
        let mut sets = [GhostSet([0; 8])];
        let last = (SEEN_MASK as u32) * UNIT_TICKS;
        add(&mut sets, 1 << 32, last, &ghost(1, 0), younger);
        let ghost = take(&mut sets, 1 << 32, last + 400).expect("there");
        assert_eq!(ghost.age_ticks, 400);
    }
}
