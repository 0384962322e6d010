//! The client's TLS manager: the programs of one machine share TLS sessions, and no program holds their secrets.
//!
//! A program asks for a connection to a name over a Unix socket ([`protocol`]). The manager opens
//! the TLS connection, resumes a session if any program obtained one there, and relays plaintext.
//! Sessions exist only in the manager's memory.
//!
//! Modules, from the top down:
//! - `life` accepts programs until the manager drains, hands over, or ends.
//! - `admission` bounds how many programs there are, and `serve` hands each request to its handler.
//! - `hop` serves programs that do their own TLS: over a socket that they pass, or by records that
//!   they carry.
//! - `relay` moves plaintext between a program and its server until both ends are closed.
//! - `upstream` resolves a name, connects, and does the handshake with the server.
//! - `sessions` keeps sessions and chooses one whose certificates satisfy the program's trust.
//! - `trust` verifies certificates by the authorities that the program names.
//! - `downstream` is the program's side: its socket, requests and answers, and the limits per user.
//!
//! Not here: the library with which programs speak to a manager ([`client`], a crate of its own), and the start of
//! a manager by the machine.

#![forbid(unsafe_code)]

mod admission;
mod clock;
mod counts;
mod downstream;
mod error;
mod failure;
mod hop;
mod life;
mod relay;
mod serve;
mod sessions;
mod settings;
mod state;
mod trust;
mod upstream;

pub use rejoin_client as client;
pub use rejoin_client::protocol;

pub use clock::Clock;
pub use downstream::listener::{SYSTEM_SOCKET, default_socket, inherited, listen};
pub use downstream::succession::{Predecessor, take_over};
pub use error::Error;
pub use life::{Control, Event, Sockets, run, serve};
pub use serve::threads;
pub use settings::{AcrossNames, ConnectRules, HostPattern, Namespaces, Settings};
