//! The server, the manager and the programs.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddrV4;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rcgen::{CertifiedIssuer, CustomExtension};
use rejoin_serve::{
    Identity, KeyType, Resumption, Versions, authority_parameters, certificate_parameters,
};

use super::relay::Relay;
use super::{Chain, Settings};
use crate::Error;
use crate::child::lines;
use crate::scratch::Scratch;
use crate::server::{self, Listening, PATIENCE, Reading};

/// The program that is measured.
const PROGRAM: &str = "curl";
/// The time for a program, in seconds: a server or a manager that hangs is not waited for.
const LONGEST_S: &str = "60";
/// The time for the manager and the server to finish with a program that has ended.
const REST: Duration = Duration::from_millis(5);
/// The bytes by which ML-DSA-65 exceeds ECDSA on P-256: the key and the signature of each certificate, and the signature
/// of the handshake (FIPS 204, table 2: 1,952 and 3,309 bytes; P-256: 65 and 72).
const MORE_BYTES: usize = 1_952 - 65 + 3_309 - 72;
const MORE_SIGNATURE_BYTES: usize = 3_309 - 72;
/// An extension that nobody knows, below the number that RFC 5612 reserves for examples.
const FILLING: &[u64] = &[1, 3, 6, 1, 4, 1, 32_473, 1];

/// A server, a manager, and the files of both. They end when this is dropped.
pub(super) struct Place {
    scratch: Scratch,
    server: Ended,
    listening: Listening,
    manager: Ended,
    library: std::path::PathBuf,
}

/// The way to the server.
pub(super) struct Path {
    port: u16,
    /// The same way, with a count of bytes.
    counted: Relay,
}

/// The costs of one program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) wall_ms: f64,
    pub(super) client_ms: f64,
    pub(super) manager_ms: f64,
    pub(super) server_ms: f64,
}

/// A process that ends when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    pub(super) fn make(
        settings: &Settings,
        chain: Chain,
        versions: Versions,
    ) -> Result<Self, Error> {
        let scratch = Scratch::new("client")?;
        let file = |name: &str| scratch.path().join(name);
        let (identity, authority) = made(chain)?;
        identity.write(&file("server.pem"), &file("server.key"))?;
        let write = |name: &str, text: &str| {
            std::fs::write(file(name), text).map_err(|source| Error::file(file(name), source))
        };
        write("ca.pem", &authority)?;
        let bundle = file("ca.pem").display().to_string();
        write("manager.toml", &format!("system_bundle = {bundle:?}\n"))?;
        let mut serve = plain(&settings.rejoin);
        serve.args(server::arguments(1, Resumption::Tickets)).args(["--tls", versions.name()]);
        serve.arg("--certificate").arg(file("server.pem")).arg("--key").arg(file("server.key"));
        let (server, line) = started(serve)?;
        let listening = serde_json::from_str(&line).map_err(|_| silent("rejoin serve"))?;
        let mut manager = plain(&settings.rejoin);
        manager.args(["manager", "--end-with-parent"]).arg("--socket").arg(file("m.sock"));
        manager.arg("--settings").arg(file("manager.toml"));
        let (manager, _) = started(manager)?;
        Ok(Self { scratch, server, listening, manager, library: settings.library.clone() })
    }

    pub(super) fn path(&self, round_trip_ms: u32) -> Result<Path, Error> {
        let server: SocketAddrV4 = self.listening.listening;
        let round_trip = Duration::from_millis(round_trip_ms.into());
        let counted = Relay::to(server, round_trip)?;
        let port = if round_trip_ms == 0 { server.port() } else { counted.port };
        Ok(Path { port, counted })
    }

    /// Runs one program.
    pub(super) fn visit(&self, path: &Path, is_with: bool) -> Result<Taken, Error> {
        self.visit_at(path.port, is_with)
    }

    fn visit_at(&self, port: u16, is_with: bool) -> Result<Taken, Error> {
        let mut program = plain(PROGRAM);
        // Without the user's `.curlrc`: -q counts as the first argument only.
        program.args(["-q", "--noproxy", "*", "-sS", "-o", "/dev/null"]);
        program.args(["--max-time", LONGEST_S, "--cacert"]);
        program.arg(self.scratch.path().join("ca.pem"));
        program.arg(format!("https://localhost:{port}/"));
        program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if is_with {
            program.env("LD_PRELOAD", &self.library);
            program.env("REJOIN_MANAGER", self.scratch.path().join("m.sock"));
        }
        let before = self.cpu_ms()?;
        let since = Instant::now();
        let output = program.output().map_err(|source| Error::Unavailable {
            what: "the measurement of programs",
            why: format!("{PROGRAM} cannot be run: {source}"),
        })?;
        let wall = since.elapsed();
        thread::sleep(REST);
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let source = io::Error::other(told);
            return Err(Error::System { what: "a program failed", source });
        }
        let after = self.cpu_ms()?;
        let [client_ms, manager_ms, server_ms] = [0, 1, 2].map(|at| after[at] - before[at]);
        Ok(Taken { wall_ms: wall.as_secs_f64() * 1e3, client_ms, manager_ms, server_ms })
    }

    /// The CPU time of all programs so far, of the manager and of the server.
    fn cpu_ms(&self) -> Result<[f64; 3], Error> {
        let failed = |what| move |source| Error::System { what, source };
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(io::Error::from);
        let usage = usage.map_err(failed("cannot read CPU times"))?;
        let times = [usage.user_time(), usage.system_time()];
        let client: f64 =
            times.iter().map(|time| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3).sum();
        let of = |process: &Ended| cpu_ms(process.0.id()).map_err(failed("cannot read CPU times"));
        Ok([client, of(&self.manager)?, of(&self.server)?])
    }

    /// The handshakes of the server.
    pub(super) fn handshakes(&self) -> Result<Reading, Error> {
        Reading::take(self.listening.metrics)
    }

    /// The bytes of a connection without Rejoin, and of one with it.
    pub(super) fn bytes(&self, path: &Path) -> Result<[u64; 2], Error> {
        // Another port is another server: of the first of these comes the session, and the second learns its group.
        for _ in 0..3 {
            self.visit_at(path.counted.port, true)?;
        }
        let mut counted = [0, 0];
        for is_with in [false, true] {
            let before = path.counted.bytes();
            self.visit_at(path.counted.port, is_with)?;
            counted[usize::from(is_with)] = path.counted.bytes() - before;
        }
        Ok(counted)
    }
}

