//! How often the paper's devices resume, with Rejoin and with the server's own cache of as many bytes.
//!
//! The cache is given the bytes in which whoever needs fewer of them, Rejoin or the server, keeps as many
//! TLS 1.2 sessions as 0.6 of the devices that are running: Rejoin against nginx, HAProxy itself. (The
//! 100 KB of what Rejoin learns come on top, whatever the capacity.) The same arrivals come to both. No device hints: nothing inside these
//! servers would tell Rejoin, so that all it knows of return times it has learned.

use std::fmt;

use rejoin_bench::fleet::{self, Liars, Source, Trust};
use rejoin_bench::server::Versions;
use rejoin_cache::{Capacity, Layout, Settings};
use rejoin_trace::{Population, PopulationSettings, SpeedUp};
use tokio::sync::watch;

use crate::site::Site;
use crate::{Effort, Found, without_rejoin};

/// Of the devices that are running.
const SHARE: f64 = 0.6;
const TIMES: f64 = 2.5;
/// Of a thousand arrivals.
const MOST_SKIPPED: u64 = 10;
const ATTEMPTS: usize = 3;
/// Of nginx's memory: its zones are whole pages.
const PAGE_BYTES: u64 = 4_096;

pub(crate) fn nginx_tls12(effort: Effort) -> Option<Found> {
    compare(&NGINX, Versions::Tls12, effort)
}

pub(crate) fn nginx_tls13(effort: Effort) -> Option<Found> {
    compare(&NGINX, Versions::Tls13, effort)
}

pub(crate) fn haproxy_tls12(effort: Effort) -> Option<Found> {
    compare(&HAPROXY, Versions::Tls12, effort)
}

pub(crate) fn haproxy_tls13(effort: Effort) -> Option<Found> {
    compare(&HAPROXY, Versions::Tls13, effort)
}

/// A server, and what its own cache is called.
struct Server {
    program: &'static str,
    arguments: &'static [&'static str],
    configuration: &'static str,
    /// What its setting counts: bytes, or blocks of so many.
    unit_bytes: u64,
    /// Of a TLS 1.2 session.
    session_bytes: u64,
    /// The setting of no more than the least cache, beside Rejoin's.
    least: u64,
}

const NGINX: Server = Server {
    program: "nginx",
    arguments: &["-c"],
    configuration: "\
daemon off; worker_processes 2; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 4096; }
http {
  include FOLDER/nginx-http.conf; keepalive_timeout 0;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off; ssl_session_timeout 1d;
  ssl_session_cache shared:own:@OWN@;
  server { listen 127.0.0.1:@PORT@ ssl backlog=4096; return 200 \"nginx\\n\"; }
}
",
    unit_bytes: 1,
    // A node and a session, rounded up to what its allocator has.
    session_bytes: 128 + 256,
    least: 8 * PAGE_BYTES,
};

/// Its manual says 200 bytes of a block (`tune.ssl.cachesize`), and it maps 248 for each.
const HAPROXY: Server = Server {
    program: "haproxy",
    arguments: &["-db", "-f"],
    configuration: "\
global
  nbthread 2
  maxconn 4096
  tune.ssl.default-dh-param 2048
  tune.ssl.lifetime 86400
  tune.ssl.cachesize @OWN@
defaults
  mode http
  timeout client 20s
  timeout connect 10s
  timeout server 10s
frontend tls
  bind 127.0.0.1:@PORT@ backlog 4096 ssl crt FOLDER/both.pem no-tls-tickets
  http-request return status 200 content-type text/plain string haproxy hdr Connection close
",
    unit_bytes: 248,
    session_bytes: 248,
    least: 1,
};

/// The population, played faster than it lives.
struct Play {
    population: Population,
    speed_up: SpeedUp,
    warm_up_ms: u64,
    end_ms: u64,
}

impl Play {
    /// At most a minute.
    fn of(effort: Effort) -> Self {
        let (devices, factor, warm_up_ms, end_ms) = match effort.quick {
            true => (8_000, 75.0, 300_000, 600_000),
            false => (20_000, 10.0, 250_000, 600_000),
        };
        let population = Population::new(PopulationSettings::paper(devices));
        Self {
            population: population.expect("the paper's"),
            speed_up: SpeedUp::new(factor).expect("a factor"),
            warm_up_ms,
            end_ms,
        }
    }

    /// Bytes of a cache that is too small for those who are running.
    fn capacity_bytes(&self, server: &Server) -> u64 {
        let sessions = (SHARE * self.population.expected_running()).round() as u64;
        let settings = Settings::new(Capacity::Sessions(sessions));
        let shards = Layout::for_cache(&settings).expect("a cache");
        let ours: usize = shards.iter().map(Layout::region_bytes).sum();
        let bytes = (ours as u64).min(sessions * server.session_bytes);
        bytes.next_multiple_of(PAGE_BYTES)
    }
}

/// What the clients saw.
struct Seen {
    /// Percent of their connections after the first of each run.
    resumed: f64,
    connections: u64,
    failed: u64,
    /// Arrivals whose device was still connected, of a thousand of the whole run.
    skipped: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resumed, connections, failed, skipped } = self;
        write!(f, "{resumed:.1} % of {connections} with {failed} failed, {skipped} ‰ skipped")
    }
}

