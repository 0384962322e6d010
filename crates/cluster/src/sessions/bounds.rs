//! The bounds of the sessions in Valkey.

use super::Sessions;
use crate::Error;

/// The approximate memory of an entry in Valkey besides its value: its hashed id, its entries in a sorted set and in a
/// hash, and the allocator's rounding.
pub const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// The bounds of the sessions of all shards. Each shard enforces its share exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number of shards, each in one slot: 1 to [`Sessions::MOST_SHARDS`].
    pub shards: u16,
    /// The most sessions of all shards, at least one for each.
    pub sessions: u64,
    /// The most bytes of all shards: of values, and [`ENTRY_OVERHEAD_BYTES`] for each.
    pub bytes: u64,
    /// The time after its expected return before a client counts as overdue, in milliseconds.
    pub grace_ms: u64,
}

impl Bounds {
    /// The default number of shards, enough for a cluster of several nodes.
    pub const SHARDS: u16 = 64;

    /// The upper bound: scripts count in floating point, and print 14 digits.
    const MOST: u64 = 1 << 46;

    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { shards, sessions, bytes, grace_ms } = *self;
        in_range("shards", shards.into(), 1, Sessions::MOST_SHARDS.into())?;
        in_range("sessions", sessions, shards.into(), Self::MOST)?;
        in_range("bytes", bytes, u64::from(shards) * ENTRY_OVERHEAD_BYTES, Self::MOST)?;
        in_range("grace_ms", grace_ms, 0, Self::MOST)
    }

    pub(super) fn sessions_of_shard(&self) -> u64 {
        self.sessions / u64::from(self.shards)
    }

    pub(super) fn bytes_of_shard(&self) -> u64 {
        self.bytes / u64::from(self.shards)
    }

    /// Returns true if an empty shard has room for a value of this length.
    pub(super) fn can_hold(&self, value_bytes: usize) -> bool {
        value_bytes as u64 + ENTRY_OVERHEAD_BYTES <= self.bytes_of_shard()
    }
}

pub(super) fn in_range(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::OutOfRange { name, value, least, most })
}
