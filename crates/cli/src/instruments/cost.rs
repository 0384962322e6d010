//! `rejoin cost`

mod caches;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rejoin_lab::cost::{self, Cipher, Mode, Settings, Size};
use rejoin_report::distinct;
use rejoin_serve::{KeyType, Resumption, Versions};
use serde_json::json;

use crate::arguments::{Choice, KEY_TYPES, RESUMPTIONS, TLS, each_version, one_of};
use crate::beside::Beside;
use crate::instruments::progress;
use crate::terminal;
use crate::units::above_zero;

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
A real server runs on its own cores and real clients on the others, over loopback; all combinations
take turns in short rounds. The default is 100 combinations in about seven minutes; --quick measures
52 of them in less than one. After Ctrl-C the figures so far are shown.
Exits with 3 if the machine did not keep up; a note (*) names the figures concerned. Exits with 1
if more than 2 % of a combination's transactions fail.
Examples:
  rejoin cost --quick --html cost.html
  rejoin cost --cores 1,2 --sizes 36KiB --key-type p-256 --tls 1.3
  rejoin cost --tls 1.3 --key-type p-256 --cipher aes-gcm --sizes 30,36KiB,256KiB,1MiB --json"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    study: Option<Study>,
    /// The sizes of responses, 1 byte to 64MiB; the model needs at least four
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    #[arg(default_value = "30,36KiB,256KiB,1MiB")]
    sizes: Vec<Size>,
    /// The kinds of transactions
    #[arg(long, value_parser = one_of(MODES), value_delimiter = ',', default_value = "plain,full,resumed,once")]
    mode: Vec<Mode>,
    /// The TLS versions, each measured alone
    #[arg(long, value_parser = one_of(TLS), value_delimiter = ',', default_value = "both")]
    tls: Vec<Versions>,
    /// The types of the server certificate's key
    #[arg(long, value_parser = one_of(KEY_TYPES), alias = "key", value_delimiter = ',', default_value = "rsa-2048,p-256")]
    key_type: Vec<KeyType>,
    /// The ciphers [default: both; with --quick: aes-gcm]
    #[arg(long, value_parser = one_of(CIPHERS), value_delimiter = ',')]
    cipher: Vec<Cipher>,
    /// The way of resuming sessions
    #[arg(long, value_parser = one_of(RESUMPTIONS), default_value = "predictive")]
    resumption: Resumption,
    /// The server's cores, in turn, 1 to all of this machine; the clients have the others
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", value_parser = cores)]
    cores: Vec<usize>,
    /// Rounds of each combination [default: 5; with --quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_ROUNDS)))]
    rounds: Option<u16>,
    /// The time of a round, 1 minute at most [default: 800ms; with --quick: 250ms]
    #[arg(long, value_name = "TIME", alias = "round-s", value_parser = round)]
    round_duration: Option<Duration>,
    /// Clients at a time for each of the server's cores
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_CLIENTS)))]
    clients: u16,
    /// Measure fewer combinations in fewer and shorter rounds by default
    #[arg(long)]
    quick: bool,
    /// Write a page with charts and tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A study that does not measure this machine.
#[derive(Debug, clap::Subcommand)]
enum Study {
    /// Simulate the server with CPU caches of other sizes, and with the paper's auxiliary cache
    Caches(Box<caches::Arguments>),
}

const MODES: &[Choice<Mode>] = &[
    (Mode::Plain, "plain", "a plain connection for each request"),
    (Mode::Full, "full", "a connection with a full handshake for each request"),
    (Mode::Resumed, "resumed", "a connection with a resumed handshake for each request"),
    (Mode::Once, "once", "one handshake for many requests"),
];
const CIPHERS: &[Choice<Cipher>] = &[
    (Cipher::AesGcm, "aes-gcm", "AES with 128 bits"),
    (Cipher::ChaCha20, "chacha20", "ChaCha20-Poly1305"),
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(Study::Caches(arguments)) = &arguments.study {
        return caches::run(arguments);
    }
    terminal::raise_descriptor_limit();
    let settings = settings(arguments)?;
    let html = arguments.html.as_deref().map(Beside::create).transpose()?;
    let outcome = progress::watched(|stop, began| cost::run(&settings, stop, began))?;
    let text = if arguments.json { json!(outcome).to_string() } else { cost::text(&outcome) };
    terminal::print_result(&text)?;
    html.map(|file| file.write(&cost::html(&outcome))).transpose()?;
    progress::judged(outcome.failure(), &outcome.ended, "rounds")
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let quick = arguments.quick;
    let mut ciphers = distinct(arguments.cipher.clone());
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
        modes: distinct(arguments.mode.clone()),
        versions: each_version(&arguments.tls),
        keys: distinct(arguments.key_type.clone()),
        ciphers,
        cores,
        resumption: arguments.resumption,
        rounds: arguments.rounds.unwrap_or(if quick { 3 } else { 5 }),
        round: arguments.round_duration.unwrap_or(round),
        clients: arguments.clients,
    })
}

fn cores(text: &str) -> Result<usize, String> {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let number = text.parse().ok().filter(|number| (1..=here).contains(number));
    number.ok_or_else(|| format!("a number of cores from 1 to {here}"))
}

fn round(text: &str) -> Result<Duration, String> {
    let round = Duration::from_millis(above_zero(text)?.ms);
    let possible = round <= Settings::LONGEST_ROUND;
    possible.then_some(round).ok_or_else(|| "give a time from 1ms to 60s".to_owned())
}
