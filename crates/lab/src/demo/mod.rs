//! The same population against every way of resuming: what `make run` shows.
//!
//! Arrivals are recorded once and replayed against one server process after the other, each of
//! the same capacity, smaller than the population that is running. The servers are processes of
//! their own, so that their CPU time is theirs alone.

mod outcome;
mod page;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;

use rejoin_serve::{Identity, KeyType, Resumption, Versions};
use rejoin_trace::{Population, PopulationSettings, SpeedUp};
use tokio::sync::watch;

use crate::Error;
use crate::experiment::{Attempt, Step, Turns, crossed};
use crate::fleet::{self, Liars, Recorder, Source, Trust, Watched};
use crate::server::{Launch, Pair, ServerProcess};
pub use outcome::{Outcome, Row};
use page::Shown;

/// A demonstration's settings. Times are the population's.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `rejoin` program, for `rejoin serve`.
    pub program: PathBuf,
    /// Where trace, certificate and charts go.
    pub directory: PathBuf,
    /// Devices of the population.
    pub devices: u64,
    /// Sessions the server may keep, as a share of the devices expected to be running.
    pub capacity_share: f64,
    /// How much faster than real time.
    pub speed_up: SpeedUp,
    /// Played first and not measured, in milliseconds.
    pub warm_up_ms: u64,
    /// Played and measured, in milliseconds.
    pub measured_ms: u64,
    /// For everything that is drawn.
    pub seed: u64,
    /// The server's `--prediction`.
    pub prediction: &'static str,
    /// Devices that lie.
    pub liars: Liars,
    /// Which versions, in turn.
    pub versions: Vec<Versions>,
    /// Which ways of resuming, in turn.
    pub resumptions: Vec<Resumption>,
}

/// Measures one server after the other. `began` is told of each before it starts and gets its progress, `kept`
/// gets each result. The outcome is partial if `stop` completes early or a later server fails.
///
/// # Errors
/// A file that cannot be written or a population that cannot exist; a server that fails before anything was measured.
pub async fn run(
    settings: &Settings,
    mut began: impl FnMut(&Step, watch::Receiver<fleet::Progress>),
    mut kept: impl FnMut(&Row),
    stop: impl Future<Output = ()>,
) -> Result<Outcome, Error> {
    let arena = Arena::prepare(settings)?;
    let cells = crossed(&settings.versions, &settings.resumptions);
    let (mut turns, mut rows) = (Turns::new(cells.len()), Vec::new());
    let cells = cells.into_iter().map(|(tls, resumption)| Watched::new(Cell(tls, resumption)));
    let began = |step: &Step, cell: &Watched<Cell>| began(step, cell.progress.subscribe());
    let measure = async |cell, attempt: &mut Attempt| arena.measure(cell, attempt).await.map(Some);
    let kept = |row: &mut Row, seen| {
        row.conditions = seen;
        kept(row);
        rows.push(row.clone());
        page::write(&settings.directory.join("demo.html"), &arena.shown(&rows))
    };
    turns.run_until(cells, pin!(stop), began, measure, kept).await;
    Ok(Outcome { ended: turns.ended(rows.is_empty())?, rows })
}

/// A version of TLS and a way of resuming.
#[derive(Debug, Clone, Copy)]
struct Cell(Versions, Resumption);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS {} {}", self.0.name(), self.1.name())
    }
}

/// The state that all cells share.
struct Arena<'a> {
    settings: &'a Settings,
    population: Population,
    pair: Pair,
    trace: PathBuf,
    capacity_sessions: u64,
}

impl<'a> Arena<'a> {
    fn prepare(settings: &'a Settings) -> Result<Self, Error> {
        let directory = &settings.directory;
        let population = Population::new(PopulationSettings::paper(settings.devices));
        let population = population.map_err(Error::Population)?;
        let share = settings.capacity_share * population.expected_running();
        let arena = Self {
            settings,
            population,
            pair: Pair::write(Identity::made(KeyType::P256)?, directory, "demo")?,
            trace: directory.join("demo.trace"),
            capacity_sessions: (share.round() as u64).max(1),
        };
        arena.record()?;
        Ok(arena)
    }

