//! Twenty programs and one service: processes of their own, which share the session of the first.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use rejoin_client::Manager;
use rejoin_client::protocol::Handshakes;
use serde_json::Value;

use crate::manager::Managed;
use crate::shipped::rejoin;
use crate::stacks::{Counted, Running, Stack, Tls};

pub const PROGRAMS: u64 = 20;
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// The handshakes that the manager counted, and the server.
#[derive(Debug)]
pub struct Twenty {
    /// Twenty, one after the other.
    pub in_turn: Counted,
    /// Twenty at once, after one under another label.
    pub at_once: Counted,
    /// All handshakes by the server's own count.
    pub server: Counted,
    /// All handshakes as the programs were told.
    pub told: Counted,
}

impl Twenty {
    /// `None` where the stack is not installed.
    pub fn visit(managed: &Managed, stack: Stack, tls: Tls) -> Option<Self> {
        let server = stack.start(managed, tls)?;
        let manager = Manager::at(managed.socket());
        let handshakes = || manager.stats().expect("it counts").handshakes;
        let mut visits = Vec::new();
        let start = handshakes();
        for _ in 0..PROGRAMS {
            visits.push(begin(managed, &server, "in turn").finish());
        }
        let in_turn = handshakes();
        visits.push(begin(managed, &server, "at once").finish());
        let first = handshakes();
        let begun: Vec<_> = (0..PROGRAMS).map(|_| begin(managed, &server, "at once")).collect();
        visits.extend(begun.into_iter().map(Program::finish));
        let at_once = handshakes();
        let (told, answers): (Vec<_>, Vec<_>) = visits.into_iter().unzip();
        Some(Self {
            in_turn: difference(&start, &in_turn),
            at_once: difference(&first, &at_once),
            server: server.counted(&answers),
            told: Counted::of(told),
        })
    }

    /// Returns true if there was one full handshake, and all counts agree. Tickets of TLS 1.3 are used once: each of
    /// the programs at once has one or does without.
    pub fn holds(&self, tls: Tls) -> bool {
        let in_turn = Counted { full: 1, resumed: PROGRAMS - 1 };
        let is_shared = match tls {
            Tls::V12 => self.at_once == Counted { full: 0, resumed: PROGRAMS },
            Tls::V13 => self.at_once.resumed > 0,
        };
        self.in_turn == in_turn && is_shared && self.server == self.told
    }
}

fn difference(before: &Handshakes, after: &Handshakes) -> Counted {
    Counted { full: after.full - before.full, resumed: after.resumed - before.resumed }
}

/// A `rejoin connect` that has asked for a page, and whose standard input has ended.
#[derive(Debug)]
pub struct Program(Child);

pub fn begin(managed: &Managed, server: &Running, label: &str) -> Program {
    let mut child = Command::new(rejoin())
        .args(["connect", "--socket", &managed.socket(), "--json", "--label", label])
        .arg(format!("localhost:{}", server.port))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("piped");
    // A program without a connection has closed its input.
    let _ = stdin.write_all(REQUEST);
    Program(child)
}

impl Program {
    /// Waits for its end. Returns true if it resumed, and the server's answer.
    pub fn finish(self) -> (bool, String) {
        let output = self.0.wait_with_output().expect("an end");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        let session: Value = serde_json::from_str(&told).expect("JSON");
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        (session["resumed"].as_bool().expect("a word"), answer)
    }
}
