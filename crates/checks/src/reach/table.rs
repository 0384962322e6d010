//! The table in docs/keys.md: which server resumes the sessions of which other, with the same certificate and context.

use std::net::SocketAddr;
use std::path::Path;

use rejoin_testkit::clock::Clock;
use rejoin_testkit::site::{Client, Versions};

use super::ground::Ground;
use super::kinds::KINDS;
use super::visits::VERSIONS;
use super::{Effort, Found};

/// Envoys that get their keys in different ways do not differ.
const TWIN: &str = "envoy-sds";

/// A session of each kind's first machine, at each kind's second machine.
pub(super) fn who_opens_whose(_: Effort) -> Option<Found> {
    let mut ground = Ground::new(Clock::real())?;
    let kinds = KINDS.iter().filter(|kind| kind.name != TWIN);
    let started: Option<Vec<_>> =
        kinds.map(|kind| Some((kind.name, ground.start(kind.start)?))).collect();
    let started = started?;
    let names: Vec<_> = started.iter().map(|(name, _)| shown(name)).collect();
    let mut rows = vec![
        format!("| a session of … at | {} |", names.join(" | ")),
        format!("|---|{}", "---|".repeat(names.len())),
    ];
    for (name, [from, _]) in &started {
        let cells = started.iter().map(|(_, [_, to])| cell(*from, *to));
        rows.push(format!("| {} | {} |", shown(name), cells.collect::<Vec<_>>().join(" | ")));
    }
    let table = rows.join("\n");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/keys.md");
    let holds = std::fs::read_to_string(page).expect("the page").contains(&table);
    let figure = match holds {
        true => format!("{0} × {0} kinds as it says", started.len()),
        false => format!("it has another table than\n{table}"),
    };
    Some(Found { figure, holds })
}

fn shown(name: &str) -> &str {
    match name {
        "envoy-file" => "Envoy",
        "haproxy" => "HAProxy",
        "apache" => "Apache",
        "go" => "Go",
        "caddy" => "Caddy",
        "node" => "Node",
        other => other,
    }
}

fn cell(from: SocketAddr, to: SocketAddr) -> String {
    let resumed = VERSIONS.iter().filter(|versions| is_resumed(**versions, from, to));
    let word = |versions: &Versions| match versions {
        Versions::Tls12 => "1.2",
        Versions::Tls13 => "1.3",
    };
    let words: Vec<_> = resumed.map(word).collect();
    if words.is_empty() { "–".to_owned() } else { words.join(", ") }
}

fn is_resumed(versions: Versions, from: SocketAddr, to: SocketAddr) -> bool {
    let mut client = Client::new(from, versions);
    client.connect();
    client.address = to;
    client.connect()
}
