//! A fleet of devices that come back: paper 000 §V against any TLS server.
//!
//! Arrivals come from a [`Population`] or from a recorded trace, and are played open-loop: a slow
//! server delays no device but the one it serves. Each device keeps its own TLS session across
//! its life. Thousands of devices share one thread: a device that waits costs a table entry.

mod device;
mod report;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{BufReader, BufWriter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use openssl::x509::X509;
use rejoin_trace::{Event, Population, Reader, SpeedUp, Writer};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::Error;
use crate::conditions::Watch;
use device::Target;
pub(crate) use device::{Device, Server};
use rejoin_serve::Versions;
pub use report::{EarlyData, Handshakes, Latency, Report};
use report::{Kind, Tally, Visit};
pub(crate) use report::{MOST_FAILED_PERCENT, failed_percent, failure};

/// Where arrivals come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Drawn from a population.
    Population(Population),
    /// Read from a trace, again from the start at each run.
    Trace(PathBuf),
}

/// The certificates that devices trust.
#[derive(Debug, Clone)]
pub enum Trust {
    /// The system's certificate authorities.
    System,
    /// These certificates.
    Certificates(Vec<X509>),
    /// Any certificate.
    Anybody,
}

/// Devices that claim to be back in a second, whatever their interval is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Liars {
    /// How many of a hundred.
    pub percent: u8,
}

/// The way of connections to several servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Routing {
    /// Each connection goes to any of them, as behind a balancer.
    #[default]
    Balanced,
    /// Before this time of the population, in milliseconds, all go to the first server, and then all to the last: a
    /// graceful restart.
    Replaced(u64),
}

impl Routing {
    /// Returns which of so many servers an arrival goes to: in each run the same.
    fn of(self, event: &Event, servers: usize) -> usize {
        match self {
            Self::Replaced(at_ms) if event.time_ms < at_ms => 0,
            Self::Replaced(_) => servers - 1,
            Self::Balanced => {
                // SplitMix64.
                let mut mixed = event.client.rotate_left(32) ^ event.time_ms;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((mixed ^ (mixed >> 31)) % servers as u64) as usize
            }
        }
    }
}

/// A fleet's settings. Times are the population's: the speed-up is applied when they are played.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The servers, at least one.
    pub targets: Vec<SocketAddr>,
    /// Which of them a connection goes to.
    pub routing: Routing,
    /// Their name, for SNI and for its certificate.
    pub server_name: String,
    /// The certificates to trust.
    pub trust: Trust,
    /// Versions offered.
    pub versions: Versions,
    /// The arrivals.
    pub source: Source,
    /// For everything that is drawn.
    pub seed: u64,
    /// How much faster than the population's time.
    pub speed_up: SpeedUp,
    /// Arrivals before this are played and not measured, in milliseconds.
    pub warm_up_ms: u64,
    /// Arrivals from this on are not played, in milliseconds.
    pub end_ms: u64,
    /// True if devices say when they connect next.
    pub hints: bool,
    /// True if devices lose their session between two runs, as apps do that are closed.
    pub forgets_between_runs: bool,
    /// True if requests go as early data (0-RTT) where the session allows it. Servers keep the connection open then, so
    /// that the next session comes.
    pub early_data: bool,
    /// Which of them lie.
    pub liars: Liars,
    /// Where to write the arrivals played.
    pub record: Option<PathBuf>,
}

impl Settings {
    /// Returns how late a connection may begin, in real time: half of the grace for which a cache keeps a session
    /// beyond the return time that was announced.
    fn tolerance(&self) -> Duration {
        due(rejoin_cache::Settings::GRACE_MS / 2, self.speed_up)
    }

    /// Returns how long was measured, in real time, of a run that took so long. One whose arrivals reach the end is over
    /// with the last of them, and nobody comes in the time that is left.
    fn measured(&self, ran: Duration, reaches_end: bool) -> Duration {
        let until = if reaches_end { ran.max(due(self.end_ms, self.speed_up)) } else { ran };
        until.saturating_sub(due(self.warm_up_ms, self.speed_up))
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Population time played, in milliseconds.
    pub played_ms: u64,
    /// True if the warm-up is over.
    pub measuring: bool,
    /// Handshakes so far.
    pub handshakes: u64,
    /// Resumed ones among them.
    pub resumed: u64,
}

/// A cell of an experiment whose fleet reports its progress.
pub(crate) struct Watched<C> {
    pub(crate) cell: C,
    pub(crate) progress: watch::Sender<Progress>,
}

/// Another attempt at a cell reports its own progress.
impl<C: Clone> Clone for Watched<C> {
    fn clone(&self) -> Self {
        Self::new(self.cell.clone())
    }
}

impl<C> Watched<C> {
    pub(crate) fn new(cell: C) -> Self {
        Self { cell, progress: watch::Sender::default() }
    }
}

impl<C: fmt::Display> fmt::Display for Watched<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cell.fmt(f)
    }
}

