//! Transactions a second by the number of devices, past what a server can do: Fig. 2 of paper 000.
//!
//! A transaction is a connection with one request. Each server is a process with one thread, so that
//! one core at most is its; the devices of the paper, on another thread, are the same for every way of
//! resuming: one seed, one time table, which a slow server does not change. A device whose connection
//! is not over when the next is due leaves that one out.
//!
//! The paper sizes its cache for the population that saturates the server with tickets: 6,750 sessions
//! for 90,000 devices, where predictive eviction has 100 %. It can have that only if the first
//! connection of a run is not to be resumed, for in an hour no cache of that size keeps those who come
//! back after three quarters of one. So devices begin a run without a session here, as an app does that
//! was closed; [`Settings::forgets_between_runs`] says otherwise.
//!
//! Server, CPU time and counts are read together in the server itself, after the warm-up and again at
//! the end, while the devices go on. The wall clock's figures are the machine's of that minute; CPU time
//! for each transaction is what can be compared.
//!
//! Past saturation a server is not what it was: who waits comes late, fewer come back in time, and more of
//! what is left are first connections. What a transaction costs with so many devices, if nobody waited, is
//! measured by [`Settings::keeps_up`].
//!
//! What is not here: latency, which past saturation is the queue's.

mod outcome;
mod page;

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use rejoin_trace::{Population, PopulationSettings, SpeedUp};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Error;
use crate::fleet::{self, Liars, Source, Trust};
use crate::server_process::{Launch, Pair, Reading, ServerProcess};
pub use outcome::{Advantage, Cut, Outcome, Row};
pub use page::html;
use rejoin_serve::{Identity, KeyType};
use rejoin_serve::{Resumption, Versions};

/// What is measured. Times are the population's.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `rejoin` program, for `rejoin serve`.
    pub program: PathBuf,
    /// Where certificate and key go.
    pub directory: PathBuf,
    /// How many devices, in turn.
    pub devices: Devices,
    /// Devices that saturate the server with tickets; found by measuring if it is not said and needed.
    pub saturation_devices: Option<u32>,
    /// Sessions that a cache may hold; sized as the paper's if it is not said.
    pub cache_sessions: Option<u32>,
    /// How much faster than real time.
    pub speed_up: SpeedUp,
    /// Played first and not measured, in milliseconds. It takes about 100 s until the cache is full of
    /// the saturating population's sessions.
    pub warm_up_ms: u64,
    /// Played and measured, in milliseconds.
    pub measured_ms: u64,
    /// One version.
    pub versions: Versions,
    /// What the server signs with.
    pub key_type: KeyType,
    /// The server's `--prediction`.
    pub prediction: &'static str,
    /// Ways of resuming, in turn, for each number of devices.
    pub resumptions: Vec<Resumption>,
    /// Whether devices begin each run without a session.
    pub forgets_between_runs: bool,
    /// Whether time is slowed down for so many devices as a server could not serve if it resumed
    /// nothing.
    pub keeps_up: bool,
    /// How often everything is measured, in turns: above 0, [`Settings::MOST_ROUNDS`] at most.
    pub rounds: u16,
    /// For everything that is drawn; each round draws anew.
    pub seed: u64,
}

impl Settings {
    /// See [`Self::rounds`].
    pub const MOST_ROUNDS: u16 = 1_000;
}

/// Numbers of devices.
#[derive(Debug, Clone, PartialEq)]
pub enum Devices {
    /// As shares of those that saturate the server.
    OfSaturation(Vec<f64>),
    /// As they are.
    Counts(Vec<u32>),
}

/// What begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How many servers were measured.
    pub done: usize,
    /// How many there are.
    pub of: usize,
    /// Devices that come.
    pub devices: u32,
    /// How sessions are resumed; `None` while it is found out how many devices saturate the server.
    pub resumption: Option<&'static str>,
}

