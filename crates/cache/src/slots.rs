//! A shard's slots, found by numbers that another process may have overwritten.
//!
//! A number beyond the end leads to the last slot: it can cause confusion, but neither lead outside
//! nor stop the program. The slots remember such a number, and anything else that no operation can
//! have written; [`crate::shard::Shard`] is then emptied when the operation is over.
//!
//! In memory that is [`Region::PRIVATE`] every number is trusted, and no check is compiled.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut, Range};

use crate::expectation::Expectation;
use crate::history::History;
use crate::id::hash_of;
use crate::interval::{IntervalClass, Lead};
use crate::region::Region;
use crate::session::NewSession;
use crate::source::Source;

/// The value of a link that leads to no slot. No slot has this number: see [`crate::layout`].
pub(crate) const NONE: u32 = (1 << Slot::NUMBER_BITS) - 1;

/// A session, or the rest of one whose value did not fit in one block.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Slot {
    /// The session's id. A slot with the rest of a value has it too, so that no chain can be led
    /// astray.
    pub(crate) id: [u8; 32],
    /// Twenty-four bits of the neighbour before it in its list, and the lead.
    earlier_and_lead: u32,
    /// The neighbour behind it.
    pub(crate) later: u32,
    /// Twenty-four bits of the slot with the rest of the value, or of the next free one in a free slot, and the source.
    pub(crate) rest_and_source: u32,
    /// The time the client was last seen, in ticks.
    pub(crate) seen: u32,
    /// The end of its lifetime, in seconds since the shard was made.
    pub(crate) expiry_s: u32,
    pub(crate) context: u32,
    pub(crate) history: History,
    pub(crate) value_length: u16,
    /// The lower half of the expectation's index.
    pub(crate) class: u8,
    /// Six bits of the id's length, and the rest of the expectation's index.
    pub(crate) id_length_and_trust: u8,
}

impl Slot {
    const ID_LENGTH_BITS: u32 = 6;
    const ID_LENGTH_MASK: u8 = (1 << Self::ID_LENGTH_BITS) - 1;
    const NUMBER_BITS: u32 = 24;

    /// Makes a session's first slot, which is not in a list yet.
    pub(crate) fn new(new: &NewSession<'_>, seen: u32, expiry_s: u32, history: History) -> Self {
        Self {
            id: *new.id.padded(),
            earlier_and_lead: Self::packed(NONE, 0),
            later: NONE,
            rest_and_source: Self::packed(NONE, new.source.0),
            seen,
            expiry_s,
            context: new.context.0,
            history,
            value_length: new.value.len() as u16,
            class: 0,
            id_length_and_trust: new.id.length(),
        }
    }

    /// Packs the number of a slot and eight more bits.
    #[inline]
    fn packed(slot: u32, more: u8) -> u32 {
        u32::from(more) << Self::NUMBER_BITS | slot & NONE
    }

    #[inline]
    fn unpacked(packed: u32) -> (u32, u8) {
        (packed & NONE, (packed >> Self::NUMBER_BITS) as u8)
    }

    /// Returns the neighbour before it in its list.
    #[inline]
    pub(crate) fn earlier(&self) -> u32 {
        Self::unpacked(self.earlier_and_lead).0
    }

    #[inline]
    pub(crate) fn set_earlier(&mut self, earlier: u32) {
        self.earlier_and_lead = Self::packed(earlier, self.lead().0);
    }

    #[inline]
    fn lead(&self) -> Lead {
        Lead(Self::unpacked(self.earlier_and_lead).1)
    }

    /// Returns the slot with the rest of the value; in a free slot, the next free one.
    #[inline]
    pub(crate) fn rest(&self) -> u32 {
        Self::unpacked(self.rest_and_source).0
    }

    #[inline]
    pub(crate) fn set_rest(&mut self, rest: u32) {
        self.rest_and_source = Self::packed(rest, self.source().0);
    }

