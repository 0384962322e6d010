//! CPU caches and TLS transactions: paper 001's Tables 3 to 5, and the two questions that its §5 leaves open: does a
//! larger L1 cache help, and does an auxiliary L2 cache for lines that are touched once?
//!
//! The reference server runs under valgrind, which simulates caches of any size. Cachegrind counts from a
//! server's start to its end, so each figure is the difference of two runs, of which one has so many
//! transactions more: start-up and whatever is done only once are in both. Lackey tells every reference to
//! memory; a small simulator of ours reads it while it is written, for caches that cachegrind does not have.
//! Both see the program and its libraries, and not the kernel.
//!
//! Not measured: time. The price of a miss in cycles depends on a processor, and none is simulated.

mod geometry;
mod outcome;
mod page;
mod simulator;
mod tables;
mod talk;
mod trace;
mod valgrind;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::process::Service;
use super::{Cell, Cipher, Handshake, Mode, Size, Suite, Traffic};
use crate::Error;
use crate::experiment::{Step, Turns, lock};
use geometry::Geometry;
pub use outcome::{Auxiliary, FirstLevel, Kind, Outcome, Row, SecondLevel, Traced};
pub use page::html;
use rejoin_serve::{KeyType, Versions};
use simulator::{Hierarchies, Lru, Second};
pub use tables::text;
use valgrind::{Folder, Misses, Valgrind};

/// The settings of the study.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `rejoin` program, for `rejoin serve`.
    pub program: PathBuf,
    /// Sizes of responses.
    pub sizes: Vec<Size>,
    /// Kinds of transactions; [`Mode::Once`] is not one of them.
    pub modes: Vec<Mode>,
    /// Versions of TLS: each alone, never [`Versions::Both`].
    pub versions: Vec<Versions>,
    /// The server's key.
    pub key: KeyType,
    /// Sizes of the L1 caches, for instructions and for data, each. The first is the one that L2 is behind.
    pub first: Vec<Size>,
    /// Sizes of the L2 cache.
    pub second: Vec<Size>,
    /// Sizes of the L2 cache that traces go through, alone and with an auxiliary one; each up to
    /// [`Settings::MOST_TRACED_BYTES`].
    pub traced_second: Vec<Size>,
    /// Bytes of a line, 16 to 256, a power of two: 32 in the paper's processor, 64 in most of today's.
    pub line_bytes: u32,
    /// Transactions that a run has more than the one it is compared with; plain ones, which are short, ten times
    /// as many, and resumed ones three times. 1 to [`Settings::MOST_TRANSACTIONS`].
    pub transactions: u32,
    /// Transactions of each kind that are traced, up to the same, plain ones ten times as many; 0 for no trace.
    pub traced: u32,
    /// Servers at a time: 1 to [`Settings::MOST_JOBS`].
    pub jobs: u16,
    /// The time limit: the rest is left out.
    pub longest: Duration,
}

impl Settings {
    /// Transactions of a run at most.
    pub const MOST_TRANSACTIONS: u32 = 1_000;
    /// Servers at a time at most.
    pub const MOST_JOBS: u16 = 64;
    /// Lines of a set in L1, as in the paper's processor.
    const FIRST_WAYS: u32 = 4;
    /// Lines of a set in L2: many, so that parts of it can be compared.
    const SECOND_WAYS: u32 = 16;
    /// Largest line: cachegrind takes no larger ones seriously.
    const MOST_LINE_BYTES: u32 = 256;
    /// Largest L2 that a trace goes through: what the simulator holds of a cache takes up to half its size.
    pub const MOST_TRACED_BYTES: u32 = 16 << 20;
    /// Plain transactions for one with TLS: they are short.
    const PLAIN_TIMES: u32 = 10;
    /// Resumed ones for one with a full handshake.
    const RESUMED_TIMES: u32 = 3;
    /// The paper's L2 cache, which L1 caches are compared before.
    const PAPER_SECOND_BYTES: u32 = 2 << 20;

    fn check(&self) -> Result<(), Error> {
        let counts = (1..=Self::MOST_TRANSACTIONS).contains(&self.transactions)
            && self.traced <= Self::MOST_TRANSACTIONS;
        if !counts || !(1..=Self::MOST_JOBS).contains(&self.jobs) {
            return Err(Error::Settings("transactions or servers at a time are out of bounds"));
        }
        if self.traced_second.iter().any(|size| size.bytes() > Self::MOST_TRACED_BYTES) {
            return Err(Error::Settings("a trace goes through an L2 of 16MB at most"));
        }
        if self.modes.contains(&Mode::Once) {
            return Err(Error::Settings("caches are studied of whole connections: leave out once"));
        }
        if self.services().is_empty() {
            return Err(NOTHING);
        }
        self.compared()?;
        let firsts = self.first.iter().map(|size| self.first_level(*size));
        let seconds = self.second.iter().chain(&self.traced_second);
        let seconds = seconds.map(|size| self.second_level(*size));
        if self.line_bytes > Self::MOST_LINE_BYTES || firsts.chain(seconds).any(|one| one.is_err())
        {
            return Err(IMPOSSIBLE);
        }
        if self.traced > 0 {
            // Now, and not behind minutes of work: the auxiliary caches are smaller.
            self.hierarchies()?;
        }
        for suite in self.suites() {
            suite.key.check_openssl(suite.versions)?;
        }
        Ok(())
    }