/// The CPU time of a process's threads, in milliseconds (`Documentation/scheduler/sched-stats.rst`).
fn cpu_ms(pid: u32) -> io::Result<f64> {
    let mut ns = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has just ended has no file.
        let stat = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        ns += stat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(ns as f64 / 1e6)
}

/// A command without what the user's own programs are led by, through another manager or a proxy: those without Rejoin
/// would have it, too.
fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        let is_proxy = bytes.to_ascii_lowercase().ends_with(b"_proxy");
        if is_proxy || bytes == b"LD_PRELOAD" || bytes.starts_with(b"REJOIN_") {
            command.env_remove(name);
        }
    }
    command
}

/// Starts a process, and returns the first line that it prints.
fn started(mut command: Command) -> Result<(Ended, String), Error> {
    let name = command.get_program().display().to_string();
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let failed = |source| Error::System { what: "cannot start a process", source };
    let mut process = Ended(command.spawn().map_err(failed)?);
    let output = process.0.stdout.take().ok_or_else(|| silent(&name))?;
    let line = lines(output).recv_timeout(PATIENCE).map_err(|_| silent(&name))?;
    Ok((process, line))
}

fn silent(name: &str) -> Error {
    let source = io::Error::other("it said nothing that was expected");
    let what = if name.is_empty() { "a process" } else { "a server or manager did not start" };
    Error::System { what, source }
}

/// Makes a server's chain, and its authority in PEM.
fn made(chain: Chain) -> Result<(Identity, String), Error> {
    let key = match chain {
        Chain::Rsa2048 => KeyType::Rsa2048,
        Chain::P256 | Chain::MlDsaSized => KeyType::P256,
    };
    let filled = |mut parameters: rcgen::CertificateParams, more: usize| {
        if chain == Chain::MlDsaSized {
            let filling = CustomExtension::from_oid_content(FILLING, vec![0; more]);
            parameters.custom_extensions.push(filling);
        }
        parameters
    };
    let authority = authority_parameters("Rejoin's measuring authority", &[])?;
    let authority = CertifiedIssuer::self_signed(authority, key.generate()?)?;
    let issuer = authority_parameters("Rejoin's measuring issuer", &[])?;
    let issuer =
        CertifiedIssuer::signed_by(filled(issuer, MORE_BYTES), key.generate()?, &authority)?;
    let leaf = certificate_parameters("localhost", &["localhost"])?;
    let leaf_key = key.generate()?;
    let leaf = filled(leaf, MORE_BYTES + MORE_SIGNATURE_BYTES).signed_by(&leaf_key, &issuer)?;
    let identity = Identity::of(&[leaf.der().as_ref(), issuer.der().as_ref()], &leaf_key)?;
    Ok((identity, authority.pem()))
}
