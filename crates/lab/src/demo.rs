//! The same population against every way of resuming: what `make run` shows.
//!
//! Arrivals are recorded once and replayed against one server process after the other, each of
//! the same capacity, smaller than the population that is running. The servers are processes of
//! their own, so that their CPU time is theirs alone.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;

use rejoin_trace::{Population, PopulationSettings, SpeedUp};
use serde::Serialize;
use tokio::sync::watch;

use crate::fleet::{self, Liars, Source, Trust};
use crate::server_process::{Launch, Pair, ServerProcess};
use crate::{Error, chart};
use rejoin_serve::{Identity, KeyType};
use rejoin_serve::{Resumption, Versions};

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

/// One server's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The version: `1.2` or `1.3`.
    pub tls: &'static str,
    /// How sessions were resumed.
    pub resumption: &'static str,
    /// Percent resumed, the first connection of each run left out, as the clients saw it.
    pub hit_after_first_of_run: f64,
    /// The same of devices that lie, if any do.
    pub liars_hit_after_first_of_run: Option<f64>,
    /// Handshakes a second.
    pub handshakes_per_s: f64,
    /// CPU time of the server per connection, in microseconds.
    pub server_cpu_us: f64,
    /// Server memory per session, in bytes; zero where the server keeps none.
    pub cache_bytes_per_session: f64,
    /// Sessions the server could keep.
    pub capacity_sessions: u64,
    /// Handshakes of the whole run that the clients call resumed.
    pub client_resumed: u64,
    /// Handshakes of the whole run that the server calls resumed.
    pub server_resumed: u64,
    /// Handshakes of the whole run that the clients call full.
    pub client_full: u64,
    /// Handshakes of the whole run that the server calls full.
    pub server_full: u64,
    /// Median time of a handshake, in microseconds: resumed ones, or full ones if there are none.
    pub handshake_p50_us: u64,
    /// Connections that failed.
    pub failed: u64,
}

/// What is on the way to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How many servers were measured.
    pub done: usize,
    /// How many there are.
    pub of: usize,
    /// The version under way.
    pub tls: &'static str,
    /// The way of resuming under way.
    pub resumption: &'static str,
}

/// Runs one cell after the other. `began` is told of each before it starts and gets its progress,
/// `ended` gets each result. Ends early, with what there is, when `stop` completes.
///
/// # Errors
/// A server that does not start, a file that cannot be written, a population that cannot be.
pub async fn run(
    settings: &Settings,
    mut began: impl FnMut(Step, watch::Receiver<fleet::Progress>),
    mut ended: impl FnMut(&Row),
    stop: impl Future<Output = ()>,
) -> Result<Vec<Row>, Error> {
    let arena = Arena::prepare(settings)?;
    let mut stop = pin!(stop);
    let cells: Vec<_> = settings
        .versions
        .iter()
        .flat_map(|tls| settings.resumptions.iter().map(move |resumption| (*tls, *resumption)))
        .collect();
    let mut rows = Vec::new();
    for (done, (tls, resumption)) in cells.iter().copied().enumerate() {
        let (sender, receiver) = watch::channel(fleet::Progress::default());
        let (of, name) = (cells.len(), resumption.name());
        began(Step { done, of, tls: tls.name(), resumption: name }, receiver);
        let row = tokio::select! {
            row = arena.measure(tls, resumption, &sender) => row?,
            () = &mut stop => break,
        };
        ended(&row);
        rows.push(row);
        chart::write(&settings.directory.join("demo.html"), settings, &rows)?;
    }
    Ok(rows)
}

/// What all cells share.
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
        let failed = |source| Error::Trace { path: self.trace.clone(), source };
        let file = std::fs::File::create(&self.trace)
            .map_err(|source| Error::file(self.trace.clone(), source))?;
        let mut writer =
            rejoin_trace::Writer::new(std::io::BufWriter::new(file)).map_err(failed)?;
        let end_ms = self.end_ms();
        let arrivals = self.population.arrivals(self.settings.seed);
        for event in arrivals.take_while(|event| event.time_ms < end_ms) {
            writer.write(event).map_err(failed)?;
        }
        writer.finish().map(drop).map_err(failed)
    }

    fn end_ms(&self) -> u64 {
        self.settings.warm_up_ms + self.settings.measured_ms
    }

    async fn measure(
        &self,
        tls: Versions,
        resumption: Resumption,
        progress: &watch::Sender<fleet::Progress>,
    ) -> Result<Row, Error> {
        let server = ServerProcess::start(self.launch(tls, resumption)).await?;
        let fleet_settings = self.fleet(tls, server.address());
        let before = async {
            let mut changes = progress.subscribe();
            // The sender is this function's own: it does not go away.
            let _ = changes.wait_for(|progress| progress.measuring).await;
            server.meter().await
        };
        let played = fleet::run(&fleet_settings, progress, std::future::pending());
        let (before, report) = tokio::join!(before, played);
        let (report, before, after) = (report?, before?, server.meter().await?);
        let summary = server.stop().await?;
        let liars = report.liars_after_first_of_run;
        let resumed_any = report.after_first_of_run.resumed > 0;
        Ok(Row {
            tls: tls.name(),
            resumption: resumption.name(),
            hit_after_first_of_run: report.hit_after_first_of_run(),
            liars_hit_after_first_of_run: (liars.total() > 0).then(|| liars.hit_rate()),
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
        })
    }

    fn launch(&self, versions: Versions, resumption: Resumption) -> Launch<'_> {
        let Settings { program, speed_up, prediction, .. } = self.settings;
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

    fn fleet(&self, versions: Versions, target: SocketAddr) -> fleet::Settings {
        let Settings { seed, speed_up, warm_up_ms, liars, .. } = *self.settings;
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
            request_bytes: fleet::REQUEST_BYTES,
            record: None,
        }
    }
}
