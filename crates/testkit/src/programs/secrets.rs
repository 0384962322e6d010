//! The secrets that a program holds while a connection of the manager's stands: none of those
//! that its server knows.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::manager::Managed;
use crate::process::Process;
use crate::programs::process_memory::{Search, Secret, search};
use crate::shipped::{library, rejoin};
use crate::stacks::Tls;

/// Programs that hold a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// `rejoin connect`
    Connect,
    /// Python with `rejoin.connect`
    Python,
    /// Python with its own `ssl`, through the manager by the preload library.
    Preloaded,
    /// OpenSSL's own client, which does its own TLS.
    SClient,
}

/// A program that connects, prints the first bytes, and stays.
const PYTHON: &str = "\
import rejoin, sys
connection = rejoin.connect('localhost', int(sys.argv[1]), manager=sys.argv[2])
sys.stdout.buffer.write(connection.recv(6))
sys.stdout.flush()
sys.stdin.read()
";
/// The same without `rejoin`: it knows nothing of the manager.
const UNCHANGED: &str = "\
import socket, ssl, sys
plain = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
context = ssl.create_default_context(cafile=sys.argv[2])
connection = context.wrap_socket(plain, server_hostname='localhost')
sys.stdout.buffer.write(connection.recv(6))
sys.stdout.flush()
sys.stdin.read()
";
const BINDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/python/src");
const WORD: &[u8; 6] = b"hello\n";
const MASTER: &str = "master secret or PSK";
const ID: &str = "session id or ticket";

/// Secrets of two connections, the second one resumed unless the program does its own TLS.
#[derive(Debug)]
pub struct Held {
    pub secrets: Vec<Secret>,
    pub search: Search,
}

impl Held {
    pub fn kinds(&self) -> HashSet<&'static str> {
        self.secrets.iter().map(|(what, _)| *what).collect()
    }
}

/// Searches the program while its second connection stands.
pub fn hold(managed: &Managed, holder: Holder, tls: Tls) -> Held {
    let mut server = Knowing::start(managed, tls);
    let mut secrets = Vec::new();
    drop(server.greet(holder.start(managed, server.port), &mut secrets));
    let program = server.greet(holder.start(managed, server.port), &mut secrets);
    let search = search(program.id(), &secrets);
    Held { secrets, search }
}

impl Holder {
    fn start(self, managed: &Managed, port: u16) -> Process {
        let socket = managed.socket();
        let target = format!("localhost:{port}");
        let mut command = match self {
            Self::Connect => {
                let mut command = Command::new(rejoin());
                command.args(["connect", "--socket", &socket, &target]);
                command
            }
            Self::Python => {
                let mut command = Command::new("python3");
                command.args(["-c", PYTHON, &port.to_string(), &socket]);
                command.env("PYTHONPATH", BINDINGS).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            Self::Preloaded => {
                let mut command = Command::new("python3");
                command.args(["-c", UNCHANGED, &port.to_string(), &managed.file("ca.pem")]);
                command
                    .env("LD_PRELOAD", library("librejoin_preload.so"))
                    .env("REJOIN_MANAGER", &socket);
                command
            }
            Self::SClient => {
                let mut command = Command::new("openssl");
                command.args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}")]);
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Process::start(&mut command)
    }
}

/// OpenSSL's server, which tells the secrets of each connection.
struct Knowing {
    process: Process,
    stdout: BufReader<ChildStdout>,
    port: u16,
    /// Its key log.
    keys: String,
}

impl Knowing {
    /// A session's id is the whole of a ticket, too: the server keeps sessions, and issues one.
    fn start(managed: &Managed, tls: Tls) -> Self {
        let (certificate, key) = managed.certify(&["localhost"]);
        let keys = managed.file("keys");
        let _ = std::fs::remove_file(&keys);
        let version = if tls == Tls::V12 { "-tls1_2" } else { "-tls1_3" };
        let mut process = Process::start(
            Command::new("openssl")
                .args(["s_server", "-accept", "127.0.0.1:0", version, "-keylogfile", &keys])
                .args(["-cert", &certificate, "-key", &key, "-no_ticket", "-num_tickets", "1"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null()),
        );
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let line = read_until(&mut stdout, "ACCEPT");
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        Self { process, stdout, port: port.expect("a port"), keys }
    }

    /// Sends a word to a program that connects, and adds the connection's secrets. A program that has read the word has
    /// also read everything before it, tickets too.
    fn greet(&mut self, mut program: Process, secrets: &mut Vec<Secret>) -> Process {
        let session = read_until(&mut self.stdout, "-----END SSL SESSION PARAMETERS-----\n");
        let session = &session[session.find("-----BEGIN").expect("PEM")..];
        self.say();
        hear(&mut program);
        secrets.extend(of_session(session));
        secrets.extend(key_log(Path::new(&self.keys)));
        program
    }

    fn say(&mut self) {
        let stdin = self.process.stdin.as_mut().expect("piped");
        stdin.write_all(WORD).and_then(|()| stdin.flush()).expect("it reads");
    }
}

fn hear(program: &mut Child) {
    let mut word = [0; WORD.len()];
    program.stdout.as_mut().expect("piped").read_exact(&mut word).expect("what the server said");
    assert_eq!(&word, WORD);
}

/// Reads up to a line that begins so.
fn read_until(from: &mut impl BufRead, line: &str) -> String {
    let mut text = String::new();
    loop {
        let begin = text.len();
        assert_ne!(from.read_line(&mut text).expect("text"), 0, "no {line} in {text}");
        if text[begin..].starts_with(line) {
            return text;
        }
    }
}

/// The secrets of a session in PEM.
fn of_session(pem: &str) -> Vec<Secret> {
    let mut command = Command::new("openssl");
    command.args(["sess_id", "-noout", "-text"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("openssl is installed");
    child.stdin.take().expect("piped").write_all(pem.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("an end");
    let text = String::from_utf8(output.stdout).expect("text");
    let secret = |line: &str| {
        let (name, value) = line.trim().split_once(": ")?;
        let what = match name {
            "Session-ID" => ID,
            "Master-Key" | "Resumption PSK" => MASTER,
            _ => return None,
        };
        Some((what, digits(value)))
    };
    text.lines().filter_map(secret).collect()
}

/// The secrets of a key log that stay in use while a connection stands, or resume it.
fn key_log(path: &Path) -> Vec<Secret> {
    let text = std::fs::read_to_string(path).expect("a key log");
    let secret = |line: &str| {
        let mut words = line.split_whitespace();
        let what = match words.next()? {
            "CLIENT_RANDOM" => MASTER,
            "CLIENT_TRAFFIC_SECRET_0" => "client's traffic secret",
            "SERVER_TRAFFIC_SECRET_0" => "server's traffic secret",
            "EXPORTER_SECRET" => "exporter secret",
            _ => return None,
        };
        Some((what, digits(words.nth(1)?)))
    };
    text.lines().filter_map(secret).collect()
}

fn digits(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("digits");
    (0..text.len()).step_by(2).map(byte).collect()
}
