//! The order in which clients are expected back.
//!
//! One list per interval class. A session joins the end of its class's list when its client is
//! heard of, so that every list is in order of return time by itself, and the first and last
//! session of the whole shard are among the ends of the few dozen lists in use. Joining and
//! leaving cost what they cost an LRU list; finding an end looks at the ends only, which the class
//! table repeats so that no slot is touched.
//!
//! Under the policy `lru` there is one list.

use std::num::NonZero;

use crate::interval::IntervalClass;
use crate::layout::{NONE, Slot};

/// A list and the return times at its ends, in ticks.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct ClassList {
    first: u32,
    last: u32,
    first_return: u32,
    last_return: u32,
}

impl ClassList {
    pub(crate) const EMPTY: Self =
        Self { first: NONE, last: NONE, first_return: 0, last_return: 0 };
}

/// The session at an end of the order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) slot: u32,
    pub(crate) returns: u32,
}

/// The parts of a shard that make the order.
pub(crate) struct Order<'a> {
    pub(crate) lists: &'a mut [ClassList],
    pub(crate) occupied: &'a mut [u64; IntervalClass::COUNT / 64],
    pub(crate) slots: &'a mut [Slot],
}

impl Order<'_> {
    /// Puts a slot, whose class and time of last sight are set, at the end of its list.
    #[inline]
    pub(crate) fn join(&mut self, slot: u32) {
        let Slot { class, seen, .. } = self.slots[slot as usize];
        let returns = returns(seen, class);
        let list = &mut self.lists[usize::from(class)];
        let before = std::mem::replace(&mut list.last, slot);
        list.last_return = returns;
        if before == NONE {
            list.first = slot;
            list.first_return = returns;
            self.occupied[usize::from(class) / 64] |= 1 << (class % 64);
        } else {
            self.slots[before as usize].later = slot;
        }
        let joined = &mut self.slots[slot as usize];
        joined.earlier = before;
        joined.later = NONE;
    }

    /// Takes a slot out of its list.
    #[inline]
    pub(crate) fn leave(&mut self, slot: u32) {
        let Slot { class, earlier, later, .. } = self.slots[slot as usize];
        let list = &mut self.lists[usize::from(class)];
        if earlier == NONE {
            list.first = later;
        }
        if later == NONE {
            list.last = earlier;
        }
        if later != NONE {
            let next = &mut self.slots[later as usize];
            next.earlier = earlier;
            if earlier == NONE {
                list.first_return = returns(next.seen, class);
            }
        }
        if earlier != NONE {
            let before = &mut self.slots[earlier as usize];
            before.later = later;
            if later == NONE {
                list.last_return = returns(before.seen, class);
            }
        }
        if earlier == NONE && later == NONE {
            self.occupied[usize::from(class) / 64] &= !(1 << (class % 64));
        }
    }

    /// The session expected first, those never expected left out.
    pub(crate) fn earliest(&self) -> Option<End> {
        let ends = self.ends().map(|list| End { slot: list.first, returns: list.first_return });
        ends.min_by_key(|end| end.returns)
    }

    /// The session expected last, those never expected left out.
    pub(crate) fn latest(&self) -> Option<End> {
        let ends = self.ends().map(|list| End { slot: list.last, returns: list.last_return });
        ends.max_by_key(|end| end.returns)
    }

    /// Of the sessions never expected back, the one stored longest ago.
    pub(crate) fn never(&self) -> Option<u32> {
        let list = &self.lists[usize::from(IntervalClass::NEVER.0)];
        (list.first != NONE).then_some(list.first)
    }

    /// The first of a class.
    pub(crate) fn first_of(&self, class: IntervalClass) -> Option<u32> {
        let first = self.lists[usize::from(class.0)].first;
        (first != NONE).then_some(first)
    }

    /// Reads the return times at the ends again, after the epoch moved.
    pub(crate) fn refresh(&mut self) {
        for (class, list) in self.lists.iter_mut().enumerate().filter(|(_, l)| l.first != NONE) {
            list.first_return = returns(self.slots[list.first as usize].seen, class as u8);
            list.last_return = returns(self.slots[list.last as usize].seen, class as u8);
        }
    }

    fn ends(&self) -> impl Iterator<Item = &ClassList> {
        let never = usize::from(IntervalClass::NEVER.0);
        let classes = self.occupied.iter().enumerate().flat_map(|(word, bits)| {
            let but_lowest = |bits: &NonZero<u64>| NonZero::new(bits.get() & (bits.get() - 1));
            std::iter::successors(NonZero::new(*bits), but_lowest)
                .map(move |bits| word * 64 + bits.trailing_zeros() as usize)
        });
        classes.filter(move |class| *class != never).map(|class| &self.lists[class])
    }
}

/// When a client last seen at `seen`, below 2³¹, is expected: below 2³². See [`crate::shard`].
#[inline]
pub(crate) fn returns(seen: u32, class: u8) -> u32 {
    seen.saturating_add(IntervalClass(class).interval().ticks())
}