fn compare(server: &Server, versions: Versions, effort: Effort) -> Option<Found> {
    let play = Play::of(effort);
    let bytes = play.capacity_bytes(server);
    let ours = undisturbed(|| resumed(server, &play, versions, Some(bytes), server.least))?;
    let own = undisturbed(|| resumed(server, &play, versions, None, bytes / server.unit_bytes))?;
    let figure = format!("{:.1} ({ours} against {own}, {bytes} bytes)", ours.resumed / own.resumed);
    let holds = ours.resumed >= TIMES * own.resumed && ours.resumed > 0.0;
    Some(Found { figure, holds: holds && ours.failed + own.failed == 0 })
}

/// On a machine that has other things to do, devices are still connected when they should come again.
/// Fewer arrivals are another population: then once more.
fn undisturbed(play: impl Fn() -> Option<Seen>) -> Option<Seen> {
    let mut best = play()?;
    for _ in 1..ATTEMPTS {
        if best.skipped <= MOST_SKIPPED {
            break;
        }
        let next = play()?;
        best = if next.skipped < best.skipped { next } else { best };
    }
    Some(best)
}

/// With Rejoin if it has bytes.
fn resumed(
    server: &Server,
    play: &Play,
    versions: Versions,
    rejoin_bytes: Option<u64>,
    own: u64,
) -> Option<Seen> {
    let mut site = Site::new(&format!("fleet-{}", server.program));
    match rejoin_bytes {
        Some(bytes) => site.configure(&format!("capacity = {bytes}")),
        None => without_rejoin(&site),
    }
    site.write("server.conf", &server.configuration.replace("@OWN@", &own.to_string()));
    let configuration = site.shown("server.conf");
    site.start(server.program, &[server.arguments, &[&configuration]].concat())?;
    let settings = fleet::Settings {
        target: site.address(),
        server_name: "localhost".to_owned(),
        trust: Trust::Anybody,
        versions,
        source: Source::Population(play.population.clone()),
        seed: 1,
        speed_up: play.speed_up,
        warm_up_ms: play.warm_up_ms,
        end_ms: play.end_ms,
        hints: false,
        liars: Liars::default(),
        request_bytes: fleet::REQUEST_BYTES,
        record: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (progress, _) = watch::channel(fleet::Progress::default());
    let report = runtime.block_on(fleet::run(&settings, &progress, std::future::pending()));
    let report = report.expect("the server answers");
    Some(Seen {
        resumed: report.hit_after_first_of_run(),
        connections: report.after_first_of_run.total(),
        failed: report.failed.values().sum(),
        skipped: report.skipped * 1_000 / (report.all.total() + report.skipped).max(1),
    })
}
