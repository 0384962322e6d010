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
use crate::fleet::{self, Liars, Recorder, Routing, Source, Trust, Watched};
use crate::scratch::Scratch;
use crate::server::{Launch, Pair, Reading, Servers};
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
    /// True if several servers with tickets are measured, too: behind a balancer, and one that replaces the other.
    pub several: bool,
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
    let (cells, page) = (settings.cells(), settings.directory.join("demo.html"));
    let wanted = cells.len();
    let (mut turns, mut rows) = (Turns::new(cells.len()), Vec::new());
    let cells = cells.into_iter().map(Watched::new);
    let began = |step: &Step, cell: &Watched<Cell>| began(step, cell.progress.subscribe());
    let measure = async |cell, attempt: &mut Attempt| arena.measure(cell, attempt).await.map(Some);
    let kept = |row: &mut Row, seen| {
        row.conditions = seen;
        kept(row);
        rows.push(row.clone());
        // Whatever ends this process: the page does not look complete before it is.
        let so_far = (rows.len() < wanted).then(|| format!("{} of {wanted} servers", rows.len()));
        page::write(&page, &arena.shown(&rows, so_far))
    };
    turns.run_until(cells, pin!(stop), began, measure, kept).await;
    let mut ended = turns.ended(rows.is_empty())?;
    let incomplete = ended.cut("interrupted").map(ToOwned::to_owned);
    if incomplete.is_some()
        && !rows.is_empty()
        && let Err(error) = page::write(&page, &arena.shown(&rows, incomplete))
    {
        ended.failure.get_or_insert_with(|| error.to_string());
    }
    Ok(Outcome { ended, rows })
}

impl Settings {
    /// One server for each version and way of resuming; and several, which all speak the last version.
    fn cells(&self) -> Vec<Cell> {
        let alone = crossed(&self.versions, &self.resumptions).into_iter();
        let alone = alone.map(|(tls, resumption)| Cell(tls, Site::One(resumption)));
        let last = self.versions.last().filter(|_| self.several);
        let several = last.into_iter().flat_map(|tls| Site::SEVERAL.map(|site| Cell(*tls, site)));
        alone.chain(several).collect()
    }
}

/// A version of TLS and servers.
#[derive(Debug, Clone, Copy)]
struct Cell(Versions, Site);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS {} {}", self.0.name(), self.1.name())
    }
}

/// The servers of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    One(Resumption),
    /// Three servers with tickets, of which each connection gets any.
    Balanced(Keys),
    /// A server with tickets, and halfway another in its place.
    Replaced(Keys),
}

/// Whose the keys of tickets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// Each server makes one for itself.
    Own,
    /// All servers have those of a shared cache, which rotate.
    Shared,
}

impl Site {
    const SEVERAL: [Self; 4] = [
        Self::Balanced(Keys::Own),
        Self::Balanced(Keys::Shared),
        Self::Replaced(Keys::Own),
        Self::Replaced(Keys::Shared),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::One(resumption) => resumption.name(),
            Self::Balanced(Keys::Own) => "tickets, balanced",
            Self::Balanced(Keys::Shared) => "shared keys, balanced",
            Self::Replaced(Keys::Own) => "tickets, restarted",
            Self::Replaced(Keys::Shared) => "shared keys, restarted",
        }
    }

    fn note(self) -> &'static str {
        match self {
            Self::One(Resumption::None) => "every handshake is full",
            Self::One(Resumption::OpenSsl) => "its cache evicts the oldest",
            Self::One(Resumption::Tickets) => "enough for one server that stays",
            Self::One(Resumption::Lru) => "evicts the longest unused",
            Self::One(Resumption::Predictive) => "where tickets are not wanted",
            Self::Balanced(Keys::Own) => "3 servers, each with its own key",
            Self::Balanced(Keys::Shared) => "3 servers, keys by Rejoin",
            Self::Replaced(Keys::Own) => "halfway: all tickets are lost",
            Self::Replaced(Keys::Shared) => "halfway: keys by Rejoin stay",
        }
    }

    fn resumption(self) -> Resumption {
        match self {
            Self::One(resumption) => resumption,
            Self::Balanced(_) | Self::Replaced(_) => Resumption::Tickets,
        }
    }

    fn servers(self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Balanced(_) => 3,
            Self::Replaced(_) => 2,
        }
    }

    fn has_shared_keys(self) -> bool {
        matches!(self, Self::Balanced(Keys::Shared) | Self::Replaced(Keys::Shared))
    }
}

