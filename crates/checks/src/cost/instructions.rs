//! The instructions per transaction of `rejoin cost caches`, counted by cachegrind, over several runs.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use super::{Effort, Found, told};

/// Runs that are compared.
const RUNS: usize = 3;
/// The largest difference between two of them, in percent of the lower.
const APART_PERCENT: f64 = 2.0;

/// Counts plain, full and resumed transactions over both versions; with `--quick` over TLS 1.3 alone.
pub(crate) fn repeat(effort: Effort) -> Option<Found> {
    Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().ok()?;
    let tls = if effort.quick { "1.3" } else { "both" };
    let runs: Option<Vec<_>> = (0..RUNS).map(|_| run(tls)).collect();
    let Some((apart, name)) = runs.as_deref().and_then(worst) else {
        return Some(Found { figure: "they could not be counted".to_owned(), holds: false });
    };
    let figure = format!("{apart:.2} % at worst ({name})");
    Some(Found { figure, holds: apart <= APART_PERCENT })
}

/// The kind that is furthest apart, and by how much. `None` unless each run has the same kinds.
fn worst(runs: &[BTreeMap<String, f64>]) -> Option<(f64, String)> {
    let kinds = runs.first()?;
    if runs.iter().any(|run| !run.keys().eq(kinds.keys())) {
        return None;
    }
    let each = kinds.keys().map(|name| {
        let figures = runs.iter().map(|run| run[name]);
        let least = figures.clone().fold(f64::INFINITY, f64::min);
        let most = figures.fold(0.0, f64::max);
        let apart = (most - least) * 100.0 / least;
        (apart, format!("{name}, {:.0} to {:.0} thousand", least / 1e3, most / 1e3))
    });
    each.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Each kind, and its instructions. `None` unless all were counted.
fn run(tls: &str) -> Option<BTreeMap<String, f64>> {
    let outcome = told(&format!(
        "cost caches --json --sizes 30 --mode plain,full,resumed --tls {tls} --l1 16KB --l2 2MB \
         --traced 0 --transactions 60"
    ))?;
    let cells = outcome["cells"].as_array().filter(|_| outcome["complete"] == true)?;
    let cells = cells.iter().map(|cell| {
        let name = match cell["tls"].as_str() {
            Some(tls) => format!("TLS {tls} {}", cell["mode"].as_str()?),
            None => "plain".to_owned(),
        };
        Some((name, cell["instructions"].as_f64()?))
    });
    cells.collect()
}
