//! `rejoin cost caches`

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rejoin_lab::cost::caches::{self, Settings};
use rejoin_lab::cost::{Mode, Size};
use rejoin_report::distinct;
use rejoin_serve::{KeyType, Versions};
use serde_json::json;

use super::MODES;
use crate::arguments::{KEY_TYPES, TLS, each_version, one_of};
use crate::beside::Beside;
use crate::instruments::progress;
use crate::terminal;
use crate::units::{bytes_in, seconds_in};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server runs under valgrind, up to two hundred times slower. The tables show instructions and
misses of its program and libraries, without the kernel, beside paper 001's. Each figure is the
difference of two runs. A trace is played through a simulator of the paper's auxiliary L2 cache.
After Ctrl-C the figures so far are shown.
Examples:
  rejoin cost caches --html caches.html
  rejoin cost caches --sizes 30 --mode full --tls 1.3 --l1 16KiB --l2 2MiB --traced 0 --json")]
pub(crate) struct Arguments {
    /// The sizes of responses, 1 byte to 64MiB
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "30,36KiB,1MiB")]
    sizes: Vec<Size>,
    /// The kinds of transactions
    #[arg(long, value_parser = one_of(&MODES[..3]), value_delimiter = ',', default_value = "plain,full,resumed")]
    mode: Vec<Mode>,
    /// The TLS versions, each measured alone
    #[arg(long, value_parser = one_of(TLS), value_delimiter = ',', default_value = "both")]
    tls: Vec<Versions>,
    /// The type of the server certificate's key
    #[arg(long, value_parser = one_of(KEY_TYPES), alias = "key", default_value = "rsa-2048")]
    key_type: KeyType,
    /// The sizes of each L1 cache; the first is used with all L2 caches
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "16KiB,32KiB,64KiB")]
    l1: Vec<Size>,
    /// The sizes of the L2 cache
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    #[arg(default_value = "512KiB,1MiB,2MiB,8MiB")]
    l2: Vec<Size>,
    /// The sizes of the L2 cache for traces, 16MiB at most: alone, with the auxiliary cache, and larger
    /// by as much
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    #[arg(default_value = "128KiB,256KiB,512KiB,1MiB,2MiB,8MiB")]
    traced_l2: Vec<Size>,
    /// The size of a cache line: 32 in the paper's processor, 64 in most of today's
    #[arg(long, value_name = "SIZE", default_value_t = 32, value_parser = bytes_in(1..=u32::MAX))]
    line_bytes: u32,
    /// The difference of transactions between the two runs that are compared; ten times as many plain
    /// ones, three times as many resumed ones
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=i64::from(Settings::MOST_TRANSACTIONS)))]
    transactions: u32,
    /// Transactions of each kind to trace, ten times as many plain ones; 0 for no trace
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=i64::from(Settings::MOST_TRANSACTIONS)))]
    traced: u32,
    /// Servers that run at a time [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_JOBS)))]
    jobs: Option<u16>,
    /// The time after which the rest is left out, 1 day at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds_in(1..=86_400))]
    duration: u32,
    /// The old name of --duration, in minutes
    #[arg(long, value_name = "N", hide = true, conflicts_with = "duration")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_440))]
    minutes: Option<u32>,
    /// Write a page with charts and tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
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
    let longest_s = arguments.minutes.map_or(arguments.duration, |minutes| minutes * 60);
    Ok(Settings {
        program: std::env::current_exe().context("cannot find the program itself")?,
        sizes: distinct(arguments.sizes.clone()),
        modes: distinct(arguments.mode.clone()),
        versions: each_version(&arguments.tls),
        key: arguments.key_type,
        first: distinct(arguments.l1.clone()),
        second: distinct(arguments.l2.clone()),
        traced_second: distinct(arguments.traced_l2.clone()),
        line_bytes: arguments.line_bytes,
        transactions: arguments.transactions,
        traced: arguments.traced,
        jobs: arguments.jobs.unwrap_or_else(cores),
        longest: Duration::from_secs(longest_s.into()),
    })
}
