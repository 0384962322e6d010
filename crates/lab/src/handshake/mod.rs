//! The cost of a handshake for each side, full and resumed: real handshakes, in one thread, over memory.
//!
//! The study counts the thread's CPU time in the TLS library, from a new connection to its end, and the bytes that
//! each side sends. The server's work on its session and the client's on the server's certificates are included;
//! sockets and the application's data are not. Batches of all combinations take turns, and figures are medians over
//! batches, so that a disturbance affects all combinations alike. A full handshake where a resumed one was expected,
//! or the reverse, is an error.
//!
//! A client and its server are of one library: OpenSSL, rustls, or the JDK's, which is measured by
//! JMH in a process of its own ([`Java`]). Everywhere keys are agreed on by X25519, certificates are
//! verified, and a certificate comes with its issuer's.
//!
//! Where the processor counts instructions, those of the library itself are counted, too.

mod by_openssl;
mod by_rustls;
mod chains;
mod jsse;
mod outcome;
mod page;
mod pair;
mod server_cost;
mod text;

use std::sync::atomic::AtomicBool;

use rejoin_cache::{Capacity, Policy, Settings as CacheSettings};

use crate::Error;
use crate::experiment::{Step, Turns, crossed};
use crate::over_memory::failed;
use by_openssl::OpenSslPair;
use by_rustls::RustlsPair;
use chains::Chains;
pub use jsse::Java;
pub use outcome::{Missing, Outcome, Row, SideCost};
pub use page::html;
use pair::{Connected, Pair, Side, Watch};
use rejoin_serve::{KeyType, Versions};
pub use server_cost::{ServerCost, internal_cache_session_bytes, server_costs};
pub use text::text;

/// The settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The libraries.
    pub stacks: Vec<Stack>,
    /// Versions of TLS: each alone, never [`Versions::Both`].
    pub versions: Vec<Versions>,
    /// Types of all keys of a combination.
    pub keys: Vec<KeyType>,
    /// Without client certificates, with them, or both.
    pub client_certificates: Vec<bool>,
    /// Batches of each combination: 1 to [`Settings::MOST_ROUNDS`].
    pub rounds: u16,
    /// Handshakes of a batch: 1 to [`Settings::LARGEST_BATCH`].
    pub batch: u16,
    /// For [`Stack::Jsse`].
    pub java: Java,
}

impl Settings {
    /// Batches of each combination at most.
    pub const MOST_ROUNDS: u16 = 1_000;
    /// Handshakes of a batch at most.
    pub const LARGEST_BATCH: u16 = 10_000;

    fn check(&self) -> Result<(), Error> {
        let rounds = (1..=Self::MOST_ROUNDS).contains(&self.rounds);
        let batch = (1..=Self::LARGEST_BATCH).contains(&self.batch);
        if !(rounds && batch) || self.versions.contains(&Versions::Both) {
            return Err(Error::Settings("rounds, their length or versions are out of bounds"));
        }
        if self.suites().is_empty() || self.stacks.is_empty() {
            return Err(Error::Settings("nothing to measure: give stacks, versions and keys"));
        }
        Ok(())
    }

    fn suites(&self) -> Vec<Suite> {
        let kinds = crossed(&crossed(&self.versions, &self.keys), &self.client_certificates);
        let of =
            |((versions, key), client_certificates)| Suite { versions, key, client_certificates };
        kinds.into_iter().map(of).collect()
    }
}

/// A TLS library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stack {
    /// The system's OpenSSL.
    OpenSsl,
    /// rustls with aws-lc-rs.
    Rustls,
    /// The JDK's.
    Jsse,
}

impl Stack {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenSsl => "openssl",
            Self::Rustls => "rustls",
            Self::Jsse => "jsse",
        }
    }
}

/// A kind of connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A full handshake, with a server that keeps sessions as for [`Self::Resumed`].
    Full,
    /// Resumed out of the shipped cache, or the JDK's.
    Resumed,
    /// Resumed by a stateless ticket of the library's own.
    Ticket,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Full, Self::Resumed, Self::Ticket];

    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
            Self::Ticket => "ticket",
        }
    }

    fn kept(self) -> Kept {
        match self {
            Self::Full | Self::Resumed => Kept::Cache,
            Self::Ticket => Kept::Tickets,
        }
    }
}

/// How a server keeps sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// In the shipped cache.
    Cache,
    /// In tickets that hold the whole session.
    Tickets,
    /// In OpenSSL's own cache.
    OpenSsl,
}

/// Returns the cache's settings. The sessions of full handshakes fill any cache in a long run, and no client returns
/// for them. The last session made is the one that is resumed, and this policy always keeps it. Sessions with
/// post-quantum certificates are long.
fn cache_settings() -> CacheSettings {
    CacheSettings {
        policy: Policy::Lru,
        longest_value_bytes: 65_535,
        ..CacheSettings::new(Capacity::Sessions(10_000))
    }
}

/// The parameters of a connection by which libraries are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suite {
    versions: Versions,
    key: KeyType,
    client_certificates: bool,
}

