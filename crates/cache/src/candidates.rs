//! The sessions of a shard that are next to be evicted.
//!
//! Each eviction looks at a few sessions, before long at all of them, and remembers those whose places are worth least. It
//! evicts the one worth least of these. So it costs the same whatever the clients and however many there are, and
//! chooses nearly as well as if it had looked at many times as many.
//!
//! Meanwhile the client may have come, or the session may be gone. So the candidate worth least is looked at again before it is
//! evicted.

use std::hint::select_unpredictable;

use crate::slots::NONE;

/// The most candidates.
const COUNT: usize = 8;

/// The slots that each search looks at.
pub(crate) const LOOKS: u32 = 16;

/// The candidates of a shard, in order of worth. Empty places are at the end.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct Candidates([Candidate; COUNT]);

/// A candidate. An empty place leads to no slot and has the greatest worth.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Candidate {
    worth: u64,
    /// A [`u32`], in a word of its own.
    slot: u64,
}

impl Candidates {
    pub(crate) const COUNT: usize = COUNT;
    pub(crate) const NONE: Self = Self([Candidate::NONE; COUNT]);

    /// Returns the slot of the candidate worth least, and its worth.
    #[inline]
    pub(crate) fn least(&self) -> Option<(u32, u64)> {
        let Candidate { worth, slot } = self.0[0];
        (slot as u32 != NONE).then_some((slot as u32, worth))
    }

    /// Removes the candidate worth least.
    #[inline]
    pub(crate) fn remove_least(&mut self) {
        self.0.copy_within(1.., 0);
        self.0[COUNT - 1] = Candidate::NONE;
    }

    /// Notes what the place of a slot is worth, if that is less than that of another candidate.
    #[inline]
    pub(crate) fn consider(&mut self, slot: u32, worth: u64) {
        if worth < self.0[COUNT - 1].worth {
            self.note(Candidate { worth, slot: slot.into() });
        }
    }

    // Not inlined: few slots come so far.
    #[inline(never)]
    fn note(&mut self, new: Candidate) {
        if self.0.iter().any(|other| other.slot == new.slot) {
            self.forget(new.slot);
        }
        let mut moving = new;
        for place in &mut self.0 {
            // All that are worth more move. They may begin anywhere, so that a branch would be mispredicted.
            let (here, moves) = (*place, new.worth < place.worth);
            *place = Candidate::either(moves, moving, here);
            moving = Candidate::either(moves, here, moving);
        }
    }

    #[cold]
    #[inline(never)]
    fn forget(&mut self, slot: u64) {
        if let Some(at) = self.0.iter().position(|other| other.slot == slot) {
            self.0.copy_within(at + 1.., at);
            self.0[COUNT - 1] = Candidate::NONE;
        }
    }
}

impl Candidate {
    const NONE: Self = Self { worth: u64::MAX, slot: NONE as u64 };

    #[inline(always)]
    fn either(first: bool, a: Self, b: Self) -> Self {
        Self {
            worth: select_unpredictable(first, a.worth, b.worth),
            slot: select_unpredictable(first, a.slot, b.slot),
        }
    }
}