/// The paper's: 6,750 sessions for the 90,000 devices that saturate the server (§VI.C).
const CACHE_SHARE: f64 = 6_750.0 / 90_000.0;
/// A full handshake costs less than so many times what a transaction costs with tickets.
const FULL_TIMES: f64 = 3.0;
/// To begin with when it is found out how many saturate the server: few enough for any machine.
const FIRST_PER_S: f64 = 300.0;
/// Each nearer than the one before: what a transaction costs depends a little on the load.
const PASSES: usize = 2;
/// Servers in one run.
const MOST_CELLS: usize = 10_000;
/// Devices go on for so long after the end, for a busy server to be read.
const OVERTIME: Duration = Duration::from_secs(60);

/// Measures one server after the other. `began` is told of each before it starts and gets its
/// progress, `ended` gets each result. What there is when `stop` completes, or when a server fails, is
/// the outcome.
///
/// # Errors
/// Settings that exclude each other, a file that cannot be written, a population that cannot be; a server
/// that fails before anything was measured.
pub async fn run(
    settings: &Settings,
    mut began: impl FnMut(Step, watch::Receiver<fleet::Progress>),
    mut ended: impl FnMut(&Row),
    stop: impl Future<Output = ()>,
) -> Result<Outcome, Error> {
    let arena = Arena::prepare(settings)?;
    let mut stop = pin!(stop);
    let mut outcome = Outcome::new(settings);
    tokio::select! {
        sized = arena.size(&mut outcome, &mut began) => sized?,
        () = &mut stop => {
            outcome.cut = Some(Cut::Interrupted);
            return Ok(outcome);
        }
    }
    let cells = arena.cells(&outcome)?;
    outcome.wanted = cells.len();
    for (done, cell) in cells.iter().enumerate() {
        let (sender, receiver) = watch::channel(fleet::Progress::default());
        let Cell { devices, resumption, .. } = *cell;
        began(
            Step { done, of: cells.len(), devices, resumption: Some(resumption.name()) },
            receiver,
        );
        let row = tokio::select! {
            row = arena.row(&outcome, cell, sender) => row,
            () = &mut stop => {
                outcome.cut = Some(Cut::Interrupted);
                break;
            }
        };
        match row {
            Ok(row) => {
                ended(&row);
                outcome.rows.push(row);
            }
            Err(error) if outcome.rows.is_empty() => return Err(error),
            Err(error) => {
                outcome.cut = Some(Cut::Failed(error));
                break;
            }
        }
    }
    Ok(outcome)
}

/// One server, and who comes.
#[derive(Debug, Clone, Copy)]
struct Cell {
    round: u16,
    devices: u32,
    resumption: Resumption,
    speed_up: SpeedUp,
    cache_sessions: u32,
}

/// What all servers share.
struct Arena<'a> {
    settings: &'a Settings,
    pair: Pair,
}

/// What was seen of a server.
struct Seen {
    reading: Reading,
    report: fleet::Report,
}

impl<'a> Arena<'a> {
    fn prepare(settings: &'a Settings) -> Result<Self, Error> {
        if settings.versions == Versions::Both {
            return Err(Error::Settings("one version of TLS at a time: give --tls 1.2 or 1.3"));
        }
        if !(1..=Settings::MOST_ROUNDS).contains(&settings.rounds) {
            return Err(Error::Settings("1 to 1000 rounds"));
        }
        settings.key_type.check_openssl(settings.versions)?;
        let identity = Identity::made(settings.key_type)?;
        Ok(Self { settings, pair: Pair::write(identity, &settings.directory, "bench")? })
    }

    /// How many devices saturate the server, if that is needed, and how large caches are.
    async fn size(
        &self,
        outcome: &mut Outcome,
        began: &mut impl FnMut(Step, watch::Receiver<fleet::Progress>),
    ) -> Result<(), Error> {
        let counted = matches!(self.settings.devices, Devices::Counts(_));
        let sized = counted && self.settings.cache_sessions.is_some();
        let is_needed = !sized || self.settings.keeps_up;
        outcome.saturation_devices = match self.settings.saturation_devices {
            None if is_needed => Some(self.saturation(began).await?),
            given => given,
        };
        let paper = outcome.saturation_devices.map(|devices| f64::from(devices) * CACHE_SHARE);
        let paper = paper.map(|sessions| (sessions.round() as u32).max(1));
        outcome.cache_sessions = self.settings.cache_sessions.or(paper).unwrap_or(1);
        Ok(())
    }

