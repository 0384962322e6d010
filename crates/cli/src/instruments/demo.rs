//! `rejoin demo`

pub(crate) mod apps;

use std::path::PathBuf;

use anyhow::Context;
use rejoin_cache::Prediction;
use rejoin_lab::demo::{self, Row, Settings};
use rejoin_lab::fleet::Liars;
use rejoin_serve::{Resumption, Versions};
use rejoin_trace::SpeedUp;

use crate::arguments::{PREDICTIONS, RESUMPTIONS, TLS, name_of, one_of};
use crate::instruments::progress;
use crate::terminal;
use crate::units::{Time, above_zero};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The demonstration runs real servers and real handshakes over loopback, for a minute and a half. It
writes its charts to demo.html in --folder. A server with which the machine does not keep up is
measured once more, at half the speed. Exits with 3 if that does not do; the rows concerned have a
mark (*). Exits with 1 if more than 2 % of a server's connections fail.
Examples:
  rejoin demo --tls 1.3 --resumption openssl,predictive --json
  rejoin demo --client")]
pub(crate) struct Arguments {
    /// Devices in the population
    #[arg(long, value_name = "N", default_value_t = 8_000)]
    devices: u64,
    /// Sessions that the server may keep, as a share of the devices that run at a time
    #[arg(long, value_name = "SHARE", default_value_t = 0.6, allow_negative_numbers = true)]
    capacity_share: f64,
    /// The speed of the population's time, as a multiple of real time
    #[arg(long, value_name = "FACTOR", default_value_t = 75.0)]
    speedup: f64,
    /// The time to play before measuring
    #[arg(long, value_name = "TIME", alias = "warm-up-s", value_parser = above_zero, default_value = "4m")]
    warm_up: Time,
    /// The time to measure
    #[arg(long, value_name = "TIME", alias = "duration-s", value_parser = above_zero, default_value = "200s")]
    duration: Time,
    /// The TLS versions, in turn
    #[arg(long, value_parser = one_of(TLS), value_delimiter = ',', default_value = "1.2,1.3")]
    tls: Vec<Versions>,
    /// The ways of resuming, in turn
    #[arg(long, value_parser = one_of(RESUMPTIONS), value_delimiter = ',', default_value = "none,openssl,tickets,lru,predictive")]
    resumption: Vec<Resumption>,
    /// Leave out the rows of several servers, which are measured if tickets are
    #[arg(long)]
    one_server: bool,
    /// The source of the predictive cache's return times
    #[arg(long, value_parser = one_of(PREDICTIONS), default_value = "both")]
    prediction: Prediction,
    /// Percentage of devices that always announce to return in a second
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    liars_percent: u8,
    /// The seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The folder to write the trace, the certificate and the charts to
    #[arg(long, value_name = "FOLDER", alias = "directory", default_value = "target/rejoin")]
    folder: PathBuf,
    /// Compare client programs that share sessions with programs that do not: paper 004, Table I
    #[arg(long, conflicts_with_all = [
        "devices", "capacity_share", "speedup", "warm_up", "duration", "tls", "resumption", "one_server", "prediction",
        "liars_percent",
    ])]
    client: bool,
    /// Client programs, with --client
    #[arg(long, value_name = "N", default_value_t = 60, requires = "client")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    apps: u32,
    /// Services that the programs use, with --client
    #[arg(long, value_name = "N", default_value_t = 90, requires = "client")]
    #[arg(value_parser = clap::value_parser!(u8).range(8..=250))]
    services: u8,
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.client {
        return apps::run(arguments);
    }
    terminal::raise_descriptor_limit();
    let settings = settings(arguments)?;
    let end_ms = settings.warm_up_ms + settings.measured_ms;
    let (json, page) = (arguments.json, settings.directory.join("demo.html"));
    // Devices share a thread; the server under test has the other core.
    let runtime = crate::runtime(1)?;
    let outcome = runtime.block_on(async move {
        let (began, kept) = (progress::of_servers(end_ms), progress::rows(json));
        demo::run(&settings, began, kept, terminal::interrupted()).await
    })?;
    if !json {
        let rows = outcome.rows.iter().map(Row::figures);
        terminal::print(&rejoin_report::table(&Row::TEXT, Row::HEAD, rows));
        outcome.notes().iter().for_each(|note| terminal::print(note));
        if !outcome.rows.is_empty() {
            terminal::print(&format!("charts: {}", page.display()));
        }
    }
    progress::judged(outcome.failure(), &outcome.ended, "servers")
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let speed_up = SpeedUp::new(arguments.speedup).map_err(rejoin_lab::Error::Population)?;
    let share = arguments.capacity_share;
    if !(share > 0.0 && share <= 1_000.0) {
        let why = "--capacity-share is a positive share of the running devices, such as 0.6";
        return Err(rejoin_lab::Error::Settings(why).into());
    }
    Ok(Settings {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        directory: arguments.folder.clone(),
        devices: arguments.devices,
        capacity_share: share,
        speed_up,
        warm_up_ms: arguments.warm_up.ms,
        measured_ms: arguments.duration.ms,
        seed: arguments.seed,
        prediction: name_of(PREDICTIONS, arguments.prediction),
        liars: Liars { percent: arguments.liars_percent },
        versions: arguments.tls.clone(),
        resumptions: arguments.resumption.clone(),
        several: !arguments.one_server && arguments.resumption.contains(&Resumption::Tickets),
    })
}
