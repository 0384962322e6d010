//! Transactions a second by the number of devices, past what a server can do: Fig. 2 of paper 000.
//!
//! A transaction is a connection with one request. Each server is a process with one thread, so that
//! one core at most is its; the devices of the paper, on another thread, are the same for every way of
//! resuming: one seed, one time table, which a slow server does not change. A device whose connection
//! is not over when the next is due leaves that one out.
//!
//! The paper sizes its cache for the population that saturates the server with tickets: 6,750 sessions
//! for 90,000 devices, where predictive eviction has 100 %. That is possible only if the
//! first connection of a run is not to be resumed, because no cache of that size keeps for an hour the
//! sessions of devices that come back after three quarters of one. So devices begin a run without a session
//! here, like an app that was closed; [`Settings::forgets_between_runs`] changes that.
//!
//! Server, CPU time and counts are read together in the server itself, after the warm-up and again at
//! the end, while the devices go on. The wall clock's figures are the machine's of that minute; CPU time
//! for each transaction is what can be compared.
//!
//! Past saturation the load changes: devices that wait come late, fewer come back in time, and more of the
//! remaining connections are first ones. [`Settings::keeps_up`] measures what a transaction costs with so many
//! devices if none had to wait.
//!
//! Not measured: latency, which past saturation is the queue's.

mod outcome;
mod page;

use std::fmt;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::time::Duration;

use rejoin_serve::{Identity, KeyType, Resumption, Versions};
use rejoin_trace::{Population, PopulationSettings, SpeedUp};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::experiment::{Attempt, Ended, Step, Turns};
use crate::fleet::{self, Liars, Routing, Source, Trust, Watched};
use crate::server::{Launch, Pair, Reading, ServerProcess};
use crate::{Conditions, Error};
pub use outcome::{Advantage, Outcome, Row};
pub use page::html;

/// The settings of the measurement. Times are the population's.
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
    /// The type of the server's key.
    pub key_type: KeyType,
    /// The server's `--prediction`.
    pub prediction: &'static str,
    /// Ways of resuming, in turn, for each number of devices.
    pub resumptions: Vec<Resumption>,
    /// True if devices begin each run without a session.
    pub forgets_between_runs: bool,
    /// True if time is slowed down where there are more devices than a server could serve if it resumed nothing.
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
    /// Shares of those that saturate the server.
    OfSaturation(Vec<f64>),
    /// Absolute numbers.
    Counts(Vec<u32>),
}

/// The name of cells that are measured to find the number of devices that saturate the server.
const SOUGHT: &str = "saturation?";
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

/// Measures one server after the other. `began` is told of each before it starts and gets its progress, `kept`
/// gets each result. The outcome is partial if `stop` completes early or a later server fails.
///
/// # Errors
/// Settings that exclude each other, a file that cannot be written, a population that cannot exist; a server that fails
/// before anything was measured.
pub async fn run(
    settings: &Settings,
    mut began: impl FnMut(&Step, watch::Receiver<fleet::Progress>),
    mut kept: impl FnMut(&Row),
    stop: impl Future<Output = ()>,
) -> Result<Outcome, Error> {
    let arena = Arena::prepare(settings)?;
    let mut began = |step: &Step, cell: &Watched<Cell>| began(step, cell.progress.subscribe());
    let mut stop = pin!(stop);
    let Some((scale, doubts)) = arena.scale(&mut began, stop.as_mut()).await? else {
        return Ok(Outcome::new(settings, Scale::default(), Vec::new(), Ended::interrupted()));
    };
    let cells = arena.cells(scale)?;
    let mut turns = Turns::new(cells.len());
    let cells = cells.into_iter().map(Watched::new);
    let measure =
        async |cell, attempt: &mut Attempt| arena.row(scale, cell, attempt).await.map(Some);
    let kept = |row: &mut Row, seen| {
        row.conditions = seen;
        kept(row);
        Ok(())
    };
    let rows = turns.run_until(cells, stop, began, measure, kept).await;
    let mut ended = turns.ended(rows.is_empty())?;
    // The sizes of caches and the numbers of devices follow from what was found before.
    ended.doubts.splice(0..0, doubts);
    Ok(Outcome::new(settings, scale, rows, ended))
}

