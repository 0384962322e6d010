//! A reference TLS server and a fleet of real TLS clients, to measure what resumption is worth.
//!
//! [`server`] is a small HTTPS server on OpenSSL or rustls with every way of resuming that they
//! have, and ours. [`fleet`] is paper 000's population of devices against any TLS server.
//! [`demo`] runs one against the other; [`throughput`] does so past what a server can do. [`apps`] are programs that share
//! sessions through the TLS manager. [`handshake`] measures handshakes alone, full and resumed, [`cost`] whole transactions, with TLS
//! and without; [`interning`] what it saves to decode clients' certificates once, [`insert`] what it takes to store a session
//! where there is no room. [`StatusPort`] and [`metrics`]
//! show what is counted to those who look on, here and elsewhere.
//!
//! What is not here: argument parsing and terminal output, which are `rejoin-cli`'s.

#![deny(unsafe_code)]

pub mod apps;
mod chart;
pub mod cost;
pub mod demo;
mod error;
pub mod fleet;
pub mod handshake;
mod http;
mod identity;
pub mod insert;
pub mod interning;
mod java;
mod median;
pub mod metrics;
mod over_memory;
pub mod server;
mod server_process;
mod status_port;
mod step;
pub mod throughput;

pub use error::Error;
pub use http::NEXT_CONNECT;
pub use identity::{Identity, KeyType, read_certificates};
pub use status_port::{Answer, StatusPort};
pub use step::Step;
