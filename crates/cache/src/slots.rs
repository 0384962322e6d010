//! A shard's slots, found by numbers that somebody else may have scribbled on.
//!
//! A number beyond the end leads to the last slot: it can confuse, but neither lead outside nor
//! stop the program. That it happened is remembered, as is whatever else no operation can have
//! written: [`crate::shard::Shard`] is emptied when the operation is over.
//!
//! In memory that is [`Region::PRIVATE`] nothing is doubted, and nothing of this is compiled.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use crate::expectation::Expectation;
use crate::history::History;
use crate::region::Region;

/// "No slot", in every link.
pub(crate) const NONE: u32 = u32::MAX;

/// A session, or the rest of one whose value did not fit in one block.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Slot {
    /// Of a slot with the rest of a value: that of the session, so that no chain can be led astray.
    pub(crate) id: [u8; 32],
    /// Neighbours in its list.
    pub(crate) earlier: u32,
    pub(crate) later: u32,
    /// The slot with the rest of the value; in a free slot, the next free one.
    pub(crate) rest: u32,
    /// When the client was last heard of, in ticks.
    pub(crate) seen: u32,
    /// Seconds since the shard was born.
    pub(crate) expiry_s: u32,
    pub(crate) context: u32,
    pub(crate) history: History,
    pub(crate) value_length: u16,
    /// The lower half of what is expected.
    pub(crate) class: u8,
    /// Six bits of the id's length, and what else is expected.
    pub(crate) id_length_and_trust: u8,
}

impl Slot {
    const ID_LENGTH_BITS: u32 = 6;
    const ID_LENGTH_MASK: u8 = (1 << Self::ID_LENGTH_BITS) - 1;

    /// Of the id; zero when this is not a session's first slot.
    #[inline]
    pub(crate) fn id_length(&self) -> u8 {
        self.id_length_and_trust & Self::ID_LENGTH_MASK
    }

    /// What is expected of the client: the list that it is in.
    #[inline]
    pub(crate) fn expected(&self) -> Expectation {
        let trust = usize::from(self.id_length_and_trust >> Self::ID_LENGTH_BITS);
        Expectation::from_index(trust << 8 | usize::from(self.class))
    }

    #[inline]
    pub(crate) fn expect(&mut self, expected: Expectation) {
        let index = expected.index();
        self.class = index as u8;
        self.id_length_and_trust = self.id_length() | ((index >> 8) as u8) << Self::ID_LENGTH_BITS;
    }

    #[inline]
    pub(crate) fn set_id_length(&mut self, length: u8) {
        let trust = self.id_length_and_trust & !Self::ID_LENGTH_MASK;
        self.id_length_and_trust = trust | length & Self::ID_LENGTH_MASK;
    }
}

const _: () = assert!(size_of::<Slot>() == 64);

/// See the module's documentation.
pub(crate) struct Slots<'r, R> {
    slots: &'r mut [Slot],
    astray: Cell<bool>,
    of: PhantomData<R>,
}

impl<'r, R: Region> Slots<'r, R> {
    /// Of a shard, which has one slot at least.
    #[inline]
    pub(crate) fn new(slots: &'r mut [Slot]) -> Self {
        Self { slots, astray: Cell::new(false), of: PhantomData }
    }

    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns whether what was just read makes sense, and remembers if not.
    // Inline: a call that returns would have every caller save its registers.
    #[inline]
    pub(crate) fn expect(&self, sense: bool) -> bool {
        if !R::PRIVATE && !sense {
            self.astray.set(true);
        }
        R::PRIVATE || sense
    }

    #[inline]
    pub(crate) fn is_astray(&self) -> bool {
        !R::PRIVATE && self.astray.get()
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
        let is_one = self.expect((slot as usize) < self.slots.len());
        if is_one { slot as usize } else { self.slots.len() - 1 }
    }
}

impl<R: Region> Index<u32> for Slots<'_, R> {
    type Output = Slot;

    #[inline]
    fn index(&self, slot: u32) -> &Slot {
        &self.slots[self.within(slot)]
    }
}

impl<R: Region> IndexMut<u32> for Slots<'_, R> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Slot {
        let slot = self.within(slot);
        &mut self.slots[slot]
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::region::{HeapMemory, Line, Memory};

    /// Memory of which nothing is promised.
    struct Anybodys;

    impl Memory for Anybodys {
        fn lines(&mut self) -> &mut [Line] {
            &mut []
        }
    }

    #[test]
    fn no_number_leads_outside() {
        let mut slots = [bytemuck::Zeroable::zeroed(); 3];
        let mut slots = Slots::<RefCell<Anybodys>>::new(&mut slots);
        slots[2].seen = 7;
        assert!(!slots.is_astray());
        assert_eq!(slots[3].seen, 7);
        assert!(slots.is_astray());
        slots[u32::MAX].seen = 8;
        assert_eq!(slots[2].seen, 8);
        assert_eq!(slots.first(u32::MAX).len(), 3);
    }

    #[test]
    fn private_memory_is_not_doubted() {
        let mut slots = [bytemuck::Zeroable::zeroed(); 3];
        let slots = Slots::<RefCell<HeapMemory>>::new(&mut slots);
        assert!(slots.expect(false) && !slots.is_astray());
    }
}
