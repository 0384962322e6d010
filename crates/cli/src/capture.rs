//! `rejoin capture`

mod inputs;
mod live;
mod outputs;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rejoin_capture::report::{self, Captured, LeftOut, Report};
use rejoin_capture::sharing::{Application, Assumptions, Device, Scope, Sharing};
use rejoin_capture::{Analyser, Limits, Model, Networks};

use crate::arguments::{Misuse, seconds};
use crate::terminal::{self, Watch};
use inputs::Inputs;
use outputs::Outputs;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Captures are pcap or pcapng, also gzipped, of any link layer; TLS is found on every port, QUIC too.
Folders are searched for captures, whose names are relative to the folder if it is all that is
given. - is standard input.
Without --list the answer is a report: what was full and resumed, what every application could have
resumed itself, what sharing on the client would save, and what sharing between servers would.
docs/capture.md explains the figures, and where to get a table of networks.
Examples:
  rejoin capture phone.pcapng
  rejoin capture --networks asn.csv --html report.html captures/
  rejoin capture --list --explain --interface lo
  rejoin capture --server 192.0.2.7 --trace arrivals.trace eth0.pcap
  rejoin plan --trace arrivals.trace")]
pub(crate) struct Arguments {
    /// Captures, folders of captures, or - for standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["interface", "counts"])]
    files: Vec<PathBuf>,
    /// Capture from this interface until Ctrl-C instead; any is all of them
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    interface: Option<String>,
    /// Stop capturing after this time, in seconds
    #[arg(long, value_name = "S", value_parser = seconds, requires = "interface")]
    duration: Option<u64>,
    /// Print a line for each handshake, as it is found, instead of the report
    #[arg(long)]
    list: bool,
    /// Say of each handshake why it is taken for full or resumed
    #[arg(long, requires = "list")]
    explain: bool,
    /// Print JSON: the report, or with --list an object for each handshake
    #[arg(long)]
    json: bool,
    /// Write each handshake as comma-separated values, too
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the report as a page with charts, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write arrivals for simulate and plan, too: a client is an address
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Only handshakes with this server
    #[arg(long, value_name = "ADDRESS")]
    server: Option<std::net::IpAddr>,
    /// Which application a capture shows: lines of file, tab, application [default: each its own]
    #[arg(long, value_name = "FILE")]
    apps: Option<PathBuf>,
    /// What an application is
    #[arg(long, value_enum, default_value = "capture", conflicts_with = "apps")]
    apps_by: AppsBy,
    /// Which applications could share sessions
    #[arg(long, value_enum, default_value = "all")]
    share: Share,
    /// Who runs which addresses: lines of start,end,asn,org or prefix,asn,org
    #[arg(long, value_name = "FILE")]
    networks: Option<PathBuf>,
    /// What handshakes cost, in TOML [default: a smartphone's, from paper 004]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Services to show
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    top: u16,
    /// Replace names, addresses and files by pseudonyms
    #[arg(long)]
    anonymise: bool,
    /// The key of the pseudonyms, 32 hexadecimal digits: the same key gives the same ones
    /// [default: a new one]
    #[arg(long, value_name = "FILE", requires = "anonymise")]
    anonymise_key: Option<PathBuf>,
    /// Print the table of these counts instead: full:resumed,…
    #[arg(long, value_name = "FULL:RESUMED,…", value_delimiter = ',', value_parser = counts, conflicts_with_all = ["files", "interface", "list", "json", "csv", "html", "trace", "networks", "apps", "server", "anonymise"])]
    counts: Option<Vec<(u64, u64)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AppsBy {
    /// a capture is an application
    Capture,
    /// a client address is an application
    Client,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Share {
    /// all: they count as programs of one device, as in the paper
    All,
    /// those with the same client address
    Client,
}

impl Arguments {
    /// The files to write.
    fn outputs(&self) -> impl Iterator<Item = &Path> {
        [&self.csv, &self.html, &self.trace].into_iter().flatten().map(PathBuf::as_path)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let model = arguments.model.as_deref().map_or_else(|| Ok(Model::default()), read_model)?;
    if let Some(counts) = &arguments.counts {
        return terminal::print_result(&report::counts_table(counts, &model));
    }
    let mut sharing = Sharing::new(scope(arguments)?, networks(arguments.networks.as_deref())?);
    let inputs = Inputs::find(arguments)?;
    let mut outputs = Outputs::create(arguments, &inputs)?;
    let watch = Watch::start()?;
    let captured = analyse(arguments, &inputs, &mut sharing, &mut outputs, &watch)?;
    if captured.captures == 0 && !captured.left_out.is_empty() {
        anyhow::bail!("{}: none could be read, and nothing is written", inputs.counted());
    }
    let findings = sharing.findings(&Assumptions::default(), usize::from(arguments.top));
    let mut report = Report::new(captured, findings, model);
    outputs.finish(&mut report)?;
    let left_out = report.captured.left_out.len();
    anyhow::ensure!(!report.captured.interrupted, "interrupted: this is what was read by then");
    anyhow::ensure!(
        left_out == 0,
        "{left_out} of {} not read, or not to the end",
        inputs.counted()
    );
    Ok(())
}

/// Reads all there is to read, or until it is told to stop.
fn analyse(
    arguments: &Arguments,
    inputs: &Inputs,
    sharing: &mut Sharing,
    outputs: &mut Outputs,
    watch: &Watch,
) -> anyhow::Result<Captured> {
    let mut analyser = Analyser::new(Limits { hash_seed: random()?, ..Limits::default() });
    let mut captured = Captured::default();
    let (bar, stop) = (inputs.bar(), watch.progress());
    for input in inputs {
        if stop.stopped() || !outputs.is_open() {
            break;
        }
        sharing.begin(inputs.application(&input.name));
        let read = input.open(stop, &bar).and_then(|reader| {
            let each = |handshake: rejoin_capture::Handshake| {
                if arguments.server.is_none_or(|server| server == handshake.server_ip) {
                    captured.handshakes_seen += 1;
                    sharing.add(&handshake);
                    outputs.handshake(&input.name, &handshake);
                }
                if !outputs.is_open() {
                    stop.stop();
                }
            };
            analyser.read(reader, each).map_err(|error| error.to_string())
        });
        let left_out = match read {
            Ok(summary) => {
                captured.captures += 1;
                captured.frames += summary.frames;
                summary.stop.map(|stop| stop.to_string())
            }
            Err(reason) => Some(reason),
        };
        // What we broke off ourselves is not the capture's fault.
        if let Some(reason) = left_out.filter(|_| !stop.stopped()) {
            let file = outputs.shown(&input.name);
            bar.suspend(|| terminal::complain(&format!("{file}: {reason}")));
            captured.left_out.push(LeftOut { file: input.name.clone(), reason });
        }
    }
    captured.bytes = bar.position();
    bar.finish_and_clear();
    // A live capture ends by being told to, a list by nobody reading on.
    captured.interrupted = stop.stopped() && outputs.is_open() && arguments.interface.is_none();
    if let Some(reason) = inputs.lost() {
        let file = outputs.shown(arguments.interface.as_deref().unwrap_or_default());
        terminal::complain(&format!("{file}: {reason}"));
        captured.left_out.push(LeftOut { file, reason });
    }
    Ok(captured)
}

fn scope(arguments: &Arguments) -> anyhow::Result<Scope> {
    Ok(Scope {
        application: match arguments.apps_by {
            AppsBy::Capture => Application::Capture,
            AppsBy::Client => Application::Client,
        },
        device: match arguments.share {
            Share::All => Device::One,
            Share::Client => Device::Client,
        },
        hash_seed: random()?,
    })
}

fn networks(path: Option<&Path>) -> anyhow::Result<Networks> {
    let Some(path) = path else { return Ok(Networks::default()) };
    let file =
        fs::File::open(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    Networks::parse(file).map_err(|error| misuse(path, &error))
}

fn read_model(path: &Path) -> anyhow::Result<Model> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("{}: cannot be read", path.display()))?;
    Model::parse(&text).map_err(|error| misuse(path, &error))
}

fn misuse(path: &Path, what: &dyn std::fmt::Display) -> anyhow::Error {
    Misuse(format!("{}: {what}", path.display())).into()
}

/// `4021:974`
fn counts(text: &str) -> Result<(u64, u64), String> {
    let parsed = text.split_once(':').and_then(|(full, resumed)| {
        Some((full.trim().parse().ok()?, resumed.trim().parse().ok()?))
    });
    parsed.ok_or_else(|| "write full:resumed, such as 4021:974".to_owned())
}

/// A number that nobody can guess.
fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn fill_random(bytes: &mut [u8]) -> anyhow::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let filled = getrandom(&mut *bytes, GetRandomFlags::empty());
    let filled = filled.context("the system gives no random numbers")?;
    anyhow::ensure!(filled == bytes.len(), "the system gives too few random numbers");
    Ok(())
}
