//! Table I of paper 004 on a synthetic population: apps that use the same services, each app a process
//! of its own, each service on several hosts, real connections on loopback.
//!
//! The same visits are made three times. *Unmodified*: each app keeps its own sessions, and each host
//! its own ticket keys. *Client only*: the apps ask the TLS manager. *Client and server*: the hosts of a
//! service have the same ticket keys, too. As in the paper, one app runs after the other.
//!
//! Not measured: the paper's energy and latency, which it took from measurements of phones.

mod app;
mod hosts;
mod population;

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

pub use app::{App, Seen, Visit};
use hosts::Hosts;
use population::Population;

use crate::Error;
use crate::experiment::{Attempt, Ended, Step, Turns};

/// The settings of the comparison.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `rejoin` program, for the apps and the manager.
    pub program: PathBuf,
    /// Where certificates and the manager's socket go.
    pub directory: PathBuf,
    /// Apps.
    pub apps: u32,
    /// Services that they use, 250 at most.
    pub services: u8,
    /// For everything that is drawn.
    pub seed: u64,
}

/// The programs that share sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// None.
    Unmodified,
    /// The client's apps.
    Client,
    /// These, and the hosts of each service.
    ClientAndServer,
}

impl Sharing {
    /// In the order of the table.
    pub const ALL: [Self; 3] = [Self::Unmodified, Self::Client, Self::ClientAndServer];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unmodified => "unmodified",
            Self::Client => "client only",
            Self::ClientAndServer => "client + server",
        }
    }

    /// Full handshakes of the top 500 Android apps, in percent: Table I.
    fn paper_full_percent(self) -> f64 {
        match self {
            Self::Unmodified => 80.5,
            Self::Client => 30.8,
            Self::ClientAndServer => 16.6,
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The programs that share sessions.
    pub sharing: &'static str,
    /// Full handshakes, as the apps were told.
    pub full: u64,
    /// Resumptions, as the apps were told.
    pub resumed: u64,
    /// The share of full handshakes.
    pub full_percent: f64,
    /// The paper's.
    pub paper_full_percent: f64,
    /// Full handshakes, as the hosts counted.
    pub hosts_full: u64,
    /// Resumptions, as the hosts counted.
    pub hosts_resumed: u64,
    /// Bytes of a connection, both ways, a request and an answer of a few bytes included: the mean.
    pub bytes: f64,
    /// From the wish for a connection to the answer's first byte: the mean, in microseconds.
    pub first_byte_us: f64,
    /// Distinct services that were visited.
    pub services: u64,
    /// Distinct hosts that were visited.
    pub hosts: u64,
}

/// The table.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How the experiment ended, in rows.
    pub ended: Ended,
    /// The rows that were measured.
    pub rows: Vec<Row>,
}

/// Fills the table row by row. `progress` is told of each app that is done, of those of its row; `kept` gets each row.
/// The outcome is partial if `stop` completes early or a later row fails.
///
/// # Errors
/// A program that cannot be started, a port that cannot be bound, or a connection that fails, before a row was measured.
pub async fn run(
    settings: &Settings,
    mut progress: impl FnMut(&Step),
    mut kept: impl FnMut(&Row),
    stop: impl Future<Output = ()>,
) -> Result<Outcome, Error> {
    std::fs::create_dir_all(&settings.directory).map_err(failed("cannot make a folder"))?;
    let population = Population::drawn(settings.apps, settings.services, settings.seed);
    let mut turns = Turns::new(Sharing::ALL.len());
    let measure = async |sharing, _: &mut Attempt| {
        measure(settings, &population, sharing, &mut progress).await.map(Some)
    };
    let kept = |row: &mut Row, _| {
        kept(row);
        Ok(())
    };
    let rows = turns.run_until(Sharing::ALL, pin!(stop), |_, _| {}, measure, kept).await;
    Ok(Outcome { ended: turns.ended(rows.is_empty())?, rows })
}

