//! The keys of values: those of the ring, and the names of those that were in it.
//!
//! A value under a key that is in neither may be of a newer ring than this machine has seen: others can
//! open it.

use rejoin_tickets::{KeyRing, Label, NAME_BYTES, TicketSealer};

type KeyName = [u8; NAME_BYTES];

pub(super) struct Keys {
    pub(super) sealer: TicketSealer,
    /// Retired, or wiped when their time was over: the newest ones.
    gone: Vec<KeyName>,
}

impl Keys {
    /// Names kept of keys that are gone: more than were there while any of their sessions lives.
    const MOST_GONE: usize = 4 * KeyRing::MOST_KEYS;

    pub(super) fn new(ring: &KeyRing) -> Self {
        let label = Label::new(b"rejoin cluster sessions").expect("short");
        Self { sealer: ring.sealer(&label), gone: Vec::new() }
    }

    /// Those of a newer ring.
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

    /// The names of all keys of which it is known what has become of them.
    pub(super) fn known(&self) -> impl Iterator<Item = &KeyName> {
        self.gone.iter().chain(self.sealer.names())
    }
}
