//! What a program that does its own TLS needs to go through the manager, without being changed.
//!
//! The program's TLS library is the client of a *hop*: a connection over a Unix socket, whose other end is the
//! manager, under a key that was made for it alone. Its ClientHello offers the key beside all that it would
//! have offered ([`Offer`]). When the program sends it, itself or by its library, the ClientHello is known by
//! the key: the manager gets the TCP socket, and the program has one end of a pair under the same number
//! (`sockets`). What the manager found at the server is there when the handshake is over ([`Taken`]).
//!
//! If anything is missing, the ClientHello goes to the server with a key that says nothing to it, and the
//! program has the connection that it would have had.
//!
//! What is not here: any TLS library (`capi::clients` for libssl, `gnutls` for GnuTLS), how functions are interposed
//! (`preload`), and what the manager does (`manager::hop`).

mod counted;
pub mod debug;
pub mod functions;
mod hello;
mod hooks;
mod offer;
mod pending;
mod registered;
mod settings;
mod sockets;

pub use hello::{RECORD_SIZE_LIMIT, STATUS_REQUEST, SUITES};
pub use hooks::{guarded, hooks};
pub use offer::{Offer, Taken};
pub use rejoin_client::protocol::Directly;
