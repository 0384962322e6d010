//! The promises of the manager, a line for each: `make check-manager`.
//!
//! `rejoin-checks manager [--only NAME] [--quick]`; nginx, OpenSSL's
//! command, Python and a JDK come from Debian's packages. Without one of them, what needs it is said
//! to be skipped. `--only` takes a part of a check's name; `--quick` makes everything smaller, and its
//! figures coarser.

mod costs;
mod idle;
mod measured;
mod process;
mod rules;
mod sharing;
mod soak;
mod unseen;

use std::process::ExitCode;

use crate::frame::{self, Check, Found, Words};
use rejoin_testkit::manager::Managed;

/// The size of each check.
#[derive(Debug, Clone, Copy)]
struct Effort {
    quick: bool,
}

const CHECKS: [Check<Effort>; 16] = [
    ("1", "programs-nginx", "twenty programs (1 full, 19 resumed)", sharing::nginx),
    ("1", "programs-openssl", "the same", sharing::openssl),
    ("1", "programs-rustls", "the same", sharing::rustls),
    ("1", "programs-java", "the same", sharing::java),
    ("1", "table-i", "full handshakes, % (≥ 75, then one a service)", sharing::table_i),
    ("2", "rules", "tests of the sixteen rules (all pass)", rules::all),
    ("2", "rule-1", "tickets sent twice, 200 at once and a kill (none)", rules::once),
    ("3", "first-byte-1.3", "times own resumed (≤ 1.25), RSA in full (< 0.7)", costs::tls13),
    ("3", "first-byte-1.2", "the same", costs::tls12),
    ("3", "round-trip-1.2", "of 40 ms, saved by resuming (one)", costs::resumed),
    ("3", "round-trip-1.3", "of 40 ms, saved by 0-RTT (one)", costs::early),
    ("3", "relay", "throughput, times the program's own (≥ 0.6)", costs::relay),
    ("3", "idle", "KiB for each idle connection (≤ 64)", idle::memory),
    ("4", "secrets-programs", "found in programs' memory (none)", unseen::programs),
    ("4", "secrets-manager", "its memory, to its own user (hidden, no core)", unseen::manager),
    ("5", "soak", "connections, failed (none), growth (none)", soak::steady),
];

const USAGE: &str = "\
make check-manager CHECKS='[--quick] [--only PART_OF_A_NAME]'
  such as CHECKS='--only programs'
";

pub(crate) fn run(words: &Words) -> ExitCode {
    let effort = Effort { quick: words.has("--quick") };
    frame::run(&CHECKS, words, effort, (USAGE, frame::SHIPPED))
}

fn start(name: &str) -> Managed {
    Managed::start(name)
}
