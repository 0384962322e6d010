//! The predictive cache behind a Go server, against Rejoin's own server with as many sessions.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use rejoin_cache::{Capacity, Settings};
use rejoin_serve::Versions;
use rejoin_store::Store;
use rejoin_testkit::certificates::Pair;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::port::{reserve, wait_until_open};
use rejoin_testkit::process::{Process, cpu_ns, wait_until};
use rejoin_testkit::serve::Server;
use rejoin_testkit::shipped::{rejoin, target};
use rejoin_testkit::site::{Client, Versions as Tls};

use super::{Effort, Found};
use crate::arrivals::{Play, Seen, undisturbed};

const MOST_POINTS_APART: f64 = 3.0;
const MOST_TIMES_TICKETS: f64 = 1.5;
/// A part of the devices that are running, as in `rejoin demo`.
const SHARE: f64 = 0.6;
/// Room for a session of Go's, so that each takes one place.
const BLOCK_BYTES: u32 = 1_024;
const CONTEXT: &str = "demo";

pub(super) fn tls12(effort: Effort) -> Option<Found> {
    compare(Versions::Tls12, effort)
}

pub(super) fn tls13(effort: Effort) -> Option<Found> {
    compare(Versions::Tls13, effort)
}

fn compare(versions: Versions, effort: Effort) -> Option<Found> {
    let mut play = Play::of(effort.quick);
    play.hints = true;
    let capacity = (SHARE * play.population.expected_running()).round() as u64;
    let grace_ms = play.speed_up.ms(Settings::GRACE_MS);
    let own = undisturbed(|| Some(against_own(&play, versions, capacity, grace_ms)))?;
    let go = undisturbed(|| against_go(&play, versions, capacity, grace_ms))?;
    let apart = go.resumed - own.resumed;
    let figure = format!("{apart:+.1} (Go {go}; rejoin serve {own}; {capacity} sessions)");
    let none_failed = go.failed + own.failed == 0;
    Some(Found { figure, holds: apart.abs() <= MOST_POINTS_APART && none_failed })
}

/// The CPU time of a Go server, and of the share, for each connection of a client that comes again and again.
pub(super) fn cost(effort: Effort) -> Option<Found> {
    let connections = if effort.quick { 200 } else { 4_000 };
    let folder = Folder::new();
    // Nobody listens yet: the server has Go's own tickets.
    let (tickets, port) = go(&folder, &["--version", "1.3"])?;
    let own = us_each(&[&tickets], port, connections, true);
    let full = us_each(&[&tickets], port, connections, false);
    let share = share(&folder);
    let (kept, port) = go(&folder, &["--sessions", "--version", "1.3"])?;
    let cached = us_each(&[&kept, &share], port, connections, true);
    let figure = format!(
        "{cached:.0} µs of CPU with its request (Go's own tickets {own:.0} µs, full handshakes {full:.0} µs)"
    );
    Some(Found { figure, holds: cached <= MOST_TIMES_TICKETS * own })
}

/// Microseconds of these processes for each of so many connections.
fn us_each(processes: &[&Process], port: u16, connections: u32, resumes: bool) -> f64 {
    let mut client = Client::new(SocketAddr::from(([127, 0, 0, 1], port)), Tls::Tls13);
    let spent = || processes.iter().filter_map(|process| cpu_ns(process.id())).sum::<u64>();
    // The share answers, and the code is warm.
    wait_until("a session that resumes", || client.connect());
    let before = spent();
    for _ in 0..connections {
        if !resumes {
            client.session.lock().expect("no panic").take();
        }
        client.answers.clear();
        let resumed = client.connect();
        assert!(resumed == resumes, "resumed: {resumed}");
    }
    (spent() - before) as f64 / 1_000.0 / f64::from(connections)
}

fn against_own(play: &Play, versions: Versions, capacity: u64, grace_ms: u64) -> Seen {
    let (capacity, grace_ms) = (capacity.to_string(), grace_ms.to_string());
    let words = ["--tls", versions.name(), "--resumption", "predictive"];
    let sizes = ["--capacity-sessions", &capacity, "--grace-ms", &grace_ms];
    let server = Server::start(&[&words[..], &sizes].concat());
    play.against(server.listening.parse().expect("an address"), versions)
}

/// `None` if the example of `bindings/go` is not built.
fn against_go(play: &Play, versions: Versions, capacity: u64, grace_ms: u64) -> Option<Seen> {
    let folder = Folder::new();
    let settings = Settings {
        grace_ms,
        block_bytes: BLOCK_BYTES,
        ..Settings::new(Capacity::Sessions(capacity))
    };
    Store::open(&folder, &"web".parse().expect("a name"), Some(&settings)).expect("a cache");
    let share = share(&folder);
    let (server, port) = go(&folder, &["--sessions", "--version", versions.name()])?;
    let seen = play.against(SocketAddr::from(([127, 0, 0, 1], port)), versions);
    drop((server, share));
    Some(seen)
}

/// Starts a share of the folder's cache.
fn share(folder: &Folder) -> Process {
    let socket = folder.file("share");
    let mut share = Command::new(rejoin());
    share.args(["share", "web", "--folder"]).arg(folder.path()).args(["--socket", &socket]);
    let share = Process::start(share.stdin(Stdio::null()).stdout(Stdio::null()));
    wait_until("the share", || Path::new(&socket).exists());
    share
}

fn go(folder: &Folder, more: &[&str]) -> Option<(Process, u16)> {
    let (port, stem) = (reserve(), folder.join("site"));
    Pair::of_localhost().write(&stem);
    let mut command = Command::new(target().join("reach/server"));
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--share", &folder.file("share")]);
    command.args(["--cert", &folder.file("site.pem"), "--key", &folder.file("site.key")]);
    command.args(["--context", CONTEXT]).args(more).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(server) = Process::try_start(&mut command) else {
        eprintln!("the server of bindings/go is not built: make check-reach");
        return None;
    };
    wait_until_open(port);
    Some((server, port))
}
