//! `rejoin cost`

mod caches;

use std::hash::Hash;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rejoin_lab::cost::{self, Cipher, Mode, Outcome, Settings, Size};
use rejoin_serve::Versions;
use serde_json::json;

use crate::arguments::{KeyName, ResumptionName, Tls, seconds};
use crate::beside::Beside;
use crate::instruments::progress;
use crate::sizes::distinct;
use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
A real server on cores of its own, real clients on the others, over loopback; all combinations take
turns in short rounds. The default is 100 combinations in about seven minutes, --quick 52 of them in
less than one. Ctrl-C ends with what was measured so far.
Example:
  rejoin cost --quick --html cost.html
  rejoin cost --cores 1,2 --sizes 36KB --key p-256 --tls 1.3
  rejoin cost --tls 1.3 --key p-256 --cipher aes-gcm --sizes 30,36KB,256KB,1MB --json"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    study: Option<Study>,
    /// Sizes of responses, 1 byte to 64MB; four at least for the model
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_values_t = Size::DEFAULT)]
    sizes: Vec<Size>,
    /// What transactions are like
    #[arg(long, value_enum, value_delimiter = ',', default_value = "plain,full,resumed,once")]
    mode: Vec<ModeName>,
    /// TLS versions, each measured alone
    #[arg(long, value_enum, value_delimiter = ',', default_value = "both")]
    tls: Vec<Tls>,
    /// The server's keys
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rsa-2048,p-256")]
    key: Vec<KeyName>,
    /// Ciphers [default: both; with --quick: aes-gcm]
    #[arg(long, value_enum, value_delimiter = ',')]
    cipher: Vec<CipherName>,
    /// How the server resumes sessions
    #[arg(long, value_enum, default_value = "predictive")]
    resumption: ResumptionName,
    /// Numbers of cores that the server has, 1 to all of this machine; clients have the others
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", value_parser = cores)]
    cores: Vec<usize>,
    /// Rounds of each combination [default: 5; with --quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_ROUNDS)))]
    rounds: Option<u16>,
    /// Seconds of a round, 60 at most [default: 0.8; with --quick: 0.25]
    #[arg(long, value_name = "S", value_parser = round)]
    round_s: Option<Duration>,
    /// Clients at a time for each core of the server
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_CLIENTS)))]
    clients: u16,
    /// Fewer combinations in fewer and shorter rounds, where nothing else is said
    #[arg(long)]
    quick: bool,
    /// Write a page with charts and tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is studied apart from what the machine at hand takes.
#[derive(Debug, clap::Subcommand)]
enum Study {
    /// Simulate caches of other sizes under the server, and one for what is touched once
    Caches(Box<caches::Arguments>),
}

/// `--mode`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
enum ModeName {
    /// a connection in clear for each request
    Plain,
    /// a connection with a full handshake for each request
    Full,
    /// a connection with a resumed handshake for each request
    Resumed,
    /// one handshake, then many requests
    Once,
}

/// `--cipher`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
enum CipherName {
    /// AES with 128 bits
    AesGcm,
    /// ChaCha20-Poly1305
    #[value(name = "chacha20")]
    ChaCha20,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(Study::Caches(arguments)) = &arguments.study {
        return caches::run(arguments);
    }
    terminal::raise_descriptor_limit();
    let settings = settings(arguments)?;
    let html = arguments.html.as_deref().map(Beside::create).transpose()?;
    let outcome = progress::watched(|stop, began| cost::run(&settings, stop, began))?;
    print(arguments.json, &outcome)?;
    html.map(|file| file.write(&cost::html(&outcome))).transpose()?;
    progress::whole(&outcome.ended, "interrupted", "rounds")
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let quick = arguments.quick;
    let mut ciphers: Vec<Cipher> = meant(&arguments.cipher);
    if ciphers.is_empty() {
        ciphers.push(Cipher::AesGcm);
        ciphers.extend((!quick).then_some(Cipher::ChaCha20));
    }
    let round = Duration::from_millis(if quick { 250 } else { 800 });
    let mut sizes = arguments.sizes.clone();
    sizes.sort();
    sizes.dedup();
    let mut cores = arguments.cores.clone();
    cores.sort_unstable();
    cores.dedup();
    Ok(Settings {
        program: std::env::current_exe().context("cannot find the program itself")?,
        sizes,
        modes: meant(&arguments.mode),
        versions: versions(&arguments.tls),
        keys: meant(&arguments.key),
        ciphers,
        cores,
        resumption: arguments.resumption.into(),
        rounds: arguments.rounds.unwrap_or(if quick { 3 } else { 5 }),
        round: arguments.round_s.unwrap_or(round),
        clients: arguments.clients,
    })
}

/// Each alone, none twice.
fn versions(names: &[Tls]) -> Vec<Versions> {
    distinct(names.iter().flat_map(|tls| Versions::from(*tls).each()).copied().collect())
}

/// What is meant, none twice.
fn meant<N: Copy + Eq + Hash, T: From<N>>(names: &[N]) -> Vec<T> {
    distinct(names.to_vec()).into_iter().map(T::from).collect()
}

impl From<ModeName> for Mode {
    fn from(mode: ModeName) -> Self {
        match mode {
            ModeName::Plain => Self::Plain,
            ModeName::Full => Self::Full,
            ModeName::Resumed => Self::Resumed,
            ModeName::Once => Self::Once,
        }
    }
}

impl From<CipherName> for Cipher {
    fn from(cipher: CipherName) -> Self {
        match cipher {
            CipherName::AesGcm => Self::AesGcm,
            CipherName::ChaCha20 => Self::ChaCha20,
        }
    }
}

fn cores(text: &str) -> Result<usize, String> {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let number = text.parse().ok().filter(|number| (1..=here).contains(number));
    number.ok_or_else(|| format!("a number of cores from 1 to {here}"))
}

fn round(text: &str) -> Result<Duration, String> {
    let round = Duration::from_millis(seconds(text)?);
    let possible = !round.is_zero() && round <= Settings::LONGEST_ROUND;
    possible.then_some(round).ok_or_else(|| "a number of seconds from 0.001 to 60".to_owned())
}

fn print(json: bool, outcome: &Outcome) -> anyhow::Result<()> {
    let text = if json { json!(outcome).to_string() } else { cost::text(outcome) };
    terminal::print_result(&text)
}
