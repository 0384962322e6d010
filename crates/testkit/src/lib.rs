//! The test kit: processes, folders, ports, certificates, servers and counters that the tests,
//! benches and checks of several crates use.
//!
//! Only dev-dependencies and `rejoin-checks` may name this crate. Everything here panics with a
//! message if a test cannot go on; every wait ends after [`process::DEADLINE`]. What needs a crate
//! of ours, or a large one of others, is behind a feature.

#![expect(
    missing_docs,
    missing_debug_implementations,
    reason = "tests are its only users, and the names say it"
)]

pub mod alone;
#[cfg(feature = "servers")]
pub mod by_hand;
#[cfg(feature = "cache-model")]
pub mod cache_model;
#[cfg(feature = "captures")]
pub mod capture_answers;
#[cfg(feature = "certificates")]
pub mod certificates;
#[cfg(feature = "programs")]
pub mod clients;
pub mod clock;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod folder;
#[cfg(feature = "house")]
pub mod house;
#[cfg(feature = "programs")]
pub mod jvm;
#[cfg(feature = "servers")]
pub mod killing;
#[cfg(feature = "programs")]
pub mod live_capture;
#[cfg(feature = "servers")]
pub mod machines;
#[cfg(feature = "captures")]
pub mod made_capture;
#[cfg(feature = "programs")]
pub mod manager;
pub mod memory;
pub mod port;
pub mod process;
#[cfg(feature = "programs")]
pub mod programs;
pub mod proxy;
pub mod random;
pub mod sentinels;
#[cfg(feature = "programs")]
pub mod serve;
pub mod shipped;
#[cfg(feature = "servers")]
pub mod site;
#[cfg(feature = "programs")]
pub mod stacks;
#[cfg(feature = "certificates")]
pub mod staples;
pub mod valkey;
#[cfg(feature = "programs")]
pub mod watched;