/// One combination.
#[derive(Debug, Clone, Copy)]
struct Cell {
    stack: Stack,
    suite: Suite,
    mode: Mode,
    /// The place of its pair among all.
    pair: usize,
}

/// A batch's sums.
#[derive(Debug, Clone, Copy)]
struct Batch {
    handshakes: u64,
    server: Side,
    client: Side,
}

/// Measures all combinations, round after round, until done or told to `stop`, which is heard between
/// batches. The outcome is partial if it was stopped, or if a later batch fails. The JDK's combinations come
/// after the others.
///
/// # Errors
/// Settings out of bounds; nothing of what was asked for available here; a handshake that failed or was not of the
/// kind that was asked for, before anything was measured.
pub fn run(
    settings: &Settings,
    stop: &AtomicBool,
    mut began: impl FnMut(&Step),
) -> Result<Outcome, Error> {
    settings.check()?;
    let Bench { watch, mut pairs, cells, mut missing } = Bench::prepare(settings)?;
    let is_java = settings.stacks.contains(&Stack::Jsse);
    let suites = if is_java { settings.suites() } else { Vec::new() };
    let of_java = settings.java.combinations(&suites);
    let rounds = usize::from(settings.rounds);
    let mut turns = Turns::new((cells.len() + of_java) * rounds);
    // The JDK's process counts none.
    let counters_missing = watch.missing().filter(|_| !cells.is_empty());
    let plan = (settings.rounds, cells);
    let measured = turns.run_rounds(plan, stop, &mut began, |cell, _| {
        let pair = &mut *pairs[cell.pair];
        batch(pair, cell.mode, settings.batch, &watch).map(Some)
    });
    let mut rows: Vec<Row> = measured.iter().filter_map(Row::of).collect();
    let mut libraries = libraries(settings);
    if is_java {
        turns.weigh(rounds);
        rows.extend(jsse::measure(
            &settings.java,
            &suites,
            (&mut turns, stop, &mut began),
            (&mut libraries, &mut missing),
        ));
    }
    let ended = turns.ended(rows.is_empty())?;
    for row in &mut rows {
        row.kept_up = !ended.doubts(row.named());
    }
    match missing.first() {
        Some(missing) if rows.is_empty() && ended.complete => {
            let why = format!("{}: {}", missing.what, missing.why);
            Err(Error::Unavailable { what: "all that was asked for", why })
        }
        _ => {
            let Settings { rounds, batch, .. } = *settings;
            Ok(Outcome { ended, rounds, batch, libraries, counters_missing, rows, missing })
        }
    }
}

/// The libraries that tell their version before they run: the JDK does when it runs.
fn libraries(settings: &Settings) -> Vec<String> {
    let libraries = settings.stacks.iter().filter_map(|stack| match stack {
        Stack::OpenSsl => Some(openssl::version::version().to_owned()),
        Stack::Rustls => Some("rustls with aws-lc-rs".to_owned()),
        Stack::Jsse => None,
    });
    libraries.collect()
}

/// All pairs, and what is measured with them.
struct Bench {
    watch: Watch,
    pairs: Vec<Box<dyn Pair>>,
    cells: Vec<Cell>,
    missing: Vec<Missing>,
}

impl Bench {
    fn prepare(settings: &Settings) -> Result<Self, Error> {
        let (pairs, cells, missing) = Default::default();
        let mut bench = Self { watch: Watch::start(), pairs, cells, missing };
        let mut keys = Vec::new();
        for key in settings.keys.iter().copied() {
            keys.push((key, Chains::made(key)?));
        }
        for suite in settings.suites() {
            let chains = keys.iter().find(|(key, _)| *key == suite.key);
            let Some((_, chains)) = chains else { continue };
            for stack in settings.stacks.iter().copied().filter(|stack| *stack != Stack::Jsse) {
                bench.add(stack, suite, chains)?;
            }
        }
        Ok(bench)
    }

    fn add(&mut self, stack: Stack, suite: Suite, chains: &Chains) -> Result<(), Error> {
        let possible = match stack {
            Stack::OpenSsl => suite.key.check_openssl(suite.versions),
            _ => suite.key.check(suite.versions),
        };
        if let Err(why) = possible {
            // Once, and not for client certificates again.
            let missing = Missing::of(stack, suite, why.into());
            if !self.missing.contains(&missing) {
                self.missing.push(missing);
            }
            return Ok(());
        }
        for mode in Mode::ALL {
            // A full handshake and one resumed out of the cache are of one pair.
            if mode != Mode::Resumed {
                let mut pair = pair_of(stack, suite, mode.kept(), chains)?;
                // What is only done once is not to be counted.
                connect(&mut *pair, false, &self.watch)?;
                self.pairs.push(pair);
            }
            let pair = self.pairs.len() - 1;
            self.cells.push(Cell { stack, suite, mode, pair });
        }
        Ok(())
    }
}

