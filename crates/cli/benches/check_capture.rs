//! What `rejoin capture` promises, checked one line after the other: `make check-capture`.
//!
//! `cargo bench -p rejoin-cli --bench check_capture -- FOLDER` with a folder of captures and a second
//! tool's answers (`files/`, `oracle.jsonl`, `asn.csv`, `apps.tsv`); without them, what needs them is
//! said to be skipped. tshark and mergecap come from Debian's packages.

#![expect(clippy::print_stdout, reason = "a check tells what it found")]

#[path = "check_capture/answers.rs"]
mod answers;
#[path = "../../capture/tests/compare/mod.rs"]
mod compare;
#[path = "check_capture/live.rs"]
mod live;
#[path = "check_capture/million.rs"]
mod million;
#[path = "../tests/servers/mod.rs"]
#[expect(dead_code, reason = "the tests of commands ask more of a server")]
mod servers;
#[path = "check_capture/sharing.rs"]
mod sharing;
#[path = "check_capture/speed.rs"]
mod speed;
#[path = "../tests/watched/mod.rs"]
mod watched;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;
use servers::REJOIN;

/// What a check found: the figure, and whether it is as promised.
struct Found {
    figure: String,
    holds: bool,
}

/// A check's number, what it promises, and the check; `None` if it cannot be made here.
type Check = (&'static str, &'static str, fn(&Path) -> Option<Found>);

const CHECKS: [Check; 9] = [
    ("1", "handshakes found, of those a second tool found (≥ 99.7 %)", answers::found),
    ("1", "fields equal, the worst one (≥ 99.7 %)", answers::equal),
    ("2", "the sharing table, exactly", sharing::table),
    ("2", "the services of most applications, exactly", sharing::services),
    ("3", "Table I of paper 004, largest difference (≤ 0.01)", sharing::table_i),
    ("4", "MB/s on one thread, from the page cache (≥ 400)", speed::megabytes),
    ("4", "handshakes a second, as times tshark's (≥ 25)", speed::against_tshark),
    ("4", "MiB of memory for 1,000,000 connections in 2 GB (< 512)", million::memory),
    ("5", "a live capture against what the server counted", live::agrees),
];

fn main() -> ExitCode {
    let given = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let captures = given.map_or(beside, PathBuf::from);
    let mut all_hold = true;
    for (line, promise, check) in CHECKS {
        let found = check(&captures);
        let (verdict, figure) = match &found {
            Some(Found { figure, holds: true }) => ("ok", figure.as_str()),
            Some(Found { figure, holds: false }) => ("SHORT", figure.as_str()),
            None => ("skipped", "not possible here"),
        };
        println!("{line}  {verdict:7} {promise}: {figure}");
        all_hold &= found.is_none_or(|found| found.holds);
    }
    println!("6  see     ten minutes of fuzzing for each target: make fuzz");
    if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the command and gives its standard output, whatever its exit code: some captures of the set
/// are corrupt on purpose.
fn rejoin(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(REJOIN).args(arguments).output().expect("the program runs");
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
