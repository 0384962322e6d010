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
const COUNT: usize = 8;

/// The slots that each search looks at, in turns.
pub(crate) const LOOKS: u32 = 16;

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
        let (at, least) = self.first(|worth, other| worth < other);
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
        self.first(|worth, other| worth > other)
    }

    /// Returns the place whose worth beats all others, or the first such place. Neighbours are compared, then the
    /// winners: no comparison waits for more than three others, as it would for all if the places were taken in order.
    #[inline]
    fn first(&self, beats: impl Fn(u64, u64) -> bool) -> (usize, u64) {
        let mut places: [_; COUNT] = std::array::from_fn(|at| (at, self.worth[at]));
        let mut left = COUNT;
        while left > 1 {
            left /= 2;
            for at in 0..left {
                let [first, second] = [places[2 * at], places[2 * at + 1]];
                places[at] = if beats(second.1, first.1) { second } else { first };
            }
        }
        places[0]
    }
}

/// A search for candidates.
pub(crate) struct Search {
    candidates: Candidates,
    /// The first place of the one worth most, and its worth.
    most: (usize, u64),
}

impl Search {
    /// Begins with those that are known.
    #[inline]
    pub(crate) fn beyond(candidates: Candidates) -> Self {
        Self { candidates, most: candidates.most() }
    }

    /// Notes what the place of a slot is worth, if that is less than that of another candidate.
    #[inline]
    pub(crate) fn consider(&mut self, slot: u32, worth: u64) {
        if worth < self.most.1 {
            self.note(slot, worth);
        }
    }

    // Not inlined: few slots come so far.
    #[inline(never)]
    fn note(&mut self, slot: u32, worth: u64) {
        let Candidates { slots, worth: of } = &mut self.candidates;
        let (most, most_worth) = self.most;
        let at = slots.iter().position(|known| *known == slot).unwrap_or(most);
        (slots[at], of[at]) = (slot, worth);
        if worth > most_worth || worth == most_worth && at < most {
            self.most = (at, worth);
        } else if at == most {
            self.most = self.candidates.most();
        }
    }

    /// Returns all candidates.
    #[inline]
    pub(crate) fn end(self) -> Candidates {
        self.candidates
    }
}
