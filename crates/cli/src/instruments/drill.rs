//! `rejoin cluster drill`

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use rejoin_lab::drill::{self, Fault, Part, Report, Seen, Settings};
use rejoin_report::printable;
use rustix::process::Pid;
use serde_json::json;

use crate::arguments::Misuse;
use crate::instruments::progress::KEPT_UP;
use crate::instruments::{Doubted, fleet};
use crate::terminal;
use crate::units::{Time, above_zero};

/// The least percentage of the visits that must be made.
const LEAST_MADE: f64 = 95.0;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Clients come to the servers in turn, each with the session that the last one gave it, and every
fifth time without. So 80 % resume where all servers resume each other's sessions. They ask for /
and must get HTTP 200. Then something is broken for a while: a process of this machine, or whatever
a command breaks, as on another machine over ssh. A paused process goes on afterwards, after Ctrl-C
too.
Exit codes: 0 if all were answered and resume again, 1 if not or if few resumed before the fault, 2
for an error, 3 if this machine did not keep up.
Examples:
  rejoin cluster drill --staging web-1:443 web-2:443 --name shop.example --pause 4711
  rejoin cluster drill --staging web-1:443 web-2:443 --name shop.example \\
    --run 'ssh valkey-1 systemctl stop valkey' --mend 'ssh valkey-1 systemctl start valkey'")]
pub(crate) struct Arguments {
    /// The TLS servers of the cluster
    #[arg(value_name = "HOST:PORT", required = true, num_args = 1..=64)]
    servers: Vec<String>,
    /// This cluster serves nobody who would mind
    #[arg(long, required = true)]
    staging: bool,
    #[command(flatten)]
    fault: Broken,
    /// Run this command of the shell at the end of the fault, also after Ctrl-C
    #[arg(long, value_name = "COMMAND")]
    mend: Option<String>,
    /// The time before the fault, the fault's, and the time after it
    #[arg(long, value_name = "TIME", value_parser = above_zero, default_value = "10s")]
    phase: Time,
    /// Visits a second
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    per_second: u32,
    /// The name of the servers, in their certificates [default: the first one's HOST]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Trust the certificates in this PEM file, and no others [default: the system's]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Trust any certificate
    #[arg(long)]
    insecure: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Broken {
    /// Kill this process
    #[arg(long, value_name = "PID", value_parser = process)]
    kill: Option<Pid>,
    /// Have this process stand still
    #[arg(long, value_name = "PID", value_parser = process)]
    pause: Option<Pid>,
    /// Run this command of the shell
    #[arg(long, value_name = "COMMAND")]
    run: Option<String>,
}

/// Reads the id of a process, which is neither the system's first nor this one.
fn process(text: &str) -> Result<Pid, String> {
    let pid = text.parse().ok().filter(|id| *id > 1).and_then(Pid::from_raw);
    pid.filter(|pid| *pid != rustix::process::getpid())
        .ok_or_else(|| "give the id of a process, above 1".to_owned())
}

impl Broken {
    fn fault(&self) -> Option<Fault> {
        let (kill, pause) = (self.kill.map(Fault::Kill), self.pause.map(Fault::Pause));
        kill.or(pause).or_else(|| self.run.clone().map(Fault::Run))
    }
}

pub(crate) fn run(arguments: &Arguments, is_json: bool) -> anyhow::Result<()> {
    terminal::raise_descriptor_limit();
    let fault = arguments.fault.fault().ok_or_else(|| Misuse("no fault is given".to_owned()))?;
    let bar = terminal::bar(3, "{bar:12} {elapsed_precise}  {msg}");
    let told = |part: Part| {
        bar.set_position(part as u64);
        bar.set_message(match part {
            Part::Before => "before the fault",
            Part::During => "the fault",
            Part::After => "after the fault",
        });
        bar.tick();
    };
    let mend = arguments.mend.as_deref();
    let drilled = crate::runtime(1)?.block_on(async {
        let settings = settings(arguments).await?;
        Ok(drill::run(&settings, &fault, mend, told, terminal::interrupted()).await?)
    });
    bar.finish_and_clear();
    let report = drilled.map_err(|error: anyhow::Error| Misuse(terminal::chain(&error)))?;
    let text = if is_json { json!(report).to_string() } else { shown(&report) };
    terminal::print_result(&text)?;
    judge(&report)
}

async fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let mut servers = Vec::new();
    for server in &arguments.servers {
        servers.push(fleet::resolved(server).await?);
    }
    let host = servers.first().map(|(host, _)| host.clone()).unwrap_or_default();
    Ok(Settings {
        servers: servers.into_iter().map(|(_, address)| address).collect(),
        server_name: arguments.name.clone().unwrap_or(host),
        trust: fleet::trust(arguments.ca.as_deref(), arguments.insecure)?,
        per_second: arguments.per_second,
        phase: Duration::from_millis(arguments.phase.ms),
    })
}

