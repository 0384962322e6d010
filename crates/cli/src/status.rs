//! `rejoin status`: which processes have Rejoin, which contexts are attached, which are not and why.

mod findings;
pub(crate) mod found;
mod json;
pub(crate) mod listening;
pub(crate) mod obstacle;
pub(crate) mod process;
mod shown;
mod verdict;

use crate::arguments::Misuse;
use crate::terminal;
use found::{Found, Server};
use obstacle::Obstacle;
use process::Process;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads /proc and the memory that a server's processes share; the server notices nothing. Root sees
the processes of all users, other users their own. Counts begin when the server starts.
Exit codes: 0 if something is attached, 1 if nothing is, 2 for an error.
Examples:
  rejoin status
  rejoin status nginx
  rejoin status 1234 --json")]
pub(crate) struct Arguments {
    /// The process with its descendants, or the unit of systemd [default: all processes]
    #[arg(value_name = "PID|UNIT")]
    of: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { of, json } = arguments;
    let processes = process::all()?;
    let asked = of.as_ref().map(|of| asked(of, &processes)).transpose()?;
    let found = Found::among(processes, asked.as_deref())?;
    let what = of.as_deref().unwrap_or_default();
    let reasons = reasons(&found);
    // A master may be attached and idle while its workers are not attached.
    let is_all_well = found.servers.iter().all(|server| server.verdict().is_ok());
    let is_enough = |server: &Server| {
        server.verdict().is_ok() && (server.has_served() || asked.is_none() || is_all_well)
    };
    let is_attached = found.servers.iter().any(is_enough);
    if asked.is_some() && !is_attached && reasons.is_empty() {
        return Err(Misuse(format!("{what}: it may not be read: run as root")).into());
    }
    let text = if *json { json::of(&found).to_string() } else { shown::of(&found) };
    if !text.is_empty() {
        terminal::print_result(&text)?;
    }
    match asked {
        _ if is_attached => Ok(()),
        Some(_) => Err(anyhow::anyhow!("{what}: {}", joined(&reasons))),
        None => Err(anyhow::anyhow!("nothing is attached")),
    }
}

/// Shows the same, and everything that stands in the way, each with its mend. `of`: a process or a unit, or all of the
/// machine. Returns true if nothing does.
///
/// # Errors
/// There is no such process or unit, or it may not be read.
pub(crate) fn examine(of: Option<&str>, is_json: bool) -> anyhow::Result<bool> {
    let processes = process::all()?;
    let asked = of.map(|of| asked(of, &processes)).transpose()?;
    let mut found = Found::among(processes, asked.as_deref())?;
    if of.is_none() {
        // Most of a machine's processes are no servers.
        found.others.retain(|other| !listening::of(other.process.id).is_empty());
    }
    let findings = findings::of(&found);
    let is_read = !found.servers.is_empty() || !found.others.is_empty();
    if !is_read && found.unread > 0 && of.is_some() {
        return Err(Misuse("it may not be read: run as root".to_owned()).into());
    }
    if is_json {
        let mut told = json::of(&found);
        told["findings"] = findings.iter().map(json::finding).collect();
        terminal::print_result(&told.to_string())?;
    } else {
        let mut parts = vec![shown::of(&found), shown::findings(&findings)];
        parts.retain(|part| !part.is_empty());
        terminal::print_result(&parts.join("\n\n"))?;
    }
    Ok(findings.is_empty())
}

/// Returns true if a process is in this unit of systemd.
pub(crate) fn is_unit(name: &str) -> bool {
    process::all().is_ok_and(|all| all.iter().any(|process| process.is_in_unit(name)))
}

/// Returns what is attached in the processes of a control group, or why nothing is.
///
/// # Errors
/// Processes cannot be listed.
pub(crate) fn verdict_on(group: &str) -> anyhow::Result<Result<String, String>> {
    let processes = process::all()?;
    let ids: Vec<u32> =
        processes.iter().filter(|of| of.is_in_group(group)).map(|of| of.id).collect();
    let found = Found::among(processes, Some(&ids))?;
    let served = found.servers.iter().find(|server| server.has_served());
    let verdict = served.or_else(|| found.servers.first()).map(Server::verdict);
    let told = |why: Obstacle| format!("{why}: {}", why.mend);
    let other = || reasons(&found).into_iter().next().map_or_else(|| Ok(String::new()), Err);
    Ok(verdict.unwrap_or_else(other).map_err(told))
}

/// Returns the ids of the processes that are asked for.
fn asked(of: &str, processes: &[Process]) -> anyhow::Result<Vec<u32>> {
    if let Ok(id) = of.parse() {
        let ids = process::descendants(id, processes);
        let exists = !ids.is_empty();
        return exists
            .then_some(ids)
            .ok_or_else(|| Misuse(format!("there is no process {id}")).into());
    }
    let is_in = |process: &&Process| process.is_in_unit(of);
    let ids: Vec<u32> = processes.iter().filter(is_in).map(|process| process.id).collect();
    if !ids.is_empty() {
        return Ok(ids);
    }
    let has_units = processes.iter().any(|process| process.unit().is_some());
    let why = if has_units { "does it run?" } else { "systemd runs none here; give a process id" };
    Err(Misuse(format!("no process is in a unit {of}: {why}")).into())
}

/// Returns the reasons for which nothing is attached, each once.
fn reasons(found: &Found) -> Vec<Obstacle> {
    let servers = found.servers.iter().filter_map(|server| server.verdict().err());
    let others = found.others.iter().map(|other| other.why.clone());
    rejoin_report::distinct(servers.chain(others))
}

fn joined(reasons: &[Obstacle]) -> String {
    reasons.iter().map(Obstacle::to_string).collect::<Vec<_>>().join("; ")
}
