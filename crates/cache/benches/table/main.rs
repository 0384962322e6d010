//! The cost of an operation of the session cache, beside its peers in the same run.
//!
//! `cargo bench -p rejoin-cache` prints the table and the requirements, in a few minutes and with
//! 9 GB of memory. `-- --quick` does so at the smallest size, in seconds; `-- --json` prints one
//! JSON object per line.

mod adapter;
mod peers;
mod race;
mod report;
mod requirements;
mod workload;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use peers::{CONTENDERS, OF_MIXTURES};
use race::{Size, race};
use report::Report;
use workload::Intervals;

/// The size for which most requirements are defined.
const JUDGED_SESSIONS: u64 = 204_800;

const WHOLE: [Size; 3] = [
    Size { sessions: 6_750, rounds: 15, lead_in: 50_000, timed: 400_000 },
    Size { sessions: JUDGED_SESSIONS, rounds: 15, lead_in: 100_000, timed: 400_000 },
    Size { sessions: 2_000_000, rounds: 9, lead_in: 100_000, timed: 400_000 },
];
const QUICK: [Size; 1] = [Size { sessions: 6_750, rounds: 5, lead_in: 20_000, timed: 80_000 }];

fn main() -> ExitCode {
    let (mut quick, mut json) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            // Cargo adds this one.
            "--bench" => {}
            "--quick" => quick = true,
            "--json" => json = true,
            other => {
                eprintln!("unknown argument {other}: give --quick, --json, both or nothing");
                return ExitCode::from(2);
            }
        }
    }
    let report = measure(if quick { &QUICK } else { &WHOLE });
    let mut out = io::stdout().lock();
    match if json { report.write_json(&mut out) } else { report.write_text(&mut out) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the table could not be printed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(sizes: &[Size]) -> Report {
    let mut report =
        Report { sizes: Vec::new(), mixtures: Vec::new(), requirements: Vec::new(), judged: false };
    for size in sizes {
        progress(&format!("{} sessions", size.sessions));
        report.sizes.push((*size, race(size, Intervals::Three, &CONTENDERS)));
        progress(&format!("{} sessions, any interval", size.sessions));
        report.mixtures.push(race(size, Intervals::Any, &CONTENDERS[..OF_MIXTURES]));
    }
    let at = sizes.iter().position(|size| size.sessions == JUDGED_SESSIONS);
    report.judged = at.is_some();
    let (size, figures) = &report.sizes[at.unwrap_or(0)];
    progress("requirements");
    report.requirements = requirements::of_table(size.sessions, figures);
    for ((size, figures), mixture) in report.sizes.iter().zip(&report.mixtures) {
        report.requirements.extend(requirements::of_size(size, figures, mixture));
    }
    report.requirements.extend(requirements::of_their_own(size));
    progress("");
    report
}

/// Prints the present step on one line of a terminal.
fn progress(what: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
        let _ = io::stderr().flush();
    }
}
