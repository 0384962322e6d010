//! The promises of Rejoin, measured on the release build: a line for each, and exit code 1 if one is not kept.
//!
//! `rejoin-checks capture|servers|trust|cluster|manager|clients|install|cost|reach|early [--quick] [--only PART_OF_A_NAME]`; `make check-*`
//! installs the programs that a group needs. `--help` after a group's name lists its checks. `--only` chooses checks by a part of
//! their names; `--quick` makes everything smaller, and figures coarser. A check whose program is not installed is
//! reported as skipped. The checks run in a child of the program, so that a signal leaves none of their servers behind.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a check tells what it found")]

mod arrivals;
mod capture;
mod chromium;
mod clients;
mod cluster;
mod cost;
mod early;
mod frame;
mod install;
mod manager;
mod reach;
mod servers;
mod trust;

use std::process::{Command, ExitCode};

use frame::{Group, Words};
use rejoin_testkit::watched;

const GROUPS: [&Group; 10] = [
    &capture::GROUP,
    &servers::GROUP,
    &trust::GROUP,
    &cluster::GROUP,
    &manager::GROUP,
    &clients::GROUP,
    &install::GROUP,
    &cost::GROUP,
    &reach::GROUP,
    &early::GROUP,
];
const USAGE: &str = "rejoin-checks capture|servers|trust|cluster|manager|clients|install|cost|reach|early [--quick] [--only PART_OF_A_NAME]";

fn main() -> ExitCode {
    if watched::is_watched() {
        return check();
    }
    let mut checks = Command::new(std::env::current_exe().expect("the path of this program"));
    watched::run(checks.args(std::env::args_os().skip(1)))
}

fn check() -> ExitCode {
    let (name, words) = Words::given();
    if let Some(word) = words.wrong() {
        eprintln!("rejoin-checks: {word} is unknown, or lacks its value: {USAGE}");
        return ExitCode::from(2);
    }
    match GROUPS.iter().find(|group| group.name == name) {
        Some(group) => group.run(&words),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
