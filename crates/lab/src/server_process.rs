//! A `rejoin serve` in a process of its own, so that its CPU time is its alone.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use openssl::x509::X509;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::Error;
use rejoin_serve::Identity;
use rejoin_serve::{Resumption, Versions};

/// For a server's answer: busy ones take seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A certificate and its key in files, for one server after the other.
#[derive(Debug)]
pub(crate) struct Pair {
    certificate: PathBuf,
    key: PathBuf,
    /// Whom clients believe.
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
}

/// What `rejoin serve --json` prints when it listens.
#[derive(Debug, Deserialize)]
struct Listening {
    listening: SocketAddr,
    metrics: SocketAddr,
}

/// What is read of `rejoin serve --json`'s summary.
#[derive(Debug, Deserialize)]
pub(crate) struct ServerSummary {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    pub(crate) cache_bytes_per_session: f64,
}

/// A reading of a server's metrics: all of one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    /// User and system time of the process.
    pub(crate) cpu_s: f64,
    /// Since it began.
    pub(crate) up_s: f64,
    pub(crate) full: u64,
    pub(crate) resumed: u64,
}

impl Reading {
    /// What came between an earlier one and this.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_s: self.cpu_s - earlier.cpu_s,
            up_s: self.up_s - earlier.up_s,
            full: self.full.saturating_sub(earlier.full),
            resumed: self.resumed.saturating_sub(earlier.resumed),
        }
    }

    pub(crate) fn handshakes(self) -> u64 {
        self.full + self.resumed
    }

    /// CPU time for each handshake, in microseconds; of none as of one.
    pub(crate) fn cpu_us(self) -> f64 {
        self.cpu_s * 1e6 / self.handshakes().max(1) as f64
    }

    /// `None` unless all is told.
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line?.trim().parse().ok()
        };
        Some(Self {
            cpu_s: value("rejoin_cpu_seconds_total")?,
            up_s: value("rejoin_up_seconds_total")?,
            full: value("rejoin_handshakes_full_total")? as u64,
            resumed: value("rejoin_handshakes_resumed_total")? as u64,
        })
    }
}

/// A server with one thread for everything, which ends with whoever holds it, whatever happens.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    addresses: Listening,
}

impl ServerProcess {
    pub(crate) async fn start(launch: Launch<'_>) -> Result<Self, Error> {
        let name = launch.resumption.name();
        let mut child = Command::new(launch.program)
            .args(["serve", "--json", "--end-with-parent", "--workers", "1"])
            .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .args(["--tls", launch.versions.name(), "--resumption", name])
            .args(["--prediction", launch.prediction])
            .arg("--capacity-sessions")
            .arg(launch.capacity_sessions.to_string())
            .arg("--grace-ms")
            .arg(launch.grace_ms.to_string())
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
        Ok(Self { name, child, lines, addresses })
    }

    /// Where it serves.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses.listening
    }

    pub(crate) async fn meter(&self) -> Result<Reading, Error> {
        let unreadable = |source| Error::Connect { address: self.addresses.metrics, source };
        let text = timeout(PATIENCE, self.metrics()).await;
        let text = text.map_err(|_| self.failed("does not tell its metrics"))?;
        let reading = Reading::parse(&text.map_err(unreadable)?);
        reading.ok_or_else(|| self.failed("tells other metrics than expected"))
    }

    async fn metrics(&self) -> std::io::Result<String> {
        let mut text = String::new();
        let mut stream = TcpStream::connect(self.addresses.metrics).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    fn failed(&self, what: &str) -> Error {
        Error::Server { resumption: self.name, what: what.to_owned() }
    }

    pub(crate) async fn stop(mut self) -> Result<ServerSummary, Error> {
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id as i32)) {
            let source = |errno: rustix::io::Errno| errno.into();
            kill_process(pid, Signal::TERM).map_err(|errno| Error::System {
                what: "cannot stop a server",
                source: source(errno),
            })?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE rejoin_handshakes_full counter\n\
        rejoin_handshakes_full_total 3\n\
        rejoin_handshakes_resumed_total 5\n\
        rejoin_up_seconds_total 2.5\n\
        rejoin_cpu_seconds_total 0.5\n";

    #[test]
    fn a_reading_is_whole_or_none() {
        let reading = Reading::parse(TEXT).expect("whole");
        assert_eq!(reading, Reading { cpu_s: 0.5, up_s: 2.5, full: 3, resumed: 5 });
        for line in TEXT.lines().skip(1) {
            assert_eq!(Reading::parse(&TEXT.replace(line, "")), None, "{line}");
        }
    }

    #[test]
    fn what_came_between_is_counted() {
        let later = Reading { cpu_s: 0.5, up_s: 2.5, full: 3, resumed: 5 };
        let between = later.since(Reading { cpu_s: 0.1, up_s: 0.5, full: 1, resumed: 4 });
        assert_eq!((between.handshakes(), between.up_s), (3, 2.0));
        assert!((between.cpu_us() - 400_000.0 / 3.0).abs() < 1e-6);
    }
}
