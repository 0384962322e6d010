//! Misses, by kind.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The number of misses, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Misses {
    /// Nothing was there.
    pub absent: u64,
    /// The session has expired.
    pub expired: u64,
    /// The value is not of this version's format.
    pub malformed: u64,
    /// The value is sealed with a key that is not, or no longer, in the ring.
    pub unknown_key: u64,
    /// The value was altered, or moved from another id.
    pub altered: u64,
}

/// The reason for a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    Absent,
    Expired,
    Malformed,
    /// The key is unknown; this machine may not have read the ring that has it.
    UnknownKey,
    /// The key was in the ring, and has expired or been retired.
    KeyOver,
    Altered,
}

#[derive(Default)]
pub(super) struct Counters {
    absent: AtomicU64,
    expired: AtomicU64,
    malformed: AtomicU64,
    unknown_key: AtomicU64,
    altered: AtomicU64,
}

impl Counters {
    pub(super) fn count(&self, miss: Miss) {
        let counter = match miss {
            Miss::Absent => &self.absent,
            Miss::Expired => &self.expired,
            Miss::Malformed => &self.malformed,
            Miss::UnknownKey | Miss::KeyOver => &self.unknown_key,
            Miss::Altered => &self.altered,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> Misses {
        Misses {
            absent: self.absent.load(Relaxed),
            expired: self.expired.load(Relaxed),
            malformed: self.malformed.load(Relaxed),
            unknown_key: self.unknown_key.load(Relaxed),
            altered: self.altered.load(Relaxed),
        }
    }
}
