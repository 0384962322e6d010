//! `rejoin doctor`: what resumes at any TLS server, or in this machine's servers, and what stands in the way.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rejoin_doctor::{Earlier, Host, Report, Settings, Target, Watch, examine};
use rejoin_report::printable;

use crate::arguments::Misuse;
use crate::beside::Beside;
use crate::units::{Time, above_zero};
use crate::{status, terminal};

/// The longest report that is read, in bytes.
const REPORT_BYTES: u64 = 4 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Connects to each address of the server, with TLS 1.2 and 1.3, with session ids and with tickets, and
returns with the sessions: at once, after other sessions, after --wait, and at the other addresses.
One connection is open at a time: about 50 to each address, 100 where the server keeps sessions
itself, and --connections at most. It sends no secret. A server over TLS 1.3 that gives no ticket by
itself is asked for its page (HEAD /). Certificates are judged, and never refused.
What is not known is shown as `?`. After Ctrl-C it shows what was found by then.
A process id, a unit of systemd or --all is looked into instead, as by `rejoin status`: each thing
that stands in the way, with its mend. Of the options it takes --json alone.
Exit codes: 0 if sessions resume, 1 if something stands in the way or is not known, 2 for an error.
Examples:
  rejoin doctor example.com
  rejoin doctor shop.example:8443 --address 192.0.2.1,192.0.2.2 --html shop.html
  rejoin doctor example.com --wait 1h --json >today.json
  rejoin doctor example.com --earlier today.json
  rejoin doctor example.com --replay
  rejoin doctor nginx")]
