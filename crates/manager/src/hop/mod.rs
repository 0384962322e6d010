//! Programs that do their own TLS: the manager is the server of the program's handshake, and the
//! client of the real server.

pub(crate) mod frames;
pub(crate) mod records;
pub(crate) mod sockets;
pub(crate) mod tls;
