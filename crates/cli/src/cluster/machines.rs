//! The machines of a cluster, as `rejoin cluster status` shows them.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use rejoin_cluster::{
    Census, ClusterName, ClusterSecret, Link, Machines, Problem, Seen, SiteName, Sites,
};
use rejoin_report::printable;
use rejoin_trace::grouped;
use serde_json::{Value, json};

use crate::units::time;

/// Adds the machines to a record, in the order of the table.
pub(super) fn add_to(record: &mut Value, census: &Census, ring_version: u64) {
    let machines = sorted(census, ring_version);
    let machines: Vec<_> =
        machines.iter().map(|(of, problems)| machine(of, problems, ring_version)).collect();
    let unread = census.unread.iter().map(|(site, error)| {
        json!({"site": site.as_ref().map(SiteName::as_str), "error": error.to_string()})
    });
    record["machines"] = machines.into();
    record["machines_unopened"] = census.unopened.into();
    record["machines_unread"] = unread.collect();
}

/// Returns the table of machines, those with a problem first, and what is not in it.
pub(super) fn text(census: &Census, ring_version: u64) -> String {
    let machines = sorted(census, ring_version);
    let with_problem = machines.iter().filter(|(_, problems)| !problems.is_empty()).count();
    let mut parts = vec![match (machines.len(), with_problem) {
        (0, _) => "machines: none has reported".to_owned(),
        (all, 0) => format!("machines: {all}"),
        (all, with_problem) => format!("machines: {all}; with a problem: {with_problem}"),
    }];
    if !machines.is_empty() {
        parts.push(table(&machines, ring_version));
    }
    parts.extend(missing(census));
    parts.join("\n")
}

