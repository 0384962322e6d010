//! A live capture on loopback, of a fleet and a server whose counts are known.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::process::wait_until;
use crate::serve::{Server, interrupt};
use crate::shipped::rejoin;

/// Full and resumed handshakes: as seen on the wire, and as the server counted them.
pub struct Watched {
    pub captured: [u64; 2],
    pub counted: [u64; 2],
}

/// Captures a short fleet's run against a server of these settings. `None` without the right to capture.
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
    let seen = Arc::new(Mutex::new([0; 2]));
    let counts = Arc::clone(&seen);
    let reader = thread::spawn(move || count(lines, port, &counts));
    let is_over = |capture: &mut Child| capture.try_wait().expect("our own child").is_some();
    wait_until("a packet socket", || is_over(&mut capture) || has_packet_socket(capture.id()));
    if is_over(&mut capture) {
        return None;
    }
    let played = Command::new(rejoin())
        .args(["fleet", &server.target, "--ca", &server.certificate, "--json"])
        .args(fleet)
        .output()
        .expect("the program runs");
    // 3: the machine did not keep up, but all handshakes were counted.
    assert!(
        matches!(played.status.code(), Some(0 | 3)),
        "{}",
        String::from_utf8_lossy(&played.stderr)
    );
    let said = server.stop();
    let counted = ["full", "resumed"].map(|count| said[count].as_u64().unwrap_or_default());
    let captured = || *seen.lock().expect("no panic");
    wait_until("all handshakes", || captured().iter().sum::<u64>() >= counted.iter().sum());
    interrupt(&capture);
    reader.join().expect("it reads to the end");
    let ended = capture.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some(Watched { captured: captured(), counted })
}

/// True if the process has a packet socket that receives (`R` in `/proc/net/packet`).
pub fn has_packet_socket(pid: u32) -> bool {
    let sockets = fs::read_to_string("/proc/net/packet").unwrap_or_default();
    let receiving = sockets.lines().skip(1).filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words.get(5) == Some(&"1"))
            .then(|| format!("socket:[{}]", words.last().copied().unwrap_or_default()))
    });
    let receiving: Vec<_> = receiving.collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    open.any(|target| receiving.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// Counts full and resumed handshakes with this port.
fn count(lines: impl BufRead, port: u16, counts: &Mutex<[u64; 2]>) {
    for line in lines.lines().map_while(Result::ok) {
        let record: Value = serde_json::from_str(&line).expect("JSON");
        let is_ours = record["server_port"].as_u64() == Some(port.into());
        let mut counts = counts.lock().expect("no panic");
        match record["cls"].as_str() {
            Some("full") if is_ours => counts[0] += 1,
            Some("resumed") if is_ours => counts[1] += 1,
            _ => {}
        }
    }
}
