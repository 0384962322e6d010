//! The cost of TLS for a server, and the value of resumption: paper 001's measurement, with resumption.
//!
//! The reference server runs in a process of its own on a core of its own, and clients on the others
//! have one transaction after the other with it: in clear, with a full handshake each, resumed each,
//! or many after one handshake. All combinations take turns in short rounds, so that a disturbance
//! meets all of them, and figures are medians over rounds. [`model`] divides the cost into handshake,
//! cipher and remainder.

pub mod caches;
mod counters;
mod load;
pub mod model;
mod outcome;
mod page;
mod paper;
mod place;
mod process;
#[expect(unsafe_code, reason = "the kernel's counts of a connection have no safe interface")]
mod segments;
mod size;
mod tables;
mod threads;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rejoin_openssl::Client;

use crate::experiment::{Attempt, Step, Turns, crossed};
use crate::server;
use crate::usage::Usage;
use crate::{Conditions, Error};
pub(crate) use counters::OwnMeter;
use counters::Reading;
pub use counters::{Counters, Missing};
use load::Load;
pub use outcome::{Outcome, Row, Shares, SuiteModel, WirePerTransaction};
pub use page::html;
pub use place::Cores;
use place::Place;
use process::{ServerProcess, Service};
use rejoin_serve::{KeyType, Resumption, Versions};
pub use size::Size;
pub use tables::text;
pub use threads::PerTransaction;

/// The settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `rejoin` program, for `rejoin serve`.
    pub program: PathBuf,
    /// Sizes of responses. The model needs [`model::LEAST_SIZES`].
    pub sizes: Vec<Size>,
    /// Kinds of transactions.
    pub modes: Vec<Mode>,
    /// Versions of TLS: each alone, never [`Versions::Both`].
    pub versions: Vec<Versions>,
    /// The server's keys.
    pub keys: Vec<KeyType>,
    /// Ciphers.
    pub ciphers: Vec<Cipher>,
    /// Numbers of cores that the server has: 1 to those that this process may run on. Clients have the
    /// others, or share them where none is left.
    pub cores: Vec<usize>,
    /// How the server resumes.
    pub resumption: Resumption,
    /// Rounds of each cell: 1 to [`Settings::MOST_ROUNDS`].
    pub rounds: u16,
    /// How long a round is: above 0, [`Settings::LONGEST_ROUND`] at most.
    pub round: Duration,
    /// Clients at a time for each core of the server: 1 to [`Settings::MOST_CLIENTS`].
    pub clients: u16,
}

/// A kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A connection in clear.
    Plain,
    /// A connection with a full handshake.
    Full,
    /// A connection with a resumed one.
    Resumed,
    /// A request on a connection that stays: one handshake, then many requests.
    Once,
}

/// The handshakes of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Handshake {
    Full,
    Resumed,
    Once,
}

/// A cipher of both versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES with 128 bits in GCM.
    AesGcm,
    /// ChaCha20-Poly1305.
    ChaCha20,
}

impl Cipher {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::AesGcm => "AES-GCM",
            Self::ChaCha20 => "ChaCha20",
        }
    }
}

/// A kind of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) versions: Versions,
    pub(crate) key: KeyType,
    pub(crate) cipher: Cipher,
}

/// The traffic of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    Plain,
    Tls(Suite, Handshake),
}

/// One combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) cores: usize,
    pub(crate) size: Size,
    pub(crate) traffic: Traffic,
}

impl Settings {
    /// Rounds of each cell at most.
    pub const MOST_ROUNDS: u16 = 1_000;
    /// A round at most.
    pub const LONGEST_ROUND: Duration = Duration::from_secs(60);
    /// Clients at a time for a core at most.
    pub const MOST_CLIENTS: u16 = 256;

    fn cells(&self) -> Vec<Cell> {
        let mut traffics = Vec::new();
        if self.modes.contains(&Mode::Plain) {
            traffics.push(Traffic::Plain);
        }
        for suite in self.suites() {
            let handshakes = self.modes.iter().filter_map(|mode| mode.handshake());
            traffics.extend(handshakes.map(|handshake| Traffic::Tls(suite, handshake)));
        }
        let cells = crossed(&crossed(&self.cores, &traffics), &self.sizes).into_iter();
        cells.map(|((cores, traffic), size)| Cell { cores, size, traffic }).collect()
    }

    fn suites(&self) -> Vec<Suite> {
        let kinds = crossed(&crossed(&self.versions, &self.keys), &self.ciphers);
        let of = |((versions, key), cipher)| Suite { versions, key, cipher };
        kinds.into_iter().map(of).collect()
    }

    fn check(&self) -> Result<(), Error> {
        if self.modes.contains(&Mode::Resumed) && self.resumption == Resumption::None {
            return Err(Error::Settings(
                "a server that resumes nothing cannot be measured resuming: leave out one of both",
            ));
        }
        let rounds = (1..=Self::MOST_ROUNDS).contains(&self.rounds);
        let round = !self.round.is_zero() && self.round <= Self::LONGEST_ROUND;
        let clients = (1..=Self::MOST_CLIENTS).contains(&self.clients);
        if !(rounds && round && clients) {
            return Err(Error::Settings("rounds, their length or clients are out of bounds"));
        }
        if self.cells().is_empty() {
            return Err(Error::Settings("nothing to measure: give sizes, modes and cores"));
        }
        for suite in self.suites() {
            suite.key.check_openssl(suite.versions)?;
        }
        Ok(())
    }
}

impl Mode {
    fn handshake(self) -> Option<Handshake> {
        match self {
            Self::Plain => None,
            Self::Full => Some(Handshake::Full),
            Self::Resumed => Some(Handshake::Resumed),
            Self::Once => Some(Handshake::Once),
        }
    }
}

