//! The cluster's key, replaced under load: each step on one machine after the other, and the next one when all have it.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rejoin_testkit::machines::{Cluster, HAPROXY, Machine, NGINX, Plan, Server};

use super::faults::until;
use super::load::{Load, Phase};
use super::ring::{change, keys};
use super::{Effort, Found};

const SERVERS: &[Server] = &[NGINX, NGINX, HAPROXY];
const SECOND: Duration = Duration::from_secs(1);
const STEPS: [&str; 3] = ["add", "use", "drop"];
/// Fewer resume than before if it is less by so many points.
const AS_BEFORE: f64 = 2.0;
/// The least percentage of the connections that must be made in time.
const LEAST_KEPT_UP: f64 = 95.0;

pub(crate) fn sessions(effort: Effort) -> Option<Found> {
    replace(effort, "check-rekey", false)
}

pub(crate) fn tickets(effort: Effort) -> Option<Found> {
    replace(effort, "check-rekey-tickets", true)
}

fn replace(effort: Effort, name: &'static str, tickets: bool) -> Option<Found> {
    let quiet = if effort.quick { 4 * SECOND } else { 15 * SECOND };
    let cluster = Cluster::start(Plan {
        name,
        servers: SERVERS,
        machines: SERVERS.len(),
        tickets,
        agents: true,
        capacity: "4MiB",
        deadline_ms: None,
    })?;
    let load = Load::on(&cluster, Load::DOUBLE);
    thread::sleep(2 * SECOND);
    let during = |length: Duration| {
        let from = Instant::now();
        thread::sleep(length);
        load.since(from)
    };
    let before = during(quiet);
    let from = Instant::now();
    let course = rounds(&cluster, effort, quiet);
    let meanwhile = load.since(from);
    let after = during(quiet);
    let phases = [&before, &meanwhile, &after];
    let failed: Vec<_> = phases.iter().flat_map(|phase| &phase.failed).collect();
    failed.iter().take(3).for_each(|why| println!("     {why}"));
    let kept_up = load.kept_up();
    let lost = fewer(&before, &meanwhile).max(fewer(&before, &after));
    let (Ok(course_is) | Err(course_is)) = &course;
    let share = |of: &Phase| format!("{:.1} and {:.1} %", of.resumed[0], of.resumed[1]);
    let figure = format!(
        "{course_is}; {} failed of {}; resumed (TLS 1.2, 1.3) {}, before {}, after {}; p99 {:.1} ms, before {:.1}; \
         {kept_up:.0} % of 250 a second",
        failed.len(),
        phases.iter().map(|phase| phase.connections).sum::<usize>(),
        share(&meanwhile),
        share(&before),
        share(&after),
        meanwhile.p99_ms,
        before.p99_ms,
    );
    let is_fit = kept_up >= LEAST_KEPT_UP && lost <= AS_BEFORE;
    Some(Found { figure, holds: failed.is_empty() && is_fit && course.is_ok() })
}

/// By how many points fewer resumed, of the TLS version where that is more.
fn fewer(before: &Phase, than: &Phase) -> f64 {
    before.resumed.iter().zip(than.resumed).map(|(before, than)| before - than).fold(0.0, f64::max)
}

/// Replaces the key, and makes a ticket key in each step. Returns what was done.
fn rounds(cluster: &Cluster, effort: Effort, between: Duration) -> Result<String, String> {
    let rounds = if effort.quick { 1 } else { 2 };
    let [first, ..] = &cluster.machines[..] else { return Err("no machine".to_owned()) };
    let begun = keys(first);
    for round in 0..rounds {
        for step in STEPS {
            take_step(cluster, step)?;
            // Wherever the ticket key is made, all have it.
            let maker = &cluster.machines[round % cluster.machines.len()];
            let before = keys(first).len();
            change(maker, "rotate", &[])?;
            let have_it = || cluster.machines.iter().all(|of| keys(of).len() == before + 1);
            until("a ticket key on all machines", have_it)?;
            thread::sleep(between);
        }
    }
    let known = keys(first);
    let is_kept = known.starts_with(&begun) && known.len() == begun.len() + rounds * STEPS.len();
    match is_kept {
        true => Ok(format!("{rounds} times in {} steps, no ticket key lost", STEPS.len())),
        false => Err(format!("{known:?} after {begun:?}: a ticket key is lost")),
    }
}

/// Takes a step on the first machine, and copies the file to the others, one after the other.
fn take_step(cluster: &Cluster, step: &str) -> Result<(), String> {
    let [first, others @ ..] = &cluster.machines[..] else { return Err("no machine".to_owned()) };
    let taken_by_all = cluster.machines.iter().map(taken).min().unwrap_or(0);
    let told = first.rejoin(&["cluster", "rekey", step]).output();
    let told = told.map_err(|error| error.to_string())?;
    if !told.status.success() {
        return Err(String::from_utf8_lossy(&told.stderr).into_owned());
    }
    for machine in others {
        // Meanwhile machines are in different steps.
        thread::sleep(SECOND);
        let (from, to) = (first.site.file("cluster.key"), machine.site.file("cluster.key"));
        let beside = to.with_extension("new");
        let copied = fs::copy(from, &beside).and_then(|_| fs::rename(&beside, &to));
        copied.map_err(|error| error.to_string())?;
    }
    until("the agents have taken the step", || {
        cluster.machines.iter().all(|machine| taken(machine) == taken_by_all + 1)
    })?;
    // The last one may write the ring again, and the others read it.
    thread::sleep(3 * SECOND);
    Ok(())
}

/// The steps that a machine's agent says it has taken.
fn taken(machine: &Machine) -> usize {
    let told = fs::read_to_string(machine.site.file("agent")).unwrap_or_default();
    told.matches("the key file has changed").count()
}
