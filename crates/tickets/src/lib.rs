//! Keys of TLS session tickets: the times of their use, and sealing and opening.
//!
//! A *ticket* is a session that the server encrypts and the client keeps (RFC 5077; RFC 8446,
//! section 4.6.1). Anybody who has the key can read every session sealed with it, so keys must change
//! often. A server that does not have the key cannot resume the session, so all servers of a
//! provider must have the same keys, before they are used and until the last ticket expires.
//!
//! A [`KeyRing`] holds the few live keys, and a [`Schedule`] gives the use of each at a
//! given time. The secrets of a ring never seal anything themselves. Each context, which is a
//! virtual server or anything else that must not open another's tickets, derives its own keys:
//! [`ContextKeys`] for TLS stacks that encrypt by themselves, and [`TicketSealer`] for those that
//! do not.
//!
//! An [`Interner`] finds values again that were decoded before, such as the certificates in clients' sessions.
//!
//! Not here: clocks, random numbers, files, sockets, TLS, and the way of a ring from one
//! server to the next. Every `now_s` is an argument, in seconds of Unix time, because servers
//! have no other clock in common; each may be off by up to [`CLOCK_TOLERANCE_S`].

#![forbid(unsafe_code)]

mod context;
mod error;
mod interner;
mod key;
mod label;
mod once_a_second;
mod page;
mod ring;
mod schedule;
mod sealer;
mod seconds;
mod secret;
mod source;
mod timeline;

pub use context::{ContextKey, ContextKeys, ServerKeyForm};
pub use error::Error;
pub use interner::Interner;
pub use key::{KeyId, SECRET_BYTES};
pub use label::Label;
pub use once_a_second::OnceASecond;
pub use page::PAGE_BYTES;
pub use ring::{KeyRing, KeyStatus};
pub use schedule::{
    CLOCK_TOLERANCE_S, CLOCKS_APART_S, KeyState, LONGEST_TICKET_LIFETIME_S, Reschedule, Schedule,
};
pub use sealer::{LONGEST_TICKET_BYTES, NONCE_BYTES, TicketSealer, Unopened};
pub use seconds::{NoTime, Seconds};
pub use source::{KeySource, TicketEvent};
pub use timeline::Opened;

/// The size of a key's name, with which a ticket begins, in bytes: RFC 5077, section 4,
/// recommends this form, and OpenSSL's callback has it.
pub const NAME_BYTES: usize = 16;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
