//! The server's work for a handshake, with the clients of `rejoin cost` and with `openssl s_time`.
//!
//! The check compares transactions per CPU-second of the same server, not per second. Between two connections `s_time`
//! asks the kernel for all addresses of all interfaces (`getaddrinfo` with `AI_ADDRCONFIG`: seven system calls), writes a
//! character, and closes its socket three times; it resets connections where clients of `rejoin cost` wait for the server's
//! end. With one client at a time the server waits for all of that, so that `rejoin cost` is 1.17 to 1.19 times as fast.

use rejoin_testkit::process::cpu_ns;
use rejoin_testkit::shipped::rejoin;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::{Effort, Found, median, told};

/// The largest difference.
const APART: f64 = 0.15;
/// `s_time` goes on to the end of the last second.
const SECONDS: &str = "2";

/// The transactions of a run, each a handshake and a request.
struct Rates {
    per_cpu_s: f64,
    per_s: f64,
}

/// Full and resumed over TLS 1.2, one client on its own core, a response of 30 bytes; medians of pairs.
/// `None` without a second core, or without `openssl` or `taskset`.
pub(crate) fn s_time(effort: Effort) -> Option<Found> {
    let mut figures = Vec::new();
    let mut holds = true;
    for (mode, flag) in [("full", "-new"), ("resumed", "-reuse")] {
        let mut ratios = Vec::new();
        let mut rates = (0.0, 0.0);
        for _ in 0..if effort.quick { 3 } else { 7 } {
            let (ours, cores) = by_cost(mode)?;
            let theirs = by_s_time(flag, cores)?;
            ratios.push(ours.per_cpu_s / theirs.per_cpu_s);
            rates = (rates.0 + ours.per_s, rates.1 + theirs.per_s);
        }
        let (pairs, ratio) = (ratios.len() as f64, median(ratios));
        holds &= (ratio - 1.0).abs() <= APART;
        let (ours, theirs) = (rates.0 / pairs, rates.1 / pairs);
        figures.push(format!("{mode} {ratio:.2} ({ours:.0} and {theirs:.0} a second)"));
    }
    Some(Found { figure: figures.join(", "), holds })
}

/// The rates of `rejoin cost`, and the cores of server and client.
fn by_cost(mode: &str) -> Option<(Rates, [u64; 2])> {
    let outcome = told(&format!(
        "cost --json --sizes 30 --mode {mode} --tls 1.2 --key rsa-2048 --cipher aes-gcm --clients 1 \
         --rounds 1 --round-s {SECONDS}"
    ))?;
    let core = |whose: &str| outcome["cores"][0][whose][0].as_u64();
    let cores = [core("server")?, core("clients")?];
    let cell = &outcome["cells"][0];
    let per_cpu_s = cell["scaled_per_s"].as_f64()?;
    let rates = Rates { per_cpu_s, per_s: cell["per_s"].as_f64()? };
    (cores[0] != cores[1]).then_some((rates, cores))
}

/// The rates of `s_time`: of the clock, and not of its own user time.
fn by_s_time(flag: &str, [server, client]: [u64; 2]) -> Option<Rates> {
    let server = Server::start(server)?;
    let mut s_time = Command::new("taskset");
    s_time.args(["-c", &client.to_string(), "openssl", "s_time", "-connect", &server.address]);
    s_time.args(["-tls1_2", "-cipher", "ECDHE+AESGCM+AES128", flag, "-www", "/", "-time", SECONDS]);
    let (began, before_ns) = (Instant::now(), cpu_ns(server.child.id())?);
    let output = s_time.stdin(Stdio::null()).output().ok()?;
    let took_s = began.elapsed().as_secs_f64();
    let cpu_s = (cpu_ns(server.child.id())? - before_ns) as f64 / 1e9;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    // It rounds its own seconds up to whole ones.
    let line = told.lines().find(|line| line.contains("real seconds"))?;
    let connections: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Rates { per_cpu_s: connections / cpu_s, per_s: connections / took_s })
}

/// `rejoin serve`, as `rejoin cost` starts it; ends when it is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(core: u64) -> Option<Self> {
        let mut serve = Command::new("taskset");
        serve.args(["-c", &core.to_string()]).arg(rejoin());
        serve.args(["serve", "--json", "--end-with-parent"]);
        serve.args(["--workers", "1", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        serve.args(["--resumption", "predictive", "--body-bytes", "30", "--key-type", "rsa-2048"]);
        let mut child = serve.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        let read = BufReader::new(child.stdout.take()?).read_line(&mut line);
        let mut server = Self { child, address: String::new() };
        read.ok()?;
        let told: Value = serde_json::from_str(&line).ok()?;
        server.address = told["listening"].as_str()?.to_owned();
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody waits for what it would have to say.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