    fn first_level(&self, size: Size) -> Result<Geometry, Error> {
        Geometry::new(size.bytes(), Self::FIRST_WAYS, self.line_bytes).ok_or(IMPOSSIBLE)
    }

    fn second_level(&self, size: Size) -> Result<Geometry, Error> {
        Geometry::new(size.bytes(), Self::SECOND_WAYS, self.line_bytes).ok_or(IMPOSSIBLE)
    }

    /// All L2 caches behind one L1, then the other L1 before one L2.
    fn pairs(&self) -> Vec<(Size, Size)> {
        let Ok((l1, l2)) = self.compared() else { return Vec::new() };
        let seconds = self.second.iter().map(|second| (l1, *second));
        seconds.chain(self.first.iter().skip(1).map(|first| (*first, l2))).collect()
    }

    /// The L1 that L2 caches are compared behind, which is the first, and the L2 that L1 caches are compared before:
    /// the paper's, or the first.
    fn compared(&self) -> Result<(Size, Size), Error> {
        let mut seconds = self.second.iter();
        let papers = seconds.find(|size| size.bytes() == Self::PAPER_SECOND_BYTES);
        let second = papers.or_else(|| self.second.first());
        self.first.first().copied().zip(second.copied()).ok_or(NOTHING)
    }

    fn suites(&self) -> Vec<Suite> {
        let of = |versions: &Versions| Suite {
            versions: *versions,
            key: self.key,
            cipher: Cipher::AesGcm,
        };
        self.versions.iter().map(of).collect()
    }

    /// Returns each server with its cells.
    fn services(&self) -> Vec<(Service, Vec<Cell>)> {
        let mut services: Vec<(Service, Vec<Cell>)> = Vec::new();
        let handshakes = || self.modes.iter().filter_map(|mode| mode.handshake());
        for size in self.sizes.iter().copied() {
            let plain = self.modes.contains(&Mode::Plain).then_some(Traffic::Plain);
            let tls = self.suites().into_iter().flat_map(|suite| {
                handshakes().map(move |handshake| Traffic::Tls(suite, handshake))
            });
            for cell in plain.into_iter().chain(tls).map(|traffic| Cell { cores: 1, size, traffic })
            {
                match services.iter_mut().find(|(service, _)| *service == cell.service()) {
                    Some((_, cells)) => cells.push(cell),
                    None => services.push((cell.service(), vec![cell])),
                }
            }
        }
        services
    }

    /// How many there are of a kind in a trace, where there are `count` of others.
    fn times(count: u32, traffic: Traffic) -> u32 {
        let times = if traffic == Traffic::Plain { Self::PLAIN_TIMES } else { 1 };
        count * times
    }

    /// And where two servers are compared. The first signature by RSA takes one up to 300,000 instructions more than
    /// the other, by the random number that blinds it, which is as much as resuming a session.
    fn counted(count: u32, traffic: Traffic) -> u32 {
        let is_resumed = matches!(traffic, Traffic::Tls(_, Handshake::Resumed));
        Self::times(count, traffic) * if is_resumed { Self::RESUMED_TIMES } else { 1 }
    }

    /// Traces first: they take longest.
    fn jobs(&self) -> Vec<Job> {
        let tools = (self.traced > 0).then_some(Tool::Trace).into_iter();
        let tools = tools.chain(self.pairs().into_iter().map(|(l1, l2)| Tool::Cachegrind(l1, l2)));
        let services = self.services();
        let of = |tool: Tool| {
            let job = move |(service, cells): &(Service, Vec<Cell>)| Job {
                tool,
                service: *service,
                cells: cells.clone(),
            };
            services.iter().map(job).collect::<Vec<_>>()
        };
        tools.flat_map(of).collect()
    }

