//! Histories of clients whose session was evicted or refused: a client that comes back soon after
//! is counted as wanted, and is known when its next session is stored.
//!
//! A ghost takes eight bytes: 16 bits of the id's hash, 24 of the time the client was seen, and
//! its two gaps in 12 bits each. Eight share a cache line, chosen by hash, and the oldest of them
//! makes way. Mistaking one client for another (once in ten thousand misses), or one seen more
//! than three days ago for a recent one, costs a wrong expectation, nothing else.

use crate::History;

/// As many as a cache line holds.
const GHOSTS: usize = 8;

/// Eight ghosts; zero is nobody.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct GhostSet([u64; GHOSTS]);

impl GhostSet {
    pub(crate) const GHOSTS: usize = GHOSTS;
}

const HASH_SHIFT: u32 = 48;
const SEEN_SHIFT: u32 = 24;
const SEEN_MASK: u64 = (1 << 24) - 1;
/// Ticks in the unit of [`SEEN_MASK`]: 16 ms, so that the field wraps after three days.
const UNIT_TICKS: u32 = 4;

/// Remembers a client that was last seen at tick `seen`.
pub(crate) fn add(sets: &mut [GhostSet], hash: u64, now: u32, seen: u32, history: History) {
    if let Some(GhostSet(ghosts)) = set_of(sets, hash) {
        // As old as they are now: the newcomer may have been seen before any of them.
        let oldest = ghosts.iter_mut().max_by_key(|ghost| match **ghost {
            0 => u64::MAX,
            ghost => age(ghost, units(now)),
        });
        if let Some(place) = oldest {
            let told_by = u64::from(told_by(hash)) << HASH_SHIFT;
            *place = told_by | units(seen) << SEEN_SHIFT | u64::from(history.coarse());
        }
    }
}

/// Forgets the client; returns how many ticks ago it was last seen, and its history.
pub(crate) fn take(sets: &mut [GhostSet], hash: u64, now: u32) -> Option<(u32, History)> {
    let GhostSet(ghosts) = set_of(sets, hash)?;
    let told_by = u64::from(told_by(hash));
    let ghost = ghosts.iter_mut().find(|ghost| **ghost >> HASH_SHIFT == told_by)?;
    let ghost = std::mem::take(ghost);
    let ticks = age(ghost, units(now)) as u32 * UNIT_TICKS;
    Some((ticks, History::from_coarse(ghost as u32 & SEEN_MASK as u32)))
}

fn units(ticks: u32) -> u64 {
    u64::from(ticks / UNIT_TICKS) & SEEN_MASK
}

/// Units since the ghost was seen.
fn age(ghost: u64, now: u64) -> u64 {
    now.wrapping_sub(ghost >> SEEN_SHIFT) & SEEN_MASK
}

fn set_of(sets: &mut [GhostSet], hash: u64) -> Option<&mut GhostSet> {
    let at = (u64::from(hash as u32) * sets.len() as u64) >> 32;
    sets.get_mut(at as usize)
}

fn told_by(hash: u64) -> u16 {
    ((hash >> 32) as u16).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_way() {
        let mut sets = [GhostSet([0; 8])];
        let client = |n: u64| (n + 1) << 32;
        let times = [70, 10, 50, 30, 80, 20, 60, 40, 90];
        for (n, seen) in times.into_iter().enumerate() {
            add(&mut sets, client(n as u64), 90, seen, History::default());
        }
        assert_eq!(take(&mut sets, client(1), 100), None);
        add(&mut sets, client(9), 95, 15, History::default());
        assert_eq!(take(&mut sets, client(5), 100), None, "not one seen after the newcomer");
        assert_eq!(take(&mut sets, client(3), 100).map(|(ticks, _)| ticks), Some(72));
        assert_eq!(take(&mut sets, client(3), 100), None);
    }

    #[test]
    fn time_may_wrap() {
        let mut sets = [GhostSet([0; 8])];
        let last = (SEEN_MASK as u32) * UNIT_TICKS;
        add(&mut sets, 1 << 32, last, last, History::default());
        let (ticks, _) = take(&mut sets, 1 << 32, last + 400).expect("there");
        assert_eq!(ticks, 400);
    }
}
