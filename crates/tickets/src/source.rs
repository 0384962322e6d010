//! Where a server's ring comes from while it runs, and who is told what became of tickets.

use crate::KeyRing;

/// A ring that others change too. Servers ask from any thread, in the middle of handshakes: nothing
/// here may wait for long.
pub trait KeySource: Send + Sync {
    /// The ring, if it is another than at the last call, or there was none. Rotates it first if
    /// that is due. `now_s` is Unix time.
    fn newer(&self, now_s: u64) -> Option<KeyRing>;

    /// Something became of a ticket.
    fn record(&self, event: TicketEvent);
}

/// What becomes of tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketEvent {
    /// Given to a client.
    Issued,
    /// Given to a client although there was no key: nobody can open it.
    Keyless,
    /// Presented, and of a key that is alive.
    Known,
    /// As [`Self::Known`], and the key's turn is over.
    Renewed,
    /// Presented, and of a key that is not ours, or no longer: a full handshake.
    Unknown,
    /// Presented, and known, but its client has resumed for too long: a full handshake.
    Overdue,
}

impl TicketEvent {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Issued, Self::Keyless, Self::Known, Self::Renewed, Self::Unknown, Self::Overdue];

    /// What its count is called.
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
