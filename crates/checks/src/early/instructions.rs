//! The instructions of nginx for a connection whose request came as early data, and for a resumption without; with Rejoin,
//! and without.
//!
//! Counted as in `servers::instructions`. OpenSSL itself derives more keys for early data, and reads one message more: the
//! ratio without Rejoin, which is told beside it, is above the bound, too.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use rejoin_report::median;
use rejoin_testkit::site::{Client, Site, Versions};

use super::copies::{PATIENCE, renew};
use super::servers::Rejoin;
use super::{Effort, Found};

const TIMES: f64 = 1.03;
/// Connections of the smaller run; the larger has twice as many.
const CONNECTIONS: usize = 256;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ANSWER: &[u8] = b"nginx\n";

const NGINX: &str = "\
daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.3; ssl_early_data on;
  server { listen 127.0.0.1:@PORT@ ssl; return 200 \"nginx\\n\"; }
}
";

pub(super) fn ratio(effort: Effort) -> Option<Found> {
    let rounds = if effort.quick { 1 } else { 3 };
    let [with, without] = [Rejoin::Once, Rejoin::Absent].map(|rejoin| {
        let of = |early| (0..rounds).map(|_| per_connection(rejoin, early)).collect::<Option<_>>();
        Some([median(of(true)?), median(of(false)?)])
    });
    let ([early, resumed], [plain_early, plain_resumed]) = (with?, without?);
    let (ratio, plain) = (early / resumed, plain_early / plain_resumed);
    let figure = format!(
        "{ratio:.4} ({early:.0} against {resumed:.0}) with Rejoin, {plain:.4} ({plain_early:.0} against \
         {plain_resumed:.0}) without; outside the kernel"
    );
    Some(Found { figure, holds: ratio <= TIMES })
}

fn per_connection(rejoin: Rejoin, early: bool) -> Option<f64> {
    let mut site = Site::new("early-instructions");
    match rejoin {
        Rejoin::Once => site.configure("early_data = once"),
        Rejoin::Absent => site.environment.clear(),
    }
    site.write("nginx.conf", NGINX);
    let (few, many) =
        (counted(&mut site, CONNECTIONS, early)?, counted(&mut site, 2 * CONNECTIONS, early)?);
    Some((many as f64 - few as f64) / CONNECTIONS as f64)
}

/// Instructions of a whole run with so many connections.
fn counted(site: &mut Site, connections: usize, early: bool) -> Option<u64> {
    let (configuration, counts) = (site.shown("nginx.conf"), site.shown("counts"));
    let file = format!("--callgrind-out-file={counts}");
    // It is certain of a cache that it made.
    let _ = rejoin_store::Store::remove(rejoin_store::Store::FOLDER.as_ref(), &site.cache());
    site.start("valgrind", &["--tool=callgrind", &file, "nginx", "-c", &configuration])?;
    let client = site.client(Versions::Tls13);
    renew(&client).expect("a session");
    for number in 0..connections {
        let accepted = visit(&client, early);
        assert_eq!(accepted, early, "connection {number}");
    }
    site.stop();
    let counts = fs::read_to_string(counts).expect("valgrind has written");
    let total = counts.lines().find_map(|line| line.strip_prefix("totals:"));
    let total = total.expect("valgrind writes all counts when nginx ends");
    total.split_whitespace().next()?.parse().ok()
}

/// Asks for a page, and stays until the next session has come. Returns true if early data was accepted.
fn visit(client: &Client, early: bool) -> bool {
    let mut opened = client.open(REQUEST, early).expect("a connection");
    assert!(opened.flight.resumed);
    *client.session.lock().expect("no panic") = None;
    let mut answer = Vec::new();
    let until = Instant::now() + PATIENCE;
    let stream = opened.tls.get_ref().get_ref();
    stream.set_read_timeout(Some(Duration::from_millis(5))).expect("set");
    let is_done = |answer: &[u8]| {
        answer.ends_with(ANSWER) && client.session.lock().expect("no panic").is_some()
    };
    while !is_done(&answer) {
        assert!(Instant::now() < until, "no session came");
        let mut part = [0; 4096];
        // A part of nothing is a pause.
        let read = opened.tls.read(&mut part).unwrap_or_default();
        answer.extend_from_slice(&part[..read]);
    }
    let _ = opened.tls.shutdown();
    opened.flight.accepted
}
