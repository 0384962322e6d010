//! What clients see while something is broken on purpose.
//!
//! Clients come back all the time, each to the next server with the session of the last one, and after five visits without.
//! So a share of 80 % resumes where each server resumes the others' sessions.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rejoin_serve::Versions;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::Serialize;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::Error;
use crate::fleet::{Device, Server, Trust};

/// The servers, and how often they are visited.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The servers, at least one. They resume each other's sessions.
    pub servers: Vec<SocketAddr>,
    /// Their name, for SNI and for their certificate.
    pub server_name: String,
    /// The certificates to trust.
    pub trust: Trust,
    /// Visits a second, at least one.
    pub per_second: u32,
    /// The time before the fault, that with it, and that after it.
    pub phase: Duration,
}

/// A way of breaking something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// This process is killed.
    Kill(Pid),
    /// This process stands still, and goes on afterwards, whatever happens to the drill.
    Pause(Pid),
    /// A command of the shell is run.
    Run(String),
}

/// A part of a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Before the fault.
    Before,
    /// From the fault to its end.
    During,
    /// From its end on.
    After,
}

/// The visits of one part, as clients saw them.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Seen {
    /// Visits that were answered.
    pub answered: u64,
    /// Percent of those that resumed.
    pub resumed_percent: f64,
    /// Visits that were not answered, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Half of the handshakes took no longer, in milliseconds.
    pub p50_ms: f64,
    /// Ninety-nine of a hundred took no longer.
    pub p99_ms: f64,
    /// The slowest.
    pub slowest_ms: f64,
}

/// The report of a drill.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// False if it was interrupted: it has what was seen by then.
    pub complete: bool,
    /// Before the fault.
    pub before: Seen,
    /// From the fault to its end.
    pub during: Seen,
    /// From its end on.
    pub after: Seen,
    /// The time from the end of the fault until clients resumed as before, in seconds: a second in which at most ten points
    /// fewer did. `None`: they did not, or they did not resume before the fault.
    pub resumed_again_s: Option<f64>,
    /// Percent of the visits that were due and were made. A client makes one at a time.
    pub made_percent: f64,
}

/// The longest time of a command.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
/// The longest time of a visit.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time after which a client comes back.
const RETURNS_AFTER: Duration = Duration::from_millis(400);
/// Visits of a client until it comes without its session. Servers that keep sessions themselves would soon have them all.
const VISITS: usize = 5;
/// The least percentage that resumes before the fault. Where fewer do, nothing can be learned of the fault.
const LEAST_BEFORE: f64 = 30.0;
/// Fewer resume as before if it is less by so many points.
const AS_BEFORE: f64 = 10.0;
const WINDOW: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(250);
const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];
/// A minute, beyond which times are cut, to two figures.
const LONGEST_US: u64 = 60_000_000;

/// Breaks something while clients come, and returns what they saw. `mend` is run at the end of the fault, also if the drill was
/// interrupted. `told` hears of each part as it begins. What commands print goes to standard error.
///
/// # Errors
/// A server that accepts no connection at first, a process that cannot be signalled, and a command that fails.
pub async fn run(
    settings: &Settings,
    fault: &Fault,
    mend: Option<&str>,
    told: impl Fn(Part),
    stop: impl Future<Output = ()>,
) -> Result<Report, Error> {
    fault.check()?;
    for address in settings.servers.iter().copied() {
        tokio::net::TcpStream::connect(address)
            .await
            .map_err(|source| Error::Connect { address, source })?;
    }
    let server = |versions| Server::new(&settings.trust, &settings.server_name, versions);
    let servers = [server(VERSIONS[0])?, server(VERSIONS[1])?].map(Arc::new);
    let visits = Arc::<Visits>::default();
    let (end, over) = oneshot::channel();
    let load = tokio::spawn(come_again(settings.clone(), servers, Arc::clone(&visits), over));
    let mut stop = pin!(stop);
    let mut lasts = async || {
        tokio::select! {
            () = sleep(settings.phase) => true,
            () = &mut stop => false,
        }
    };

    let began = Instant::now();
    told(Part::Before);
    let mut complete = lasts().await;
    let broken_at = Instant::now();
    if complete {
        told(Part::During);
        let broken = fault.begin().await;
        if broken.is_ok() {
            complete = lasts().await;
        }
        let mended = match mend {
            Some(command) => shell(command).await,
            None => Ok(()),
        };
        drop(broken?);
        mended?;
    }
    let mended_at = Instant::now();
    if complete {
        told(Part::After);
        complete = lasts().await;
    }
    let over = Instant::now();
    // The load ends, and so do the visits under way.
    drop(end);
    let _ = load.await;

    let before = visits.seen(began, broken_at);
    let least = before.resumed_percent - AS_BEFORE;
    let mut ends = (4..).map(|steps| mended_at + steps * STEP).take_while(|end| *end <= over);
    let is_as_before = |end: &Instant| {
        before.shows_resumption() && visits.seen(*end - WINDOW, *end).resumed_percent >= least
    };
    let again = ends.find(is_as_before);
    let due = (over - began).as_secs_f64() * f64::from(settings.per_second);
    Ok(Report {
        complete,
        before,
        during: visits.seen(broken_at, mended_at),
        after: visits.seen(mended_at, over),
        resumed_again_s: again.map(|end| (end - mended_at).as_secs_f64()),
        made_percent: 100.0 * visits.all().len() as f64 / due.max(1.0),
    })
}