fn pair_of(
    stack: Stack,
    suite: Suite,
    kept: Kept,
    chains: &Chains,
) -> Result<Box<dyn Pair>, Error> {
    Ok(match stack {
        Stack::Rustls => Box::new(RustlsPair::new(chains, suite, kept)?),
        _ => Box::new(OpenSslPair::new(chains, suite, kept)?),
    })
}

fn batch(pair: &mut dyn Pair, mode: Mode, size: u16, watch: &Watch) -> Result<Batch, Error> {
    let resumes = mode != Mode::Full;
    let (mut server, mut client) = (Side::NOTHING, Side::NOTHING);
    for _ in 0..size {
        let connected = connect(pair, resumes, watch)?;
        server = server.plus(connected.server);
        client = client.plus(connected.client);
    }
    Ok(Batch { handshakes: size.into(), server, client })
}

/// A connection that is what it was to be.
fn connect(pair: &mut dyn Pair, resumes: bool, watch: &Watch) -> Result<Connected, Error> {
    let connected = pair.connect(resumes, watch)?;
    match (resumes, connected.resumed) {
        (true, false) => Err(failed("a handshake was full that was to be resumed")),
        (false, true) => Err(failed("a handshake was resumed that was to be full")),
        _ => Ok(connected),
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.stack.name(), self.suite, self.mode.name())
    }
}

impl std::fmt::Display for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TLS {} {}", self.versions.name(), self.key.name())?;
        if self.client_certificates { f.write_str(" both") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both libraries, versions and kinds of keys that there are, with client certificates and without.
    pub(super) fn settings() -> Settings {
        Settings {
            stacks: vec![Stack::OpenSsl, Stack::Rustls],
            versions: vec![Versions::Tls12, Versions::Tls13],
            keys: vec![KeyType::P256, KeyType::MlDsa65],
            client_certificates: vec![false, true],
            rounds: 1,
            batch: 2,
            java: Java::default(),
        }
    }

    #[test]
    fn a_handshake_that_is_not_as_asked_is_an_error() {
        struct Stubborn(bool);
        impl Pair for Stubborn {
            fn connect(&mut self, _: bool, _: &Watch) -> Result<Connected, Error> {
                let [server, client] = [Side::NOTHING; 2];
                Ok(Connected { resumed: self.0, server, client })
            }
        }
        let watch = Watch::start();
        for resumed in [false, true] {
            assert!(connect(&mut Stubborn(resumed), resumed, &watch).is_ok());
            assert!(connect(&mut Stubborn(resumed), !resumed, &watch).is_err());
        }
    }

    /// Bytes follow from TLS: certificates are the most of a full handshake, and gone from a resumed one.
    #[test]
    fn bytes_are_as_the_handshake_is() {
        let outcome = run(&settings(), &AtomicBool::new(false), |_| {}).expect("measured");
        let sent = |stack: &str, key: &str, with: bool, mode: &str| {
            let is = |row: &&Row| {
                (row.stack, row.tls, row.key) == (stack, "1.3", key)
                    && (row.client_certificates, row.mode) == (with, mode)
            };
            let row = outcome.rows.iter().find(is).expect("a row");
            (row.server.sent_bytes, row.client.sent_bytes)
        };
        for stack in ["openssl", "rustls"] {
            let (server, client) = sent(stack, "P-256", false, "full");
            let (resumed, _) = sent(stack, "P-256", false, "resumed");
            assert!(server > resumed + 500.0, "{stack}: {server} {resumed}");
            assert!(sent(stack, "P-256", true, "full").1 > client + 500.0, "{stack}");
        }
        // Two certificates of ML-DSA-65 with 1,952 bytes of key and 3,309 of signature, and one more.
        let (server, _) = sent("rustls", "ML-DSA-65", false, "full");
        assert!(server > 2.0 * (1_952.0 + 3_309.0) + 3_309.0, "{server}");
        assert!(sent("rustls", "ML-DSA-65", true, "resumed").0 < 2_000.0);
    }

    /// With ML-DSA client certificates, the cache holds the sessions of some hundred full handshakes.
    #[test]
    fn what_was_just_made_is_resumed_out_of_a_full_cache() {
        let long = Settings {
            stacks: vec![Stack::Rustls],
            versions: vec![Versions::Tls13],
            keys: vec![KeyType::MlDsa65],
            client_certificates: vec![true],
            batch: 400,
            ..settings()
        };
        let outcome = run(&long, &AtomicBool::new(false), |_| {}).expect("measured");
        assert_eq!(outcome.rows.len(), 3);
    }

    #[test]
    fn what_cannot_be_is_told() {
        let only = Settings {
            versions: vec![Versions::Tls12],
            keys: vec![KeyType::MlDsa65],
            ..settings()
        };
        let error = run(&only, &AtomicBool::new(false), |_| {}).expect_err("not in TLS 1.2");
        assert!(error.to_string().contains("TLS 1.3 only"), "{error}");
        let stopped = run(&settings(), &AtomicBool::new(true), |_| {}).expect("little");
        assert!(!stopped.ended.complete && stopped.rows.is_empty());
    }
}
