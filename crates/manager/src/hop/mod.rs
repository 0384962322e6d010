//! Programs with a TLS library of their own: the manager is the server of the program's handshake, and the
//! client of the origin server.

pub(crate) mod frames;
mod line;
mod passing;
pub(crate) mod records;
pub(crate) mod sockets;
pub(crate) mod tls;