impl Traffic {
    pub(crate) fn mode(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls(_, Handshake::Full) => "full",
            Self::Tls(_, Handshake::Resumed) => "resumed",
            Self::Tls(_, Handshake::Once) => "once",
        }
    }

    pub(crate) fn suite(self) -> Option<Suite> {
        match self {
            Self::Plain => None,
            Self::Tls(suite, _) => Some(suite),
        }
    }
}

impl Suite {
    /// Returns the names in tables.
    pub(crate) fn names(self) -> [&'static str; 3] {
        [self.versions.name(), self.key.name(), self.cipher.name()]
    }
}

/// One round of one cell.
#[derive(Debug, Clone)]
struct Round {
    usage: Usage,
    counted: Reading,
    counts: server::Reading,
    seen: load::Seen,
}

/// Measures all combinations, round after round, until done or told to `stop`, which is heard between
/// rounds, or until a round fails: what was measured by then is the outcome, and said to be incomplete.
///
/// To be called from a thread that lives until it is over: servers end with it.
///
/// # Errors
/// Settings out of bounds, a server that does not start; where the first round fails, a server that does not answer,
/// and the system's.
pub fn run(
    settings: &Settings,
    stop: &AtomicBool,
    began: impl FnMut(&Step),
) -> Result<Outcome, Error> {
    settings.check()?;
    let cores = settings.cores.iter().map(|number| Cores::here(*number));
    let cores: Vec<Cores> = cores.collect::<Result<_, _>>().map_err(unplaced)?;
    let cells = settings.cells();
    let arena = Arena::prepare(settings, &cells, &cores)?;
    let mut turns = Turns::new(cells.len() * usize::from(settings.rounds));
    let plan = (settings.rounds, cells);
    let measured = turns.run_rounds(plan, stop, began, |cell, attempt| {
        arena.measure(&cell, attempt).map(Some).map_err(|error| error.of(cell))
    });
    let is_empty = measured.iter().all(|(_, rounds)| rounds.is_empty());
    Ok(Outcome::of(settings, turns.ended(is_empty)?, cores, measured))
}

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some([tls, key, cipher]) = self.suite().map(Suite::names) {
            write!(f, "TLS {tls} {key} {cipher} ")?;
        }
        f.write_str(self.mode())
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.traffic, self.size)?;
        if self.cores > 1 { write!(f, ", {} cores", self.cores) } else { Ok(()) }
    }
}

fn unplaced(source: std::io::Error) -> Error {
    Error::System { what: "cannot choose cores", source }
}

/// Where a server with so many cores runs.
fn placed(all: &[Cores], number: usize) -> Result<&Cores, Error> {
    let found = all.iter().find(|cores| cores.server.len() == number);
    found.ok_or(Error::Settings("a cell without cores"))
}

/// The servers, and what clients connect with.
struct Arena<'a> {
    settings: &'a Settings,
    cores: &'a [Cores],
    servers: Vec<ServerProcess>,
    clients: Vec<(Suite, Client)>,
}

impl<'a> Arena<'a> {
    fn prepare(settings: &'a Settings, cells: &[Cell], cores: &'a [Cores]) -> Result<Self, Error> {
        let mut servers: Vec<ServerProcess> = Vec::new();
        for service in cells.iter().map(Cell::service) {
            if !servers.iter().any(|server| server.serves(service)) {
                let cores = placed(cores, service.cores)?;
                servers.push(ServerProcess::start(settings, service, cores)?);
            }
        }
        let suites = settings.suites().into_iter();
        let clients = suites.map(|suite| Ok((suite, load::client(suite)?)));
        Ok(Self { settings, cores, servers, clients: clients.collect::<Result<_, Error>>()? })
    }

    fn measure(&self, cell: &Cell, attempt: &mut Attempt) -> Result<Round, Error> {
        let mut servers = self.servers.iter();
        let server = servers.find(|server| server.serves(cell.service()));
        let server = server.ok_or(Error::Settings("a cell without a server"))?;
        let mut clients = self.clients.iter();
        let client = clients.find(|(suite, _)| Some(*suite) == cell.traffic.suite());
        let load = Load {
            address: server.address(),
            traffic: cell.traffic,
            body_bytes: cell.size.bytes(),
            clients: u32::from(self.settings.clients) * cell.cores as u32,
            lasts: self.settings.round,
            patience: load::PATIENCE,
            client: client.map(|(_, client)| client),
        };
        // What this thread starts runs where it does.
        let cores = placed(self.cores, cell.cores)?;
        let place = Place::take(&cores.clients).map_err(unplaced)?;
        // Reading the server's counts costs it time, reading the kernel's does not.
        let before = || Ok((server.counts()?, server.usage()?, server.meter()?));
        let ((counts, usage, mut meter), seen) = load.run(before)?;
        drop(place);
        let usage = server.usage()?.since(usage);
        // On shared cores they wait for each other, and the outcome says so.
        if !cores.are_shared() {
            attempt.seen = Conditions::of_process(usage, self.settings.round);
        }
        let counted = meter.read();
        let counts = server.counts()?.since(counts);
        if seen.transactions == 0 {
            let why = seen.failure.unwrap_or_else(|| "none came to its end in time".to_owned());
            let source = std::io::Error::other(why);
            return Err(Error::System { what: "no transaction succeeded", source });
        }
        Ok(Round { usage, counted, counts, seen })
    }
}

impl Cell {
    fn service(&self) -> Service {
        let key = self.traffic.suite().map(|suite| suite.key);
        Service { key, body_bytes: self.size.bytes(), cores: self.cores }
    }
}
