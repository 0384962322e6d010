//! `rejoin fleet`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use rejoin_lab::fleet::{self, EarlyData, Handshakes, Latency, Liars, Report, Settings};
use rejoin_lab::fleet::{Routing, Source, Trust};
use rejoin_serve::Versions;
use rejoin_trace::{IntervalMix, Population, PopulationSettings, SpeedUp};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::arguments::{Misuse, TLS, one_of};
use crate::instruments::Doubted;
use crate::instruments::progress::{self, KEPT_UP};
use crate::terminal;
use crate::units::{Time, above_zero};

/// The most addresses of a host that are tried, and the time for each.
const MOST_ADDRESSES: usize = 8;
const ADDRESS_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Devices ask for / and need an answer of HTTP/1.1 or 1.0 with status 200. The server closes the
connection after it; with --send-early-data it says its length, and need not close.
Times are in the population's time, which runs faster than real time by the factor of --speedup.
Exits with 1 if more than 2 % of the connections fail, or after Ctrl-C, which shows the figures so
far; with 3 if the machine did not keep up: a note (*) names the figures concerned.
Examples:
  rejoin fleet localhost:8443 --insecure --devices 20000 --speedup 60 --write-trace arrivals.trace")]
pub(crate) struct Arguments {
    /// The TLS server
    #[arg(value_name = "HOST:PORT")]
    target: String,
    /// Devices in the population
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    devices: u64,
    /// The mean time that a device runs
    #[arg(long, value_name = "TIME", alias = "running-s", value_parser = above_zero, default_value = "2m")]
    running: Time,
    /// The mean time that a device waits between runs
    #[arg(long, value_name = "TIME", alias = "waiting-s", value_parser = above_zero, default_value = "46m")]
    waiting: Time,
    /// Connection intervals in seconds, each with its weight
    #[arg(long, value_name = "S:W,…", default_value = "60:23,30:13,15:2")]
    intervals: IntervalMix,
    /// The standard deviation of the intervals [default: none]
    #[arg(long, value_name = "TIME", alias = "jitter-s", value_parser = above_zero)]
    jitter: Option<Time>,
    /// The speed of the population's time, as a multiple of real time
    #[arg(long, value_name = "FACTOR", default_value_t = 6.0, allow_negative_numbers = true)]
    speedup: f64,
    /// The time to play before measuring
    #[arg(long, value_name = "TIME", alias = "warm-up-s", value_parser = above_zero, default_value = "10m")]
    warm_up: Time,
    /// The time to measure
    #[arg(long, value_name = "TIME", alias = "duration-s", value_parser = above_zero, default_value = "1h")]
    duration: Time,
    /// The TLS version to offer
    #[arg(long, value_parser = one_of(TLS), default_value = "both")]
    tls: Versions,
    /// Trust the certificates in this PEM file, and no others [default: the system's]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Trust any certificate
    #[arg(long)]
    insecure: bool,
    /// Do not announce the next connection
    #[arg(long)]
    no_hints: bool,
    /// Send requests as early data (0-RTT) where the session allows it; the server may get them twice
    #[arg(long)]
    send_early_data: bool,
    /// Percentage of devices that always announce to return in a second
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    liars_percent: u8,
    /// The seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the arrivals to a trace
    #[arg(long, value_name = "FILE", alias = "record")]
    write_trace: Option<PathBuf>,
    /// Play the arrivals of a trace instead of random ones
    #[arg(long, value_name = "FILE", alias = "replay", conflicts_with_all = [
        "devices", "running", "waiting", "intervals", "jitter", "seed", "write_trace",
    ])]
    trace: Option<PathBuf>,
    /// Threads
    #[arg(long, value_name = "N", alias = "workers", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    terminal::raise_descriptor_limit();
    let runtime = crate::runtime(arguments.threads)?;
    runtime.block_on(async {
        let settings = settings(arguments).await?;
        let (progress, receiver) = watch::channel(fleet::Progress::default());
        let bar = progress::bar(settings.end_ms, "fleet".to_owned());
        tokio::spawn(progress::follow(bar, receiver));
        let played = async move { fleet::run(&settings, &progress, terminal::interrupted()).await };
        let report = tokio::spawn(played).await??;
        print(arguments.json, &report);
        judge(&report)
    })
}

/// Returns an error unless the figures are whole, and what they are meant to be.
fn judge(report: &Report) -> anyhow::Result<()> {
    let reasons = report.conditions.reasons();
    match report.failure() {
        _ if !report.complete => Err(anyhow!("interrupted")),
        Some(failure) => Err(anyhow!(failure)),
        None if report.begun == 0 => Err(rejoin_lab::Error::Settings(fleet::NOBODY).into()),
        None if reasons.is_empty() => Ok(()),
        None => Err(Doubted(format!("{KEPT_UP}: {}", reasons.join("; "))).into()),
    }
}

async fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let (host, target) = resolved(&arguments.target).await?;
    let speed_up = SpeedUp::new(arguments.speedup).map_err(rejoin_lab::Error::Population)?;
    Ok(Settings {
        targets: vec![target],
        routing: Routing::default(),
        server_name: host,
        trust: trust(arguments.ca.as_deref(), arguments.insecure)?,
        versions: arguments.tls,
        source: source(arguments)?,
        seed: arguments.seed,
        speed_up,
        warm_up_ms: arguments.warm_up.ms,
        end_ms: arguments.warm_up.ms + arguments.duration.ms,
        hints: !arguments.no_hints,
        forgets_between_runs: false,
        early_data: arguments.send_early_data,
        liars: Liars { percent: arguments.liars_percent },
        record: arguments.write_trace.clone(),
    })
}

fn source(arguments: &Arguments) -> Result<Source, rejoin_lab::Error> {
    if let Some(path) = &arguments.trace {
        return Ok(Source::Trace(path.clone()));
    }
    let settings = PopulationSettings {
        waiting_ms: arguments.waiting.ms,
        running_ms: arguments.running.ms,
        intervals: arguments.intervals.clone(),
        jitter_ms: arguments.jitter.map_or(0, |jitter| jitter.ms),
        ..PopulationSettings::paper(arguments.devices)
    };
    Population::new(settings).map(Source::Population).map_err(rejoin_lab::Error::Population)
}

/// Returns the host and the address of `HOST:PORT`.
pub(super) async fn resolved(server: &str) -> anyhow::Result<(String, SocketAddr)> {
    let (host, _) = server
        .rsplit_once(':')
        .ok_or_else(|| Misuse(format!("{server}: no port; write HOST:PORT")))?;
    let found = tokio::net::lookup_host(server).await.ok();
    let all: Vec<SocketAddr> = found.into_iter().flatten().take(MOST_ADDRESSES).collect();
    let address = accepting(&all)
        .await
        .ok_or_else(|| Misuse(format!("{server}: no such host or port; write HOST:PORT")))?;
    Ok((host.trim_matches(['[', ']']).to_owned(), address))
}

/// Returns the first address that accepts a connection, as programs find a server that listens at one of several, such as
/// `::1` and 127.0.0.1. If none does, the first, whose error tells why.
async fn accepting(all: &[SocketAddr]) -> Option<SocketAddr> {
    if let [_, _, ..] = all {
        for address in all {
            let tried = timeout(ADDRESS_PATIENCE, TcpStream::connect(address)).await;
            if tried.is_ok_and(|connected| connected.is_ok()) {
                return Some(*address);
            }
        }
    }
    all.first().copied()
}

pub(super) fn trust(ca: Option<&Path>, insecure: bool) -> Result<Trust, rejoin_lab::Error> {
    match ca {
        Some(path) => Ok(Trust::Certificates(rejoin_serve::read_certificates(path)?)),
        None if insecure => Ok(Trust::Anybody),
        None => Ok(Trust::System),
    }
}

fn print(json: bool, report: &Report) {
    if json {
        return terminal::print(&json!(report).to_string());
    }
    let line = |name: &str, handshakes: Handshakes| {
        let Handshakes { full, resumed } = handshakes;
        let rate = handshakes.hit_rate();
        terminal::print(&format!("{name:26} {full:>8} full {resumed:>8} resumed  {rate:5.1} %"));
    };
    line("whole run", report.all);
    line("measured, first of a run", report.first_of_run);
    line("measured, after the first", report.after_first_of_run);
    if report.liars_after_first_of_run.total() > 0 {
        line("the same, of liars", report.liars_after_first_of_run);
    }
    let EarlyData { accepted, rejected } = report.early_data;
    if accepted + rejected > 0 {
        let offered = accepted + rejected;
        terminal::print(&format!(
            "{:26} {offered:>8} offered {accepted:>5} accepted {rejected:>5} rejected",
            "early data"
        ));
    }
    let Latency { p50, p90, p99, .. } = report.full_us;
    terminal::print(&format!("full handshake      {p50} µs median, {p90} p90, {p99} p99"));
    let Latency { p50, p90, p99, .. } = report.resumed_us;
    terminal::print(&format!("resumed handshake   {p50} µs median, {p90} p90, {p99} p99"));
    let (rate, devices) = (report.handshakes_per_s, report.devices);
    terminal::print(&format!("{rate:.0} handshakes/s by {devices} devices"));
    for (why, count) in &report.failed {
        terminal::print(&format!("{count} failed: {why}"));
    }
    report.notes().iter().for_each(|note| terminal::print(note));
    if !report.complete {
        terminal::print("interrupted: these are the figures so far");
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_first_address_that_listens_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let open = listener.local_addr().expect("an address");
        let gone = TcpListener::bind("127.0.0.2:0").and_then(|gone| gone.local_addr());
        let closed = gone.expect("an address");
        let taken =
            |all: &[SocketAddr]| crate::runtime(1).expect("a runtime").block_on(accepting(all));
        assert_eq!(taken(&[closed, open]), Some(open));
        assert_eq!(taken(&[closed, closed]), Some(closed));
        assert_eq!((taken(&[closed]), taken(&[])), (Some(closed), None));
    }
}