async fn measure(
    settings: &Settings,
    population: &Population,
    sharing: Sharing,
    progress: &mut impl FnMut(&Step),
) -> Result<Row, Error> {
    let hosts = Hosts::start(population, sharing == Sharing::ClientAndServer).await?;
    let authority = settings.directory.join("apps-authority.pem");
    std::fs::write(&authority, hosts.authority()).map_err(failed("cannot write a certificate"))?;
    let manager = match sharing {
        Sharing::Unmodified => None,
        Sharing::Client | Sharing::ClientAndServer => {
            Some(Manager::start(settings, &authority).await?)
        }
    };
    let mut seen = Vec::new();
    for (done, visits) in population.apps().enumerate() {
        let visits = visits.map(|visit| hosts.visit(visit)).collect();
        let app = App { authority: authority.clone(), manager: socket(&manager), visits };
        seen.extend(run_app(&settings.program, &app).await?);
        let of = settings.apps as usize;
        progress(&Step { done: done + 1, of, what: sharing.to_string() });
    }
    let counted = hosts.stop();
    let (resumed, all) = (seen.iter().filter(|seen| seen.resumed).count(), seen.len());
    let mean = |sum: u64| sum as f64 / all.max(1) as f64;
    Ok(Row {
        sharing: sharing.name(),
        full: (all - resumed) as u64,
        resumed: resumed as u64,
        full_percent: mean(100 * (all - resumed) as u64),
        paper_full_percent: sharing.paper_full_percent(),
        hosts_full: counted.full,
        hosts_resumed: counted.resumed,
        bytes: mean(counted.bytes),
        first_byte_us: mean(seen.iter().map(|seen| seen.first_byte_us).sum()),
        services: population.distinct_services(),
        hosts: population.distinct_hosts(),
    })
}

fn socket(manager: &Option<Manager>) -> Option<PathBuf> {
    manager.as_ref().map(|manager| manager.socket.clone())
}

async fn run_app(program: &Path, app: &App) -> Result<Vec<Seen>, Error> {
    let mut child = Command::new(program)
        .arg("app")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed("cannot start an app"))?;
    let told = serde_json::to_vec(app).map_err(|error| other("an app", error))?;
    let mut stdin = child.stdin.take().ok_or_else(|| other("an app", "has no input"))?;
    stdin.write_all(&told).await.map_err(failed("cannot tell an app what to do"))?;
    drop(stdin);
    let output = child.wait_with_output().await.map_err(failed("cannot wait for an app"))?;
    if !output.status.success() {
        return Err(other("an app", "failed"));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| other("an app", error))
}

/// A `rejoin manager` that ends with the demonstration, and believes its authority.
struct Manager {
    socket: PathBuf,
    _child: Child,
}

impl Manager {
    async fn start(settings: &Settings, authority: &Path) -> Result<Self, Error> {
        // A socket's path has 107 characters at most, which a folder below the target may have.
        let socket = std::env::temp_dir().join(format!("rejoin-demo-{}.sock", std::process::id()));
        let file = settings.directory.join("apps-manager.toml");
        let text = format!("system_bundle = {:?}\n", authority.display().to_string());
        std::fs::write(&file, text).map_err(failed("cannot write the manager's settings"))?;
        let mut child = Command::new(&settings.program)
            .args(["manager", "--end-with-parent"])
            .arg("--socket")
            .arg(&socket)
            .arg("--settings")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed("cannot start the manager"))?;
        let stdout = child.stdout.take().ok_or_else(|| other("the manager", "has no output"))?;
        let line = BufReader::new(stdout).lines().next_line().await;
        line.ok().flatten().ok_or_else(|| other("the manager", "ended without a word"))?;
        Ok(Self { socket, _child: child })
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // The child is killed, and cannot.
        for left in [&self.socket, &self.socket.with_extension("sock.lock")] {
            let _ = std::fs::remove_file(left);
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what, source }
}

fn other(what: &'static str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::System { what, source: std::io::Error::other(error) }
}
