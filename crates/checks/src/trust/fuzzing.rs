//! Each fuzz target for a minute, from its kept corpus, by `make fuzz`.

use std::path::Path;
use std::process::Command;

use super::{Effort, Found};

/// Lines of a failure that are printed.
const LINES: usize = 20;

pub(crate) fn clean(effort: Effort) -> Option<Found> {
    // `make fuzz` would install it.
    let has_fuzz = Command::new(env!("CARGO")).args(["fuzz", "--version"]).output();
    has_fuzz.ok().filter(|output| output.status.success())?;
    let seconds = if effort.quick { 10 } else { 60 };
    let mut fuzz = Command::new("make");
    fuzz.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let output = fuzz.args(["fuzz", &format!("FUZZ_SECONDS={seconds}")]).output().ok()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let holds = output.status.success();
    if !holds {
        let lines: Vec<_> = told.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].iter().for_each(|line| println!("     {line}"));
    }
    // libFuzzer's last line of each target.
    let targets = told.lines().filter(|line| line.starts_with("Done ")).count();
    Some(Found { figure: format!("{targets} targets, {seconds} s each"), holds })
}
