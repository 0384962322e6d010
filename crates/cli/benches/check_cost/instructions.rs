//! Whether instructions per transaction repeat, by `rejoin cost caches`: cachegrind counts them.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Effort, Found};

/// Runs that are compared.
const RUNS: usize = 3;
/// Between the lowest and the highest of them, in percent of the lowest.
const APART_PERCENT: f64 = 2.0;

/// Full and resumed over both versions; with `--quick` over TLS 1.3 alone.
pub(crate) fn repeat(effort: Effort) -> Option<Found> {
    Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().ok()?;
    let tls = if effort.quick { "1.3" } else { "both" };
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let Some(run) = run(tls) else {
            return Some(Found { figure: "they could not be counted".to_owned(), holds: false });
        };
        runs.push(run);
    }
    let mut worst = (0.0, String::new());
    for (at, (name, _)) in runs.first()?.iter().enumerate() {
        let figures = runs.iter().filter_map(|run| run.get(at)).map(|(_, figure)| *figure);
        let least = figures.clone().fold(f64::INFINITY, f64::min);
        let most = figures.fold(0.0, f64::max);
        let apart = (most - least) * 100.0 / least;
        if apart >= worst.0 {
            worst = (apart, format!("{name}, {:.0} to {:.0} thousand", least / 1e3, most / 1e3));
        }
    }
    let (apart, name) = worst;
    let figure = format!("{apart:.2} % at worst ({name})");
    Some(Found { figure, holds: apart <= APART_PERCENT })
}

/// Each kind, and its instructions.
fn run(tls: &str) -> Option<Vec<(String, f64)>> {
    let output = Command::new(env!("CARGO_BIN_EXE_rejoin"))
        .args(["cost", "caches", "--json", "--sizes", "30", "--mode", "plain,full,resumed"])
        .args(["--tls", tls, "--l1", "16KB", "--l2", "2MB", "--traced", "0"])
        .args(["--transactions", "60"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .ok()?;
    let outcome: Value = serde_json::from_slice(&output.stdout).ok()?;
    let cells = outcome["cells"].as_array().filter(|cells| !cells.is_empty())?.iter();
    let cells = cells.map(|cell| {
        let name = match cell["tls"].as_str() {
            Some(tls) => format!("TLS {tls} {}", cell["mode"].as_str()?),
            None => "plain".to_owned(),
        };
        Some((name, cell["instructions"].as_f64()?))
    });
    cells.collect()
}
