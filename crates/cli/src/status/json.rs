//! The answer as JSON.

use rejoin_openssl::{Certificates, ContextNotes, Handshakes, Notes, Outcome, Subject, now_ms};
use serde_json::{Value, json};

use super::found::{Found, Member, Other, Server};
use super::obstacle::Obstacle;
use super::verdict;

pub(super) fn of(found: &Found) -> Value {
    json!({
        "servers": found.servers.iter().map(server).collect::<Vec<_>>(),
        "without": found.others.iter().map(other).collect::<Vec<_>>(),
        "unread_processes": found.unread,
    })
}

pub(super) fn finding((label, obstacle): &(String, Obstacle)) -> Value {
    json!({"server": label, "why": obstacle.to_string(), "mend": obstacle.mend})
}

fn server(server: &Server) -> Value {
    let verdict = server.verdict();
    let first = server.first();
    let mut told = json!({
        "program": first.map(|process| &process.program),
        "unit": first.and_then(|process| process.unit()),
        "attached": verdict.is_ok(),
        "why_not": verdict.err().map(|why| why.to_string()),
        "remarks": verdict::remarks(server),
        "processes": server.members.iter().map(|of| member(server, of)).collect::<Vec<_>>(),
        "other_processes": handshakes(server.of_others()),
    });
    if let (Ok(notes), Some(told)) = (&server.notes, told.as_object_mut()) {
        told.append(&mut noted(notes).as_object_mut().map(std::mem::take).unwrap_or_default());
    }
    told
}

fn noted(notes: &Notes) -> Value {
    let ticket_keys = if notes.features.shares_ticket_keys { "shared" } else { "server" };
    json!({
        "version": notes.version,
        "cache": notes.text(Subject::Cache),
        "folder": notes.text(Subject::Folder),
        "settings": notes.text(Subject::Configuration),
        "context": notes.text(Subject::Context),
        "trouble": notes.text(Subject::Trouble),
        "stateful": notes.features.stateful,
        "single_use": notes.features.single_use,
        "ticket_keys": ticket_keys,
        "handshakes": handshakes(notes.handshakes),
        "connections": {
            "made": notes.connections,
            "as_client": notes.connecting,
            "as_server": notes.serving,
            "unattached": notes.unattached,
        },
        "contexts": notes.contexts.iter().map(context).collect::<Vec<_>>(),
        "refused_contexts": notes.refused_contexts,
    })
}

fn context(context: &ContextNotes) -> Value {
    let [attached, no_cache, early_data, off] = context.began;
    json!({
        "name": context.name,
        "state": context.outcome.map(state),
        "began": {"attached": attached, "no_cache": no_cache, "early_data": early_data, "off": off},
        "handshakes": handshakes(context.handshakes),
        "last_s_ago": ago_s(context.last_ms),
        "client_certificates": context.certificates.map(|sharing| match sharing {
            Certificates::Shared => "shared",
            Certificates::Context => "context",
            Certificates::Process => "process",
        }),
    })
}

fn state(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Attached => "attached",
        Outcome::NoCache => "no_cache",
        Outcome::EarlyData => "early_data",
        Outcome::Off => "off",
    }
}

fn member(server: &Server, member: &Member) -> Value {
    let notes = server.notes_on(member);
    json!({
        "pid": member.process.id,
        "program": member.process.program,
        "library": member.library.as_ref().map(|library| &library.path),
        "library_replaced": member.library.as_ref().is_some_and(|library| library.is_replaced),
        "handshakes": handshakes(notes.map(|notes| notes.handshakes).unwrap_or_default()),
        "last_s_ago": notes.map(|notes| ago_s(notes.last_ms)),
    })
}

fn other(other: &Other) -> Value {
    let process = &other.process;
    json!({"pid": process.id, "program": process.program, "unit": process.unit(), "why": other.why.to_string()})
}

fn handshakes(Handshakes { full, resumed }: Handshakes) -> Value {
    json!({"full": full, "resumed": resumed})
}

/// Returns the seconds since a time on the clock of caches.
pub(super) fn ago_s(then_ms: u64) -> u64 {
    now_ms().saturating_sub(then_ms) / 1_000
}
