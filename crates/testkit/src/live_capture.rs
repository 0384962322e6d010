//! A live capture on loopback, of a fleet and a server whose counts are known.

#![expect(
    missing_docs,
    missing_debug_implementations,
    reason = "tests are its only users, and the names say it"
)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::serve::{Server, interrupt};
use crate::shipped::rejoin;

/// Full and resumed handshakes: as seen on the wire, and as the server counted them.
pub struct Watched {
    pub captured: [u64; 2],
    pub counted: [u64; 2],
}

/// Captures a short fleet's run against a server of these settings. `None` without the right to.
pub fn run(server: &[&str], fleet: &[&str]) -> Option<Watched> {
    let server = Server::start(server);
    let port = server.listening.rsplit(':').next()?.parse().ok()?;
    let mut capture = Command::new(rejoin())
        .args(["capture", "--interface", "lo", "--server", "127.0.0.1", "--list", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let lines = BufReader::new(capture.stdout.take().expect("piped"));
    let reader = thread::spawn(move || count(lines, port));
    // The socket is open well before, and if not, the counts differ and the test says so.
    thread::sleep(Duration::from_millis(500));
    if capture.try_wait().expect("our own child").is_some() {
        return None;
    }
    let played = Command::new(rejoin())
        .args(["fleet", &server.target, "--ca", &server.certificate, "--json"])
        .args(fleet)
        .output()
        .expect("the program runs");
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    let said = server.stop();
    thread::sleep(Duration::from_millis(500));
    interrupt(&capture);
    let captured = reader.join().expect("it reads to the end");
    let ended = capture.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let counted = ["full", "resumed"].map(|count| said[count].as_u64().unwrap_or_default());
    Some(Watched { captured, counted })
}

/// Full and resumed handshakes with this port.
fn count(lines: impl BufRead, port: u16) -> [u64; 2] {
    let mut counts = [0; 2];
    for line in lines.lines().map_while(Result::ok) {
        let record: Value = serde_json::from_str(&line).expect("JSON");
        let is_ours = record["server_port"].as_u64() == Some(port.into());
        match record["cls"].as_str() {
            Some("full") if is_ours => counts[0] += 1,
            Some("resumed") if is_ours => counts[1] += 1,
            _ => {}
        }
    }
    counts
}
