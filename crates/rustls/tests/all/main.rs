//! The tests of sessions and tickets for rustls, each thing in a module.

mod cluster;
mod examples;
mod expiry;
mod pair;
mod session_ids;
mod shared;
mod store;
mod tickets;
mod tokio;
