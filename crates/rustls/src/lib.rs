//! A [`rejoin_cache::Cache`] as the session store of a rustls server.
//!
//! [`ServerSessions`] implements [`rustls::server::StoresServerSessions`]: TLS 1.2 session ids, and
//! stateful TLS 1.3 tickets, each handed out once. rustls does not tell its store which connection
//! a call belongs to. A server that wraps its use of a connection in [`Connection::scope`] tells
//! it, and the client's history then follows from ticket to ticket, and hints reach the session.
//! Without, everything works; over TLS 1.3 each connection then looks like a new client.
//!
//! What is not here: the ticketer and the client store.

#![forbid(unsafe_code)]

mod connection;
mod server_sessions;

pub use connection::Connection;
pub use server_sessions::{ServerSessions, now_ms};
