//! The laboratory: measurements with real TLS servers and clients.
//!
//! [`fleet`] is paper 000's population of devices against any TLS server. [`demo`] runs it against
//! the reference server (`rejoin-serve`) in every way of resuming; [`throughput`] does so past what
//! a server can do. [`apps`] are programs that share sessions through the TLS manager.
//! [`handshake`] measures handshakes alone, full and resumed; [`cost`] whole transactions, with TLS
//! and without; [`interning`] what it saves to decode clients' certificates once; [`insert`] what
//! it takes to store a session where there is no room; [`client`] what unchanged programs gain from the manager;
//! [`drill`] what clients of a cluster see while something is broken.
//!
//! Production code does not depend on this crate: only the measuring commands of `rejoin-cli` do.
//! Argument parsing and progress bars are in `rejoin-cli`.

#![deny(unsafe_code)]

pub mod apps;
mod child;
pub mod client;
mod conditions;
pub mod cost;
pub mod demo;
pub mod drill;
mod error;
mod experiment;
pub mod fleet;
pub mod handshake;
pub mod insert;
pub mod interning;
mod java;
mod over_memory;
mod scratch;
mod server;
pub mod throughput;
mod usage;

pub use conditions::{Conditions, marked};
pub use error::Error;
pub use experiment::{Ended, Step};
