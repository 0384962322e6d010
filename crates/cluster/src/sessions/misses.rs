//! What was looked up in vain.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Look-ups in vain, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Misses {
    /// Nothing was there.
    pub absent: u64,
    /// The session's lifetime is over.
    pub expired: u64,
    /// What was there is no value of this version.
    pub malformed: u64,
    /// Sealed with a key that is not, or no longer, in the ring.
    pub unknown_key: u64,
    /// Not as it was sealed, or moved there from another id.
    pub altered: u64,
}

/// Why a value is a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    Absent,
    Expired,
    Malformed,
    /// This machine may not have heard of it yet.
    UnknownKey,
    /// The key was in the ring, and its time is over.
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
