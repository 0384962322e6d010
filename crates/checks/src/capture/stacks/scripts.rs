//! Programs of our own in Go, Java and Python that hold both ends, and tell each connection in a line of JSON.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rejoin_testkit::process::output;
use rejoin_testkit::shipped::target;
use serde_json::Value;

use super::{Ground, Told};

/// Longer than any of them takes on a busy machine.
const LONGEST: Duration = Duration::from_secs(240);

pub(super) fn go(ground: &Ground) -> Option<Vec<Told>> {
    told(stacks_of_go("tls", ground)?)
}

pub(super) fn quic_go(ground: &Ground) -> Option<Vec<Told>> {
    told(stacks_of_go("quic", ground)?)
}

pub(super) fn java(ground: &Ground) -> Option<Vec<Told>> {
    let mut java = Command::new("java");
    java.arg(source("Stacks.java")).arg(&ground.store);
    told(java)
}

pub(super) fn aioquic(ground: &Ground) -> Option<Vec<Told>> {
    let packages = target().join("peers/root");
    let mut python = Command::new("python3");
    python.arg(source("aioquic_pair.py")).args([&ground.certificate, &ground.key]);
    python.env("PYTHONPATH", &packages);
    packages.exists().then(|| told(python)).flatten()
}

/// The program in Go, which `make` builds.
pub(super) fn stacks_of_go(what: &str, ground: &Ground) -> Option<Command> {
    let program = target().join("stacks/go");
    let mut command = Command::new(&program);
    command.arg(what).args([&ground.certificate, &ground.key]);
    program.exists().then_some(command)
}

/// Reads a line that tells of a connection.
pub(super) fn read(line: &str) -> Told {
    let parsed = || {
        let told: Value = serde_json::from_str(line).ok()?;
        let port = |end: &str| u16::try_from(told[end].as_u64()?).ok();
        let (server, client) = (port("server")?, port("client"));
        Some(Told { server, client, resumed: told["resumed"].as_bool()? })
    };
    parsed().unwrap_or_else(|| panic!("{line}"))
}

/// Runs a program to its end. `None` if it is not installed.
fn told(mut command: Command) -> Option<Vec<Told>> {
    is_installed(command.get_program().as_ref()).then(|| {
        let said = output(&mut command, LONGEST);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).lines().map(read).collect()
    })
}

fn is_installed(program: &Path) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    program.exists() || std::env::split_paths(&folders).any(|folder| folder.join(program).exists())
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("stacks").join(name)
}
