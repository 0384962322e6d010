//! Unchanged programs, with Rejoin and without: their behaviour, and the sessions that they share.

pub mod cases;
pub mod differential;
pub mod document;
pub mod matrix;
pub mod pages;
pub mod sharing;
pub mod world;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::serve::scratch;
use crate::shipped::library;

/// The folder of programs that are the tests' own.
pub const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");

/// Puts Rejoin into a command's program, with the manager at this socket, and the time that it waits for it.
pub fn with_rejoin(command: &mut Command, socket: &str, patience_ms: u64) {
    command.env("LD_PRELOAD", library("librejoin_preload.so"));
    command.env("REJOIN_MANAGER", socket).env("REJOIN_DEBUG", "1");
    command.env("REJOIN_PATIENCE_MS", patience_ms.to_string());
}

/// Takes from a command what its machine's user has set.
fn quiet(command: &mut Command) {
    command.stdin(Stdio::null());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for variable in [
        "SSLKEYLOGFILE",
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "http_proxy",
        "https_proxy",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ] {
        command.env_remove(variable);
    }
}

/// Packages of Python that programs need.
const PACKAGES: &[&str] = &["requests", "httpx[http2]", "aiohttp", "websockets"];

/// Python with these packages, in an environment below the target folder; the system's without them if they cannot be
/// installed, and false. Tests that run at the same time wait for one installation.
fn python() -> (PathBuf, bool) {
    static PYTHON: OnceLock<(PathBuf, bool)> = OnceLock::new();
    PYTHON.get_or_init(installed_python).clone()
}

fn installed_python() -> (PathBuf, bool) {
    let environment = scratch("clients-python").join("environment");
    let (done, wanted) = (environment.join("installed"), PACKAGES.join(" "));
    let run = |command: &mut Command| {
        command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
    };
    let is_made = std::fs::read_to_string(&done).is_ok_and(|made| made == wanted)
        || run(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&environment))
            && run(Command::new(environment.join("bin/pip"))
                .args(["install", "--quiet", "--retries", "1"])
                .args(PACKAGES))
            && std::fs::write(&done, wanted).is_ok();
    if is_made {
        return (environment.join("bin/python"), true);
    }
    eprintln!("{} cannot be installed: nothing is tested with them", PACKAGES.join(", "));
    ("/usr/bin/python3".into(), false)
}
