//! The answer for people.

use std::collections::BTreeMap;

use rejoin_openssl::{ContextNotes, Handshakes, Notes, Outcome, Subject};
use rejoin_report::{printable, table};
use rejoin_trace::grouped;

use super::found::{Found, Server};
use super::json::ago_s;
use super::obstacle::Obstacle;
use super::verdict;
use crate::units::{percent, time};

pub(super) fn of(found: &Found) -> String {
    let mut parts: Vec<String> = found.servers.iter().map(server).collect();
    if !found.others.is_empty() {
        parts.push(others(found));
    }
    if found.unread > 0 {
        parts.push(format!("processes that may not be read: {} (run as root)", found.unread));
    }
    parts.join("\n\n")
}

/// Lists what stands in the way, and the mends.
pub(super) fn findings(findings: &[(String, Obstacle)]) -> String {
    if findings.is_empty() {
        return "Nothing stands in the way of what was found.".to_owned();
    }
    let line = |(label, obstacle): &(String, Obstacle)| {
        let (label, why) = (printable(label), printable(&obstacle.to_string()));
        format!("- {label}: {why}\n  mend: {}", printable(&obstacle.mend))
    };
    let lines: Vec<String> = findings.iter().map(line).collect();
    format!("What stands in the way:\n{}", lines.join("\n"))
}

fn server(server: &Server) -> String {
    let label = server.first().map_or("", |process| process.label());
    let verdict = match server.verdict() {
        Ok(verdict) => verdict,
        Err(why) => format!("not attached: {why}"),
    };
    let mut lines = vec![format!("{}: {}", printable(label), printable(&verdict))];
    if let Ok(notes) = &server.notes {
        lines.push(printable(&settings(notes)));
    }
    lines.extend(verdict::remarks(server));
    if let Ok(notes) = &server.notes {
        if !notes.contexts.is_empty() {
            lines.push(contexts(&notes.contexts));
        }
        lines.push(String::new());
    }
    lines.push(processes(server));
    lines.join("\n")
}

fn settings(notes: &Notes) -> String {
    let keys = match (notes.features.stateful, notes.features.shares_ticket_keys) {
        (true, _) => "no stateless tickets",
        (false, true) => "ticket keys shared",
        (false, false) => "ticket keys the server's own",
    };
    let text = |subject, before: &str| {
        notes.text(subject).map(|text| format!("{before}{text}")).unwrap_or_default()
    };
    format!(
        "Rejoin {}{}{}{}, {keys}",
        notes.version,
        text(Subject::Configuration, ", settings from "),
        text(Subject::Folder, ", caches in "),
        text(Subject::Context, ", context "),
    )
}

fn contexts(contexts: &[ContextNotes]) -> String {
    let row = |context: &ContextNotes| {
        let state = match (context.outcome, verdict::left_alone(context)) {
            (Some(Outcome::Attached), _) => "attached".to_owned(),
            (_, Some(why)) => format!("left alone: {why}"),
            _ => "–".to_owned(),
        };
        let sharing = context.certificates.map_or("–", verdict::sharing);
        let mut row =
            vec![printable(context.name.as_deref().unwrap_or("–")), state, sharing.to_owned()];
        row.extend(counted(context.handshakes));
        row.push(last(Some(context.last_ms)));
        row
    };
    // A reload makes new contexts, and the old ones stay on the list for a while.
    let mut contexts: Vec<&ContextNotes> = contexts.iter().collect();
    contexts.sort_by_key(|context| std::cmp::Reverse(context.last_ms));
    let head = ["context", "state", "clients with certificates", "handshakes", "resumed", "last"];
    table(&[0, 1, 2], head, contexts.into_iter().map(row))
}

fn processes(server: &Server) -> String {
    let row = |member: &super::found::Member| {
        let (process, notes) = (&member.process, server.notes_on(member));
        let mut row = vec![process.id.to_string(), printable(&process.program)];
        row.extend(counted(notes.map(|notes| notes.handshakes).unwrap_or_default()));
        row.push(last(notes.map(|notes| notes.last_ms)));
        row
    };
    let mut rows: Vec<Vec<String>> = server.members.iter().map(row).collect();
    let others = server.of_others();
    if others.all() > 0 {
        let [all, resumed] = counted(others);
        rows.push(vec!["others".to_owned(), "–".to_owned(), all, resumed, "–".to_owned()]);
    }
    table(&[0, 1], ["process", "program", "handshakes", "resumed", "last"], rows)
}

/// Returns the number of handshakes, and the share that resumed.
fn counted(handshakes: Handshakes) -> [String; 2] {
    let all = handshakes.all();
    let share = 100.0 * handshakes.resumed as f64 / all.max(1) as f64;
    let resumed = if all == 0 { "–".to_owned() } else { format!("{} %", percent(share)) };
    [grouped(all), resumed]
}

/// Formats the time since the last handshake.
fn last(last_ms: Option<u64>) -> String {
    last_ms.map_or_else(|| "–".to_owned(), |last_ms| format!("{} ago", time(ago_s(last_ms))))
}

/// Lists the processes without Rejoin, those of one program and one reason in one row.
fn others(found: &Found) -> String {
    let mut by_reason = BTreeMap::<(&str, String), Vec<String>>::new();
    for other in &found.others {
        let key = (other.process.label(), other.why.to_string());
        by_reason.entry(key).or_default().push(other.process.id.to_string());
    }
    let row = |((label, why), ids): (&(&str, String), &Vec<String>)| {
        let ids = match &ids[..] {
            [id] => id.clone(),
            ids => format!("{} and {} more", ids[0], ids.len() - 1),
        };
        vec![printable(label), ids, printable(why)]
    };
    table(&[0, 1, 2], ["without Rejoin", "process", "why"], by_reason.iter().map(row))
}
