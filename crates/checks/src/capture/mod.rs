//! The promises of `rejoin capture`: `make check-capture`.
//!
//! They need a folder of captures and a second tool's answers (`files/`, `oracle.jsonl`, `asn.csv`, `apps.tsv`); a check
//! that lacks one is skipped. `stacks` needs neither. `make fuzz` fuzzes each parser for ten minutes.

mod answers;
mod live;
mod million;
mod sharing;
mod speed;
mod stacks;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::frame::{Check, Effort, Found, Group};
use rejoin_testkit::shipped;

pub(crate) const GROUP: Group = Group {
    name: "capture",
    arguments: "CAPTURES=FOLDER CHECKS='[--only PART_OF_A_NAME]'",
    example: "speed",
    packages: &["rejoin-cli"],
    checks: CHECKS,
};

const CHECKS: &[Check] = &[
    (1, "handshakes", "handshakes found, of those a second tool found (≥ 99.7 %)", answers::found),
    (1, "fields", "fields equal, the worst one (≥ 99.7 %)", answers::equal),
    (
        1,
        "stacks",
        "handshakes of nine stacks as their ends tell (≥ 99.7 %, 0 wrong)",
        stacks::agree,
    ),
    (2, "sharing", "the sharing table, exactly", sharing::table),
    (2, "services", "the services of most applications, exactly", sharing::services),
    (3, "table-i", "Table I of paper 004, largest difference (≤ 0.01)", sharing::table_i),
    (4, "speed", "MB/s on one thread, from the page cache (≥ 400)", speed::megabytes),
    (4, "tshark", "handshakes a second, as times tshark's (≥ 50)", speed::against_tshark),
    (4, "memory", "MB of memory for 2,000,000 connections in 4 GB (≤ 200)", million::memory),
    (4, "hour", "MB of memory for a live hour of 2,000 devices (≤ 64)", live::hour),
    (5, "live", "a live capture against what the server counted", live::agrees),
];

/// Runs the command and gives its standard output, whatever its exit code: some captures of the set
/// are corrupt on purpose.
fn rejoin(arguments: &[&str]) -> Vec<u8> {
    let output =
        Command::new(shipped::rejoin()).args(arguments).output().expect("the program runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!complaint.contains("panicked"), "{arguments:?}: {complaint}");
    output.stdout
}

/// The report on a folder of captures with answers.
fn report(captures: &Path, more: &[&str]) -> Option<Value> {
    let (files, networks) = (captures.join("files"), captures.join("asn.csv"));
    let (files, networks) = (files.to_str()?, networks.to_str()?);
    if !captures.join("files").exists() {
        return None;
    }
    let arguments = ["capture", "--json", "--top", "8", "--networks", networks, files];
    serde_json::from_slice(&rejoin(&[&arguments[..], more].concat())).ok()
}
