//! What a handshake costs each side, full and resumed: real ones, in one thread, over memory.
//!
//! Counted is the thread's CPU time in the TLS library, from a new connection to its end, what the
//! server does with its session and the client with the server's certificates included, and the
//! bytes that each side sends. Not counted are sockets and the application's data. Batches of all
//! combinations take turns, and figures are medians over batches, so that a disturbance meets all
//! or none. A handshake that was full where it was to be resumed, or the other way round, is an error.
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

use std::sync::atomic::{AtomicBool, Ordering};

use rejoin_cache::{Capacity, Policy, Settings as CacheSettings};

use crate::over_memory::failed;
use crate::{Error, Step};
use by_openssl::OpenSslPair;
use by_rustls::RustlsPair;
use chains::Chains;
pub use jsse::Java;
pub use outcome::{Missing, Outcome, Row, SideCost};
pub use page::html;
use pair::{Connected, Pair, Side, Watch};
use rejoin_serve::KeyType;
use rejoin_serve::Versions;
pub use server_cost::{ServerCost, internal_cache_session_bytes, server_costs};
pub use text::text;

/// What is measured.
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
        let mut suites = Vec::new();
        for versions in self.versions.iter().copied() {
            for key in self.keys.iter().copied() {
                let of = |with: &bool| Suite { versions, key, client_certificates: *with };
                suites.extend(self.client_certificates.iter().map(of));
            }
        }
        suites
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
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenSsl => "openssl",
            Self::Rustls => "rustls",
            Self::Jsse => "jsse",
        }
    }
}

/// What a connection is like.
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

/// What full handshakes leave fills it in any long run, with nobody to come back. The last session made is
/// the one that is resumed, and by this policy it is always kept. Those with post-quantum certificates are long.
fn cache_settings() -> CacheSettings {
    CacheSettings {
        policy: Policy::Lru,
        longest_value_bytes: 65_535,
        ..CacheSettings::new(Capacity::Sessions(10_000))
    }
}

/// What libraries are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suite {
    versions: Versions,
    key: KeyType,
    client_certificates: bool,
}

/// One combination.
struct Cell {
    stack: Stack,
    suite: Suite,
    mode: Mode,
    /// Which of the pairs.
    pair: usize,
    batches: Vec<Batch>,
}

/// A batch's sums.
#[derive(Debug, Clone, Copy)]
struct Batch {
    handshakes: u64,
    server: Side,
    client: Side,
}

/// Measures all combinations, round after round, until done or told to `stop`, which is heard between
/// batches: what was measured by then is the outcome, and said to be incomplete. The JDK's come after
/// the others, whose figures stay if they fail.
///
/// # Errors
/// Settings out of bounds; nothing of what was asked for available here; a handshake that failed or
/// was not what it should be.
pub fn run(
    settings: &Settings,
    stop: &AtomicBool,
    mut began: impl FnMut(&Step),
) -> Result<Outcome, Error> {
    settings.check()?;
    let mut bench = Bench::prepare(settings)?;
    let java = settings.stacks.contains(&Stack::Jsse).then(|| settings.suites());
    let rounds = usize::from(settings.rounds);
    let of_java = java.as_ref().map_or(0, |suites| settings.java.combinations(suites) * rounds);
    let of = bench.cells.len() * rounds + of_java;
    let mut outcome = Outcome::begun(settings);
    // The JDK's process counts none.
    outcome.counters_missing = bench.watch.missing().filter(|_| !bench.cells.is_empty());
    let complete = bench.measure(settings, stop, |done, what| began(&Step { done, of, what }))?;
    outcome.complete = complete;
    outcome.add(bench.cells, bench.missing);
    if let Some(suites) = java.filter(|_| complete) {
        let before = of - of_java;
        let measured = jsse::measure(&settings.java, &suites, stop, &mut outcome, |done, what| {
            began(&Step { done: before + done * rounds, of, what });
        });
        if let Err(error) = measured {
            if outcome.rows.is_empty() {
                return Err(error);
            }
            (outcome.complete, outcome.failure) = (false, Some(error.to_string()));
        }
    }
    match outcome.missing.first() {
        Some(missing) if outcome.rows.is_empty() && outcome.complete => {
            let why = format!("{}: {}", missing.what, missing.why);
            Err(Error::Unavailable { what: "all that was asked for", why })
        }
        _ => Ok(outcome),
    }
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
            self.cells.push(Cell { stack, suite, mode, pair, batches: Vec::new() });
        }
        Ok(())
    }

    /// Whether it came to the end.
    fn measure(
        &mut self,
        settings: &Settings,
        stop: &AtomicBool,
        mut began: impl FnMut(usize, String),
    ) -> Result<bool, Error> {
        let mut done = 0;
        for _ in 0..settings.rounds {
            for cell in &mut self.cells {
                if stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                began(done, cell.to_string());
                let pair = &mut *self.pairs[cell.pair];
                cell.batches.push(batch(pair, cell.mode, settings.batch, &self.watch)?);
                done += 1;
            }
        }
        Ok(true)
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

    /// What TLS says of the bytes: certificates are the most of a full handshake, and gone from a
    /// resumed one.
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

    /// Of clients with certificates of ML-DSA it holds the sessions of some hundred full handshakes.
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
        assert!(error.to_string().contains("TLS 1.3 alone"), "{error}");
        let stopped = run(&settings(), &AtomicBool::new(true), |_| {}).expect("little");
        assert!(!stopped.complete && stopped.rows.is_empty());
    }
}
