//! How much there may be.

use super::Sessions;
use crate::Error;

/// What an entry takes in Valkey beside its value, about: its name and its place in a sorted set and in a
/// hash, and what the allocator rounds up.
pub const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// How many sessions there may be, in how many bytes. Each shard holds its share exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// In how many parts they are divided, each in one slot: 1 to [`Sessions::MOST_SHARDS`].
    pub shards: u16,
    /// The most sessions of all shards, at least one for each.
    pub sessions: u64,
    /// The most bytes of all shards: of values, and [`ENTRY_OVERHEAD_BYTES`] for each.
    pub bytes: u64,
    /// How long after its return time a client still counts as on its way, in milliseconds.
    pub grace_ms: u64,
}

impl Bounds {
    /// Enough for a cluster of some nodes.
    pub const SHARDS: u16 = 64;

    /// Scripts count in floating point, and print 14 digits.
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

    /// Whether a shard has room for such a value, once all others are gone.
    pub(super) fn can_hold(&self, value_bytes: usize) -> bool {
        value_bytes as u64 + ENTRY_OVERHEAD_BYTES <= self.bytes_of_shard()
    }
}

fn in_range(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::OutOfRange { name, value, least, most })
}
