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
        let (mut at, mut least) = (0, self.worth[0]);
        for (other, worth) in self.worth.into_iter().enumerate() {
            if worth < least {
                (at, least) = (other, worth);
            }
        }
        (self.slots[at] != NONE).then(|| (at, self.slots[at], least))
    }

    /// Notes anew what a candidate is worth; `None` if it is none any more.
    #[inline]
    pub(crate) fn note(&mut self, at: usize, worth: Option<u64>) {
        match worth {
            Some(worth) => self.worth[at] = worth,
            None => (self.slots[at], self.worth[at]) = (NONE, u64::MAX),
        }
    }

    /// Returns the first place of the candidate worth most, and its worth.
    #[inline]
    fn most(&self) -> (usize, u64) {
        let (mut at, mut most) = (0, self.worth[0]);
        for (other, worth) in self.worth.into_iter().enumerate() {
            if worth > most {
                (at, most) = (other, worth);
            }
        }
        (at, most)
    }
}

/// A search for candidates.
pub(crate) struct Search {
    candidates: Candidates,
    /// A bit for each candidate, by the lowest bits of its slot.
    known: u64,
    /// The first place of the one worth most, and its worth.
    most: (usize, u64),
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
        let may_be_known = self.known >> (slot % 64) & 1 == 1;
        if worth < self.most.1 || may_be_known {
            self.note(slot, worth, may_be_known);
        }
    }

    // Not inlined: most slots are not worth little.
    #[inline(never)]
    fn note(&mut self, slot: u32, worth: u64, may_be_known: bool) {
        let Candidates { slots, worth: of } = &mut self.candidates;
        let (most, most_worth) = self.most;
        let is_less = worth < most_worth;
        let known = || slots.iter().position(|known| *known == slot);
        let at = match may_be_known.then(known).flatten() {
            Some(at) => at,
            None if is_less => most,
            None => return,
        };
        (slots[at], of[at]) = (slot, worth);
        self.known |= 1 << (slot % 64);
        if is_less && at == most {
            self.most = self.candidates.most();
        } else if worth > most_worth || worth == most_worth && at < most {
            self.most = (at, worth);
        }
    }

    /// Returns all candidates.
    #[inline]
    pub(crate) fn end(self) -> Candidates {
        self.candidates
    }
}