pub(crate) struct Arguments {
    /// The server, whose port is 443 where none is given; or a process id or a unit of this machine
    #[arg(value_name = "HOST[:PORT]|PID|UNIT", required_unless_present = "all", value_parser = patient)]
    patient: Option<Patient>,
    /// All servers of this machine
    #[arg(long, conflicts_with = "patient")]
    all: bool,
    /// The addresses of its machines, instead of those that its name has
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    address: Vec<IpAddr>,
    /// Other names of the server, to try its sessions under
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    names: Vec<Host>,
    /// The returns at once, for each way of resuming at each address [default: 8]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    attempts: Option<u32>,
    /// The other sessions that are made before one returns, where the server keeps sessions itself [default: 24]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
    others: Option<u32>,
    /// The time before sessions return again; 0 for no such return [default: 3s]
    #[arg(long, value_name = "TIME")]
    wait: Option<Time>,
    /// The longest time for connecting, for the handshake, and for what follows it [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    deadline: Option<Time>,
    /// The most connections to each address [default: 160]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: Option<u32>,
    /// Send a request (HEAD /) as early data, and its first flight again: are copies answered?
    #[arg(long)]
    replay: bool,
    /// An earlier report of --json: are tickets still sealed with the same key?
    #[arg(long, value_name = "FILE")]
    earlier: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the report as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The patient of an examination.
#[derive(Debug, Clone)]
enum Patient {
    /// A server, from outside.
    Server(Target),
    /// A process or a unit of this machine.
    Local(String),
}

/// Reads a process id or a unit, and everything else as a server. A name without a dot is a unit's if a process is in it.
fn patient(text: &str) -> Result<Patient, String> {
    let is_process = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_unit = || !text.contains(['.', ':']) && status::is_unit(text);
    match is_process || text.ends_with(".service") || is_unit() {
        true => Ok(Patient::Local(text.to_owned())),
        false => text.parse().map(Patient::Server),
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let server = match &arguments.patient {
        Some(Patient::Server(server)) => server,
        Some(Patient::Local(local)) => return look(Some(local), arguments),
        None => return look(None, arguments),
    };
    let report = examined(server, arguments).map_err(|error| Misuse(terminal::chain(&error)))?;
    let is_well = report.resumes == Some(true);
    if is_well { Ok(()) } else { Err(anyhow!("{}: {}", report.facts.target, report.verdict())) }
}

/// Looks into this machine's servers, with nothing but `--json`.
fn look(local: Option<&str>, arguments: &Arguments) -> anyhow::Result<()> {
    let what = local.unwrap_or("this machine");
    if let Some(option) = arguments.of_connections() {
        let why = format!(
            "{option} is for a server that is connected to, and {what} is looked into: leave it out, or give HOST:PORT"
        );
        return Err(Misuse(why).into());
    }
    let is_well = status::examine(local, arguments.json)?;
    if is_well { Ok(()) } else { Err(anyhow!("{what}: something stands in the way")) }
}

impl Arguments {
    /// Returns the first option that says something about connections.
    fn of_connections(&self) -> Option<&'static str> {
        let given = [
            ("--address", !self.address.is_empty()),
            ("--names", !self.names.is_empty()),
            ("--attempts", self.attempts.is_some()),
            ("--others", self.others.is_some()),
            ("--wait", self.wait.is_some()),
            ("--deadline", self.deadline.is_some()),
            ("--connections", self.connections.is_some()),
            ("--replay", self.replay),
            ("--earlier", self.earlier.is_some()),
            ("--html", self.html.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

/// Examines the server, and writes the report.
fn examined(server: &Target, arguments: &Arguments) -> anyhow::Result<Report> {
    let page = arguments.html.as_deref().map(Beside::create).transpose()?;
    let earlier = arguments.earlier.as_deref().map(|path| earlier(path, server)).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (runtime, stopped) = (crate::runtime(1)?, Arc::clone(&stop));
    runtime.spawn(async move {
        terminal::interrupted().await;
        stopped.store(true, Ordering::Relaxed);
    });
    let bar = terminal::bar(0, "{spinner} {msg}  {elapsed_precise}");
    let told = |address: SocketAddr, number| {
        bar.set_message(format!("{address}, connection {number}"));
        bar.tick();
    };
    let facts = examine(&settings(server, arguments), Watch { stop: &stop, told: &told });
    bar.finish_and_clear();
    runtime.shutdown_background();
    let mut facts = facts?;
    if let Some(earlier) = earlier {
        facts.compare(&earlier);
    }
    let report = Report::new(facts);
    if let Some(page) = page {
        page.write(&report.html())?;
    }
    let text = if arguments.json { serde_json::to_string(&report)? } else { report.text() };
    terminal::print_result(&text)?;
    Ok(report)
}

fn settings(server: &Target, arguments: &Arguments) -> Settings {
    let usual = Settings::new(server.clone());
    let time =
        |given: Option<Time>, usual| given.map_or(usual, |time| Duration::from_millis(time.ms));
    Settings {
        addresses: arguments.address.clone(),
        names: arguments.names.clone(),
        attempts: arguments.attempts.unwrap_or(usual.attempts),
        others: arguments.others.unwrap_or(usual.others),
        wait: time(arguments.wait, usual.wait),
        deadline: time(arguments.deadline, usual.deadline),
        connections: arguments.connections.unwrap_or(usual.connections),
        replay: arguments.replay,
        ..usual
    }
}

/// Reads an earlier report on this server: another one's keys would always be others.
fn earlier(path: &Path, server: &Target) -> anyhow::Result<Earlier> {
    let failed = || format!("{}: cannot be read", path.display());
    let file = File::open(path).with_context(failed)?;
    let mut text = String::new();
    file.take(REPORT_BYTES).read_to_string(&mut text).with_context(failed)?;
    let report = serde_json::from_str(&text);
    let report: Earlier = report
        .with_context(|| format!("{}: no report of `rejoin doctor --json`", path.display()))?;
    let of = printable(report.target());
    anyhow::ensure!(report.is_on(server), "{}: a report on {of}, not on {server}", path.display());
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::{Patient, patient};

    #[test]
    fn a_process_or_a_unit_is_no_server() {
        for local in ["1234", "nginx.service"] {
            assert!(matches!(patient(local), Ok(Patient::Local(of)) if of == local), "{local}");
        }
        for server in ["example.com:1234", "192.0.2.1", "no-unit-has-this-name"] {
            assert!(matches!(patient(server), Ok(Patient::Server(_))), "{server}");
        }
    }
}
