//! The promises of Rejoin to programs that are not changed, a line for each:
//! `make check-clients`.
//!
//! `rejoin-checks clients [--only NAME] [--quick]`; nginx, OpenSSL's command,
//! curl, Python and a JDK come from Debian's packages. Without one of them, what needs it is said to be
//! skipped. `--only` takes a part of a check's name; `--quick` makes everything smaller, and its figures
//! coarser.

mod costs;
mod java;
mod scripts;

use std::process::ExitCode;

use crate::frame::{self, Check, Found, Words};

/// The size of each check.
#[derive(Debug, Clone, Copy)]
struct Effort {
    quick: bool,
}

const CHECKS: [Check<Effort>; 12] = [
    ("1", "scripts", "with Rejoin and without: output, exit code (all alike)", scripts::all),
    ("2", "sharing", "programs on each service (one full handshake)", scripts::sharing),
    ("3", "security", "tests of what nobody may gain (all pass)", scripts::security),
    ("3", "trouble", "tests of what may go wrong (all pass)", scripts::trouble),
    ("4", "round-trip-1.2", "of 40 ms, saved by curl (≥ 1; of its time ≥ 0.95)", costs::round_trip),
    (
        "4",
        "sequential-1.2",
        "thirty curls, RSA-2048, times those without (≤ 1.15)",
        costs::sequential_tls12,
    ),
    ("4", "sequential-1.3", "the same", costs::sequential_tls13),
    ("4", "sequential-p256", "the same, P-256", costs::sequential_p256),
    (
        "4",
        "server-cpu-1.2",
        "a hundred curls, RSA-2048, times those without (≤ 0.6)",
        costs::cpu_tls12,
    ),
    ("4", "server-cpu-1.3", "the same", costs::cpu_tls13),
    ("4", "no-tls", "instructions of a program without TLS, more (≤ 1 %)", costs::without_tls),
    ("5", "java", "curl's and Java's sessions, each other's (all resumed)", java::shares),
];

const USAGE: &str = "\
make check-clients CHECKS='[--quick] [--only PART_OF_A_NAME]'
  such as CHECKS='--only sequential'
";

pub(crate) fn run(words: &Words) -> ExitCode {
    let effort = Effort { quick: words.has("--quick") };
    frame::run(&CHECKS, words, effort, (USAGE, frame::SHIPPED))
}
