//! Calls of systemctl.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

/// The way without systemd.
const WITHOUT: &str = "start a server with `rejoin run` (docs/servers.md), programs with `rejoin run --client` (docs/clients.md)";

/// Returns true if systemd runs, and not in a folder or an image alone.
pub(super) fn is_there() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Has systemd read its files again, if it runs.
///
/// # Errors
/// Those of [`run`].
pub(super) fn reload() -> anyhow::Result<()> {
    if is_there() { run(&["daemon-reload"]) } else { Ok(()) }
}

/// Runs systemctl and waits for its end.
///
/// # Errors
/// The words of systemctl, in one line.
pub(super) fn run(arguments: &[&str]) -> anyhow::Result<()> {
    output(arguments).map(drop)
}

/// Runs systemctl and returns what it printed.
///
/// # Errors
/// Those of [`run`].
pub(super) fn output(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C").env("SYSTEMD_PAGER", "");
    let done = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            anyhow::bail!("systemctl is not installed: without systemd, {WITHOUT}")
        }
        done => done.context("systemctl cannot be run")?,
    };
    // Containers often have the program alone, and what it says there is no remedy.
    let is_in_vain = !done.status.success() && !is_there();
    anyhow::ensure!(!is_in_vain, "systemd does not run here: {WITHOUT}");
    let told = String::from_utf8_lossy(&done.stderr);
    let told = told.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    anyhow::ensure!(done.status.success(), "systemctl {}: {told}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