    /// Draws the arrivals once, for all cells.
    fn record(&self) -> Result<(), Error> {
        let mut recorder = Recorder::create(&self.trace)?;
        let end_ms = self.end_ms();
        let arrivals = self.population.arrivals(self.settings.seed);
        for event in arrivals.take_while(|event| event.time_ms < end_ms) {
            recorder.write(event)?;
        }
        recorder.finish()
    }

    fn end_ms(&self) -> u64 {
        self.settings.warm_up_ms + self.settings.measured_ms
    }

    fn shown<'r>(&self, rows: &'r [Row]) -> Shown<'r> {
        let Settings { devices, capacity_share, .. } = *self.settings;
        Shown { devices, capacity_share, rows }
    }

    async fn measure(
        &self,
        Watched { cell: Cell(tls, resumption), progress }: Watched<Cell>,
        attempt: &mut Attempt,
    ) -> Result<Row, Error> {
        let speed_up = self.speed_up(attempt)?;
        let server = ServerProcess::start(self.launch(tls, resumption, speed_up)).await?;
        let fleet_settings = self.fleet(tls, server.address(), speed_up);
        let before = async {
            let mut changes = progress.subscribe();
            // The sender is this function's own: it does not go away.
            let _ = changes.wait_for(|progress| progress.measuring).await;
            server.meter().await
        };
        let played = fleet::run(&fleet_settings, &progress, std::future::pending());
        let (before, report) = tokio::join!(before, played);
        let (report, before, after) = (report?, before?, server.meter().await?);
        attempt.seen = report.conditions.worse(server.conditions());
        let summary = server.stop().await?;
        let liars = report.liars_after_first_of_run;
        let resumed_any = report.after_first_of_run.resumed > 0;
        Ok(Row {
            tls: tls.name(),
            resumption: resumption.name(),
            hit_after_first_of_run: report.hit_after_first_of_run(),
            liars_hit_after_first_of_run: (liars.total() > 0).then(|| liars.hit_rate()),
            speed_up: speed_up.factor(),
            slowed: attempt.is_second,
            handshakes_per_s: report.handshakes_per_s,
            server_cpu_us: after.since(before).cpu_us(),
            cache_bytes_per_session: summary.cache_bytes_per_session,
            capacity_sessions: self.capacity_sessions,
            client_resumed: report.all.resumed,
            server_resumed: summary.resumed,
            client_full: report.all.full,
            server_full: summary.full,
            handshake_p50_us: if resumed_any { report.resumed_us } else { report.full_us }.p50,
            failed: report.failed.values().sum(),
            conditions: attempt.seen,
        })
    }

    /// The second attempt is at half the speed.
    fn speed_up(&self, attempt: &Attempt) -> Result<SpeedUp, Error> {
        let factor = self.settings.speed_up.factor();
        SpeedUp::new(if attempt.is_second { factor / 2.0 } else { factor })
            .map_err(Error::Population)
    }

    fn launch(&self, versions: Versions, resumption: Resumption, speed_up: SpeedUp) -> Launch<'_> {
        let Settings { program, prediction, .. } = self.settings;
        Launch {
            program,
            pair: &self.pair,
            versions,
            resumption,
            prediction,
            capacity_sessions: self.capacity_sessions,
            grace_ms: speed_up.ms(rejoin_cache::Settings::GRACE_MS),
        }
    }

    fn fleet(&self, versions: Versions, target: SocketAddr, speed_up: SpeedUp) -> fleet::Settings {
        let Settings { seed, warm_up_ms, liars, .. } = *self.settings;
        fleet::Settings {
            target,
            server_name: "localhost".to_owned(),
            trust: Trust::Certificates(self.pair.trusted.clone()),
            versions,
            source: Source::Trace(self.trace.clone()),
            seed,
            speed_up,
            warm_up_ms,
            end_ms: self.end_ms(),
            hints: true,
            forgets_between_runs: false,
            liars,
            record: None,
        }
    }
}
