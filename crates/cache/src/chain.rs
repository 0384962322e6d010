//! A session's slots: the first, and a chain of others when its value does not fit in one block.
//!
//! This module also puts a session into the order and the index when it takes its slots, and takes
//! it out of them when it gives its slots back. Other changes of place are not made here.

use crate::expectation::Expectation;
use crate::history::History;
use crate::id::SessionId;
use crate::index;
use crate::region::Region;
use crate::secret::{SecretBytes, wipe};
use crate::session::NewSession;
use crate::shard::Shard;
use crate::slots::{NONE, Slot};

impl<R: Region> Shard<'_, R> {
    /// Writes a session into slots. The caller has made room for them.
    pub(crate) fn write(
        &mut self,
        seen: u32,
        hash: u64,
        new: &NewSession<'_>,
        expiry_s: u32,
        expected: Expectation,
        history: History,
    ) {
        let slot = self.allocate();
        let written = &mut self.slots[slot];
        *written = Slot::new(new, seen, expiry_s, history);
        written.expect(expected);
        self.write_value(slot, new);
        self.slots.expect(index::insert(self.groups, hash, slot));
        self.order().join(slot);
        self.takes(new.source, self.layout.slots_for(new.value.len()));
        let counters = &mut self.header.counters;
        counters.sessions = counters.sessions.wrapping_add(1);
        counters.stored = counters.stored.wrapping_add(1);
    }

    #[inline]
    fn write_value(&mut self, slot: u32, new: &NewSession<'_>) {
        let length = new.value.len().min(self.layout.block_bytes as usize);
        let (first, rest) = new.value.split_at(length);
        // A simulator's sessions have no value.
        if length > 0 {
            self.block(slot)[..length].copy_from_slice(first);
        }
        if !rest.is_empty() {
            self.reborrow().write_chain(slot, new, rest);
        }
    }

    #[inline(never)]
    fn write_chain(mut self, first: u32, new: &NewSession<'_>, rest: &[u8]) {
        let mut last = first;
        for chunk in rest.chunks(self.layout.block_bytes as usize) {
            let rest = self.allocate();
            self.slots[last].set_rest(rest);
            self.slots[rest].set_rest(NONE);
            self.slots[rest].id = *new.id.padded();
            self.block(rest)[..chunk.len()].copy_from_slice(chunk);
            last = rest;
        }
    }

    fn allocate(&mut self) -> u32 {
        self.header.used = self.header.used.wrapping_add(1);
        let slot = self.header.free;
        if slot == NONE {
            let fresh = self.header.fresh;
            self.header.fresh = fresh.saturating_add(1).min(self.slots.count());
            return self.unused(fresh);
        }
        self.header.free = self.slots[slot].rest();
        self.unused(slot)
    }

    /// Returns the slot after it has checked that it holds no session.
    fn unused(&self, slot: u32) -> u32 {
        let slot = self.slots.within(slot) as u32;
        self.slots.expect(self.slots[slot].id_length() == 0);
        slot
    }

    /// Takes a session out of the order, the index and its slots, and wipes it.
    pub(crate) fn free(&mut self, slot: u32, hash: u64) {
        self.order().leave(slot);
        let indexed = index::remove(self.groups, hash, slot);
        let sessions = self.header.counters.sessions.checked_sub(1);
        self.slots.expect(indexed && sessions.is_some());
        self.header.counters.sessions = sessions.unwrap_or_default();
        self.free_slots(slot);
    }

    fn free_slots(&mut self, first: u32) {
        let Slot { id, value_length, .. } = self.slots[first];
        let (rest, source) = (self.slots[first].rest(), self.slots[first].source());
        self.gives_back(source, self.layout.slots_for(value_length.into()));
        let mut left = self.free_slot(first, usize::from(value_length));
        let mut at = rest;
        while left > 0 && self.is_rest_of(at, &id) {
            let next = self.slots[at].rest();
            left = self.free_slot(at, left);
            at = next;
        }
    }

    /// Frees and wipes a slot. `left` bytes of its value are in this slot and in those that follow;
    /// returns how many are in those that follow.
    #[inline]
    fn free_slot(&mut self, freed: u32, left: usize) -> usize {
        let length = left.min(self.layout.block_bytes as usize);
        wipe(&mut self.block(freed)[..length]);
        let slot = &mut self.slots[freed];
        slot.id = [0; SessionId::LONGEST];
        slot.set_id_length(0);
        slot.set_rest(std::mem::replace(&mut self.header.free, freed));
        self.header.used = self.header.used.wrapping_sub(1);
        left - length
    }

    /// Copies a session's value. Returns true if it is whole.
    #[inline]
    pub(crate) fn copy_value(&mut self, slot: u32, value: &mut SecretBytes) -> bool {
        let length = usize::from(self.slots[slot].value_length);
        let block_bytes = self.layout.block_bytes as usize;
        if length <= block_bytes {
            let at = self.slots.within(slot) * block_bytes;
            let value = value.resize(length);
            // A simulator's sessions have no value.
            if length > 0 {
                value.copy_from_slice(&self.blocks[at..][..length]);
            }
            return true;
        }
        let whole = self.reborrow().copy_chain(slot, value.resize(length));
        if !whole {
            value.clear();
        }
        whole
    }

    #[inline(never)]
    fn copy_chain(mut self, first: u32, value: &mut [u8]) -> bool {
        let id = self.slots[first].id;
        let mut from = first;
        for (at, chunk) in value.chunks_mut(self.layout.block_bytes as usize).enumerate() {
            if at > 0 && !self.is_rest_of(from, &id) {
                return false;
            }
            chunk.copy_from_slice(&self.block(from)[..chunk.len()]);
            from = self.slots[from].rest();
        }
        true
    }

    /// Returns true if a slot holds the rest of this session's value.
    fn is_rest_of(&self, slot: u32, id: &[u8; SessionId::LONGEST]) -> bool {
        let rest = &self.slots[slot];
        self.slots.expect(rest.id == *id && rest.id_length() == 0)
    }

    #[inline]
    fn block(&mut self, slot: u32) -> &mut [u8] {
        let bytes = self.layout.block_bytes as usize;
        let at = self.slots.within(slot) * bytes;
        &mut self.blocks[at..][..bytes]
    }
}
