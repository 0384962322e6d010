//! A live capture on loopback, of a fleet and a server whose counts are known.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

use crate::process::{Process, status_kib, wait_until};
use crate::serve::{Server, interrupt};
use crate::shipped::rejoin;

/// Runs this in a thread with a network of its own, of which loopback is up. `None` without the right to.
///
/// On the machine's loopback, packets of other tests fill the queue of a capture, which then loses those that it is to count.
///
/// # Panics
///
/// Wherever the function panics, and without iproute2.
pub fn in_a_network_of_its_own<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let alone = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("iproute2").success());
            Some(run())
        });
        alone.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Full and resumed handshakes: as seen on the wire, and as the server counted them.
pub struct Watched {
    pub captured: [u64; 2],
    pub counted: [u64; 2],
    /// The most memory of the capture, in KiB.
    pub peak_kib: u64,
}

/// A `rejoin capture --list` of loopback that runs.
pub struct Listening {
    capture: Process,
    seen: Arc<Mutex<Vec<Value>>>,
    reader: thread::JoinHandle<()>,
}

impl Listening {
    /// Begins to capture. `None` without the right to.
    pub fn start() -> Option<Self> {
        let mut capture = Process::start(
            Command::new(rejoin())
                .args(["capture", "--interface", "lo", "--server", "127.0.0.1", "--list", "--json"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let lines = BufReader::new(capture.stdout.take().expect("piped"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        let reader = thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let record = serde_json::from_str(&line).expect("JSON");
                into.lock().expect("no panic").push(record);
            }
        });
        wait_until("a packet socket", || {
            capture.ended().is_some() || has_packet_socket(capture.id())
        });
        capture.ended().is_none().then_some(Self { capture, seen, reader })
    }

    /// Looks at the handshakes that were found so far.
    pub fn look<T>(&self, look: impl FnOnce(&[Value]) -> T) -> T {
        look(&self.seen.lock().expect("no panic"))
    }

    /// Ends it, and returns all handshakes.
    ///
    /// # Panics
    ///
    /// If it lost packets.
    pub fn end(self) -> Vec<Value> {
        self.end_and_measure().0
    }

    /// Ends it, and returns all handshakes, and the most memory that it had, in KiB.
    fn end_and_measure(mut self) -> (Vec<Value>, u64) {
        interrupt(&self.capture);
        let mut peak_kib = 0;
        while self.capture.ended().is_none() {
            peak_kib = status_kib(self.capture.id(), "VmHWM").unwrap_or(0).max(peak_kib);
            thread::sleep(Duration::from_millis(1));
        }
        self.reader.join().expect("it reads to the end");
        let mut complaint = String::new();
        let stderr = self.capture.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut complaint).expect("text");
        assert!(self.capture.wait().success(), "{complaint}");
        (std::mem::take(&mut self.seen.lock().expect("no panic")), peak_kib)
    }
}

/// Captures a short fleet's run against a server of these settings. `None` without the right to capture.
pub fn run(server: &[&str], fleet: &[&str]) -> Option<Watched> {
    let server = Server::start(server);
    let port = server.listening.rsplit(':').next()?.parse().ok()?;
    let listening = Listening::start()?;
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
    wait_until("it has read all", || waiting_bytes(listening.capture.id()) == Some(0));
    let (seen, peak_kib) = listening.end_and_measure();
    Some(Watched { captured: counts(&seen, port), counted, peak_kib })
}

/// True if the process has a packet socket that receives (`R` in `/proc/net/packet`).
pub fn has_packet_socket(pid: u32) -> bool {
    waiting_bytes(pid).is_some()
}

/// Returns the bytes that wait in the process's receiving packet socket (`Rmem` in `/proc/net/packet`, of the network of
/// this thread). `None`: it has none.
pub fn waiting_bytes(pid: u32) -> Option<u64> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let open: Vec<_> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let sockets = fs::read_to_string("/proc/thread-self/net/packet").ok()?;
    sockets.lines().skip(1).find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (receives, waiting, inode) = (words.get(5)?, words.get(6)?, words.last()?);
        let name = format!("socket:[{inode}]");
        let is_its_own = open.iter().any(|target| target.as_os_str() == name.as_str());
        (*receives == "1" && is_its_own).then(|| waiting.parse().ok())?
    })
}

/// Counts full and resumed handshakes with this port.
fn counts(seen: &[Value], port: u16) -> [u64; 2] {
    ["full", "resumed"].map(|class| {
        let ours = |record: &&Value| {
            record["server_port"].as_u64() == Some(port.into()) && record["cls"] == class
        };
        seen.iter().filter(ours).count() as u64
    })
}
