//! Figures about a whole cache, in its file.

use std::sync::atomic::AtomicU64;

use rejoin_tickets::TicketEvent;

use crate::mapping::Shared;
use crate::own_ring::OwnRing;
use crate::turned_away::TurnedAway;

/// Figures about a whole cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Figures {
    pub(crate) lock_waits: AtomicU64,
    pub(crate) lock_timeouts: AtomicU64,
    pub(crate) locks_broken: AtomicU64,
    /// Counts of tickets, in the order of [`TicketEvent::ALL`].
    pub(crate) tickets: [AtomicU64; TicketEvent::ALL.len()],
    /// The cluster's version of the ring on the page; 0 if none was adopted.
    pub(crate) ring_version: AtomicU64,
    pub(crate) lock_skips: AtomicU64,
    pub(crate) lock_waited_us: AtomicU64,
    /// The sessions that were taken so far.
    pub(crate) taken_early: AtomicU64,
    /// The time until which no process is certain that a session was not taken before, on the clock of caches.
    pub(crate) doubted_until_ms: AtomicU64,
    /// The starts of servers that use the cache, each at the place that its number gives.
    pub(crate) starts: [AtomicU64; 64],
    /// The sessions that the cluster was asked for in vain. Older versions leave them alone, as zeros.
    pub(crate) turned_away: TurnedAway,
    /// The ticket keys of a cluster's servers while the cluster's have not come. Older versions leave them alone, as zeros.
    pub(crate) own_ring: OwnRing,
}

// SAFETY: every field is an atomic.
unsafe impl Shared for Figures {}
