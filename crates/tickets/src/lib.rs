//! Keys of TLS session tickets: when each is used, and what it seals and opens.
//!
//! A *ticket* is a session that the server encrypts and the client keeps (RFC 5077; RFC 8446,
//! section 4.6.1). Whoever has the key can read every session sealed with it, so keys must change
//! often; and a server that does not have a key cannot resume what it sealed, so all servers of a
//! provider must have the same ones, before they are used and until the last ticket is over.
//!
//! A [`KeyRing`] holds the few keys that are alive, and a [`Schedule`] says what each is for at a
//! given time. The secrets of a ring never seal anything themselves. Each context, which is a
//! virtual server or whatever else must not open another's tickets, derives its own keys:
//! [`ContextKeys`] for TLS stacks that encrypt by themselves, and [`TicketSealer`] for those that
//! do not.
//!
//! An [`Interner`] finds again what was decoded before, such as the certificates that clients' sessions bring.
//!
//! What is not here: clocks, random numbers, files, sockets, TLS, and how a ring gets from one
//! server to the next. Every `now_s` is an argument, in seconds of Unix time, because servers
//! have no other clock in common; each may be off by up to [`CLOCK_TOLERANCE_S`].

#![forbid(unsafe_code)]

mod context;
mod error;
mod interner;
mod label;
mod page;
mod ring;
mod schedule;
mod sealer;
mod seconds;
mod secret;
mod source;
mod timeline;

pub use context::{ContextKey, ContextKeys, SERVER_KEY_BYTES, ServerKeyFormat};
pub use error::Error;
pub use interner::Interner;
pub use label::Label;
pub use page::PAGE_BYTES;
pub use ring::{KeyId, KeyRing, KeyStatus, SECRET_BYTES};
pub use schedule::{
    CLOCK_TOLERANCE_S, CLOCKS_APART_S, KeyState, LONGEST_TICKET_LIFETIME_S, Schedule,
};
pub use sealer::{LONGEST_TICKET_BYTES, NONCE_BYTES, TicketSealer, Unopened};
pub use seconds::{NoTime, Seconds};
pub use source::{KeySource, TicketEvent};
pub use timeline::Opened;

/// Bytes of a key's name, with which a ticket begins: the form that RFC 5077, section 4,
/// recommends and that OpenSSL's callback has.
pub const NAME_BYTES: usize = 16;
