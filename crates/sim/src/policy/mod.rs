//! The yardsticks: eviction policies that a session cache might have instead, and the optimum.
//!
//! Each decides which sessions stay in a cache of a given capacity. They keep keys and order, no
//! values. A session is looked up by its key: the client if its sessions keep their id, or the id
//! itself if every handshake makes a new one.
//!
//! Not here: the policies Rejoin ships, which run as they are, in their own cache.
//!
//! ```
//! use rejoin_sim::policy::{Access, Policy, PolicyName, next_accesses};
//!
//! let keys = [1, 2, 1, 3, 2, 1];
//! let policy: PolicyName = "clairvoyant".parse()?;
//! let mut cache = policy.build(2.try_into().expect("not zero"), 0, 0);
//! let mut hits = 0;
//! for (&key, next) in keys.iter().zip(next_accesses(keys.iter().copied())) {
//!     let access = Access { key, now_ms: 0, next, returns_in_ms: None };
//!     if cache.access(&access) {
//!         hits += 1;
//!     } else {
//!         cache.store(&access);
//!     }
//! }
//! assert_eq!(hits, 3);
//! # Ok::<(), rejoin_sim::policy::UnknownPolicy>(())
//! ```

mod adaptive;
mod announced;
mod clairvoyant;
mod future;
mod lfu;
mod name;
pub(crate) mod nodes;
mod queue;
mod random;
mod s3_fifo;
mod set_associative;
mod sieve;

pub use adaptive::AdaptiveReplacement;
pub use announced::{Announced, Exact, Literal};
pub use clairvoyant::Clairvoyant;
pub use future::next_accesses;
pub use lfu::Lfu;
pub use name::{PolicyName, UnknownPolicy};
pub use queue::{Fifo, Lru, Mru, Queue};
pub use random::RandomEviction;
pub use s3_fifo::S3Fifo;
pub use set_associative::SetAssociativeFifo;
pub use sieve::Sieve;

/// An access to a session, which is wanted or was just made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The key by which the session is looked up.
    pub key: u64,
    /// The time on the trace's clock.
    pub now_ms: u64,
    /// The position in the trace of the next access to the same key; [`u64::MAX`] if there is none.
    /// Only the clairvoyant reads it.
    pub next: u64,
    /// The time in which the client announces to return, in milliseconds. With `None` or
    /// [`Self::NOT_BACK_MS`] it is not expected back. Only [`Literal`] and [`Exact`] read it.
    pub returns_in_ms: Option<u32>,
}

impl Access {
    /// The announcement of a client that leaves, as in a trace.
    pub const NOT_BACK_MS: u32 = rejoin_trace::Event::NOT_BACK_MS;
}

/// An eviction policy, which decides which sessions are in a cache.
///
/// A policy never holds more sessions than its capacity, and one that was not stored is never
/// there. Every operation takes constant or logarithmic time, amortised.
pub trait Policy {
    /// Returns true if the session is there, and counts as a use of it.
    fn access(&mut self, access: &Access) -> bool;

    /// Stores a session that was just made, for which another may be evicted, or refuses it. Storing
    /// one that is there changes nothing.
    fn store(&mut self, access: &Access);

    /// Removes a session that was used up, expired or forgotten. Its place becomes free; the policy's
    /// memory of evicted sessions stays. Returns true if it was there.
    fn remove(&mut self, key: u64) -> bool;

    /// Returns the number of stored sessions.
    fn len(&self) -> usize;

    /// Returns true if no session is stored.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn access(&mut self, access: &Access) -> bool {
        (**self).access(access)
    }

    fn store(&mut self, access: &Access) {
        (**self).store(access);
    }

    fn remove(&mut self, key: u64) -> bool {
        (**self).remove(key)
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}
