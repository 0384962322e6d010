//! What the manager promises, checked one line after the other: `make check-manager`.
//!
//! `cargo bench -p rejoin-cli --bench check_manager -- [--only NAME] [--quick]`; nginx, OpenSSL's
//! command, Python and a JDK come from Debian's packages. Without one of them, what needs it is said
//! to be skipped. `--only` takes a part of a check's name; `--quick` makes everything smaller, and its
//! figures coarser.

#![expect(clippy::print_stdout, reason = "a check tells what it found")]

#[path = "../../../capi/benches/checks/mod.rs"]
mod checks;
mod costs;
#[path = "../../tests/programs/hidden.rs"]
mod hidden;
mod idle;
#[path = "../../tests/managed/mod.rs"]
mod managed;
#[path = "../../tests/programs/memory.rs"]
mod memory;
#[path = "../../tests/programs/once.rs"]
mod once;
mod process;
#[path = "../../../manager/tests/manager/means/rogue.rs"]
mod rogue;
mod rules;
#[path = "../../tests/programs/secrets.rs"]
mod secrets;
#[expect(dead_code, reason = "the tests of commands start servers in other ways, too")]
#[path = "../../tests/servers/mod.rs"]
mod servers;
mod sharing;
mod soak;
#[path = "../../tests/programs/stacks.rs"]
mod stacks;
#[path = "../../tests/programs/twenty.rs"]
mod twenty;
mod unseen;

use std::path::Path;
use std::process::ExitCode;

use checks::{Check, Found, Words};
use managed::Managed;
use servers::REJOIN;

/// How much is done.
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

fn main() -> ExitCode {
    let words = Words::given();
    let effort = Effort { quick: words.has("--quick") };
    checks::run(
        &CHECKS,
        &words,
        effort,
        (USAGE, &["rejoin-cli", "rejoin-capi", "rejoin-gnutls", "rejoin-preload"]),
    )
}

fn start(name: &str) -> Managed {
    Managed::start(Path::new(REJOIN), name)
}
