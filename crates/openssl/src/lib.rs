//! Attaches a [`rejoin_cache::SessionStore`] to an OpenSSL server.
//!
//! [`ServerSessions`] takes over where an `SSL_CTX` keeps its sessions: TLS 1.2 session ids and
//! TLS 1.3 stateful tickets. OpenSSL's own cache is switched off. Session ids are made here and
//! carry a keyed tag, so that an id nobody issued is refused without a lookup.
//!
//! Sessions that bring their client's certificate share it, decoded once, as long as there is room
//! ([`CERTIFICATES_BYTES`]). Those in tickets OpenSSL decodes by itself, each time.
//!
//! [`TicketKeys`] are for tickets that hold the whole session: any server with the same keys resumes
//! them, and nothing is stored. OpenSSL encrypts; the keys, and when each is used, come from a
//! [`rejoin_tickets::KeyRing`]. What is known of a client's past visits can travel in its ticket.
//!
//! The application may say when a client returns: [`hint`].
//!
//! [`Client`] is for measuring: many clients in one process that keep their own sessions.
//!
//! What is not here: a session cache for clients, how a ring of keys gets from one server to the
//! next, and attaching to servers that do not link this crate.

use std::time::Duration;

mod callbacks;
mod client;
mod connection;
mod context_name;
mod everywhere;
mod ffi;
mod filled_cache;
mod internal_cache;
mod memory;
mod policy;
mod server_name;
mod session_bytes;
mod session_decoder;
mod session_parts;
mod sessions;
mod ticket_history;
mod tickets;

pub use client::{Client, ClientSession};
pub use connection::{hint, history, no_hint};
pub use everywhere::{Everywhere, only_connects};
pub use filled_cache::{FilledCache, SessionCopy};
pub use internal_cache::InternalCache;
pub use memory::{Memory, count_memory};
pub use session_bytes::session_bytes;
pub use sessions::{CERTIFICATES_BYTES, ServerSessions, now_ms};
pub use tickets::{TicketCounters, TicketHistory, TicketKeys};

/// How long a client may go on resuming, from session to session, after a full handshake, if nothing
/// else is said: the longest that RFC 8446, section 4.6.1, allows one ticket.
pub const RESUMABLE_FOR: Duration = Duration::from_secs(rejoin_tickets::LONGEST_TICKET_LIFETIME_S);
