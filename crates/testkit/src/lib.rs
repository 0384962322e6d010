//! The test kit: processes, folders, ports, certificates, servers and counters that the tests,
//! benches and checks of several crates use.
//!
//! Only dev-dependencies and `rejoin-checks` may name this crate. Everything here panics, with a
//! message, where a test could not go on; every wait ends after [`process::DEADLINE`].

pub mod alone;
pub mod certificates;
pub mod folder;
pub mod memory;
pub mod port;
pub mod process;
pub mod random;
pub mod valkey;