/// The words for a run whose arrivals are all of the warm-up.
pub const NOBODY: &str = "no device connected in the measured time: give more --devices, a longer --duration or another --warm-up";

/// The paper's mean request, Table II.
const REQUEST_BYTES: usize = 773;
/// Connections at once; beyond, arrivals wait.
const MOST_CONNECTIONS: usize = 4_000;
/// The least time that is taken as measured, where a trace ends early: its last arrival says little about the time until
/// the next.
const LEAST_MEASURED: Duration = Duration::from_secs(1);
/// For one connection from start to end.
const PATIENCE: Duration = Duration::from_secs(15);

/// Plays the arrivals until they end, or until `stop`. What is measured by then is reported.
///
/// # Errors
/// A trace that cannot be read or written, or a server that does not accept connections at all.
pub async fn run(
    settings: &Settings,
    progress: &watch::Sender<Progress>,
    stop: impl Future<Output = ()>,
) -> Result<Report, Error> {
    let target = Arc::new(Target::new(settings)?);
    for address in settings.targets.iter().copied() {
        tokio::net::TcpStream::connect(address)
            .await
            .map_err(|source| Error::Connect { address, source })?;
    }
    let tally = Arc::new(Tally::new(settings.tolerance()));
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut recorder = settings.record.as_deref().map(Recorder::create).transpose()?;
    let mut devices: HashMap<u64, Arc<Device>> = HashMap::new();
    let mut stop = pin!(stop);
    let (mut complete, mut reaches_end) = (true, false);
    let watch = Watch::begin();
    let start = Instant::now();
    // Until then the server's slowness, and not this machine's, kept connections waiting.
    let mut freed = start;
    for event in arrivals(settings)? {
        let event = event?;
        if event.time_ms >= settings.end_ms {
            reaches_end = true;
            break;
        }
        let Some(due) = start.checked_add(due(event.time_ms, settings.speed_up)) else { break };
        if due > Instant::now() {
            tokio::select! {
                () = sleep_until(due) => {}
                () = &mut stop => { complete = false; break; }
            }
        }
        let measured = event.time_ms >= settings.warm_up_ms;
        progress.send_replace(tally.progress(event.time_ms, measured));
        if let Some(recorder) = &mut recorder {
            recorder.write(event)?;
        }
        let place = match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let place = tokio::select! {
                    biased;
                    () = &mut stop => { complete = false; break; }
                    place = Arc::clone(&places).acquire_owned() => place,
                };
                freed = Instant::now();
                let Ok(place) = place else { break };
                place
            }
        };
        let possible = due.max(freed);
        let device = Arc::clone(devices.entry(event.client).or_default());
        let (target, tally) = (Arc::clone(&target), Arc::clone(&tally));
        tokio::spawn(async move {
            if measured {
                tally.record_beginning(possible.elapsed());
            }
            visit(&device, &target, event, measured, &tally).await;
            drop(place);
        });
    }
    let least = if complete && !reaches_end { LEAST_MEASURED } else { Duration::ZERO };
    let took = settings.measured(start.elapsed(), reaches_end).max(least);
    // All permits returned: all connections ended. After a stop the wait is short.
    let patience = if complete { PATIENCE } else { Duration::from_secs(1) };
    let _ = timeout(patience, places.acquire_many(MOST_CONNECTIONS as u32)).await;
    recorder.map(Recorder::finish).transpose()?;
    Ok(tally.report(complete, devices.len() as u64, (took, watch.end())))
}

async fn visit(device: &Device, target: &Target, event: Event, measured: bool, tally: &Tally) {
    let lies = target.lies(event.client);
    let outcome = timeout(PATIENCE, device.connect(target, &event, lies)).await;
    let kind = match outcome {
        Ok(Ok(Some(kind))) => kind,
        Ok(Ok(None)) => return tally.record_skipped(),
        Ok(Err(why)) => return tally.record_failed(&why.to_string()),
        Err(_) => return tally.record_failed("timed out"),
    };
    tally.record(Visit { kind, first_of_run: event.first_of_run, measured, lies });
}

