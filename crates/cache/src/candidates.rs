//! The sessions of a shard that are next to be evicted.
//!
//! Each eviction looks at a few sessions, in turns at all of them, and remembers those whose places are worth least. It
//! evicts the one worth least of these. So it costs the same whatever the clients and however many there are, and
//! chooses nearly as well as if it had looked at many times as many.
//!
//! Meanwhile the client may have come, or the session may be gone. So the candidate worth least is looked at again before it is
//! evicted.

use crate::slots::NONE;

/// The most candidates.
const COUNT: usize = 16;

/// The candidates of a shard. An empty place leads to no slot and has the greatest worth.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Candidates {
    slots: [u32; COUNT],
    worth: [u64; COUNT],
}

impl Candidates {
    pub(crate) const COUNT: usize = COUNT;
    pub(crate) const NONE: Self =
        Self { slots: [NONE; Self::COUNT], worth: [u64::MAX; Self::COUNT] };

    /// Returns the place of the candidate worth least, its slot and its worth.
    #[inline]
    pub(crate) fn least(&self) -> Option<(usize, u32, u64)> {
        let mut at = 0;
        for other in 1..Self::COUNT {
            if self.worth[other] < self.worth[at] {
                at = other;
            }
        }
        (self.slots[at] != NONE).then(|| (at, self.slots[at], self.worth[at]))
    }

    /// Notes anew what a candidate is worth; `None` if it is none any more.
    #[inline]
    pub(crate) fn note(&mut self, at: usize, worth: Option<u64>) {
        match worth {
            Some(worth) => self.worth[at] = worth,
            None => (self.slots[at], self.worth[at]) = (NONE, u64::MAX),
        }
    }

    #[inline]
    fn most(&self) -> usize {
        let mut at = 0;
        for other in 1..Self::COUNT {
            if self.worth[other] > self.worth[at] {
                at = other;
            }
        }
        at
    }
}

/// A search for candidates.
pub(crate) struct Search {
    candidates: Candidates,
    /// A bit for each candidate, by the lowest bits of its slot.
    known: u64,
    /// The place of the one worth most.
    most: usize,
}

impl Search {
    /// Begins with those that are known.
    #[inline]
    pub(crate) fn beyond(candidates: Candidates) -> Self {
        let known = candidates.slots.iter().fold(0, |known, slot| known | 1 << (slot % 64));
        Self { candidates, known, most: candidates.most() }
    }

    /// Notes what the place of a slot is worth, if that is less than that of another candidate.
    #[inline]
    pub(crate) fn consider(&mut self, slot: u32, worth: u64) {
        let Candidates { slots, worth: of } = &mut self.candidates;
        let is_less = worth < of[self.most];
        if !is_less && self.known >> (slot % 64) & 1 == 0 {
            return;
        }
        let at = match slots.iter().position(|known| *known == slot) {
            Some(at) => at,
            None if is_less => self.most,
            None => return,
        };
        (slots[at], of[at]) = (slot, worth);
        self.known |= 1 << (slot % 64);
        if at == self.most || !is_less {
            self.most = self.candidates.most();
        }
    }

    /// Returns all candidates.
    #[inline]
    pub(crate) fn end(self) -> Candidates {
        self.candidates
    }
}
