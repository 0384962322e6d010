//! The speed of reading captures, and tshark's with the same captures.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Effort, Found, rejoin};
use rejoin_report::median;
use rejoin_testkit::serve::scratch;

/// Rounds, each of a tenth of a second.
const ROUNDS: usize = 21;

pub(crate) fn megabytes(Effort { captures, .. }: Effort) -> Option<Found> {
    let merged = merged(captures)?;
    let megabytes = std::fs::metadata(&merged).ok()?.len() as f64 / 1e6;
    let (seconds, _) = ours(&merged);
    let rate = megabytes / seconds;
    let figure =
        format!("{rate:.0} ({megabytes:.0} MB, median of {ROUNDS}, with start and report)");
    Some(Found { figure, holds: rate >= 400.0 })
}

pub(crate) fn against_tshark(Effort { captures, .. }: Effort) -> Option<Found> {
    let merged = merged(captures)?;
    let (seconds, handshakes) = ours(&merged);
    let rate = handshakes as f64 / seconds;
    let began = Instant::now();
    let options = [
        ["-o", "tcp.try_heuristic_first:TRUE"],
        ["-o", "tcp.reassemble_out_of_order:TRUE"],
        ["-o", "tls.desegment_ssl_records:TRUE"],
        ["-o", "tls.desegment_ssl_application_data:TRUE"],
    ];
    let output = Command::new("tshark")
        .args(["-n", "-r", merged.to_str()?, "-Y", "tls.handshake.type == 1"])
        .args(options.concat())
        .args(["-T", "fields", "-e", "tcp.stream", "-e", "tls.handshake.type"])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let seconds = began.elapsed().as_secs_f64();
    let hellos = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    let theirs = hellos as f64 / seconds;
    let times = rate / theirs;
    let figure = format!("{times:.0} ({rate:.0} against {theirs:.0})");
    Some(Found { figure, holds: hellos > 0 && times >= 50.0 })
}

/// Median seconds, and handshakes.
fn ours(capture: &Path) -> (f64, u64) {
    let mut seconds = Vec::new();
    let mut handshakes = 0;
    for _ in 0..=ROUNDS {
        let began = Instant::now();
        let output = rejoin(&["capture", "--json", "--top", "0", capture.to_str().expect("UTF-8")]);
        seconds.push(began.elapsed().as_secs_f64());
        let report: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
        handshakes = report["handshakes_seen"].as_u64().unwrap_or_default();
    }
    // The first round brought the file into the page cache.
    seconds.remove(0);
    (median(seconds), handshakes)
}

/// All captures of the set that mergecap takes, one behind the other.
fn merged(captures: &Path) -> Option<PathBuf> {
    let merged = scratch("check-capture").join("merged.pcapng");
    if merged.exists() {
        return Some(merged);
    }
    // A run that is stopped must not leave half a capture under this name.
    let part = merged.with_extension("part");
    let mut mergecap = Command::new("mergecap");
    mergecap.args(["-a", "-w"]).arg(&part).args(whole_captures(&captures.join("files")));
    let is_done = mergecap.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    (is_done && std::fs::rename(part, &merged).is_ok()).then_some(merged)
}

/// Captures that mergecap reads to their end: it stops at the first that it cannot.
fn whole_captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found.retain(|path| {
        let mut capinfos = Command::new("capinfos");
        capinfos.arg("-c").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        capinfos.status().is_ok_and(|status| status.success())
    });
    found
}