/// Devices that saturate the server with tickets, where that is known, and the size of caches.
#[derive(Debug, Clone, Copy, Default)]
struct Scale {
    saturation_devices: Option<u32>,
    cache_sessions: u32,
}

/// One server, and the devices that connect to it.
#[derive(Debug, Clone, Copy)]
struct Cell {
    round: u16,
    devices: u32,
    /// `None` while the number of devices is sought that saturates the server with tickets.
    resumption: Option<Resumption>,
    speed_up: SpeedUp,
    cache_sessions: u32,
}

impl Cell {
    fn resumption(&self) -> Resumption {
        self.resumption.unwrap_or(Resumption::Tickets)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.resumption.map_or(SOUGHT, Resumption::name);
        write!(f, "{name} {}", self.devices)
    }
}

/// The state that all servers share.
struct Arena<'a> {
    settings: &'a Settings,
    pair: Pair,
}

/// The observations of a server.
struct Seen {
    reading: Reading,
    report: fleet::Report,
}

impl Seen {
    /// Fails if there was no transaction in the measured time: there are no figures of nothing.
    fn check(&self, resumption: Resumption) -> Result<(), Error> {
        match self.report.failure() {
            _ if self.reading.handshakes() > 0 => Ok(()),
            Some(failure) => Err(unmeasured(resumption, &failure)),
            None => Err(Error::Settings(fleet::NOBODY)),
        }
    }

    fn busy_percent(&self) -> f64 {
        let Reading { cpu_s, up_s, .. } = self.reading;
        if up_s > 0.0 { cpu_s * 100.0 / up_s } else { 0.0 }
    }

    fn conditions(&self) -> Conditions {
        let mut seen = self.report.conditions;
        if self.busy_percent() >= Row::SATURATED_PERCENT {
            // Devices wait for the server, as they are meant to.
            seen.left_out_percent = 0.0;
        }
        seen
    }
}

fn unmeasured(resumption: Resumption, failure: &str) -> Error {
    let what = format!("could not be measured: {failure}");
    Error::Server { resumption: resumption.name(), what }
}

/// Devices that were found to saturate the server with tickets.
#[derive(Debug, PartialEq)]
struct Found {
    devices: u32,
    /// The passes with which the machine did not keep up.
    doubts: Vec<String>,
}