    /// As many devices as keep one core busy with tickets, by what a transaction takes of it.
    async fn saturation(
        &self,
        began: &mut impl FnMut(Step, watch::Receiver<fleet::Progress>),
    ) -> Result<u32, Error> {
        let Settings { speed_up, .. } = *self.settings;
        let per_device = offered_per_s(1, speed_up)?;
        let mut devices = whole(FIRST_PER_S / per_device);
        for done in 0..PASSES {
            let (sender, receiver) = watch::channel(fleet::Progress::default());
            began(Step { done, of: PASSES, devices, resumption: None }, receiver);
            let resumption = Resumption::Tickets;
            let cell = Cell { round: 0, devices, resumption, speed_up, cache_sessions: 1 };
            let Seen { reading, .. } = self.measure(&cell, sender).await?;
            if reading.handshakes() == 0 {
                let what =
                    "nobody came while saturation was sought: measure longer, with --duration-s";
                return Err(Error::Settings(what));
            }
            devices = whole(1e6 / reading.cpu_us() / per_device);
        }
        Ok(devices)
    }

    /// In each round all numbers of devices, and for each the ways of resuming, each first in its turn.
    fn cells(&self, outcome: &Outcome) -> Result<Vec<Cell>, Error> {
        let saturation = f64::from(outcome.saturation_devices.unwrap_or(1));
        let counts = match &self.settings.devices {
            Devices::Counts(counts) => counts.clone(),
            Devices::OfSaturation(shares) => {
                shares.iter().map(|share| whole(share * saturation)).collect()
            }
        };
        let Settings { resumptions, rounds, .. } = self.settings;
        let servers = counts.len() * resumptions.len() * usize::from(*rounds);
        if !(1..=MOST_CELLS).contains(&servers) {
            return Err(Error::Settings(
                "0 or more than 10,000 servers to measure: say other --devices, --resumption or --rounds",
            ));
        }
        let mut cells = Vec::with_capacity(servers);
        for round in 0..*rounds {
            for devices in counts.iter().copied() {
                let speed_up = self.speed_up(devices, outcome)?;
                let turns = resumptions.iter().cycle().skip(usize::from(round) % resumptions.len());
                cells.extend(turns.take(resumptions.len()).map(|resumption| Cell {
                    round,
                    devices,
                    resumption: *resumption,
                    speed_up,
                    cache_sessions: outcome.cache_sessions,
                }));
            }
        }
        Ok(cells)
    }

    /// How fast so many devices are played.
    fn speed_up(&self, devices: u32, outcome: &Outcome) -> Result<SpeedUp, Error> {
        let Settings { speed_up, keeps_up, .. } = *self.settings;
        match outcome.saturation_devices {
            Some(saturation) if keeps_up => {
                let share = f64::from(saturation) / (FULL_TIMES * f64::from(devices));
                SpeedUp::new(speed_up.factor() * share.min(1.0)).map_err(Error::Population)
            }
            _ => Ok(speed_up),
        }
    }

    async fn row(
        &self,
        outcome: &Outcome,
        cell: &Cell,
        progress: watch::Sender<fleet::Progress>,
    ) -> Result<Row, Error> {
        let Seen { reading, report } = self.measure(cell, progress).await?;
        let Cell { round, devices, resumption, speed_up, cache_sessions } = *cell;
        let (handshakes, up_s) = (reading.handshakes(), reading.up_s);
        let per = |amount: f64| if amount > 0.0 { handshakes as f64 / amount } else { 0.0 };
        Ok(Row {
            tls: self.settings.versions.name(),
            round,
            resumption: resumption.name(),
            devices,
            saturation_devices: outcome.saturation_devices,
            cache_sessions,
            speed_up: speed_up.factor(),
            offered_per_s: offered_per_s(devices, speed_up)?,
            measured_s: up_s,
            transactions: handshakes,
            full: reading.full,
            resumed: reading.resumed,
            transactions_per_s: per(up_s),
            transactions_per_cpu_s: per(reading.cpu_s),
            server_cpu_us: reading.cpu_us(),
            server_busy_percent: if up_s > 0.0 { reading.cpu_s * 100.0 / up_s } else { 0.0 },
            hit_percent: reading.resumed as f64 * 100.0 / handshakes.max(1) as f64,
            hit_after_first_of_run: report.hit_after_first_of_run(),
            left_out: report.skipped,
            failed: report.failed.values().sum(),
        })
    }