    /// Returns the caches that a trace goes through: all L1, and behind the first each L2 alone, with each auxiliary
    /// cache beside it, and alone but larger by as much.
    fn hierarchies(&self) -> Result<Hierarchies, Error> {
        let firsts = self.first.iter().map(|size| self.first_level(*size));
        let firsts: Vec<Geometry> = firsts.collect::<Result<_, _>>()?;
        let mut seconds = Vec::new();
        for size in &self.traced_second {
            let main = self.second_level(*size)?;
            seconds.push(Second::Alone(Lru::new(main)));
            for part in PARTS {
                let sized =
                    |bytes, ways| Geometry::new(bytes, ways, self.line_bytes).ok_or(IMPOSSIBLE);
                let bytes = main.size_bytes / part;
                let auxiliary = sized(bytes, main.ways)?;
                let larger = sized(main.size_bytes + bytes, main.ways + main.ways / part)?;
                let (main, auxiliary) = (Lru::new(main), Lru::new(auxiliary));
                seconds
                    .extend([Second::Beside { main, auxiliary }, Second::Alone(Lru::new(larger))]);
            }
        }
        Ok(Hierarchies::new(self.line_bytes, &firsts, seconds))
    }
}

/// L2 over L2′, in size.
const PARTS: [u32; 4] = [16, 8, 4, 2];
const NOTHING: Error = Error::Settings("nothing to measure: give sizes, modes and caches");
const IMPOSSIBLE: Error = Error::Settings(
    "such a cache cannot be built: L1 has 4 lines in a set, L2 16 and its sixteenth as many, lines 16 to \
     256 bytes, and all of it powers of two, such as 16KB and 512KB",
);

/// When to end before all is done: when told, and when it takes too long.
struct Halt<'a> {
    stop: &'a AtomicBool,
    deadline: Instant,
}

impl Halt<'_> {
    fn is_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

#[derive(Debug, Clone, Copy)]
enum Tool {
    Cachegrind(Size, Size),
    Trace,
}

/// Runs of a server.
#[derive(Debug)]
struct Job {
    tool: Tool,
    service: Service,
    cells: Vec<Cell>,
}

/// Measures all, until done, told to `stop`, or [`Settings::longest`] is over: servers under way are then ended,
/// what was measured is the outcome, and said to be incomplete. So it is where some of it fails: the rest goes on.
///
/// # Errors
/// Settings out of bounds, and no valgrind. Where nothing could be measured: a server that does not start or answer,
/// and the system's.
pub fn run(
    settings: &Settings,
    stop: &AtomicBool,
    began: impl FnMut(&Step) + Send,
) -> Result<Outcome, Error> {
    settings.check()?;
    let version = valgrind::version()?;
    let deadline = Instant::now().checked_add(settings.longest);
    let deadline = deadline.ok_or(Error::Settings("that is longer than a clock can tell"))?;
    let halt = Halt { stop, deadline };
    let (jobs, suites) = (settings.jobs(), settings.suites());
    let folder = Folder::new(settings.key)?;
    let valgrind =
        Valgrind { program: &settings.program, suites: &suites, halt: &halt, folder: &folder };
    let outcome = Mutex::new(Outcome::begun(settings, version)?);
    let mut turns = Turns::new(jobs.len());
    turns.run_on_threads(
        (settings.jobs, &jobs),
        || halt.is_asked(),
        began,
        |job| job.run(settings, &valgrind, &outcome).map_err(|error| error.of(job)),
    );
    let outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.ended(turns)
}

impl Job {
    /// Measures cell by cell and keeps each result at once, because a later cell may fail or be ended.
    fn run(
        &self,
        settings: &Settings,
        valgrind: &Valgrind<'_>,
        outcome: &Mutex<Outcome>,
    ) -> Result<(), Error> {
        let (first, second) = match self.tool {
            Tool::Cachegrind(first, second) => (first, second),
            Tool::Trace => return self.trace(settings, valgrind, outcome),
        };
        let caches = (settings.first_level(first)?, settings.second_level(second)?);
        let without = valgrind.misses(self.service, caches, None)?;
        for cell in &self.cells {
            let count = Settings::counted(settings.transactions, cell.traffic);
            let with = valgrind.misses(self.service, caches, Some((cell.traffic, count)))?;
            let row = Row::of(cell, (first, second), count, (without, with));
            lock(outcome).cells.push(row);
        }
        Ok(())
    }

    fn trace(
        &self,
        settings: &Settings,
        valgrind: &Valgrind<'_>,
        outcome: &Mutex<Outcome>,
    ) -> Result<(), Error> {
        let count = |traffic| Settings::times(settings.traced, traffic);
        let kinds: Vec<_> =
            self.cells.iter().map(|cell| (cell.traffic, count(cell.traffic))).collect();
        let mut cells = self.cells.iter();
        valgrind.trace(self.service, settings.hierarchies()?, &kinds, |tally| {
            let traced =
                cells.next().map(|cell| Traced::of(settings, cell, count(cell.traffic), tally));
            lock(outcome).traces.extend(traced);
        })
    }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Service { key, body_bytes, .. } = self.service;
        let name = if key.is_some() { "TLS" } else { "plain" };
        match self.tool {
            Tool::Cachegrind(first, second) => {
                write!(f, "{name}, {body_bytes} B: L1 {first}, L2 {second}")
            }
            Tool::Trace => write!(f, "{name}, {body_bytes} B: trace"),
        }
    }
}
