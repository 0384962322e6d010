//! The reference server, and a port that shows the counters of a process.
//!
//! [`Server`] is a small HTTPS server on OpenSSL or rustls. It supports every way of resuming that
//! they have, and Rejoin's; `rejoin serve` runs it. [`StatusPort`] and [`metrics`] show counters to
//! people and to Prometheus; the server and `rejoin stats --serve` use them.
//!
//! This crate has no clients and no measurements (`rejoin-lab`), and no argument parsing
//! (`rejoin-cli`).

#![forbid(unsafe_code)]

mod error;
mod http;
mod identity;
pub mod metrics;
mod server;
mod status_port;

pub use error::Error;
pub use http::{NEXT_CONNECT, padded_request, response_bytes};
// For the fuzz target `http`.
#[doc(hidden)]
pub use http::{Request, read_request};
pub use identity::{
    Identity, KeyType, RustlsIdentity, authority_parameters, certificate_parameters,
    read_certificates,
};
pub use server::{
    PATIENCE, RESPONSE_BYTES, Resumption, Server, Settings, Stack, Summary, TicketKeysOf, Versions,
    weigh_internal_cache,
};
pub use status_port::{Answer, StatusPort};