fn shown(report: &Report) -> String {
    let parts = [("before", &report.before), ("during", &report.during), ("after", &report.after)];
    let row = |(part, seen): &(&str, &Seen)| {
        let ms = |ms: f64| format!("{ms:.1}");
        vec![
            (*part).to_owned(),
            seen.answered.to_string(),
            failures(seen).to_string(),
            format!("{:.1}", seen.resumed_percent),
            ms(seen.p50_ms),
            ms(seen.p99_ms),
            ms(seen.slowest_ms),
        ]
    };
    let heads = ["", "answered", "failed", "resumed, %", "handshake ms, median", "p99", "slowest"];
    let mut lines = vec![rejoin_report::table(&[0], heads, parts.iter().map(row))];
    for (part, seen) in parts {
        let why =
            |(why, count): (&String, &u64)| format!("{part}, {count} failed: {}", printable(why));
        lines.extend(seen.failed.iter().map(why));
    }
    lines.push(match report.resumed_again_s {
        _ if !report.complete => "interrupted: these are the figures so far".to_owned(),
        None if !report.before.shows_resumption() => {
            "clients did not resume before the fault".to_owned()
        }
        Some(seconds) => format!("clients resume as before {seconds:.1} s after the fault"),
        None => "clients do not resume as before after the fault".to_owned(),
    });
    lines.join("\n")
}

fn failures(seen: &Seen) -> u64 {
    seen.failed.values().sum()
}

/// Returns an error unless all visits were answered and clients resume again.
fn judge(report: &Report) -> anyhow::Result<()> {
    let Report { before, during, after, made_percent, .. } = report;
    let failed: u64 = [before, during, after].into_iter().map(failures).sum();
    if !report.complete {
        anyhow::bail!("interrupted");
    }
    if before.answered == 0 {
        anyhow::bail!("no visit was answered before the fault");
    }
    if *made_percent < LEAST_MADE {
        let made = format!("{KEPT_UP}: {made_percent:.0} % of the visits were made");
        return Err(Doubted(made).into());
    }
    if !before.shows_resumption() {
        let (percent, all) = (before.resumed_percent, Seen::ALL_PERCENT);
        anyhow::bail!(
            "clients did not resume before the fault ({percent:.0} %, and {all:.0} % do in a cluster), so the drill shows \
             nothing: rejoin doctor HOST:PORT and rejoin cluster status tell why"
        );
    }
    match report.resumed_again_s {
        _ if failed > 0 => Err(anyhow!("{failed} visits failed")),
        None => Err(anyhow!("clients do not resume as before")),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_and_this_one_stay() {
        let own = rustix::process::getpid().as_raw_nonzero().to_string();
        for wrong in ["0", "1", "-5", "x", "", "99999999999", &own] {
            assert!(process(wrong).is_err(), "{wrong}");
        }
        assert!(process("4711").is_ok());
    }
}
