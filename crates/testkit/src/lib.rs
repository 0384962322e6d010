//! The test kit: processes, folders, ports, certificates, servers and counters that the tests,
//! benches and checks of several crates use.
//!
//! Only dev-dependencies and `rejoin-checks` may name this crate. Everything here panics, with a
//! message, where a test could not go on; every wait ends after [`process::DEADLINE`].

pub mod alone;
pub mod cache_model;
pub mod capture_answers;
pub mod certificates;
pub mod clients;
pub mod cluster;
pub mod folder;
pub mod house;
pub mod jvm;
pub mod killing;
pub mod live_capture;
pub mod machines;
pub mod made_capture;
pub mod manager;
pub mod memory;
pub mod port;
pub mod process;
pub mod programs;
pub mod proxy;
pub mod random;
pub mod serve;
pub mod shipped;
pub mod site;
pub mod stacks;
pub mod valkey;
