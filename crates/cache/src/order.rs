//! The order in which clients are expected back.
//!
//! There is one list per expectation: per class of interval and, where return times are learned, per
//! trust. A session joins the end of its list when its client is seen, so that a list is in
//! order of return time (but for leads, and for the list of clients that keep no interval), and the first and last session of the whole
//! shard are among the ends of the few dozen lists in use. Joining and leaving cost as much as in an LRU list. A search for the
//! first or last looks at the ends only, which the table of lists repeats so that no slot is
//! touched.
//!
//! Under the policy `lru` there is one list.

use std::num::NonZero;

use crate::expectation::{Expectation, Trust};
use crate::interval::{IntervalClass, Lead};
use crate::region::Region;
use crate::slots::{NONE, Slot, Slots};

/// The list of clients that keep no interval. Which is worth least of them a search of the slots finds.
const IRREGULAR: usize = 254;

/// Words of bits, one bit for each list.
const WORDS: usize = Expectation::COUNT / 64;

/// The first list of clients that keep the application's interval. What a place of theirs is worth depends on the stage of their
/// run, too.
const KEPT: usize = Expectation::new(Trust::Kept, IntervalClass(0)).index();

/// A list, and from when the intervals of the clients at its ends count ([`Slot::counts_from`]), in ticks.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct List {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) first_from: u32,
    pub(crate) last_from: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE, first_from: 0, last_from: 0 };
}

/// A session at an end of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) slot: u32,
    /// The time from which its interval counts.
    pub(crate) from: u32,
    /// The expectation of its client, counted from then.
    pub(crate) expected: Expectation,
}

impl End {
    /// Returns when the client is expected, in ticks.
    pub(crate) fn returns(&self) -> u32 {
        self.from.saturating_add(self.expected.class().upper_bound_ticks())
    }
}

/// The parts of a shard that hold the order.
pub(crate) struct Order<'a, 'r, R> {
    pub(crate) lists: &'a mut [List],
    pub(crate) occupied: &'a mut [u64; WORDS],
    pub(crate) slots: &'a mut Slots<'r, R>,
}

impl<R: Region> Order<'_, '_, R> {
    /// Changes what is known of a slot, and moves it to the end of the list in which it belongs then.
    #[inline(always)]
    pub(crate) fn renew(&mut self, slot: u32, change: impl FnOnce(&mut Slot)) {
        let (lists, renewed) = (&*self.lists, &mut self.slots[slot]);
        let (before, later) = (place(lists, renewed), renewed.later);
        change(renewed);
        let after = place(lists, renewed);
        if before == after && later != NONE {
            self.move_to_end(slot, after);
        } else {
            self.leave_list(slot, before);
            self.join_list(slot, after);
        }
    }

    /// Renews a slot where there is one list, and nothing is expected of a client.
    #[inline(always)]
    pub(crate) fn renew_unexpected(&mut self, slot: u32, seen: u32) {
        const ONLY: usize = 0;
        let renewed = &mut self.slots[slot];
        renewed.seen = seen;
        if renewed.later == NONE {
            let list = &mut self.lists[ONLY];
            list.last_from = seen;
            if list.first == slot {
                list.first_from = seen;
            }
            self.slots.expect(self.lists[ONLY].last == slot);
        } else {
            self.move_to_end(slot, ONLY);
        }
    }

    /// Moves a slot, which is not the last of its list, to the end.
    #[inline(always)]
    fn move_to_end(&mut self, slot: u32, index: usize) {
        let moved = &mut self.slots[slot];
        let (earlier, later, from) = (moved.earlier(), moved.later, moved.counts_from());
        let list = &mut self.lists[index];
        let last = std::mem::replace(&mut list.last, slot);
        list.last_from = from;
        moved.set_earlier(last);
        moved.later = NONE;
        let next = &mut self.slots[later];
        let from_here = next.earlier();
        next.set_earlier(earlier);
        let to_here = if earlier == NONE {
            list.first_from = next.counts_from();
            std::mem::replace(&mut list.first, later)
        } else {
            std::mem::replace(&mut self.slots[earlier].later, later)
        };
        self.slots[last].later = slot;
        // Links lead both ways, unless another process wrote to them.
        self.slots.expect(to_here == slot && from_here == slot);
    }

    /// Puts a slot, whose expectation and time of last sight are set, at the end of its list.
    #[inline(always)]
    pub(crate) fn join(&mut self, slot: u32) {
        self.join_list(slot, place(self.lists, &self.slots[slot]));
    }

    #[inline(always)]
    fn join_list(&mut self, slot: u32, index: usize) {
        let from = self.slots[slot].counts_from();
        let list = &mut self.lists[index];
        let before = std::mem::replace(&mut list.last, slot);
        list.last_from = from;
        if before == NONE {
            list.first = slot;
            list.first_from = from;
            self.occupied[index / 64] |= 1 << (index % 64);
        } else {
            self.slots[before].later = slot;
        }
        let joined = &mut self.slots[slot];
        joined.set_earlier(before);
        joined.later = NONE;
    }

    /// Takes a slot out of its list.
    #[inline(always)]
    pub(crate) fn leave(&mut self, slot: u32) {
        self.leave_list(slot, place(self.lists, &self.slots[slot]));
    }

    #[inline(always)]
    fn leave_list(&mut self, slot: u32, index: usize) {
        let (earlier, later) = (self.slots[slot].earlier(), self.slots[slot].later);
        let list = &mut self.lists[index];
        let (mut to_here, mut from_here) = (list.first, list.last);
        if earlier == NONE {
            list.first = later;
        } else {
            let before = &mut self.slots[earlier];
            to_here = std::mem::replace(&mut before.later, later);
            if later == NONE {
                list.last_from = before.counts_from();
            }
        }
        if later == NONE {
            list.last = earlier;
        } else {
            let next = &mut self.slots[later];
            from_here = next.earlier();
            next.set_earlier(earlier);
            if earlier == NONE {
                list.first_from = next.counts_from();
            }
        }
        if earlier == NONE && later == NONE {
            self.occupied[index / 64] &= !(1 << (index % 64));
        }
        // Links lead both ways, unless another process wrote to them.
        self.slots.expect(to_here == slot && from_here == slot);
    }