impl Seen {
    /// The percentage that resumes where each server resumes the others' sessions.
    pub const ALL_PERCENT: f64 = 100.0 * (VISITS - 1) as f64 / VISITS as f64;

    /// Returns true if clients resume at all. Of a cluster in which few do nothing can be learned by breaking it.
    pub fn shows_resumption(&self) -> bool {
        self.resumed_percent >= LEAST_BEFORE
    }
}

impl Fault {
    /// Returns an error if its process cannot be signalled.
    fn check(&self) -> Result<(), Error> {
        match self {
            Self::Kill(pid) | Self::Pause(pid) => test_kill_process(*pid).map_err(not_signalled),
            Self::Run(_) => Ok(()),
        }
    }

    async fn begin(&self) -> Result<Broken, Error> {
        match self {
            Self::Kill(pid) => kill_process(*pid, Signal::KILL).map_err(not_signalled)?,
            Self::Pause(pid) => {
                kill_process(*pid, Signal::STOP).map_err(not_signalled)?;
                return Ok(Broken(Some(*pid)));
            }
            Self::Run(command) => shell(command).await?,
        }
        Ok(Broken(None))
    }
}

/// A fault that lasts. Dropped, it lets the process that it paused go on.
struct Broken(Option<Pid>);

impl Drop for Broken {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // One that has ended needs no help.
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

fn not_signalled(error: rustix::io::Errno) -> Error {
    Error::System { what: "cannot signal the process", source: error.into() }
}

/// Runs a command of the shell, which must succeed.
async fn shell(command: &str) -> Result<(), Error> {
    let failed = |why: String| Error::Command { command: command.to_owned(), why };
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(std::io::stderr()).kill_on_drop(true);
    let mut child = shell.spawn().map_err(|error| failed(error.to_string()))?;
    match timeout(COMMAND_WITHIN, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(status.to_string())),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("it takes longer than {} s", COMMAND_WITHIN.as_secs()))),
    }
}

/// A visit that has ended.
#[derive(Debug, Clone)]
struct Visit {
    /// Its beginning.
    at: Instant,
    /// Why there was no answer, if there was none.
    outcome: Result<Handshake, String>,
}

#[derive(Debug, Clone, Copy)]
struct Handshake {
    is_resumed: bool,
    took: Duration,
}

#[derive(Default)]
struct Visits(Mutex<Vec<Visit>>);

impl Visits {
    fn all(&self) -> MutexGuard<'_, Vec<Visit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was seen of the visits that began in this time.
    fn seen(&self, from: Instant, to: Instant) -> Seen {
        let (mut failed, mut resumed) = (BTreeMap::new(), 0);
        let times = Histogram::<u64>::new_with_bounds(1, LONGEST_US, 2);
        let mut times = times.expect("constant bounds are valid");
        for visit in self.all().iter().filter(|visit| (from..to).contains(&visit.at)) {
            match &visit.outcome {
                Ok(handshake) => {
                    resumed += u64::from(handshake.is_resumed);
                    times.saturating_record(handshake.took.as_micros() as u64);
                }
                Err(why) => *failed.entry(why.clone()).or_default() += 1,
            }
        }
        let ms = |us: u64| us as f64 / 1_000.0;
        Seen {
            answered: times.len(),
            resumed_percent: 100.0 * resumed as f64 / times.len().max(1) as f64,
            failed,
            p50_ms: ms(times.value_at_quantile(0.5)),
            p99_ms: ms(times.value_at_quantile(0.99)),
            slowest_ms: ms(times.max()),
        }
    }
}

/// Has clients of both versions of TLS come back until `over`, and waits for the visits under way.
async fn come_again(
    settings: Settings,
    servers: [Arc<Server>; 2],
    visits: Arc<Visits>,
    mut over: oneshot::Receiver<()>,
) {
    let Settings { servers: addresses, per_second, .. } = settings;
    let clients = (RETURNS_AFTER.as_secs_f64() * f64::from(per_second)).ceil() as usize;
    let devices: Vec<_> = (0..clients).map(|_| Arc::<Device>::default()).collect();
    let mut due = interval(Duration::from_secs(1) / per_second);
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut under_way = JoinSet::new();
    'load: for turn in 0_usize.. {
        let (life, visit) = (turn / VISITS, turn % VISITS);
        let address = addresses[(life + visit) % addresses.len()];
        for (number, device) in devices.iter().enumerate() {
            tokio::select! {
                _ = &mut over => break 'load,
                _ = due.tick() => {}
            }
            while under_way.try_join_next().is_some() {}
            let server = Arc::clone(&servers[number % 2]);
            let (device, visits) = (Arc::clone(device), Arc::clone(&visits));
            under_way.spawn(async move {
                let at = Instant::now();
                let made = timeout(PATIENCE, device.visit(&server, address, visit == 0, None));
                let outcome = match made.await {
                    Ok(Ok(Some(kind))) => {
                        Ok(Handshake { is_resumed: kind.resumed, took: kind.took })
                    }
                    // Its last visit is not over yet.
                    Ok(Ok(None)) => return,
                    Ok(Err(why)) => Err(why.to_string()),
                    Err(_) => Err("timed out".to_owned()),
                };
                visits.all().push(Visit { at, outcome });
            });
        }
    }
    under_way.join_all().await;
}
