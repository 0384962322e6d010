//! `rejoin capture`

mod analysis;
mod follow;
mod inputs;
mod live;
mod metrics;
mod outputs;
mod programs;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rejoin_capture::report::{self, Report, ZeekLog};
use rejoin_capture::sharing::{Application, Assumptions, Device, Scope, Sharing};
use rejoin_capture::{Model, Networks};

use crate::arguments::{Choice, Misuse, address, one_of};
use crate::terminal::{self, Watch};
use crate::units::{Time, above_zero};
use analysis::Analysis;
use inputs::Inputs;
use metrics::Counts;
use outputs::Outputs;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Captures are pcap or pcapng files of the usual link layers, also in gzip or zstd. Frames that cannot
be looked into are counted. TLS, QUIC and DTLS are found on every port. Folders are searched for
captures; if one folder is the only argument, names are relative to it. - is standard input.
The report counts full and resumed handshakes. It estimates what each application could have resumed
itself, and what sharing sessions on the client and between servers would save. docs/capture.md
explains the figures and names sources for --networks.
Examples:
  rejoin capture phone.pcapng
  rejoin capture --networks asn.csv --html report.html captures/
  rejoin capture --list --explain --interface lo
  tcpdump -i eth0 -G 60 -w /var/captures/%s.pcap & rejoin capture --follow /var/captures
  rejoin capture --server 192.0.2.7 --write-trace arrivals.trace eth0.pcap
  rejoin plan --trace arrivals.trace")]
pub(crate) struct Arguments {
    /// Captures, folders of captures, or - for standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["interface", "counts"])]
    files: Vec<PathBuf>,
    /// Capture from this interface until Ctrl-C; any means all interfaces
    #[arg(long, value_name = "NAME", conflicts_with = "files", group = "live")]
    interface: Option<String>,
    /// Read the captures that another program writes to a folder, one after the other, until Ctrl-C
    #[arg(long, conflicts_with = "app_map", group = "live")]
    follow: bool,
    /// Stop capturing or following after this time
    #[arg(long, value_name = "TIME", value_parser = above_zero, requires = "live")]
    duration: Option<Time>,
    /// The address to serve /metrics for Prometheus on meanwhile, over plain HTTP
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, requires = "live")]
    metrics: Option<SocketAddr>,
    /// Print a line for each handshake as it is found, instead of the report
    #[arg(long)]
    list: bool,
    /// Explain for each handshake why it counts as full or resumed
    #[arg(long, requires = "list")]
    explain: bool,
    /// Print one JSON object, or with --list one for each handshake
    #[arg(long)]
    json: bool,
    /// Write each handshake to a file too, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write Zeek's ssl.log and conn.log to this folder too, with what handshakes show
    #[arg(long, value_name = "FOLDER", conflicts_with = "anonymise")]
    zeek: Option<PathBuf>,
    /// Write a page with the report and charts too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the arrivals to a trace too, for simulate and plan; each client address is a client
    #[arg(long, value_name = "FILE", alias = "trace")]
    write_trace: Option<PathBuf>,
    /// Count only handshakes with this server
    #[arg(long, value_name = "ADDRESS")]
    server: Option<std::net::IpAddr>,
    /// The application of each capture, in lines of file, tab, application [default: each capture is
    /// its own]
    #[arg(long, value_name = "FILE", alias = "apps")]
    app_map: Option<PathBuf>,
    /// The definition of an application
    #[arg(long, value_parser = one_of(APPLICATIONS), default_value = "capture", conflicts_with = "app_map")]
    apps_by: Application,
    /// The applications that could share sessions
    #[arg(long, value_parser = one_of(DEVICES), default_value = "all")]
    share: Device,
    /// The operators of addresses, in lines of start,end,asn,org or prefix,asn,org, also in gzip
    #[arg(long, value_name = "FILE")]
    networks: Option<PathBuf>,
    /// The cost of handshakes, in TOML [default: that of a smartphone, from paper 004]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The number of services to show
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    top: u16,
    /// Replace names, addresses and files by pseudonyms
    #[arg(long)]
    anonymise: bool,
    /// The key of the pseudonyms, 32 hexadecimal digits; the same key gives the same pseudonyms
    /// [default: a new key]
    #[arg(long, value_name = "FILE", requires = "anonymise")]
    anonymise_key: Option<PathBuf>,
    /// Only print the table of these counts
    #[arg(long, value_name = "FULL:RESUMED,…", value_delimiter = ',', value_parser = counts, conflicts_with_all = ["files", "interface", "follow", "list", "json", "csv", "zeek", "html", "write_trace", "networks", "app_map", "server", "anonymise"])]
    counts: Option<Vec<(u64, u64)>>,
}

const APPLICATIONS: &[Choice<Application>] = &[
    (Application::Capture, "capture", "each capture is an application"),
    (Application::Client, "client", "each client address is an application"),
    (
        Application::Program,
        "program",
        "each program is an application, or each JA4 where it is unknown",
    ),
];
const DEVICES: &[Choice<Device>] = &[
    (Device::One, "all", "all applications, as programs of one device, as in the paper"),
    (Device::Client, "client", "applications with the same client address"),
];

impl Arguments {
    /// Returns the files to write.
    fn outputs(&self) -> impl Iterator<Item = PathBuf> {
        let named = [&self.csv, &self.html, &self.write_trace].into_iter().flatten().cloned();
        named.chain(self.zeek_logs().map(|(_, path)| path))
    }

    /// Returns the logs of Zeek's form to write.
    fn zeek_logs(&self) -> impl Iterator<Item = (ZeekLog, PathBuf)> {
        let folder = self.zeek.iter();
        folder.flat_map(|folder| ZeekLog::ALL.map(|log| (log, folder.join(log.file_name()))))
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
    let (watch, bar, counts) = (Watch::start()?, inputs.bar(), Arc::<Counts>::default());
    if let Some(address) = arguments.metrics {
        metrics::serve(&watch, address, Arc::clone(&counts), inputs.lost())?;
    }
    let beside = (&*counts, watch.progress(), &bar);
    let captured = Analysis::new(arguments, &inputs, &mut sharing, &mut outputs, beside)?.run();
    if captured.captures == 0 && !captured.left_out.is_empty() {
        anyhow::bail!("{}: none could be read, and nothing is written", inputs.counted());
    }
    let findings = sharing.findings(&Assumptions::default(), usize::from(arguments.top));
    let mut report = Report::new(captured, findings, model);
    outputs.finish(&mut report)?;
    let left_out = report.captured.left_out.len();
    anyhow::ensure!(
        !report.captured.interrupted,
        "interrupted: the figures cover the captures read so far"
    );
    anyhow::ensure!(
        left_out == 0,
        "{left_out} of {} not read, or not to the end",
        inputs.counted()
    );
    Ok(())
}

fn scope(arguments: &Arguments) -> anyhow::Result<Scope> {
    Ok(Scope { application: arguments.apps_by, device: arguments.share, hash_seed: random()? })
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

/// Reads counts such as `4021:974`.
fn counts(text: &str) -> Result<(u64, u64), String> {
    let parsed = text.split_once(':').and_then(|(full, resumed)| {
        Some((full.trim().parse().ok()?, resumed.trim().parse().ok()?))
    });
    parsed.ok_or_else(|| "write full:resumed, such as 4021:974".to_owned())
}

/// Returns a random number that cannot be guessed.
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
