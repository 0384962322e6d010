//! The cost of resumption to a server and what it saves: `make check-cost`.
//!
//! It needs a machine that does nothing else, with two cores.

mod instructions;
mod interning;
mod perf_stat;
mod s_time;
mod throughput;

use std::process::{Command, Stdio};

use rejoin_report::median;
use rejoin_testkit::shipped::rejoin;
use serde_json::Value;

use crate::frame::{self, Effort, Found, Group};

pub(crate) const GROUP: Group = Group {
    name: "cost",
    arguments: frame::ARGUMENTS,
    example: "fig",
    packages: &["rejoin-cli"],
    checks: &[
        (
            1,
            "instructions",
            "instructions of the server's program per transaction, over three runs: apart by 2 % at most",
            instructions::repeat,
        ),
        (
            2,
            "perf-stat",
            "what perf stat counts of the server / what rejoin cost does: instructions, or CPU time where none are counted \
             (0.95 to 1.05)",
            perf_stat::perf_stat,
        ),
        (
            2,
            "s-time",
            "transactions per CPU-second of a server, by rejoin cost / by openssl s_time (0.85 to 1.15)",
            s_time::s_time,
        ),
        (
            3,
            "fig-2",
            "transactions per CPU-second, up to saturation × tickets' (≥ 0.97) and × OpenSSL's cache's (≥ 1), \
             past it × OpenSSL's (≥ 1.3)",
            throughput::fig_2,
        ),
        (
            4,
            "interning",
            "resumptions with a client certificate, decoded once: × per CPU-second (≥ 1.1), and bytes allocated less (≥ a \
             decoded certificate)",
            interning::interning,
        ),
    ],
};

/// Returns the object that a command of ours prints; none if it fails. Where the machine did not keep up, which may pass, it
/// is measured again.
fn told(words: &str) -> Option<Value> {
    const TRIES: usize = 5;
    const DID_NOT_KEEP_UP: Option<i32> = Some(3);
    let run = || {
        let mut command = Command::new(rejoin());
        let output = command.args(words.split(' ')).stdin(Stdio::null()).stderr(Stdio::inherit());
        output.output().ok()
    };
    let mut runs = (0..TRIES).map(|_| run());
    let output = runs.find(|output| {
        output.as_ref().is_none_or(|output| output.status.code() != DID_NOT_KEEP_UP)
    });
    let output = output??;
    output.status.success().then(|| serde_json::from_slice(&output.stdout).ok())?
}
