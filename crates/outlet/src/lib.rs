//! The ways of ticket keys and sessions to TLS servers that do not load Rejoin.
//!
//! - [`KeyFiles`]: files that servers read, in the form of each ([`Format`]);
//! - [`haproxy`]: HAProxy's runtime socket, which takes keys without a reload;
//! - [`Share`]: a Unix socket for programs that follow the ring, and keep sessions in the cache (docs/share-protocol.md);
//! - [`Sds`]: Envoy's secret discovery service on a Unix socket.
//!
//! Every server gets the keys of a [`Context`], derived from the ring: nobody who has them learns another context's
//! keys, or the ring.

#![forbid(unsafe_code)]

mod context;
mod error;
mod files;
mod format;
pub mod haproxy;
mod listing;
mod peers;
mod rings;
mod sds;
mod share;

pub use context::Context;
pub use error::Error;
pub use files::KeyFiles;
pub use format::Format;
pub use peers::Peers;
pub use rings::{Rings, follow};
pub use sds::Sds;
pub use share::{Share, messages};
