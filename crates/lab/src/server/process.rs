//! A server process for asynchronous studies.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use openssl::x509::X509;
use rejoin_serve::{Identity, Resumption, Versions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Listening, PATIENCE, Reading, terminate};
use crate::usage::Usage;
use crate::{Conditions, Error};

/// A certificate and its key in files, for one server after the other.
#[derive(Debug)]
pub(crate) struct Pair {
    certificate: PathBuf,
    key: PathBuf,
    /// The certificates that clients trust.
    pub(crate) trusted: Vec<X509>,
}

impl Pair {
    /// Writes both into a folder, which is made if it is not there.
    pub(crate) fn write(identity: Identity, directory: &Path, name: &str) -> Result<Self, Error> {
        std::fs::create_dir_all(directory)
            .map_err(|source| Error::file(directory.to_owned(), source))?;
        let file = |ending: &str| directory.join(format!("{name}.{ending}"));
        let (certificate, key) = (file("pem"), file("key"));
        identity.write(&certificate, &key)?;
        Ok(Self { certificate, key, trusted: identity.certificates().to_vec() })
    }
}

/// How a server is started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    /// The `rejoin` program.
    pub(crate) program: &'a Path,
    pub(crate) pair: &'a Pair,
    pub(crate) versions: Versions,
    pub(crate) resumption: Resumption,
    /// The server's `--prediction`.
    pub(crate) prediction: &'static str,
    pub(crate) capacity_sessions: u64,
    pub(crate) grace_ms: u64,
    /// A folder for the shared cache whose ticket keys are used.
    pub(crate) ticket_keys: Option<&'a Path>,
}

/// The part of `rejoin serve --json`'s summary that is used.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct ServerSummary {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    pub(crate) cache_bytes_per_session: f64,
}

/// A server with one thread for everything. It ends when this is dropped, or when this process ends.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    addresses: Listening,
    began: Instant,
}

impl ServerProcess {
    pub(crate) async fn start(launch: Launch<'_>) -> Result<Self, Error> {
        let name = launch.resumption.name();
        let mut child = Command::new(launch.program)
            .args(super::arguments(1, launch.resumption))
            .args(["--tls", launch.versions.name()])
            .args(["--prediction", launch.prediction])
            .arg("--capacity-sessions")
            .arg(launch.capacity_sessions.to_string())
            .arg("--grace-ms")
            .arg(launch.grace_ms.to_string())
            .args(launch.ticket_keys.map(|_| ["--ticket-keys", "lab"]).into_iter().flatten())
            .args(launch.ticket_keys.map(|at| path_argument("--folder", at)).into_iter().flatten())
            .args(path_argument("--certificate", &launch.pair.certificate))
            .args(path_argument("--key", &launch.pair.key))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| Error::System { what: "cannot start a server", source })?;
        let stdout = child.stdout.take().ok_or_else(|| silent(name))?;
        let mut lines = BufReader::new(stdout).lines();
        let addresses = read_line(&mut lines, name).await?;
        Ok(Self { name, child, lines, addresses, began: Instant::now() })
    }

    /// Where it serves.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses.listening.into()
    }

    pub(crate) async fn meter(&self) -> Result<Reading, Error> {
        let address = self.addresses.metrics;
        let reading = spawn_blocking(move || Reading::take(address)).await;
        let broken = |error| Error::System { what: "metrics", source: io::Error::other(error) };
        reading.map_err(broken)?
    }

    /// Returns the conditions of its process since it began. Where the kernel tells nothing, nothing is doubted.
    pub(crate) fn conditions(&self) -> Conditions {
        let usage = self.child.id().and_then(|id| Usage::of(id).ok());
        Conditions::of_process(usage.unwrap_or_default(), self.began.elapsed())
    }

    pub(crate) async fn stop(mut self) -> Result<ServerSummary, Error> {
        self.child.id().map_or(Ok(()), terminate)?;
        let summary = read_line(&mut self.lines, self.name).await?;
        let waited = self.child.wait().await;
        waited.map_err(|source| Error::System { what: "cannot wait for a server", source })?;
        Ok(summary)
    }
}

async fn read_line<T: DeserializeOwned>(
    lines: &mut Lines<BufReader<ChildStdout>>,
    name: &'static str,
) -> Result<T, Error> {
    let line = timeout(PATIENCE, lines.next_line()).await.ok();
    let line = line.and_then(Result::ok).flatten().ok_or_else(|| silent(name))?;
    serde_json::from_str(&line).map_err(|error| Error::Server {
        resumption: name,
        what: format!("printed something else than expected: {error}"),
    })
}

fn silent(resumption: &'static str) -> Error {
    let what = "ended without a word on its standard output, or said none for 30 seconds";
    Error::Server { resumption, what: what.to_owned() }
}

fn path_argument<'a>(flag: &'a str, path: &'a Path) -> [&'a OsStr; 2] {
    [flag.as_ref(), path.as_os_str()]
}

/// Servers that are measured as one.
#[derive(Debug)]
pub(crate) struct Servers(Vec<ServerProcess>);

impl Servers {
    /// Starts so many alike.
    pub(crate) async fn start(launch: Launch<'_>, number: usize) -> Result<Self, Error> {
        let mut all = Vec::with_capacity(number);
        for _ in 0..number {
            all.push(ServerProcess::start(launch).await?);
        }
        Ok(Self(all))
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(ServerProcess::address).collect()
    }

    /// Returns the work of all together.
    pub(crate) async fn meter(&self) -> Result<Reading, Error> {
        let mut sum = Reading::default();
        for server in &self.0 {
            sum = sum.plus(server.meter().await?);
        }
        Ok(sum)
    }

    /// Returns the worst conditions of one.
    pub(crate) fn conditions(&self) -> Conditions {
        let each = self.0.iter().map(ServerProcess::conditions);
        each.fold(Conditions::default(), Conditions::worse)
    }

    /// Stops all. The memory of a session is the first server's.
    pub(crate) async fn stop(self) -> Result<ServerSummary, Error> {
        let mut sum: Option<ServerSummary> = None;
        for server in self.0 {
            let one = server.stop().await?;
            sum = Some(sum.map_or(one, |sum| ServerSummary {
                full: sum.full + one.full,
                resumed: sum.resumed + one.resumed,
                ..sum
            }));
        }
        sum.ok_or(Error::Settings("no server to stop"))
    }
}
