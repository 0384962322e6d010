//! The resumptions of the paper's devices, with Rejoin and with the server's own cache of as many bytes.
//!
//! The cache has the bytes that the more compact of the two, Rejoin or the server, needs for as many TLS 1.2 sessions as
//! 0.6 of the running devices: Rejoin against nginx, HAProxy itself. (What Rejoin's file has beside its
//! sessions, mostly what it learns, comes on top: some 130 KB at any capacity.) Both have the same arrivals. No device hints:
//! nothing inside these servers would pass hints to Rejoin, which learns all return times.

use rejoin_cache::{Capacity, Layout, Settings};
use rejoin_serve::Versions;
use rejoin_store::Store;

use super::{Effort, Found, without_rejoin};
use crate::arrivals::{Play, Seen, undisturbed};
use rejoin_testkit::site::Site;

/// A part of the devices that are running.
const SHARE: f64 = 0.6;
const TIMES: f64 = 2.5;
/// A page of nginx's memory: its zones are whole pages.
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

/// A server, and the settings of its own cache.
struct Server {
    program: &'static str,
    arguments: &'static [&'static str],
    configuration: &'static str,
    /// The unit of its setting: bytes, or blocks of so many.
    unit_bytes: u64,
    /// The bytes of a TLS 1.2 session.
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
  tune.ssl.lifetime 86400
  tune.ssl.cachesize @OWN@
@DEFAULTS@
frontend tls
  bind 127.0.0.1:@PORT@ backlog 4096 ssl crt FOLDER/both.pem no-tls-tickets
  http-request return status 200 content-type text/plain string haproxy hdr Connection close
",
    unit_bytes: 248,
    session_bytes: 248,
    least: 1,
};

fn compare(server: &Server, versions: Versions, effort: Effort) -> Option<Found> {
    let play = Play::of(effort.quick);
    let (bytes, beside) = capacity_bytes(&play, server);
    let ours =
        undisturbed(|| resumed(server, &play, versions, Some(bytes + beside), server.least))?;
    let own = undisturbed(|| resumed(server, &play, versions, None, bytes / server.unit_bytes))?;
    let figure = format!("{:.1} ({ours} against {own}, {bytes} bytes)", ours.resumed / own.resumed);
    let holds = ours.resumed >= TIMES * own.resumed && ours.resumed > 0.0;
    Some(Found { figure, holds: holds && ours.failed + own.failed == 0 })
}

/// The bytes of a cache that is too small for the running devices, and those that Rejoin's file has beside as many.
fn capacity_bytes(play: &Play, server: &Server) -> (u64, u64) {
    let sessions = (SHARE * play.population.expected_running()).round() as u64;
    let settings = Settings::new(Capacity::Sessions(sessions));
    let shards = Layout::for_cache(&settings).expect("a cache");
    let ours = shards.iter().map(Layout::region_bytes).sum::<usize>() as u64;
    let bytes = ours.min(sessions * server.session_bytes);
    let beside = Store::bytes_for(&settings).expect("a cache") - ours;
    (bytes.next_multiple_of(PAGE_BYTES), beside.next_multiple_of(PAGE_BYTES))
}

/// Plays the arrivals, with Rejoin if it has a file of so many bytes.
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
    Some(play.against(site.address(), versions))
}
