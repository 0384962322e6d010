//! The upstream side: from a server's name to a TLS connection with it.

pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod endpoint;
pub(crate) mod handshake;
pub(crate) mod key_shares;
pub(crate) mod own_connections;
pub(crate) mod policy;
pub(crate) mod server_hello;
pub(crate) mod tcp;
