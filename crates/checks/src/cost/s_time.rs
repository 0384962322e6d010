//! Handshakes a second, by `rejoin cost` and by `openssl s_time`, with the same server.

use rejoin_testkit::shipped::rejoin;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::{Effort, Found, median};

/// The largest difference.
const APART: f64 = 0.15;
/// `s_time` goes on to the end of the last second.
const SECONDS: &str = "2";

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
            ratios.push(ours / theirs);
            rates = (rates.0 + ours, rates.1 + theirs);
        }
        let (pairs, ratio) = (ratios.len() as f64, median(ratios));
        holds &= (ratio - 1.0).abs() <= APART;
        let (ours, theirs) = (rates.0 / pairs, rates.1 / pairs);
        figures.push(format!("{mode} {ratio:.2} ({ours:.0} and {theirs:.0} a second)"));
    }
    Some(Found { figure: figures.join(", "), holds })
}

/// Transactions a second, and the cores of server and client.
fn by_cost(mode: &str) -> Option<(f64, [u64; 2])> {
    let mut cost = Command::new(rejoin());
    cost.args(["cost", "--json", "--sizes", "30", "--mode", mode, "--tls", "1.2"]);
    cost.args(["--key", "rsa-2048", "--cipher", "aes-gcm", "--clients", "1"]);
    cost.args(["--rounds", "1", "--round-s", SECONDS]);
    let output = cost.stdin(Stdio::null()).stderr(Stdio::inherit()).output().ok()?;
    let outcome: Value = serde_json::from_slice(&output.stdout).ok()?;
    let core = |whose: &str| outcome["cores"][0][whose][0].as_u64();
    let cores = [core("server")?, core("clients")?];
    let apart = cores[0] != cores[1];
    Some((outcome["cells"][0]["per_s"].as_f64()?, cores)).filter(|_| apart)
}

/// Connections a second of the clock, and not of its user time, each with a request.
fn by_s_time(flag: &str, [server, client]: [u64; 2]) -> Option<f64> {
    let server = Server::start(server)?;
    let mut s_time = Command::new("taskset");
    s_time.args(["-c", &client.to_string(), "openssl", "s_time", "-connect", &server.address]);
    s_time.args(["-tls1_2", "-cipher", "ECDHE+AESGCM+AES128", flag, "-www", "/", "-time", SECONDS]);
    let began = Instant::now();
    let output = s_time.stdin(Stdio::null()).output().ok()?;
    let took = began.elapsed().as_secs_f64();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    // It rounds its own seconds up to whole ones.
    let line = told.lines().find(|line| line.contains("real seconds"))?;
    let connections: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(connections / took)
}

/// `rejoin serve`, as `rejoin cost` has it, which ends with whoever holds it.
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