fn due(time_ms: u64, speed_up: SpeedUp) -> Duration {
    let seconds = time_ms as f64 / 1_000.0 / speed_up.factor();
    // Beyond what a duration holds it is never due.
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn arrivals(
    settings: &Settings,
) -> Result<Box<dyn Iterator<Item = Result<Event, Error>> + Send>, Error> {
    match &settings.source {
        Source::Population(population) => Ok(Box::new(population.arrivals(settings.seed).map(Ok))),
        Source::Trace(path) => {
            let failed = |source| Error::Trace { path: path.clone(), source };
            let file = File::open(path).map_err(|source| Error::file(path.clone(), source))?;
            let reader = Reader::new(BufReader::new(file)).map_err(failed)?;
            let path = path.clone();
            Ok(Box::new(reader.map(move |event| {
                event.map_err(|source| Error::Trace { path: path.clone(), source })
            })))
        }
    }
}

/// A writer of arrivals. A reader recognises a file that was not finished.
pub(crate) struct Recorder {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|source| Error::file(path.to_owned(), source))?;
        let writer = Writer::new(BufWriter::new(file))
            .map_err(|source| Error::Trace { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), writer })
    }

    pub(crate) fn write(&mut self, event: Event) -> Result<(), Error> {
        let Self { path, writer } = self;
        writer.write(event).map_err(|source| Error::Trace { path: path.clone(), source })
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        let Self { path, writer } = self;
        writer.finish().map(drop).map_err(|source| Error::Trace { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(client: u64, time_ms: u64) -> Event {
        Event { client, time_ms, first_of_run: false, returns_in_ms: None }
    }

    #[test]
    fn a_balancer_gives_each_server_a_third_of_each_client() {
        for client in [0, 1, 7_999] {
            let mut counts = [0; 3];
            for visit in 0..3_000 {
                counts[Routing::Balanced.of(&arrival(client, visit * 15_000), 3)] += 1;
            }
            assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn a_server_is_replaced_at_once() {
        let routes =
            [0, 999, 1_000, 5_000].map(|at| Routing::Replaced(1_000).of(&arrival(3, at), 2));
        assert_eq!(routes, [0, 0, 1, 1]);
    }

    /// Plays arrivals, in milliseconds, at a server that answers, with a second of warm-up and one that is measured.
    fn played(name: &str, arrivals: &[u64]) -> Report {
        let path = std::env::temp_dir().join(format!("rejoin-{name}-{}", std::process::id()));
        let mut recorder = Recorder::create(&path).expect("a file");
        for (client, time_ms) in arrivals.iter().enumerate() {
            recorder.write(arrival(client as u64, *time_ms)).expect("written");
        }
        recorder.finish().expect("written");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let report = runtime.expect("a runtime").block_on(async {
            let server = rejoin_serve::Server::bind(&serving()).await.expect("a port");
            let (target, _) = server.addresses().expect("addresses");
            tokio::spawn(server.run(std::future::pending()));
            let settings = Settings {
                targets: vec![target],
                source: Source::Trace(path.clone()),
                ..settings()
            };
            run(&settings, &watch::Sender::default(), std::future::pending()).await
        });
        let _ = std::fs::remove_file(path);
        report.expect("played")
    }

    fn settings() -> Settings {
        Settings {
            targets: Vec::new(),
            routing: Routing::default(),
            server_name: "localhost".to_owned(),
            trust: Trust::Anybody,
            versions: Versions::Tls13,
            source: Source::Trace(PathBuf::new()),
            seed: 1,
            speed_up: SpeedUp::new(10.0).expect("valid"),
            warm_up_ms: 10_000,
            end_ms: 20_000,
            hints: false,
            forgets_between_runs: false,
            early_data: false,
            liars: Liars::default(),
            record: None,
        }
    }

    fn serving() -> rejoin_serve::Settings {
        let identity = rejoin_serve::Identity::made(rejoin_serve::KeyType::P256);
        rejoin_serve::Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            metrics: None,
            stack: rejoin_serve::Stack::OpenSsl,
            versions: Versions::Both,
            resumption: rejoin_serve::Resumption::Tickets,
            ticket_keys: None,
            cache: rejoin_cache::Settings::new(rejoin_cache::Capacity::Sessions(10)),
            identity: Some(identity.expect("made")),
            response_bytes: 100,
            body_bytes: None,
            patience: PATIENCE,
        }
    }

    #[test]
    fn rates_are_of_the_measured_time() {
        // The first second, and what is beyond the end, are not measured.
        let report = played("fleet-rate", &[0, 14_000, 20_000]);
        assert_eq!((report.begun, report.after_first_of_run.total()), (1, 1), "{report:?}");
        let rate = report.handshakes_per_s;
        assert!(rate > 0.0 && rate <= 1.0, "{rate}");
        // A trace that ends early, after a twentieth of a second.
        let report = played("fleet-early", &[0, 10_100, 10_500]);
        assert_eq!(report.begun, 2, "{report:?}");
        let rate = report.handshakes_per_s;
        assert!(rate > 0.0 && rate <= 2.0, "{rate}");
    }

    #[test]
    fn the_measured_time_begins_and_ends_as_planned() {
        let measured = |ms, reaches_end| {
            settings().measured(Duration::from_millis(ms), reaches_end).as_millis()
        };
        assert_eq!([measured(1_400, true), measured(2_300, true)], [1_000, 1_300]);
        // Stopped, or at the end of a trace.
        assert_eq!([measured(1_400, false), measured(600, false)], [400, 0]);
    }
}
