//! The counts of `rejoin cost` for a server, beside those of `perf stat` for the same process meanwhile.

use rejoin_testkit::serve::scratch;
use rejoin_testkit::shipped::rejoin;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Effort, Found, median};

/// The largest difference: `perf` also sees how the server warms up and ends.
const APART: f64 = 0.05;
/// The time that `rejoin cost` has to start its server.
const PATIENCE: Duration = Duration::from_secs(20);

/// Full and resumed, in turns; the median of each. Instructions where the processor counts them, and CPU time where it
/// does not. `None` without `perf`.
pub(crate) fn perf_stat(effort: Effort) -> Option<Found> {
    let mut figures = Vec::new();
    let (mut holds, mut unit) = (true, "CPU time");
    for mode in ["full", "resumed"] {
        let mut ratios = Vec::new();
        for _ in 0..if effort.quick { 1 } else { 3 } {
            let (ratio, of) = both(mode, if effort.quick { "2" } else { "6" })?;
            ratios.push(ratio);
            unit = of;
        }
        let ratio = median(ratios);
        holds &= (ratio - 1.0).abs() <= APART;
        figures.push(format!("{mode} {ratio:.3}"));
    }
    Some(Found { figure: format!("{unit}: {}", figures.join(", ")), holds })
}

/// The ratio of their count to ours, and its unit.
fn both(mode: &str, seconds: &str) -> Option<(f64, &'static str)> {
    let mut cost = Command::new(rejoin());
    cost.args(["cost", "--json", "--sizes", "30", "--mode", mode, "--tls", "1.3"]);
    cost.args(["--key", "p-256", "--cipher", "aes-gcm", "--rounds", "1", "--round-s", seconds]);
    let cost = cost.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().ok()?;
    let told = scratch("check-cost").join("perf.csv");
    let perf = server(&cost).and_then(|server| {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x", ",", "-e", "task-clock,instructions", "-p", &server, "-o"]);
        perf.arg(&told).stdin(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    });
    let output = cost.wait_with_output().ok()?;
    // It ends with the server.
    perf?.wait().ok()?;
    let outcome: Value = serde_json::from_slice(&output.stdout).ok()?;
    let cell = &outcome["cells"][0];
    let transactions = cell["transactions"].as_f64()?;
    let told = std::fs::read_to_string(told).ok()?;
    let counted = |event: &str| -> Option<f64> {
        let line = told.lines().find(|line| line.contains(event))?;
        line.split(',').next()?.parse().ok()
    };
    let ours = cell["server"]["counters"]["instructions"].as_f64();
    match ours.zip(counted("instructions")) {
        Some((ours, theirs)) => Some((theirs / (ours * transactions), "instructions")),
        None => {
            let ours_ms = cell["server"]["cpu_ns"].as_f64()? * transactions / 1e6;
            Some((counted("task-clock")? / ours_ms, "CPU time"))
        }
    }
}

/// The server that it has started.
fn server(cost: &Child) -> Option<String> {
    let tasks = format!("/proc/{}/task", cost.id());
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let threads = std::fs::read_dir(&tasks).ok()?.flatten();
        let children =
            |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
        let all: String = threads.filter_map(|thread| children(thread).ok()).collect();
        if let Some(server) = all.split_whitespace().next() {
            return Some(server.to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}
