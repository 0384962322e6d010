//! The way through the manager for an unmodified program that does its own TLS.
//!
//! The program's TLS library is the client of a *hop*: a TLS connection to the manager over a Unix socket, with a PSK
//! that is made for this connection alone. Its ClientHello offers the PSK beside everything that it would offer anyway
//! ([`Offer`]). The PSK identifies the ClientHello when the program or its library sends it: the manager then gets the
//! TCP socket, and the program gets one end of a socket pair under the same descriptor (`sockets`). After the handshake
//! the manager's description of the server is available ([`Taken`]).
//!
//! A program whose socket is non-blocking does not wait for the manager's decision (`waiting`). If it
//! forks meanwhile, one of the processes goes on with the connection (`deciding`).
//!
//! If anything is missing, the ClientHello goes to the server, which does not know the PSK and ignores it. The program
//! then has the connection that it would have had without Rejoin.
//!
//! Not here: any TLS library (`capi::clients` for libssl, `gnutls` for GnuTLS), how functions are interposed
//! (`preload`), and the manager's side (`manager::hop`).

mod counted;
pub mod debug;
mod deciding;
pub mod functions;
mod held;
mod hello;
mod hooks;
mod offer;
mod registered;
mod settings;
mod sockets;
mod waiting;

// For the fuzz target `client_hello`.
#[doc(hidden)]
pub use hello::ClientHello;
pub use hello::{STATUS_REQUEST, SUITES};
pub use hooks::{guarded, hooks};
pub use offer::{Asks, Offer, Taken};
pub use rejoin_client::protocol::Directly;
pub use settings::is_manager_there;
