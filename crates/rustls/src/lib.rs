//! Sessions and tickets of rustls servers, which survive restarts, and which processes and machines share.
//!
//! [`ServerSessions`] implements [`rustls::server::StoresServerSessions`]: TLS 1.2 session ids, and
//! stateful TLS 1.3 tickets, each handed out once. They are in a [`rejoin_cache::Cache`] of this process, or in a
//! [`rejoin_store::Store`] that processes and machines share.
//!
//! [`Ticketer`] implements [`rustls::server::ProducesTickets`]: stateless tickets, under the [`TicketKeys`] that a store
//! has, which rotate by themselves. They hold the whole session, so that the server needs no memory for them.
//!
//! rustls does not tell its store which connection a call belongs to. [`Connection::scope`] around each use of a
//! connection tells it: the client's history then follows from ticket to ticket, hints reach the session, and a client
//! authenticates again after a time. The acceptor of the feature `tokio` does this by itself.
//! Without a scope resumption works, but over TLS 1.3 each connection looks like a new client.
//!
//! A [`Context`] keeps the sessions of one server apart from those of another, and of one that checks client
//! certificates in another way.
//!
//! Not here: the client store.

#![forbid(unsafe_code)]

mod checked_sessions;
mod clock;
mod connection;
mod context;
mod server_sessions;
mod session_value;
mod ticket_keys;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use connection::{Around, Connection};
pub use context::Context;
pub use rejoin_store::now_ms;
pub use server_sessions::ServerSessions;
pub use ticket_keys::{TicketKeys, Ticketer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/rustls.md")]
struct Guide;