    /// One server, from its start to its end.
    async fn measure(
        &self,
        cell: &Cell,
        progress: watch::Sender<fleet::Progress>,
    ) -> Result<Seen, Error> {
        let server = ServerProcess::start(self.launch(cell)).await?;
        let settings = self.fleet(&server, cell)?;
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            // Dropped is as good as told.
            let _: Result<(), _> = stopped.await;
        };
        // A task of its own, on the devices' thread; it ends with the set.
        let mut playing = JoinSet::new();
        playing.spawn(async move { fleet::run(&settings, &progress, stopped).await });
        let reading = tokio::select! {
            reading = self.read(&server, cell.speed_up) => reading?,
            Some(ended) = playing.join_next() => {
                played(ended)?;
                let what = "was too slow to be measured".to_owned();
                return Err(Error::Server { resumption: cell.resumption.name(), what });
            }
        };
        drop(stop);
        let report = playing.join_next().await.map(played).transpose()?;
        let missing =
            || Error::Server { resumption: "measured", what: "had no devices".to_owned() };
        let report = report.ok_or_else(missing)?;
        server.stop().await?;
        Ok(Seen { reading, report })
    }

    /// What a server does between the warm-up and the end.
    async fn read(&self, server: &ServerProcess, speed_up: SpeedUp) -> Result<Reading, Error> {
        sleep(real(self.settings.warm_up_ms, speed_up)).await;
        let before = server.meter().await?;
        sleep(real(self.settings.measured_ms, speed_up)).await;
        Ok(server.meter().await?.since(before))
    }

    fn launch(&self, cell: &Cell) -> Launch<'_> {
        let Settings { program, prediction, versions, .. } = self.settings;
        Launch {
            program,
            pair: &self.pair,
            versions: *versions,
            resumption: cell.resumption,
            prediction,
            capacity_sessions: u64::from(cell.cache_sessions),
            grace_ms: cell.speed_up.ms(rejoin_cache::Settings::GRACE_MS),
        }
    }

    fn fleet(&self, server: &ServerProcess, cell: &Cell) -> Result<fleet::Settings, Error> {
        let Settings { seed, warm_up_ms, measured_ms, versions, .. } = *self.settings;
        let Cell { round, devices, speed_up, .. } = *cell;
        let overtime_ms = OVERTIME.as_secs_f64() * 1_000.0 * speed_up.factor();
        Ok(fleet::Settings {
            target: server.address(),
            server_name: "localhost".to_owned(),
            trust: Trust::Certificates(self.pair.trusted.clone()),
            versions,
            source: Source::Population(population(devices)?),
            seed: seed.wrapping_add(u64::from(round)),
            speed_up,
            warm_up_ms,
            end_ms: (warm_up_ms + measured_ms).saturating_add(overtime_ms as u64),
            hints: true,
            forgets_between_runs: self.settings.forgets_between_runs,
            liars: Liars::default(),
            request_bytes: fleet::REQUEST_BYTES,
            record: None,
        })
    }
}

fn population(devices: u32) -> Result<Population, Error> {
    let settings = PopulationSettings::paper(u64::from(devices));
    Population::new(settings).map_err(Error::Population)
}

fn offered_per_s(devices: u32, speed_up: SpeedUp) -> Result<f64, Error> {
    Ok(population(devices)?.expected_connections_per_s() * speed_up.factor())
}

fn real(ms: u64, speed_up: SpeedUp) -> Duration {
    let seconds = ms as f64 / 1_000.0 / speed_up.factor();
    // Beyond what a duration holds it is never over.
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn played(
    ended: Result<Result<fleet::Report, Error>, tokio::task::JoinError>,
) -> Result<fleet::Report, Error> {
    let broken =
        |error| Error::System { what: "the devices", source: std::io::Error::other(error) };
    ended.map_err(broken)?
}

/// At least one.
fn whole(devices: f64) -> u32 {
    (devices.round() as u32).max(1)
}
