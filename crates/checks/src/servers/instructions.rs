//! The instructions that a resumed connection costs nginx, with Rejoin and with its own shared cache.
//!
//! Valgrind counts the instructions of one worker outside the kernel, because virtual machines seldom
//! allow the processor's own counters. The figure is the difference between a run with few connections
//! and one with many, without the start. Valgrind has no SHA instructions, so
//! that hashing takes more than in production, with Rejoin and without.

use std::fs;

use super::{Effort, Found, median, without_rejoin};
use rejoin_testkit::site::{Site, Versions};

const TIMES: f64 = 1.02;
/// Resumed connections of the smaller run; the larger has twice as many. The cache calculates what places are worth every
/// 256 returns: the difference has its whole share of that.
const CONNECTIONS: usize = 512;
/// Devices that take turns.
const CLIENTS: usize = 20;

const NGINX: &str = "\
daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf; keepalive_timeout 0;
  ssl_protocols TLSv1.2; ssl_session_tickets off; ssl_session_cache @OWN@;
  server { listen 127.0.0.1:@PORT@ ssl; return 200 \"nginx\\n\"; }
}
";

pub(crate) fn ratio(effort: Effort) -> Option<Found> {
    let (mut ours, mut own, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if effort.quick { 1 } else { 3 } {
        let pair = (per_connection(true)?, per_connection(false)?);
        ratios.push(pair.0 / pair.1);
        ours.push(pair.0);
        own.push(pair.1);
    }
    let ratio = median(ratios);
    let (ours, own) = (median(ours), median(own));
    Some(Found {
        figure: format!("{ratio:.4} ({ours:.0} against {own:.0}, outside the kernel)"),
        holds: ratio <= TIMES,
    })
}

/// Instructions of a resumed TLS 1.2 connection.
fn per_connection(with_rejoin: bool) -> Option<f64> {
    let mut site = Site::new("instructions");
    if !with_rejoin {
        without_rejoin(&site);
    }
    let own = if with_rejoin { "none" } else { "shared:own:1m" };
    site.write("nginx.conf", &NGINX.replace("@OWN@", own));
    // The first makes the cache.
    counted(&mut site, 0)?;
    let (few, many) = (counted(&mut site, CONNECTIONS)?, counted(&mut site, 2 * CONNECTIONS)?);
    Some((many as f64 - few as f64) / CONNECTIONS as f64)
}

/// Instructions of a whole run with so many resumed connections.
fn counted(site: &mut Site, connections: usize) -> Option<u64> {
    let (configuration, counts) = (site.shown("nginx.conf"), site.shown("counts"));
    let file = format!("--callgrind-out-file={counts}");
    site.start("valgrind", &["--tool=callgrind", &file, "nginx", "-c", &configuration])?;
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| site.client(Versions::Tls12)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert!(!client.connect(), "client {number} was never here");
    }
    for number in 0..connections {
        assert!(clients[number % CLIENTS].connect(), "connection {number} was full");
    }
    site.stop();
    let counts = fs::read_to_string(counts).expect("valgrind has written");
    let total = counts.lines().find_map(|line| line.strip_prefix("totals:"));
    let total = total.expect("valgrind writes all counts when nginx ends");
    total.split_whitespace().next()?.parse().ok()
}
