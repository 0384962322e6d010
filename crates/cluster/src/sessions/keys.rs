//! The keys of values: those of the ring, and the names of those that were in it.
//!
//! A value under any other key may come from a newer ring than this machine has seen: other machines can
//! open it.

use rejoin_tickets::{KeyRing, Label, NAME_BYTES, TicketSealer};

type KeyName = [u8; NAME_BYTES];

pub(super) struct Keys {
    pub(super) sealer: TicketSealer,
    /// The newest keys that were retired, or expired and were wiped.
    gone: Vec<KeyName>,
}

impl Keys {
    /// The names of gone keys that are kept: more than the number of keys within the lifetime of a session.
    const MOST_GONE: usize = 4 * KeyRing::MOST_KEYS;

    pub(super) fn new(ring: &KeyRing) -> Self {
        let label = Label::new(b"rejoin cluster sessions").expect("short");
        Self { sealer: ring.sealer(&label), gone: Vec::new() }
    }

    /// Returns the keys of a newer ring, and notes those that are gone.
    pub(super) fn followed_by(&self, ring: &KeyRing) -> Self {
        let Self { sealer, .. } = Self::new(ring);
        let is_gone = |name: &&KeyName| sealer.names().all(|there| there != *name);
        let mut gone: Vec<_> = self.known().filter(is_gone).copied().collect();
        gone.drain(..gone.len().saturating_sub(Self::MOST_GONE));
        Self { sealer, gone }
    }

    pub(super) fn is_gone(&self, name: &KeyName) -> bool {
        self.gone.contains(name)
    }

    /// Returns the names of all keys that are in the ring, or were.
    pub(super) fn known(&self) -> impl Iterator<Item = &KeyName> {
        self.gone.iter().chain(self.sealer.names())
    }
}
