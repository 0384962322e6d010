//! A [`rejoin_cache::Cache`] as the session store of a rustls server.
//!
//! [`ServerSessions`] implements [`rustls::server::StoresServerSessions`]: TLS 1.2 session ids, and
//! stateful TLS 1.3 tickets, each handed out once. rustls does not tell its store which connection
//! a call belongs to. A server can tell it by [`Connection::scope`] around each use of a connection. The client's
//! history then follows from ticket to ticket, and hints reach the session.
//! Without a scope resumption works, but over TLS 1.3 each connection looks like a new client.
//!
//! Not here: the ticketer and the client store.

#![forbid(unsafe_code)]

mod connection;
mod server_sessions;

pub use connection::Connection;
pub use rejoin_store::now_ms;
pub use server_sessions::ServerSessions;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
