//! The client's TLS manager: the programs of one machine share sessions, and none holds a secret.
//!
//! A program asks over a Unix socket for a connection to a name ([`protocol`]). The manager makes
//! the TLS connection, resumes a session if any program got one there, and relays plaintext.
//! Sessions stay in the manager's memory, and end with it.
//!
//! A connection's way: `serve` admits a program and reads its request (`wire`), `connect` takes a
//! session (`sessions`) whose certificates stand before what the program trusts (`trust`), calls
//! the server (`dial`), does the handshake (`upstream`, `verifier`), and `relay` is the rest.
//!
//! What is not here: what programs link to speak to a manager ([`client`], a crate of its own), and how a
//! machine starts one.

#![forbid(unsafe_code)]

mod allotment;
mod apart;
mod calls;
mod carrying;
mod certificates;
mod clock;
mod closing;
mod connect;
mod counts;
mod dial;
mod endpoint;
mod ends;
mod error;
mod failure;
mod hop;
mod hopping;
mod identity;
mod near;
mod program;
mod relay;
mod serve;
mod sessions;
mod settings;
mod shares;
mod socket;
mod state;
mod tcp;
mod trust;
mod turns;
mod upstream;
mod verdicts;
mod verifier;
mod wire;

pub use rejoin_client as client;
pub use rejoin_client::protocol;

pub use clock::Clock;
pub use error::Error;
pub use serve::{run, threads};
pub use settings::{AcrossNames, HostPattern, Settings};
pub use socket::{SYSTEM_SOCKET, default_socket, inherited, listen};
