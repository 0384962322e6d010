//! `rejoin bench throughput`

use std::path::PathBuf;

use anyhow::Context;
use rejoin_lab::throughput::{self, Advantage, Devices, Outcome, Row, Settings};
use rejoin_lab::{Error, Step};
use rejoin_serve::Resumption;
use rejoin_trace::{SpeedUp, grouped};
use serde_json::json;

use crate::arguments::{KeyName, PredictionName, ResumptionName, Tls, seconds};
use crate::beside::Beside;
use crate::instruments::progress;
use crate::sizes::distinct;
use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Real servers with one thread each, real handshakes, everything on loopback; give the devices
a core of their own. Times are the population's. Past saturation a transaction waits; its CPU time
does not.
Examples:
  rejoin bench throughput --html throughput.html
  rejoin bench throughput --keep-up --rounds 3
  rejoin bench throughput --devices 5000,20000,60000 --cache 1500 --tls 1.3 --json")]
pub(crate) struct Arguments {
    /// Devices of the population, in turn [default: 0.25, 0.5, 1, 1.5, 2 and 3 times those that saturate the
    /// server]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MOST_DEVICES))]
    devices: Vec<u32>,
    /// Devices that saturate the server with tickets [default: measured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_DEVICES))]
    saturation: Option<u32>,
    /// Sessions that a cache may hold [default: 0.075 for each device that saturates, as in the paper]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_DEVICES))]
    cache: Option<u32>,
    /// How much faster than real time
    #[arg(long, value_name = "FACTOR", default_value_t = 60.0, allow_negative_numbers = true)]
    speedup: f64,
    /// Population time played before measuring, in seconds [default: 240, with --quick 120]
    #[arg(long, value_name = "S", value_parser = seconds)]
    warm_up_s: Option<u64>,
    /// Population time measured, in seconds [default: 480, with --quick 180]
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration_s: Option<u64>,
    /// Times shorter, and devices 0.5, 1 and 2 times those that saturate: a minute, coarser figures
    #[arg(long)]
    quick: bool,
    /// TLS version, one
    #[arg(long, value_enum, default_value = "1.2")]
    tls: Tls,
    /// Key of the server's certificate
    #[arg(long, value_enum, default_value = "rsa-2048")]
    key: KeyName,
    /// Ways of resuming, in turn
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "predictive,openssl,tickets,none"
    )]
    resumption: Vec<ResumptionName>,
    /// Where the predictive cache's return times come from
    #[arg(long, value_enum, default_value = "both")]
    prediction: PredictionName,
    /// Devices keep their session from one run to the next, as apps do that write it down
    #[arg(long)]
    keep_sessions: bool,
    /// Play the devices more slowly the more there are, so that a server that resumed nothing could serve
    /// all: what a transaction costs, rather than what is left of an overloaded server
    #[arg(long)]
    keep_up: bool,
    /// Measure everything so often, in turns; figures are medians [1 to 1000]
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_ROUNDS)))]
    rounds: u16,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where certificate and key go
    #[arg(long, value_name = "FOLDER", default_value = "target/rejoin")]
    directory: PathBuf,
    /// Print one JSON object per server
    #[arg(long)]
    json: bool,
    /// Write a page with the lines, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const MOST_DEVICES: i64 = rejoin_trace::MOST_DEVICES as i64;
const SHARES: [f64; 6] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0];
const QUICK_SHARES: [f64; 3] = [0.5, 1.0, 2.0];

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    terminal::raise_descriptor_limit();
    let settings = settings(arguments)?;
    let html = arguments.html.as_deref().map(Beside::create).transpose()?;
    let end_ms = settings.warm_up_ms + settings.measured_ms;
    let json = arguments.json;
    // Devices share a thread; the server under test has the other core.
    let runtime = crate::runtime(1)?;
    let outcome = runtime.block_on(async move {
        let began = |Step { done, of, what }: &Step, progress| {
            let label = format!("{}/{of} {what}", done + 1);
            tokio::spawn(progress::follow(progress::bar(end_ms, label), progress));
        };
        let ended = |row: &Row| {
            if json {
                terminal::print(&json!(row).to_string());
            }
        };
        throughput::run(&settings, began, ended, terminal::interrupted()).await
    })?;
    anyhow::ensure!(!outcome.rows.is_empty(), "interrupted before any server was measured");
    if !json {
        terminal::print_result(&text(&outcome))?;
    }
    html.map(|file| file.write(&throughput::html(&outcome))).transpose()?;
    progress::whole(&outcome.ended, "interrupted", "servers")
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let quick = arguments.quick;
    let shares = if quick { &QUICK_SHARES[..] } else { &SHARES };
    let devices = match distinct(arguments.devices.clone()) {
        none if none.is_empty() => Devices::OfSaturation(shares.to_vec()),
        counts => Devices::Counts(counts),
    };
    let (warm_up_ms, measured_ms) = if quick { (120_000, 180_000) } else { (240_000, 480_000) };
    let resumptions = distinct(arguments.resumption.clone());
    Ok(Settings {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        directory: arguments.directory.clone(),
        devices,
        saturation_devices: arguments.saturation,
        cache_sessions: arguments.cache,
        speed_up: SpeedUp::new(arguments.speedup).map_err(Error::Population)?,
        warm_up_ms: arguments.warm_up_s.unwrap_or(warm_up_ms),
        measured_ms: arguments.duration_s.unwrap_or(measured_ms),
        versions: arguments.tls.into(),
        key_type: arguments.key.into(),
        prediction: arguments.prediction.name(),
        resumptions: resumptions.into_iter().map(Resumption::from).collect(),
        forgets_between_runs: !arguments.keep_sessions,
        keeps_up: arguments.keep_up,
        rounds: arguments.rounds,
        seed: arguments.seed,
    })
}

fn text(outcome: &Outcome) -> String {
    let mut text = table(&outcome.medians());
    text.push_str(&format!("\n\ncaches: {} sessions", grouped(u64::from(outcome.cache_sessions))));
    if let Some(devices) = outcome.saturation_devices {
        text.push_str(&format!(
            "; {} devices saturate the server with tickets",
            grouped(u64::from(devices))
        ));
    }
    for (past, side) in [(false, "up to saturation"), (true, "past it")] {
        for over in [Resumption::Tickets, Resumption::OpenSsl] {
            if let Some(Advantage { together, least }) = outcome.advantage(over, past) {
                let name = over.name();
                text.push_str(&format!(
                    "\n{side}: predictive has {together:.2} times the transactions per CPU-second of \
                     {name} ({least:.2} at the least)"
                ));
            }
        }
    }
    text
}

fn table(rows: &[Row]) -> String {
    let head = [
        "devices",
        "resumption",
        "offered/s",
        "done/s",
        "per CPU-s",
        "CPU µs",
        "busy %",
        "resumed %",
        "after first %",
        "failed",
    ];
    let rows = rows.iter().map(|row| {
        vec![
            grouped(u64::from(row.devices)),
            row.resumption.to_owned(),
            format!("{:.0}", row.offered_per_s),
            format!("{:.0}", row.transactions_per_s),
            format!("{:.0}", row.transactions_per_cpu_s),
            format!("{:.0}", row.server_cpu_us),
            format!("{:.0}", row.server_busy_percent),
            format!("{:.1}", row.hit_percent),
            format!("{:.1}", row.hit_after_first_of_run),
            row.failed.to_string(),
        ]
    });
    rejoin_report::table(&[1], head, rows)
}
