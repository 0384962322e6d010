//! Attaches a [`rejoin_cache::Cache`] to an OpenSSL server.
//!
//! [`ServerSessions`] takes over where an `SSL_CTX` keeps its sessions: TLS 1.2 session ids and
//! TLS 1.3 stateful tickets. OpenSSL's own cache is switched off. Session ids are made here and
//! carry a keyed tag, so that an id nobody issued is refused without a lookup.
//!
//! The application may say when a client returns: [`hint`].
//!
//! [`Client`] is for measuring: many clients in one process that keep their own sessions.
//!
//! What is not here: a session cache for clients, stateless tickets, and attaching to servers that do not
//! link this crate.

mod callbacks;
mod client;
mod connection;
mod ffi;
mod internal_cache;
mod sessions;

pub use client::{Client, ClientSession};
pub use connection::{hint, no_hint};
pub use internal_cache::{InternalCache, count_frees};
pub use sessions::{ServerSessions, now_ms};
