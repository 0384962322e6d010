//! The `rejoin` command as its users run it: real processes, real servers, on loopback.

mod access_logs;
mod audit;
mod bench;
mod capture;
mod clients;
mod cluster;
mod commands;
mod connect;
mod cost;
mod cost_caches;
mod demo;
mod demo_client;
mod doctor;
mod drill;
mod keeping_up;
mod keys;
mod keys_export;
mod links;
mod manager;
mod metrics;
mod netty;
mod pages;
mod plan;
mod plan_logs;
mod program;
mod programs;
mod published;
mod python;
mod run;
mod shared;
mod shown;
mod simulate;
mod sites;
mod stats_manager;
mod stats_page;
mod unsafe_code;

/// The path of the program.
const REJOIN: &str = env!("CARGO_BIN_EXE_rejoin");