    /// Returns the session expected first; those never expected are left out.
    pub(crate) fn earliest(&self) -> Option<End> {
        self.ends().map(|[first, _]| first).min_by_key(End::returns)
    }

    /// Returns the session expected last; those never expected are left out.
    pub(crate) fn latest(&self) -> Option<End> {
        self.ends().map(|[_, last]| last).max_by_key(End::returns)
    }

    /// Returns the session stored longest ago of those never expected back.
    pub(crate) fn never(&self) -> Option<u32> {
        self.first_of(Expectation::NEVER)
    }

    /// Returns the first of the list of clients that keep an interval, or of which nothing is known.
    pub(crate) fn first_of(&self, expected: Expectation) -> Option<u32> {
        let first = self.lists[expected.index() & (self.lists.len() - 1)].first;
        (first != NONE).then_some(first)
    }

    /// Returns the first and the last of every list but that of sessions never expected.
    #[inline]
    pub(crate) fn ends(&self) -> impl Iterator<Item = [End; 2]> {
        let occupied = self.occupied.iter().enumerate().flat_map(|(word, bits)| {
            let but_lowest = |bits: &NonZero<u64>| NonZero::new(bits.get() & (bits.get() - 1));
            std::iter::successors(NonZero::new(*bits), but_lowest)
                .map(move |bits| word * 64 + bits.trailing_zeros() as usize)
        });
        let expected = occupied.filter(|index| *index != Expectation::NEVER.index());
        expected.map(|index| ends_of(self.lists, self.slots, index))
    }

    /// Updates when the clients at the ends were last seen, after the epoch moved.
    pub(crate) fn refresh(&mut self) {
        for list in self.lists.iter_mut().filter(|list| list.first != NONE) {
            list.first_from = self.slots[list.first].counts_from();
            list.last_from = self.slots[list.last].counts_from();
        }
    }
}

/// Returns the first and the last of a list that is not empty.
#[inline(always)]
pub(crate) fn ends_of<R: Region>(lists: &[List], slots: &Slots<'_, R>, index: usize) -> [End; 2] {
    let List { first, last, first_from, last_from } = lists[index & (lists.len() - 1)];
    // Of some clients the list does not tell all that is expected.
    let [of_first, of_last] = if index != IRREGULAR && index < KEPT {
        [Expectation::from_index(index); 2]
    } else {
        expected_of(slots, first, last)
    };
    let end = |slot, from, expected| End { slot, from, expected };
    [end(first, first_from, of_first), end(last, last_from, of_last)]
}

// Not inlined: few lists are of that kind.
#[inline(never)]
fn expected_of<R: Region>(slots: &Slots<'_, R>, first: u32, last: u32) -> [Expectation; 2] {
    // Its interval counts from when the list says.
    [first, last].map(|slot| slots[slot].expected().with_lead(Lead::NONE))
}

/// The lists that are not empty, in turns, each once, but that of sessions never expected.
pub(crate) struct Turns<'a> {
    occupied: &'a [u64; WORDS],
    /// The list that came first; none until there is one.
    first: u32,
    /// A bit for each word with such a list.
    words: u32,
    word: u32,
    /// The lists of this word whose turn is still to come.
    bits: u64,
}

impl<'a> Turns<'a> {
    /// Begins with the list `from`, or else the one after it.
    #[inline]
    pub(crate) fn new(occupied: &'a [u64; WORDS], from: u32) -> Self {
        let from = from % Expectation::COUNT as u32;
        let bit = |word| u32::from(bits(occupied, word) != 0) << word;
        let words = (0..WORDS as u32).fold(0, |words, word| words | bit(word));
        let bits = bits(occupied, from / 64) & u64::MAX << (from % 64);
        Self { occupied, first: NONE, words, word: from / 64, bits }
    }
}

impl Iterator for Turns<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.bits == 0 {
            let later = self.words & u32::MAX << (self.word + 1);
            let next = if later == 0 { self.words } else { later };
            self.word = NonZero::new(next)?.trailing_zeros();
            self.bits = bits(self.occupied, self.word);
        }
        let index = self.word * 64 + self.bits.trailing_zeros();
        if index == self.first {
            return None;
        }
        if self.first == NONE {
            self.first = index;
        }
        self.bits &= self.bits - 1;
        Some(index as usize)
    }
}

/// Returns the bits of a word, but that of sessions never expected.
#[inline]
fn bits(occupied: &[u64; WORDS], word: u32) -> u64 {
    const NEVER: usize = Expectation::NEVER.index();
    let never = u64::from(word as usize == NEVER / 64);
    occupied[word as usize % WORDS] & !(never << (NEVER % 64))
}

/// Returns the list of a session. Where trust does not matter there are lists for the first
/// trust only, and a slot with another one was overwritten by another process.
#[inline]
pub(crate) fn place(lists: &[List], slot: &Slot) -> usize {
    let learns = lists.len() == Expectation::COUNT;
    let index = if learns && slot.is_irregular() { IRREGULAR } else { slot.index() };
    index & (lists.len() - 1)
}

/// Returns when a client last seen at `seen`, below 2³¹, is expected: below 2³². See [`crate::shard`].
#[inline]
pub(crate) fn returns(seen: u32, expected: Expectation) -> u32 {
    seen.saturating_add(expected.interval_ticks())
}
