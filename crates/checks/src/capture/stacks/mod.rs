//! Handshakes of real clients and servers of many stacks, captured on loopback: what the capture shows of each, against
//! what its own ends say.

mod browser;
mod gnutls;
mod in_rust;
mod nss;
mod openssl;
mod scripts;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use rejoin_testkit::certificates::Pair;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::live_capture::Listening;
use rejoin_testkit::serve::scratch;
use serde_json::Value;

use crate::frame::{Effort, Found};

/// The name of all servers.
const NAME: &str = "a.example";
/// Clients of a way, each of which begins without a session.
const CLIENTS: usize = 4;
/// The visits of a client: all but the first can be resumed.
const VISITS: usize = 4;
const FEWEST: usize = 400;

/// A stack, and its connections; `None` where it is not installed.
type Stack = (&'static str, fn(&Ground) -> Option<Vec<Told>>);

const STACKS: [Stack; 9] = [
    ("OpenSSL", openssl::visits),
    ("GnuTLS", gnutls::visits),
    ("NSS", nss::visits),
    ("rustls", in_rust::visits),
    ("Go", scripts::go),
    ("Java", scripts::java),
    ("quic-go", scripts::quic_go),
    ("aioquic", scripts::aioquic),
    ("Chromium", browser::visits),
];

/// The files and settings that all servers have.
struct Ground {
    folder: Folder,
    pair: Pair,
    certificate: String,
    key: String,
    /// Both as PKCS #12, under the password `rejoin`.
    store: String,
}

/// A connection, as one of its ends tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    server: u16,
    /// The client's port. Without it, the connections to a server are told in their order.
    client: Option<u16>,
    resumed: bool,
}

/// The comparison of what the ends tell and what the capture shows.
#[derive(Debug, Default)]
struct Compared {
    right: usize,
    unknown: usize,
    missing: usize,
    /// Verdicts of which the ends tell the contrary, or nothing.
    wrong: Vec<String>,
}

pub(crate) fn agree(_: Effort) -> Option<Found> {
    let ground = Ground::new()?;
    let listening = Listening::start()?;
    let (mut told, mut stacks) = (Vec::new(), String::new());
    for (name, visits) in STACKS {
        match visits(&ground) {
            Some(its) => {
                let _ = write!(stacks, ", {name} {}", its.len());
                told.extend(its);
            }
            None => {
                let _ = write!(stacks, ", {name} not here");
            }
        }
    }
    let seen = listening.end();
    let compared = compare(&told, &seen);
    let report = scratch("check-capture").join("stacks.txt");
    fs::write(report, compared.wrong.join("\n")).ok()?;
    let Compared { right, unknown, missing, wrong } = compared;
    let share = 100.0 * right as f64 / told.len().max(1) as f64;
    let figure = format!(
        "{share:.2} % ({right} of {}; {} wrong, {unknown} unknown, {missing} missing){stacks}; {}",
        told.len(),
        wrong.len(),
        by_version(&told, &seen)
    );
    Some(Found { figure, holds: share >= 99.7 && wrong.is_empty() && told.len() >= FEWEST })
}

impl Ground {
    fn new() -> Option<Self> {
        let folder = Folder::new();
        let pair = Pair::self_signed(&[NAME, "localhost", "127.0.0.1"]);
        pair.write(&folder.path().join("server"));
        let [certificate, key, store] =
            ["server.pem", "server.key", "server.p12"].map(|name| folder.file(name));
        let mut export = std::process::Command::new("openssl");
        export.args(["pkcs12", "-export", "-passout", "pass:rejoin", "-name", NAME]);
        export.args(["-out", &store, "-in", &certificate, "-inkey", &key]);
        export.status().is_ok_and(|status| status.success()).then_some(Self {
            folder,
            pair,
            certificate,
            key,
            store,
        })
    }
}

/// True if this port of this machine is bound by a server.
fn is_bound(port: u16, over_udp: bool) -> bool {
    let listening = |table: &str, state: &str| {
        let sockets = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        sockets.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let is_its = words.get(1).is_some_and(|at| at.ends_with(&format!(":{port:04X}")));
            is_its && words.get(3) == Some(&state)
        })
    };
    // `LISTEN`, and unconnected.
    let (kind, state) = if over_udp { ("udp", "07") } else { ("tcp", "0A") };
    listening(kind, state) || listening(&format!("{kind}6"), state)
}

/// Compares connection by connection: by the client's port where it is told, by their order where not.
fn compare(told: &[Told], seen: &[Value]) -> Compared {
    let mut compared = Compared::default();
    let mut servers: BTreeMap<u16, Vec<Told>> = BTreeMap::new();
    told.iter().for_each(|told| servers.entry(told.server).or_default().push(*told));
    for (server, told) in servers {
        let mut its: Vec<&Value> = seen.iter().filter(|record| is_of(record, server)).collect();
        its.sort_by(|a, b| time(a).total_cmp(&time(b)));
        for told in told {
            let place = match told.client {
                Some(client) => its.iter().position(|it| it["client_port"] == client),
                None => (!its.is_empty()).then_some(0),
            };
            match place {
                Some(place) => compared.add(told, its.remove(place)),
                None => compared.missing += 1,
            }
        }
        let untold = its.into_iter().filter(|it| is_verdict(it));
        compared.wrong.extend(untold.map(|it| format!("not told: {it}")));
    }
    compared
}

impl Compared {
    fn add(&mut self, told: Told, record: &Value) {
        match record["cls"].as_str() {
            Some("full") if !told.resumed => self.right += 1,
            Some("resumed") if told.resumed => self.right += 1,
            Some("full" | "resumed") => self.wrong.push(format!("{told:?}: {record}")),
            _ => self.unknown += 1,
        }
    }
}

fn is_of(record: &Value, server: u16) -> bool {
    record["server_port"] == server
}

fn is_verdict(record: &Value) -> bool {
    matches!(record["cls"].as_str(), Some("full" | "resumed"))
}

fn time(record: &Value) -> f64 {
    record["t_ch"].as_f64().or_else(|| record["t_sh"].as_f64()).unwrap_or_default()
}

/// The numbers of handshakes in each protocol, as the capture shows them, such as `TLS1.2 100`.
fn by_version(told: &[Told], seen: &[Value]) -> String {
    let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let ours = |record: &&Value| told.iter().any(|told| is_of(record, told.server));
    for record in seen.iter().filter(ours).filter(|record| is_verdict(record)) {
        let version = record["version"].as_str().unwrap_or("?");
        let name = if record["carrier"] == "quic" { "QUIC" } else { version };
        counts.entry(name.to_owned()).or_default()[usize::from(record["cls"] == "resumed")] += 1;
    }
    let each = counts.iter().map(|(name, [full, resumed])| format!("{name} {full} + {resumed}"));
    format!("full + resumed: {}", each.collect::<Vec<_>>().join(", "))
}
