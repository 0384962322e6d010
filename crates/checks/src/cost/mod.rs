//! The cost of resumption to a server and what it saves, a line for each promise: `make check-cost`.
//!
//! `rejoin-checks cost [--only NAME] [--quick]`. `--only` takes a part of a
//! check's name; `--quick` makes everything smaller, and its figures coarser. A machine that does nothing
//! else is needed, with two cores.

mod instructions;
mod interning;
mod perf_stat;
mod s_time;
mod throughput;

use std::process::ExitCode;

use rejoin_report::median;

use crate::frame::{self, Check, Found, Words};

/// The size of each check.
#[derive(Debug, Clone, Copy)]
struct Effort {
    quick: bool,
}

const CHECKS: [Check<Effort>; 5] = [
    (
        "1",
        "instructions",
        "instructions of the server's program per transaction, over three runs: apart by 2 % at most",
        instructions::repeat,
    ),
    (
        "2",
        "perf-stat",
        "what perf stat counts of the server / what rejoin cost does: instructions, or CPU time where none are counted \
         (0.95 to 1.05)",
        perf_stat::perf_stat,
    ),
    (
        "2",
        "s-time",
        "handshakes a second by rejoin cost / by openssl s_time, same server (0.85 to 1.15)",
        s_time::s_time,
    ),
    (
        "3",
        "fig-2",
        "transactions per CPU-second, up to saturation × tickets' (≥ 0.97) and × OpenSSL's cache's (≥ 1), \
         past it × OpenSSL's (≥ 1.3)",
        throughput::fig_2,
    ),
    (
        "4",
        "interning",
        "resumptions with a client certificate, decoded once: × per CPU-second (≥ 1.1), and bytes allocated less (≥ a \
         decoded certificate)",
        interning::interning,
    ),
];

const USAGE: &str = "\
make check-cost CHECKS='[--quick] [--only PART_OF_A_NAME]'
  such as CHECKS='--only fig'
";

pub(crate) fn run(words: &Words) -> ExitCode {
    let effort = Effort { quick: words.has("--quick") };
    frame::run(&CHECKS, words, effort, (USAGE, &["rejoin-cli"]))
}
