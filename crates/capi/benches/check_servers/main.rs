//! What Rejoin promises inside servers, checked one line after the other: `make check-servers`.
//!
//! `cargo bench -p rejoin-capi --bench check_servers -- [--only NAME] [--quick] [--kill-s SECONDS]`;
//! nginx, HAProxy, valgrind, testssl.sh and OpenSSL's command come from Debian's packages, sslyze from
//! PyPI into the target folder. Without one of them, what needs it is said to be skipped. `--only`
//! takes the start of a check's name; `--quick` makes everything smaller, and its figures coarser.
//!
//! Which servers share sessions, and through what, is a matter of `tests/servers`.

#![expect(clippy::print_stdout, reason = "a check tells what it found")]

#[path = "../arrivals/mod.rs"]
mod arrivals;
#[path = "../checks/mod.rs"]
mod checks;
mod fleet;
mod instructions;
mod judges;
#[path = "../../tests/servers/killing/mod.rs"]
mod killing;
mod kills;
mod operation;
mod processes;
#[path = "../../tests/servers/site/mod.rs"]
mod site;

use std::process::ExitCode;

use checks::{Check, Found, Words};
use site::Site;

/// How much is done.
#[derive(Debug, Clone, Copy)]
struct Effort {
    quick: bool,
    /// For how long workers are killed.
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

fn main() -> ExitCode {
    let words = Words::given();
    let quick = words.has("--quick");
    let kill_s = words.value("--kill-s").map(|text| text.parse().expect("--kill-s takes seconds"));
    let effort = Effort { quick, kill_s: kill_s.unwrap_or(if quick { 10 } else { 60 }) };
    checks::run(&CHECKS, &words, effort, (USAGE, &["rejoin-capi"]))
}

/// Leaves a server only the system's own configuration.
fn without_rejoin(site: &Site) {
    let text = ".include /etc/ssl/openssl.cnf\n";
    std::fs::write(site.file("openssl.cnf"), text).expect("a file");
}

/// The middle one.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
