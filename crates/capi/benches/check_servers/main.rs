//! What Rejoin promises inside servers, checked one line after the other: `make check-servers`.
//!
//! `cargo bench -p rejoin-capi --bench check_servers -- [--only NAME] [--quick] [--kill-s SECONDS]`;
//! nginx, HAProxy, valgrind, testssl.sh and OpenSSL's command come from Debian's packages, sslyze from
//! PyPI into the target folder. Without one of them, what needs it is said to be skipped. `--only`
//! takes the start of a check's name; `--quick` makes everything smaller, and its figures coarser.
//!
//! Which servers share sessions, and through what, is a matter of `tests/servers`.

#![expect(clippy::print_stdout, reason = "a check tells what it found")]

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

use std::process::{Command, ExitCode};

use site::Site;

/// What a check found: the figure, and whether it is as promised.
struct Found {
    figure: String,
    holds: bool,
}

/// How much is done.
#[derive(Debug, Clone, Copy)]
struct Effort {
    quick: bool,
    /// For how long workers are killed.
    kill_s: u64,
}

/// `None` if it cannot be made here.
type Check = fn(Effort) -> Option<Found>;

/// The promise's number, its name, what it says, and the check.
const CHECKS: [(&str, &str, &str, Check); 11] = [
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
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1).map(String::as_str)
    };
    let quick = words.iter().any(|word| word == "--quick");
    let kill_s = value("--kill-s").map(|text| text.parse().expect("--kill-s takes seconds"));
    let effort = Effort { quick, kill_s: kill_s.unwrap_or(if quick { 10 } else { 60 }) };
    let only = value("--only").unwrap_or_default();
    let chosen = || CHECKS.into_iter().filter(|(_, name, ..)| name.contains(only));
    if words.iter().any(|word| word == "--help") || chosen().next().is_none() {
        println!("{USAGE}");
        CHECKS.iter().for_each(|(line, name, promise, _)| println!("{line}  {name:18} {promise}"));
        return ExitCode::FAILURE;
    }
    build();
    let mut all_hold = true;
    for (line, name, promise, check) in chosen() {
        let found = check(effort);
        let (verdict, figure) = match &found {
            Some(Found { figure, holds: true }) => ("holds", figure.as_str()),
            Some(Found { figure, holds: false }) => ("FALLS SHORT", figure.as_str()),
            None => ("skipped", "not possible here"),
        };
        println!("{line}  {verdict:11} {name:18} {promise}: {figure}");
        all_hold &= found.is_none_or(|found| found.holds);
    }
    if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds the library that servers load, as this was built.
fn build() {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--quiet", "--package", "rejoin-capi"])
        .status();
    assert!(built.is_ok_and(|status| status.success()), "librejoin.so cannot be built");
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
