//! A check that a shard is consistent: everything that must hold between its parts, one by one.
//!
//! The engine is safe without this check and never runs it. It is for tests, and for operators who
//! want to know whether another process wrote to the shared memory.

use crate::expectation::Expectation;
use crate::id::{Key, SessionId};
use crate::index::Group;
use crate::order::{self, List};
use crate::region::Region;
use crate::shard::Shard;
use crate::slots::{NONE, Slot};
use crate::source::Source;

/// The size of a consistent shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Sessions stored, each found by its id, once.
    pub sessions: u64,
    /// Slots in use, by sessions and the rest of those too long for one.
    pub used: u64,
    /// Slots that were used once and are free again.
    pub freed: u64,
}

/// An inconsistency in a shard. When an operation notices it, the shard loses its sessions, and
/// nothing else happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Inconsistency {
    /// The shard could not be locked in time, so it was not checked.
    #[error("its lock was not free in time: try again")]
    Locked,
    /// A count that differs from the number found.
    #[error("{name}: {counted} by its own count, {found} found")]
    Count {
        /// The name of the count.
        name: &'static str,
        /// The shard's own count.
        counted: u64,
        /// The number found.
        found: u64,
    },
    /// A slot that is beyond those ever used, or in two places at once.
    #[error("slot {slot} {found_in} that is in use elsewhere, or never was")]
    Shared {
        /// Its number.
        slot: u32,
        /// Where it was found.
        found_in: &'static str,
    },
    /// A list whose ends, links or mark do not fit together.
    #[error("list {list} is broken at slot {slot}")]
    List {
        /// Its number.
        list: usize,
        /// Where.
        slot: u32,
    },
    /// A session whose value does not end where it should.
    #[error("the value of the session in slot {slot} is not whole")]
    Value {
        /// Its first slot.
        slot: u32,
    },
    /// A session that its id does not lead to.
    #[error("the session in slot {slot} is not found by its id")]
    Lost {
        /// Its first slot.
        slot: u32,
    },
}

impl<R: Region> Shard<'_, R> {
    /// Checks every slot, list and count.
    pub(crate) fn check(&self) -> Result<Checked, Inconsistency> {
        let mut walk = Walk::new(self)?;
        walk.free_list()?;
        (0..self.lists.len()).try_for_each(|list| walk.list(list))?;
        walk.counts()
    }
}

/// The slots met so far.
struct Walk<'a, 'r, R: Region> {
    shard: &'a Shard<'r, R>,
    met: Vec<bool>,
    found: Checked,
    /// The slots of each source.
    sources: [u32; Source::COUNT],
}

impl<'a, 'r, R: Region> Walk<'a, 'r, R> {
    fn new(shard: &'a Shard<'r, R>) -> Result<Self, Inconsistency> {
        let fresh = shard.header.fresh;
        if fresh > shard.slots.count() {
            let (counted, found) = (u64::from(fresh), u64::from(shard.slots.count()));
            return Err(Inconsistency::Count { name: "slots", counted, found });
        }
        let (met, found) = (vec![false; fresh as usize], Checked::default());
        Ok(Self { shard, met, found, sources: [0; Source::COUNT] })
    }

    /// Returns a slot that was not met before, and marks it as met.
    fn meet(&mut self, slot: u32, found_in: &'static str) -> Result<&'a Slot, Inconsistency> {
        let shared = Inconsistency::Shared { slot, found_in };
        let met = self.met.get_mut(slot as usize).ok_or(shared)?;
        if std::mem::replace(met, true) {
            return Err(shared);
        }
        Ok(&self.shard.slots[slot])
    }

    fn free_list(&mut self) -> Result<(), Inconsistency> {
        const FOUND_IN: &str = "among the free ones";
        let mut at = self.shard.header.free;
        while at != NONE {
            let slot = self.meet(at, FOUND_IN)?;
            if slot.id_length() != 0 {
                return Err(Inconsistency::Shared { slot: at, found_in: FOUND_IN });
            }
            self.found.freed += 1;
            at = slot.rest();
        }
        Ok(())
    }

    fn list(&mut self, list: usize) -> Result<(), Inconsistency> {
        let List { first, last, first_from, last_from } = self.shard.lists[list];
        let (mut before, mut at) = (NONE, first);
        while at != NONE {
            let slot = self.meet(at, "in a list")?;
            if slot.earlier() != before || order::place(self.shard.lists, slot) != list {
                return Err(Inconsistency::List { list, slot: at });
            }
            self.session(at, slot)?;
            (before, at) = (at, slot.later);
        }
        let from = |slot| if slot == NONE { 0 } else { self.shard.slots[slot].counts_from() };
        let ends = first == NONE || (from(first), from(last)) == (first_from, last_from);
        if before != last || !ends || self.is_marked(list) != (first != NONE) {
            return Err(Inconsistency::List { list, slot: last });
        }
        Ok(())
    }

    fn is_marked(&self, list: usize) -> bool {
        debug_assert!(list < Expectation::COUNT);
        self.shard.header.occupied[list / 64] >> (list % 64) & 1 == 1
    }

    fn session(&mut self, first: u32, slot: &Slot) -> Result<(), Inconsistency> {
        let blocks =
            usize::from(slot.value_length).div_ceil(self.shard.layout.block_bytes as usize);
        let mut rest = slot.rest();
        for _ in 1..blocks.max(1) {
            let next = self.meet(rest, "in a value")?;
            if next.id != slot.id || next.id_length() != 0 {
                return Err(Inconsistency::Value { slot: first });
            }
            self.found.used += 1;
            rest = next.rest();
        }
        if rest != NONE {
            return Err(Inconsistency::Value { slot: first });
        }
        self.found.used += 1;
        self.found.sessions += 1;
        self.sources[usize::from(slot.source().0)] += blocks.max(1) as u32;
        self.is_found(first, slot)
    }

    fn is_found(&self, first: u32, slot: &Slot) -> Result<(), Inconsistency> {
        let lost = Inconsistency::Lost { slot: first };
        let length = usize::from(slot.id_length());
        let id = SessionId::new(slot.id.get(..length).ok_or(lost)?).map_err(|_| lost)?;
        let hash = id.hash_with(self.shard.hash_key());
        let found = self.shard.find(&Key { id: &id, hash });
        if found == Some(first) { Ok(()) } else { Err(lost) }
    }

    fn counts(self) -> Result<Checked, Inconsistency> {
        let Self { shard, found, sources, .. } = self;
        let same = |name, counted: u64, found| {
            let error = Inconsistency::Count { name, counted, found };
            if counted == found { Ok(()) } else { Err(error) }
        };
        same("sessions", shard.header.counters.sessions, found.sessions)?;
        same("slots in use", u64::from(shard.header.used), found.used)?;
        same("slots ever used", u64::from(shard.header.fresh), found.used + found.freed)?;
        let indexed: u32 = shard.groups.iter().map(Group::entries).sum();
        same("index entries", found.sessions, indexed.into())?;
        let of_sources = shard.sources().iter().zip(sources);
        of_sources.into_iter().try_for_each(|(counted, found)| {
            same("slots of a source", u64::from(*counted), u64::from(found))
        })?;
        Ok(found)
    }
}