/// The time in which a machine that reaches Valkey has a new ring, and has reported it. It does either once a second.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(4);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Waits until all machines have the ring of this version, but for those that are silent. Returns the names of all that have
/// not, and lines about those of which it is not known.
pub(crate) async fn behind(
    name: &ClusterName,
    secret: &ClusterSecret,
    sites: &Sites,
    ring_version: u64,
) -> (Vec<String>, Vec<String>) {
    let (own, end) = (Link::open(sites.own().clone()), Instant::now() + FOLLOWS_WITHIN);
    loop {
        let census = Census::take(name, secret, sites, own.clone()).await;
        let behind: Vec<_> =
            census.machines.iter().filter(|seen| seen.lag(ring_version) > 0).collect();
        let is_silent = |seen: &&&Seen| seen.problems(ring_version) == [Problem::Silent];
        if behind.iter().all(|seen| is_silent(&seen)) || Instant::now() >= end {
            return (behind.into_iter().map(named).collect(), missing(&census));
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}

/// The name of a machine, with its site if there are several.
fn named(seen: &Seen) -> String {
    let machine = printable(seen.report.machine.as_str());
    match &seen.report.site {
        Some(site) => format!("{machine} of {site}"),
        None => machine,
    }
}

/// Says which machines may be missing.
fn missing(census: &Census) -> Vec<String> {
    let mut lines: Vec<_> = census
        .unread
        .iter()
        .map(|(site, error)| {
            let site = site.as_ref().map_or("this site", SiteName::as_str);
            format!("the machines of {site} are not known: {}", printable(&error.to_string()))
        })
        .collect();
    if census.unopened > 0 {
        lines.push(format!(
            "reports that cannot be read: {}; they were altered, or are under a key that this machine does not have",
            grouped(census.unopened as u64)
        ));
    }
    if census.machines.len() >= Machines::MOST {
        lines.push(format!(
            "of each site {} machines are shown at most",
            grouped(Machines::MOST as u64)
        ));
    }
    lines
}

/// Returns the machines with their problems: those that have one first, and of these the one that was seen last.
fn sorted(census: &Census, ring_version: u64) -> Vec<(&Seen, Vec<Problem>)> {
    let with_problems = |of| (of, Seen::problems(of, ring_version));
    let mut machines: Vec<_> = census.machines.iter().map(with_problems).collect();
    // The others stay in the order of their names.
    machines.sort_by_key(|(of, problems)| {
        let has_problem = !problems.is_empty();
        (Reverse(has_problem), if has_problem { of.ago_ms } else { 0 })
    });
    machines
}

fn table(machines: &[(&Seen, Vec<Problem>)], ring_version: u64) -> String {
    let has_sites = machines.iter().any(|(of, _)| of.report.site.is_some());
    let mut head = vec![
        "machine",
        "seen",
        "problem",
        "ring",
        "rekey",
        "no answer",
        "asked",
        "fetched",
        "late",
        "not asked",
        "dropped",
    ];
    if has_sites {
        head.insert(1, "site");
    }
    let rows = machines.iter().map(|(of, problems)| {
        let report = &of.report;
        let mut row = vec![
            report.machine.to_string(),
            format!("{} ago", time(of.ago_ms / 1_000)),
            said(of, problems),
            ring(report.ring_version, of.lag(ring_version)),
            step(report.rekey_step),
            grouped(report.unanswered),
            grouped(report.asked),
            grouped(report.fetched),
            grouped(report.late),
            grouped(report.skipped),
            grouped(report.dropped),
        ];
        if has_sites {
            row.insert(1, report.site.as_ref().map_or("–", SiteName::as_str).to_owned());
        }
        row
    });
    let text = if has_sites { &[0, 1, 2, 3, 4, 5][..] } else { &[0, 1, 2, 3, 4] };
    rejoin_report::table(text, head, rows)
}

fn said(of: &Seen, problems: &[Problem]) -> String {
    if problems.is_empty() {
        return "–".to_owned();
    }
    let each = problems.iter().map(|problem| match problem {
        Problem::Clock => {
            let off = time(of.clock_ahead_ms.unsigned_abs() / 1_000);
            format!("clock {off} {}", if of.clock_ahead_ms < 0 { "behind" } else { "ahead" })
        }
        problem => name(*problem).replace('_', " "),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn name(problem: Problem) -> &'static str {
    match problem {
        Problem::Silent => "silent",
        Problem::Clock => "clock",
        Problem::Behind => "old_ring",
        Problem::NoHome => "no_home",
        Problem::SharedName => "name_used_twice",
        Problem::Refused => "valkey_refuses",
        _ => "other",
    }
}

fn ring(version: u64, lag: u64) -> String {
    match lag {
        0 => grouped(version),
        lag => format!("{}, {} behind", grouped(version), grouped(lag)),
    }
}

/// Returns the last step of `rejoin cluster rekey` that the machine has taken, while it has two keys.
fn step(taken: u64) -> String {
    match taken {
        0 => "–".to_owned(),
        1 => "add".to_owned(),
        2 => "use".to_owned(),
        other => other.to_string(),
    }
}

fn machine(of: &Seen, problems: &[Problem], ring_version: u64) -> Value {
    let report = &of.report;
    json!({
        "machine": report.machine.as_str(),
        "site": report.site.as_ref().map(SiteName::as_str),
        "problems": problems.iter().map(|problem| name(*problem)).collect::<Vec<_>>(),
        "seen_ms_ago": of.ago_ms,
        "clock_ahead_ms": of.clock_ahead_ms,
        "since_ms": report.since_ms,
        "ring_version": report.ring_version,
        "ring_lag": of.lag(ring_version),
        "key": report.key.to_string(),
        "rekey_step": report.rekey_step,
        "home_linked": report.is_home_linked,
        "answered": report.answered,
        "answered_us": report.answered_us,
        "unanswered": report.unanswered,
        "stored": report.stored,
        "refused": report.refused,
        "unsent": report.unsent,
        "unfetched": report.unfetched,
        "asked": report.asked,
        "fetched": report.fetched,
        "late": report.late,
        "skipped": report.skipped,
        "dropped": report.dropped,
    })
}
