//! The promises of Rejoin inside servers, a line for each: `make check-servers`.
//!
//! `rejoin-checks servers [--only NAME] [--quick] [--kill-s SECONDS]`;
//! nginx, HAProxy, valgrind, testssl.sh and OpenSSL's command come from Debian's packages, sslyze from
//! PyPI into the target folder. Without one of them, what needs it is said to be skipped. `--only`
//! takes a part of a check's name; `--quick` makes everything smaller, and its figures coarser.
//!
//! Which servers share sessions, and through what, is a matter of `tests/servers`.

mod fleet;
mod instructions;
mod judges;
mod kills;
mod operation;
mod processes;

use std::process::ExitCode;

use crate::frame::{self, Check, Found, Words};
use rejoin_report::median;
use rejoin_testkit::site::Site;

/// The size of each check.
#[derive(Debug, Clone, Copy)]
struct Effort {
    quick: bool,
    /// The time for which workers are killed.
    kill_s: u64,
}

const CHECKS: [Check<Effort>; 11] = [
    ("2", "fleet-nginx-1.2", "resumed, times nginx's own cache (≥ 2.5)", fleet::nginx_tls12),
    ("2", "fleet-nginx-1.3", "the same, TLS 1.3, tickets off (≥ 2.5)", fleet::nginx_tls13),
    ("2", "fleet-haproxy-1.2", "resumed, times HAProxy's own cache (≥ 2.5)", fleet::haproxy_tls12),
    ("2", "fleet-haproxy-1.3", "the same, TLS 1.3, tickets off (≥ 2.5)", fleet::haproxy_tls13),
    ("3", "cost-instructions", "a connection's instructions, times (≤ 1.02)", instructions::ratio),
    (
        "3",
        "cost-operation",
        "µs to get and insert with serialisation (≤ 6)",
        operation::microseconds,
    ),
    ("3", "cost-processes", "two processes, times one (≥ 1.5)", processes::gain),
    ("4", "kill", "a worker killed every second (nothing else lost)", kills::survived),
    ("5", "judges-sslyze", "verdicts of sslyze (none worse)", judges::sslyze),
    (
        "5",
        "judges-testssl-off",
        "verdicts of testssl.sh, tickets off",
        judges::testssl_without_tickets,
    ),
    ("5", "judges-testssl-on", "verdicts of testssl.sh, tickets on", judges::testssl_with_tickets),
];

const USAGE: &str = "\
make check-servers CHECKS='[--quick] [--only PART_OF_A_NAME] [--kill-s SECONDS]'
  such as CHECKS='--only fleet'
";

pub(crate) fn run(words: &Words) -> ExitCode {
    let quick = words.has("--quick");
    let kill_s = words.value("--kill-s").map(|text| text.parse().expect("--kill-s takes seconds"));
    let effort = Effort { quick, kill_s: kill_s.unwrap_or(if quick { 10 } else { 60 }) };
    frame::run(&CHECKS, words, effort, (USAGE, &["rejoin-capi"]))
}

/// Leaves a server only the system's own configuration.
fn without_rejoin(site: &Site) {
    let text = ".include /etc/ssl/openssl.cnf\n";
    std::fs::write(site.file("openssl.cnf"), text).expect("a file");
}
