//! `rejoin bench throughput`

use std::path::PathBuf;

use anyhow::Context;
use rejoin_cache::Prediction;
use rejoin_lab::Error;
use rejoin_lab::throughput::{self, Advantage, Devices, Outcome, Row, Settings};
use rejoin_report::distinct;
use rejoin_serve::{KeyType, Resumption, Versions};
use rejoin_trace::{SpeedUp, grouped};

use crate::arguments::{KEY_TYPES, PREDICTIONS, RESUMPTIONS, TLS, name_of, one_of};
use crate::beside::Beside;
use crate::instruments::progress;
use crate::terminal;
use crate::units::{Time, above_zero};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The benchmark runs real servers with one thread each and real handshakes over loopback; give the
devices a core of their own. Times are in the population's time. Beyond saturation a transaction
takes longer, but no more CPU time.
Exits with 3 if the machine did not keep up; a note (*) names the figures concerned. Exits with 1
if more than 2 % of a server's connections fail.
Examples:
  rejoin bench throughput --html throughput.html
  rejoin bench throughput --keep-up --rounds 3
  rejoin bench throughput --devices 5000,20000,60000 --capacity-sessions 1500 --tls 1.3 --json")]
pub(crate) struct Arguments {
    /// Devices in the population, in turn [default: 0.25, 0.5, 1, 1.5, 2 and 3 times --saturation]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MOST_DEVICES))]
    devices: Vec<u32>,
    /// Devices that saturate the server with tickets [default: measured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_DEVICES))]
    saturation: Option<u32>,
    /// Sessions that the cache may hold [default: 0.075 times --saturation, as in the paper]
    #[arg(long, value_name = "N", alias = "cache", value_parser = clap::value_parser!(u32).range(1..=MOST_DEVICES))]
    capacity_sessions: Option<u32>,
    /// The speed of the population's time, as a multiple of real time
    #[arg(long, value_name = "FACTOR", default_value_t = 60.0, allow_negative_numbers = true)]
    speedup: f64,
    /// The time to play before measuring [default: 4m; with --quick: 2m]
    #[arg(long, value_name = "TIME", alias = "warm-up-s", value_parser = above_zero)]
    warm_up: Option<Time>,
    /// The time to measure [default: 8m; with --quick: 3m]
    #[arg(long, value_name = "TIME", alias = "duration-s", value_parser = above_zero)]
    duration: Option<Time>,
    /// Measure for a shorter time, and 0.5, 1 and 2 times --saturation: a minute, coarser figures
    #[arg(long)]
    quick: bool,
    /// The TLS version
    #[arg(long, value_parser = one_of(&TLS[..2]), default_value = "1.2")]
    tls: Versions,
    /// The type of the server certificate's key
    #[arg(long, value_parser = one_of(KEY_TYPES), alias = "key", default_value = "rsa-2048")]
    key_type: KeyType,
    /// The ways of resuming, in turn
    #[arg(long, value_parser = one_of(RESUMPTIONS), value_delimiter = ',', default_value = "predictive,openssl,tickets,none")]
    resumption: Vec<Resumption>,
    /// The source of the predictive cache's return times
    #[arg(long, value_parser = one_of(PREDICTIONS), default_value = "both")]
    prediction: Prediction,
    /// Devices keep their session from one run to the next, as apps do that store it on disk
    #[arg(long)]
    keep_sessions: bool,
    /// Slow the devices down the more there are, so that even a server that resumes nothing keeps up:
    /// this measures the cost of a transaction, not the behaviour under overload
    #[arg(long)]
    keep_up: bool,
    /// Repetitions of each measurement, of which the medians are shown, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(Settings::MOST_ROUNDS)))]
    rounds: u16,
    /// The seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The folder to write certificate and key to
    #[arg(long, value_name = "FOLDER", alias = "directory", default_value = "target/rejoin")]
    folder: PathBuf,
    /// Print one JSON object per server
    #[arg(long)]
    json: bool,
    /// Write a page with charts too
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
        let (began, kept) = (progress::of_servers(end_ms), progress::rows(json));
        throughput::run(&settings, began, kept, terminal::interrupted()).await
    })?;
    anyhow::ensure!(!outcome.rows.is_empty(), "interrupted before any server was measured");
    if !json {
        terminal::print_result(&text(&outcome))?;
    }
    html.map(|file| file.write(&throughput::html(&outcome))).transpose()?;
    progress::judged(outcome.failure(), &outcome.ended, "servers")
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let quick = arguments.quick;
    let shares = if quick { &QUICK_SHARES[..] } else { &SHARES };
    let devices = match distinct(arguments.devices.clone()) {
        none if none.is_empty() => Devices::OfSaturation(shares.to_vec()),
        counts => Devices::Counts(counts),
    };
    let (warm_up_ms, measured_ms) = if quick { (120_000, 180_000) } else { (240_000, 480_000) };
    Ok(Settings {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        directory: arguments.folder.clone(),
        devices,
        saturation_devices: arguments.saturation,
        cache_sessions: arguments.capacity_sessions,
        speed_up: SpeedUp::new(arguments.speedup).map_err(Error::Population)?,
        warm_up_ms: arguments.warm_up.map_or(warm_up_ms, |time| time.ms),
        measured_ms: arguments.duration.map_or(measured_ms, |time| time.ms),
        versions: arguments.tls,
        key_type: arguments.key_type,
        prediction: name_of(PREDICTIONS, arguments.prediction),
        resumptions: distinct(arguments.resumption.clone()),
        forgets_between_runs: !arguments.keep_sessions,
        keeps_up: arguments.keep_up,
        rounds: arguments.rounds,
        seed: arguments.seed,
    })
}

fn text(outcome: &Outcome) -> String {
    let mut text = table(&outcome.medians());
    text.push_str(&format!("\n\ncaches: {} sessions", grouped(u64::from(outcome.cache_sessions))));
    if let Some(((_, is_seen), devices)) = outcome.saturation().zip(outcome.shown_saturation()) {
        text.push_str(&if is_seen {
            format!("; {devices} devices saturate the server with tickets")
        } else {
            format!(
                "; {devices} devices would saturate the server with tickets, by its CPU time: it was not \
                 seen to be"
            )
        });
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
    text.extend(outcome.failed_notes().iter().map(|note| format!("\n{note}")));
    text.push_str(&progress::notes(&outcome.ended));
    text
}

fn table(rows: &[Row]) -> String {
    let head = "devices|resumption|offered/s|done/s|per CPU-s|CPU µs|busy %|resumed %|after first %|\
                failed";
    let rows = rows.iter().map(|row| [row.figures(), vec![row.failed.to_string()]].concat());
    rejoin_report::table(&[1], head.split('|'), rows)
}
