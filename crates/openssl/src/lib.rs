//! Attaches a [`rejoin_cache::SessionStore`] to an OpenSSL server.
//!
//! [`ServerSessions`] keeps the sessions of an `SSL_CTX`: TLS 1.2 session ids and TLS 1.3 stateful tickets.
//! OpenSSL's own cache is switched off. Session ids are made here and carry a keyed tag, so that an id that no
//! server issued is refused without a lookup.
//!
//! Sessions that bring their client's certificate share it, decoded once, as long as there is room
//! ([`CERTIFICATES_BYTES`]). OpenSSL itself decodes the certificates in tickets, each time.
//!
//! [`TicketKeys`] are for tickets that hold the whole session: any server with the same keys resumes
//! them, and nothing is stored. OpenSSL encrypts; the keys, and the times of their use, come from a
//! [`rejoin_tickets::KeyRing`]. A client's history can travel in its ticket.
//!
//! [`Everywhere`] attaches both to all contexts of a process.
//!
//! The application may give the time when a client returns: [`hint`].
//!
//! [`Notes`] are what the processes of a server note of their contexts and handshakes, for `rejoin status`.
//!
//! [`Client`] is for measuring: many clients in one process that keep their own sessions.
//!
//! Not here: a session cache for clients, the way of a ring of keys from one server to the
//! next, and attaching to servers that do not link this crate.

mod attachment;
mod board;
mod callbacks;
mod cipher;
mod client;
mod clock;
mod connection;
mod context_name;
mod early;
mod everywhere;
mod extra;
mod family;
mod ffi;
mod filled_cache;
mod guard;
mod imports;
mod info;
mod internal_cache;
mod known;
mod memory;
mod past;
mod policy;
mod process;
mod quic;
mod responders;
mod server_name;
mod session_bytes;
mod session_decoder;
mod session_parts;
mod sessions;
mod source;
mod ticket_cipher;
mod ticket_history;
mod ticket_keys;
mod tickets;

pub use attachment::RESUMABLE_FOR;
pub use board::{
    Certificates, ContextNotes, Features, Handshakes, Notes, Outcome, ProcessNotes, Standing,
    Subject, Unreadable, post, post_features, post_standing,
};
pub use client::{Client, ClientSession, is_early_data_accepted};
pub use connection::{hint, history, no_hint};
pub use everywhere::Everywhere;
pub use extra::{Extra, watch_forks};
pub use filled_cache::{FilledCache, SessionCopy};
pub use internal_cache::InternalCache;
pub use memory::{Memory, count_memory};
pub use process::{Left, Moment, only_connects};
pub use quic::is_quic;
pub use rejoin_store::now_ms;
pub use session_bytes::session_bytes;
// For the fuzz target `session_parts`.
#[doc(hidden)]
pub use session_decoder::SessionDecoder;
pub use sessions::{CERTIFICATES_BYTES, ServerSessions};
pub use ticket_keys::{TicketCounters, TicketHistory, TicketKeys};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
