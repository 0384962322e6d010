//! The source of a server's ring while it runs, which also counts tickets.

use crate::KeyRing;

/// A ring that other processes change, too. Servers call this from any thread, in the middle of handshakes, so
/// it must not wait for long.
pub trait KeySource: Send + Sync {
    /// Returns the ring if it has changed since the last call, or at the first call. Rotates it first if
    /// that is due. `now_s` is Unix time.
    fn newer(&self, now_s: u64) -> Option<KeyRing>;

    /// Stores the newest ring outside of memory, if this source does. Called when the ring of [`Self::newer`] is in
    /// use by all threads of the process: the caller alone waits for the disk.
    fn keep(&self) {}

    /// Counts an event of a ticket.
    fn record(&self, event: TicketEvent);
}

/// An event of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketEvent {
    /// It was given to a client.
    Issued,
    /// It was given to a client although there was no key: nobody can open it.
    Keyless,
    /// It was presented, under a live key.
    Known,
    /// It is [`Self::Known`], and the key's turn is over.
    Renewed,
    /// It was presented, under a key that the ring does not have, or no longer: a full handshake.
    Unknown,
    /// It was presented, under a live key, but its client has resumed for too long: a full handshake.
    Overdue,
}

impl TicketEvent {
    /// All events, in order.
    pub const ALL: [Self; 6] =
        [Self::Issued, Self::Keyless, Self::Known, Self::Renewed, Self::Unknown, Self::Overdue];

    /// The name of its count.
    pub fn name(self) -> &'static str {
        match self {
            Self::Issued => "tickets_issued",
            Self::Keyless => "tickets_keyless",
            Self::Known => "tickets_known",
            Self::Renewed => "tickets_renewed",
            Self::Unknown => "tickets_unknown",
            Self::Overdue => "tickets_overdue",
        }
    }
}