/// Returns the reading at the beginning of the measurement, and the fleet's report.
///
/// # Errors
/// Arrivals of the warm-up only: the measurement, which `before` waits for, never begins.
async fn measured(
    before: impl Future<Output = Result<Reading, Error>>,
    played: impl Future<Output = Result<fleet::Report, Error>>,
    progress: &watch::Sender<fleet::Progress>,
) -> Result<(Reading, fleet::Report), Error> {
    let (mut before, mut played) = (pin!(before), pin!(played));
    tokio::select! {
        before = &mut before => Ok((before?, played.await?)),
        report = &mut played => match report? {
            _ if !progress.borrow().measuring => Err(Error::Settings(fleet::NOBODY)),
            report => Ok((before.await?, report)),
        },
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

    /// Draws the arrivals once, for all cells. The first that is beyond the end is in the trace, too, and not played: the
    /// measured time is known to last until then.
    fn record(&self) -> Result<(), Error> {
        let mut recorder = Recorder::create(&self.trace)?;
        let end_ms = self.end_ms();
        let arrivals = self.population.arrivals(self.settings.seed);
        for event in arrivals {
            recorder.write(event)?;
            if event.time_ms >= end_ms {
                break;
            }
        }
        recorder.finish()
    }

    fn end_ms(&self) -> u64 {
        self.settings.warm_up_ms + self.settings.measured_ms
    }

    fn shown<'r>(&self, rows: &'r [Row], incomplete: Option<String>) -> Shown<'r> {
        let Settings { devices, capacity_share, .. } = *self.settings;
        Shown { devices, capacity_share, rows, incomplete }
    }

    async fn measure(
        &self,
        Watched { cell: Cell(tls, site), progress }: Watched<Cell>,
        attempt: &mut Attempt,
    ) -> Result<Row, Error> {
        let speed_up = self.speed_up(attempt)?;
        let shared = site.has_shared_keys().then(|| Scratch::new("keys")).transpose()?;
        let launch = Launch {
            ticket_keys: shared.as_ref().map(Scratch::path),
            ..self.launch(tls, site.resumption(), speed_up)
        };
        let servers = Servers::start(launch, site.servers()).await?;
        let fleet_settings = self.fleet(tls, (site, servers.addresses()), speed_up);
        let before = async {
            let mut changes = progress.subscribe();
            // The sender is this function's own: it does not go away.
            let _ = changes.wait_for(|progress| progress.measuring).await;
            servers.meter().await
        };
        let played = fleet::run(&fleet_settings, &progress, std::future::pending());
        let (before, report) = measured(before, played, &progress).await?;
        let after = servers.meter().await?;
        attempt.seen = report.conditions.worse(servers.conditions());
        let summary = servers.stop().await?;
        let liars = report.liars_after_first_of_run;
        let resumed_any = report.after_first_of_run.resumed > 0;
        Ok(Row {
            tls: tls.name(),
            resumption: site.name(),
            servers: site.servers(),
            note: site.note(),
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
            failed: report.failures(),
            failed_mostly: report.failed_mostly().map(ToOwned::to_owned),
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
            ticket_keys: None,
        }
    }

    fn fleet(
        &self,
        versions: Versions,
        (site, targets): (Site, Vec<SocketAddr>),
        speed_up: SpeedUp,
    ) -> fleet::Settings {
        let Settings { seed, warm_up_ms, measured_ms, liars, .. } = *self.settings;
        let routing = match site {
            Site::Replaced(_) => Routing::Replaced(warm_up_ms + measured_ms / 2),
            Site::One(_) | Site::Balanced(_) => Routing::Balanced,
        };
        fleet::Settings {
            targets,
            routing,
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
            early_data: false,
            liars,
            record: None,
        }
    }
}
