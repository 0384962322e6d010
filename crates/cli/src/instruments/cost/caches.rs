//! `rejoin cost caches`

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rejoin_lab::cost::caches::{self, Settings};
use rejoin_lab::cost::{Mode, Size};
use serde_json::json;

use super::{meant, versions};
use crate::arguments::{KeyName, Tls};
use crate::beside::Beside;
use crate::instruments::progress;
use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server runs under valgrind, up to two hundred times slower: instructions and misses of its
program and libraries, without the kernel, beside paper 001's. Each figure is the difference of two
runs. A trace goes through a simulator of ours for the paper's auxiliary L2 cache. Ctrl-C ends with
what was measured so far.
Example:
  rejoin cost caches --html caches.html
  rejoin cost caches --sizes 30 --mode full --tls 1.3 --l1 16KB --l2 2MB --traced 0 --json")]
pub(crate) struct Arguments {
    /// Sizes of responses, 1 byte to 64MB
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "30,36KB,1MB")]
    sizes: Vec<Size>,
    /// What transactions are like
    #[arg(long, value_enum, value_delimiter = ',', default_value = "plain,full,resumed")]
    mode: Vec<ModeName>,
    /// TLS versions, each measured alone
    #[arg(long, value_enum, value_delimiter = ',', default_value = "both")]
    tls: Vec<Tls>,
    /// The server's key
    #[arg(long, value_enum, default_value = "rsa-2048")]
    key: KeyName,
    /// Sizes of each L1 cache, of which the first stands before all L2 caches
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "16KB,32KB,64KB")]
    l1: Vec<Size>,
    /// Sizes of the L2 cache
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "512KB,1MB,2MB,8MB")]
    l2: Vec<Size>,
    /// Sizes of the L2 cache that traces go through, up to 16MB: alone, with the auxiliary one, and larger by as much
    #[arg(
        long,
        value_name = "SIZE,…",
        value_delimiter = ',',
        default_value = "128KB,256KB,512KB,1MB,2MB,8MB"
    )]
    traced_l2: Vec<Size>,
    /// Bytes of a cache line: 32 as in the paper's processor, 64 in most of today's
    #[arg(long, value_name = "N", default_value_t = 32)]
    line_bytes: u32,
    /// Transactions that a run has more than the one it is compared with; plain ones
    /// ten times as many, resumed ones three times
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=i64::from(Settings::MOST_TRANSACTIONS)))]
    transactions: u32,
    /// Transactions of each kind to trace, plain ones ten times as many; 0 leaves the trace out
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=i64::from(Settings::MOST_TRANSACTIONS)))]
    traced: u32,
    /// Servers at a time [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_JOBS)))]
    jobs: Option<u16>,
    /// Minutes after which the rest is left out
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_440))]
    minutes: u32,
    /// Write a page with charts and tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
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
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = settings(arguments)?;
    let html = arguments.html.as_deref().map(Beside::create).transpose()?;
    let outcome = progress::watched(|stop, began| caches::run(&settings, stop, began))?;
    let text = if arguments.json { json!(outcome).to_string() } else { caches::text(&outcome) };
    terminal::print_result(&text)?;
    html.map(|file| file.write(&caches::html(&outcome))).transpose()?;
    progress::whole(&outcome.ended, "interrupted, or out of time,", "parts")
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let cores = || u16::try_from(cores()).unwrap_or(u16::MAX).min(Settings::MOST_JOBS);
    Ok(Settings {
        program: std::env::current_exe().context("cannot find the program itself")?,
        sizes: meant(&arguments.sizes),
        modes: meant(&arguments.mode),
        versions: versions(&arguments.tls),
        key: arguments.key.into(),
        first: meant(&arguments.l1),
        second: meant(&arguments.l2),
        traced_second: meant(&arguments.traced_l2),
        line_bytes: arguments.line_bytes,
        transactions: arguments.transactions,
        traced: arguments.traced,
        jobs: arguments.jobs.unwrap_or_else(cores),
        longest: Duration::from_secs(u64::from(arguments.minutes) * 60),
    })
}

impl From<ModeName> for Mode {
    fn from(mode: ModeName) -> Self {
        match mode {
            ModeName::Plain => Self::Plain,
            ModeName::Full => Self::Full,
            ModeName::Resumed => Self::Resumed,
        }
    }
}