/// Finds out how many devices saturate a server, in passes: each begins with what the better attempt of the one before
/// has measured. `None` if stopped.
async fn found(
    mut turns: Turns,
    first: Cell,
    (began, stop): (&mut impl FnMut(&Step, &Watched<Cell>), Pin<&mut impl Future<Output = ()>>),
    measure: impl AsyncFnMut(Watched<Cell>, &mut Attempt) -> Result<Option<u32>, Error>,
) -> Result<Option<Found>, Error> {
    let devices = std::cell::Cell::new(first.devices);
    let cells = (0..PASSES).map(|_| Watched::new(Cell { devices: devices.get(), ..first }));
    let kept = |found: &mut u32, _| {
        devices.set(*found);
        Ok(())
    };
    turns.run_until(cells, stop, began, measure, kept).await;
    let doubts = turns.doubts();
    Ok(turns.all()?.then(|| Found { devices: devices.get(), doubts }))
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

    /// Returns the number of devices that saturate the server, if it is needed, and the size of caches, with the doubts
    /// about them. `None` if stopped.
    async fn scale(
        &self,
        began: &mut impl FnMut(&Step, &Watched<Cell>),
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<(Scale, Vec<String>)>, Error> {
        let Settings { keeps_up, cache_sessions, .. } = *self.settings;
        let counted = matches!(self.settings.devices, Devices::Counts(_));
        let is_needed = !(counted && cache_sessions.is_some()) || keeps_up;
        let (saturation_devices, doubts) = match self.settings.saturation_devices {
            None if is_needed => match self.saturation(began, stop).await? {
                None => return Ok(None),
                Some(Found { devices, doubts }) => (Some(devices), doubts),
            },
            given => (given, Vec::new()),
        };
        let paper = saturation_devices.map(|devices| f64::from(devices) * CACHE_SHARE);
        let paper = paper.map(|sessions| (sessions.round() as u32).max(1));
        let cache_sessions = cache_sessions.or(paper).unwrap_or(1);
        Ok(Some((Scale { saturation_devices, cache_sessions }, doubts)))
    }

    /// Returns as many devices as keep one core busy with tickets, by what a transaction takes of it. `None` if
    /// stopped.
    async fn saturation(
        &self,
        began: &mut impl FnMut(&Step, &Watched<Cell>),
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<Found>, Error> {
        let Settings { speed_up, .. } = *self.settings;
        let per_device = offered_per_s(1, speed_up)?;
        let devices = whole(FIRST_PER_S / per_device);
        let first = Cell { round: 0, devices, resumption: None, speed_up, cache_sessions: 1 };
        let measure = async |cell, attempt: &mut Attempt| {
            let seen = self.measure(cell).await?;
            attempt.seen = seen.conditions();
            seen.check(Resumption::Tickets)?;
            if let Some(failure) = seen.report.failure() {
                return Err(unmeasured(Resumption::Tickets, &failure));
            }
            Ok(Some(whole(1e6 / seen.reading.cpu_us() / per_device)))
        };
        found(Turns::new(PASSES), first, (began, stop), measure).await
    }

    /// In each round all numbers of devices, and for each the ways of resuming, each first in its turn.
    fn cells(&self, scale: Scale) -> Result<Vec<Cell>, Error> {
        let saturation = f64::from(scale.saturation_devices.unwrap_or(1));
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
                let speed_up = self.speed_up(devices, scale)?;
                let turns = resumptions.iter().cycle().skip(usize::from(round) % resumptions.len());
                cells.extend(turns.take(resumptions.len()).map(|resumption| Cell {
                    round,
                    devices,
                    resumption: Some(*resumption),
                    speed_up,
                    cache_sessions: scale.cache_sessions,
                }));
            }
        }
        Ok(cells)
    }

    /// How fast so many devices are played.
    fn speed_up(&self, devices: u32, scale: Scale) -> Result<SpeedUp, Error> {
        let Settings { speed_up, keeps_up, .. } = *self.settings;
        match scale.saturation_devices {
            Some(saturation) if keeps_up => {
                let share = f64::from(saturation) / (FULL_TIMES * f64::from(devices));
                SpeedUp::new(speed_up.factor() * share.min(1.0)).map_err(Error::Population)
            }
            _ => Ok(speed_up),
        }
    }

    async fn row(
        &self,
        scale: Scale,
        watched: Watched<Cell>,
        attempt: &mut Attempt,
    ) -> Result<Row, Error> {
        let Cell { round, devices, speed_up, cache_sessions, .. } = watched.cell;
        let resumption = watched.cell.resumption();
        let seen = self.measure(watched).await?;
        seen.check(resumption)?;
        attempt.seen = seen.conditions();
        let server_busy_percent = seen.busy_percent();
        let Seen { reading, report } = seen;
        let (handshakes, up_s) = (reading.handshakes(), reading.up_s);
        let per = |amount: f64| if amount > 0.0 { handshakes as f64 / amount } else { 0.0 };
        Ok(Row {
            tls: self.settings.versions.name(),
            round,
            resumption: resumption.name(),
            devices,
            saturation_devices: scale.saturation_devices,
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
            server_busy_percent,
            hit_percent: reading.resumed as f64 * 100.0 / handshakes.max(1) as f64,
            hit_after_first_of_run: report.hit_after_first_of_run(),
            left_out: report.skipped,
            answered: report.all.total(),
            failed: report.failures(),
            failed_mostly: report.failed_mostly().map(ToOwned::to_owned),
            conditions: attempt.seen,
        })
    }

    /// One server, from its start to its end.
    async fn measure(&self, watched: Watched<Cell>) -> Result<Seen, Error> {
        let Watched { cell, progress } = watched;
        let server = ServerProcess::start(self.launch(&cell)).await?;
        let settings = self.fleet(&server, &cell)?;
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
                return Err(Error::Server { resumption: cell.resumption().name(), what });
            }
        };
        drop(stop);
        let report = playing.join_next().await.map(played).transpose()?;
        let missing =
            || Error::Server { resumption: "measured", what: "had no devices".to_owned() };
        let mut report = report.ok_or_else(missing)?;
        report.conditions = report.conditions.worse(server.conditions());
        server.stop().await?;
        Ok(Seen { reading, report })
    }

    /// Reads a server's work between the warm-up and the end.
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
            resumption: cell.resumption(),
            prediction,
            capacity_sessions: u64::from(cell.cache_sessions),
            grace_ms: cell.speed_up.ms(rejoin_cache::Settings::GRACE_MS),
            ticket_keys: None,
        }
    }

    fn fleet(&self, server: &ServerProcess, cell: &Cell) -> Result<fleet::Settings, Error> {
        let Settings { seed, warm_up_ms, measured_ms, versions, .. } = *self.settings;
        let Cell { round, devices, speed_up, .. } = *cell;
        let overtime_ms = OVERTIME.as_secs_f64() * 1_000.0 * speed_up.factor();
        Ok(fleet::Settings {
            targets: vec![server.address()],
            routing: Routing::default(),
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
            early_data: false,
            liars: Liars::default(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures in passes whose attempts see so many late connections, in percent, and find so many devices. Returns
    /// with how many each attempt was made, too.
    fn passes(attempts: &[(f64, u32)]) -> (Vec<u32>, Option<Found>) {
        let speed_up = SpeedUp::new(60.0).expect("valid");
        let first = Cell { round: 0, devices: 300, resumption: None, speed_up, cache_sessions: 1 };
        let (mut attempts, mut played) = (attempts.iter(), Vec::new());
        let measure = async |watched: Watched<Cell>, attempt: &mut Attempt| {
            played.push(watched.cell.devices);
            let (late_percent, devices) = attempts.next().expect("no more than these");
            attempt.seen.late_percent = *late_percent;
            Ok(Some(*devices))
        };
        let (mut began, stop) = (|_: &Step, _: &Watched<Cell>| {}, pin!(std::future::pending()));
        let found = found(Turns::unwatched(PASSES), first, (&mut began, stop), measure);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let found = runtime.block_on(found).expect("nothing failed");
        (played, found)
    }

    #[test]
    fn the_better_attempt_says_how_many_saturate() {
        let (played, found) = passes(&[(4.0, 900), (6.0, 500), (0.0, 800)]);
        assert_eq!(played, [300, 300, 900]);
        let doubt = "saturation? 300: 4 % of the connections began late".to_owned();
        assert_eq!(found, Some(Found { devices: 800, doubts: vec![doubt] }));
        let (played, found) = passes(&[(0.0, 900), (6.0, 500), (4.0, 700)]);
        assert_eq!(played, [300, 900, 900]);
        let doubt = "saturation? 900: 4 % of the connections began late".to_owned();
        assert_eq!(found, Some(Found { devices: 700, doubts: vec![doubt] }));
        let (_, found) = passes(&[(0.0, 900), (6.0, 500), (0.0, 700)]);
        assert_eq!(found, Some(Found { devices: 700, doubts: Vec::new() }));
    }

    #[test]
    fn figures_of_nothing_are_refused() {
        let told = |full, failed: &[(&str, u64)]| {
            let failed = failed.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect();
            let reading = Reading { full, ..Reading::default() };
            let report = fleet::Report { failed, ..fleet::Report::default() };
            let checked = Seen { reading, report }.check(Resumption::None);
            checked.err().map(|error| (error.is_misuse(), error.to_string()))
        };
        assert_eq!((told(1, &[]), told(1, &[("reset", 9)])), (None, None));
        assert_eq!(told(0, &[]), Some((true, fleet::NOBODY.to_owned())));
        let why = "the none server could not be measured: no connection was answered: reset";
        assert_eq!(told(0, &[("reset", 9)]), Some((false, why.to_owned())));
    }

    #[test]
    fn devices_that_wait_for_a_saturated_server_are_no_doubt() {
        let left_out = |cpu_s| {
            let reading = Reading { cpu_s, up_s: 1.0, full: 9, ..Reading::default() };
            let conditions = Conditions { left_out_percent: 40.0, ..Conditions::default() };
            let report = fleet::Report { conditions, ..fleet::Report::default() };
            Seen { reading, report }.conditions().left_out_percent
        };
        assert_eq!([left_out(0.89), left_out(0.9)], [40.0, 0.0]);
    }
}
