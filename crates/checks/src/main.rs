//! The promises of Rejoin, measured on the release build: a line for each, and exit code 1 if one is not kept.
//!
//! `rejoin-checks capture|servers|cluster|manager|clients|cost [--quick] [--only PART_OF_A_NAME]`; `make check-*` installs what
//! each needs. `--help` after a group's name lists its checks. A check that cannot be made here is said to be skipped.

#![expect(clippy::print_stdout, reason = "a check tells what it found")]

mod arrivals;
mod capture;
mod clients;
mod cluster;
mod cost;
mod frame;
mod manager;
mod servers;

use std::process::ExitCode;

use frame::Words;

const USAGE: &str =
    "rejoin-checks capture|servers|cluster|manager|clients|cost [--quick] [--only PART_OF_A_NAME]";

fn main() -> ExitCode {
    let (group, words) = Words::given();
    if let Some(word) = words.wrong() {
        eprintln!("rejoin-checks: {word} is unknown, or lacks its value: {USAGE}");
        return ExitCode::from(2);
    }
    match group.as_str() {
        "capture" => capture::run(&words),
        "servers" => servers::run(&words),
        "cluster" => cluster::run(&words),
        "manager" => manager::run(&words),
        "clients" => clients::run(&words),
        "cost" => cost::run(&words),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