    /// Returns the source of the session's client.
    #[inline]
    pub(crate) fn source(&self) -> Source {
        Source(Self::unpacked(self.rest_and_source).1)
    }

    /// Returns the time from which its interval counts as if it were the upper bound of its class: that at which the client was last
    /// seen, less the lead.
    #[inline]
    pub(crate) fn counts_from(&self) -> u32 {
        match self.lead() {
            Lead::NONE => self.seen,
            lead => self.seen.saturating_sub(IntervalClass(self.class).lead_ticks(lead)),
        }
    }

    /// Returns the hash of the session's id under a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8; 16]) -> u64 {
        hash_of(&self.id, key)
    }

    /// Returns the id's length; zero if this is not a session's first slot.
    #[inline]
    pub(crate) fn id_length(&self) -> u8 {
        self.id_length_and_trust & Self::ID_LENGTH_MASK
    }

    /// Returns the expectation of the client, which decides the list that it is in.
    #[inline]
    pub(crate) fn expected(&self) -> Expectation {
        Expectation::of_index(self.index(), self.history).with_lead(self.lead())
    }

    /// Returns the expectation's index.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        let trust = usize::from(self.id_length_and_trust >> Self::ID_LENGTH_BITS);
        trust << 8 | usize::from(self.class)
    }

    /// Returns true if the expectation is irregular.
    #[inline]
    pub(crate) fn is_irregular(&self) -> bool {
        Expectation::may_be_irregular(self.index()) && self.history.has_rhythm()
    }

    /// Returns true if the client is expected so, whatever its history.
    pub(crate) fn is_expected(&self, expected: Expectation) -> bool {
        (self.index(), self.lead()) == (expected.index(), expected.lead())
    }

    #[inline]
    pub(crate) fn expect(&mut self, expected: Expectation) {
        let index = expected.index();
        self.earlier_and_lead = Self::packed(self.earlier_and_lead, expected.lead().0);
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

/// A shard's slots; see the module's documentation.
pub(crate) struct Slots<'r, R> {
    slots: &'r mut [Slot],
    astray: &'r Cell<bool>,
    of: PhantomData<R>,
}

impl<'r, R: Region> Slots<'r, R> {
    /// Wraps the slots of a shard, which has at least one. `astray` is set where they make no sense.
    #[inline]
    pub(crate) fn new(slots: &'r mut [Slot], astray: &'r Cell<bool>) -> Self {
        Self { slots, astray, of: PhantomData }
    }

    /// Wraps the same slots again.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> Slots<'_, R> {
        Slots { slots: self.slots, astray: self.astray, of: PhantomData }
    }

    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns true if the data just read make sense, and remembers if they do not.
    // Inline: a call that returns would make every caller save its registers.
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

    /// Returns the first `slots` slots, or all if there are fewer.
    pub(crate) fn first(&mut self, slots: u32) -> &mut [Slot] {
        let slots = slots.min(self.count());
        &mut self.slots[..slots as usize]
    }

    /// Returns the slots of a range.
    #[inline]
    pub(crate) fn range(&self, range: Range<u32>) -> &[Slot] {
        let found = self.slots.get(range.start as usize..range.end as usize);
        self.expect(found.is_some());
        found.unwrap_or_default()
    }

    /// Marks all slots as unused.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(bytemuck::Zeroable::zeroed());
        self.astray.set(false);
    }

    /// Returns the number of the slot that `slot` leads to.
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

    /// Memory that is not private.
    struct Anybodys;

    impl Memory for Anybodys {
        fn lines(&mut self) -> &mut [Line] {
            &mut []
        }
    }

    #[test]
    fn no_number_leads_outside() {
        let mut slots = [bytemuck::Zeroable::zeroed(); 3];
        let astray = Cell::new(false);
        let mut slots = Slots::<RefCell<Anybodys>>::new(&mut slots, &astray);
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
        let astray = Cell::new(false);
        let slots = Slots::<RefCell<HeapMemory>>::new(&mut slots, &astray);
        assert!(slots.expect(false) && !slots.is_astray());
    }
}
