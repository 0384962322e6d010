//! A shard's slots, found by numbers that somebody else may have scribbled on.
//!
//! A number beyond the end leads to the last slot: it can confuse, but neither lead outside nor
//! stop the program. That it happened is remembered, as is whatever else no operation can have
//! written: [`crate::shard::Shard`] is emptied when the operation is over.

use std::cell::Cell;
use std::ops::{Index, IndexMut};

use crate::layout::Slot;

/// See the module's documentation.
pub(crate) struct Slots<'r> {
    slots: &'r mut [Slot],
    astray: Cell<bool>,
}

impl<'r> Slots<'r> {
    /// Of a shard, which has one slot at least.
    #[inline]
    pub(crate) fn new(slots: &'r mut [Slot]) -> Self {
        Self { slots, astray: Cell::new(false) }
    }

    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// What was just read is nothing that an operation wrote.
    // Inline: a call that returns would have every caller save its registers.
    #[inline]
    pub(crate) fn set_astray(&self) {
        self.astray.set(true);
    }

    #[inline]
    pub(crate) fn is_astray(&self) -> bool {
        self.astray.get()
    }

    /// The first so many, or all there are.
    pub(crate) fn first(&mut self, slots: u32) -> &mut [Slot] {
        let slots = slots.min(self.count());
        &mut self.slots[..slots as usize]
    }

    /// Makes all of them unused.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(bytemuck::Zeroable::zeroed());
        self.astray.set(false);
    }

    /// The number of the slot that `slot` leads to.
    #[inline]
    pub(crate) fn within(&self, slot: u32) -> usize {
        if (slot as usize) < self.slots.len() { slot as usize } else { self.last() }
    }

    /// Where every number leads that is none.
    #[inline]
    fn last(&self) -> usize {
        self.set_astray();
        self.slots.len() - 1
    }
}

// The comparison is the one that indexing would make anyway.
impl Index<u32> for Slots<'_> {
    type Output = Slot;

    #[inline]
    fn index(&self, slot: u32) -> &Slot {
        if (slot as usize) < self.slots.len() {
            return &self.slots[slot as usize];
        }
        &self.slots[self.last()]
    }
}

impl IndexMut<u32> for Slots<'_> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Slot {
        if (slot as usize) < self.slots.len() {
            return &mut self.slots[slot as usize];
        }
        let last = self.last();
        &mut self.slots[last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_leads_outside() {
        let mut slots = [bytemuck::Zeroable::zeroed(); 3];
        let mut slots = Slots::new(&mut slots);
        slots[2].seen = 7;
        assert!(!slots.is_astray());
        assert_eq!(slots[3].seen, 7);
        assert!(slots.is_astray());
        slots[u32::MAX].seen = 8;
        assert_eq!(slots[2].seen, 8);
        assert_eq!(slots.first(u32::MAX).len(), 3);
    }
}
