//! Histories of clients whose session was evicted: a client that comes back soon after is counted
//! as wanted, and is known when its next session is stored.
//!
//! Five to a cache line, chosen by hash, replaced in turn. A ghost is told by 32 bits of the
//! hash: mistaking one for another costs a wrong expectation, nothing else.

use crate::History;

/// As many as a cache line holds.
const GHOSTS_PER_SET: usize = 5;

#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Ghost {
    /// Zero: nobody.
    hash: u32,
    seen: u32,
    history: History,
}

#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct GhostSet {
    ghosts: [Ghost; GHOSTS_PER_SET],
    next: u32,
}

impl GhostSet {
    pub(crate) const GHOSTS: usize = GHOSTS_PER_SET;
}

/// Remembers a client that was last seen at tick `seen`.
pub(crate) fn add(sets: &mut [GhostSet], hash: u64, seen: u32, history: History) {
    if let Some(set) = set_of(sets, hash) {
        let ghost = &mut set.ghosts[set.next as usize % GhostSet::GHOSTS];
        *ghost = Ghost { hash: told_by(hash), seen, history };
        set.next = (set.next + 1) % GhostSet::GHOSTS as u32;
    }
}

/// Forgets the client and says when it was last seen, and its history.
pub(crate) fn take(sets: &mut [GhostSet], hash: u64) -> Option<(u32, History)> {
    let set = set_of(sets, hash)?;
    let ghost = set.ghosts.iter_mut().find(|ghost| ghost.hash == told_by(hash))?;
    ghost.hash = 0;
    Some((ghost.seen, ghost.history))
}

/// Moves the past by `ticks`, when the shard's epoch moves.
pub(crate) fn rebase(sets: &mut [GhostSet], ticks: u32) {
    let ghosts = sets.iter_mut().flat_map(|set| &mut set.ghosts);
    ghosts.for_each(|ghost| ghost.seen = ghost.seen.saturating_sub(ticks));
}

fn set_of(sets: &mut [GhostSet], hash: u64) -> Option<&mut GhostSet> {
    let at = (u64::from(hash as u32) * sets.len() as u64) >> 32;
    sets.get_mut(at as usize)
}

fn told_by(hash: u64) -> u32 {
    ((hash >> 24) as u32).max(1)
}
