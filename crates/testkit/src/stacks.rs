//! Servers of four TLS stacks, each of one version of TLS: nginx and `openssl s_server` on OpenSSL,
//! `rejoin serve` on rustls, and Java's JSSE. Each says how many of its handshakes were resumed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::manager::Managed;
use crate::port;
use crate::process::{Process, wait_until};
use crate::serve::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    Nginx,
    OpenSsl,
    Rustls,
    Java,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    V12,
    V13,
}

impl Tls {
    pub const ALL: [Self; 2] = [Self::V12, Self::V13];

    pub fn number(self) -> &'static str {
        match self {
            Self::V12 => "1.2",
            Self::V13 => "1.3",
        }
    }
}

/// Handshakes by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    pub full: u64,
    pub resumed: u64,
}

impl Counted {
    pub fn of(resumed: impl IntoIterator<Item = bool>) -> Self {
        let mut counted = Self::default();
        for resumed in resumed {
            *if resumed { &mut counted.resumed } else { &mut counted.full } += 1;
        }
        counted
    }
}

/// A server for `localhost`, ended when dropped.
pub struct Running {
    pub port: u16,
    runs: Runs,
}

enum Runs {
    /// Its summary counts.
    Rejoin(Server),
    /// A server whose answer says the handshake's kind.
    Other { _process: Process },
}

impl Stack {
    /// With a certificate of the manager's authority. `None` where it is not installed.
    pub fn start(self, managed: &Managed, tls: Tls) -> Option<Running> {
        let started = match self {
            Self::Rustls => {
                let (server, port) = rustls(managed, tls);
                return Some(Running { port, runs: Runs::Rejoin(server) });
            }
            Self::Nginx => nginx(managed, tls),
            Self::Java => java(managed, tls),
            Self::OpenSsl => s_server(managed, tls, "-www"),
        };
        if started.is_none() {
            eprintln!("{self:?} is not installed: nothing is tested with it");
        }
        let (_process, port) = started?;
        Some(Running { port, runs: Runs::Other { _process } })
    }
}

impl Running {
    /// Counts the handshakes of a server that gave these answers and no others.
    pub fn counted(self, answers: &[String]) -> Counted {
        match self.runs {
            Runs::Rejoin(server) => {
                let summary = server.stop();
                let count = |kind: &str| summary[kind].as_u64().expect("a count");
                Counted { full: count("full"), resumed: count("resumed") }
            }
            Runs::Other { .. } => Counted::of(answers.iter().map(|answer| {
                let says = |word| answer.contains(word);
                let (resumed, full) = (says("session r") || says("Reused, TLS"), says("New, TLS"));
                assert!(resumed || full || says("session ."), "{answer}");
                resumed
            })),
        }
    }
}

/// The reference server on rustls, and its port.
pub(crate) fn rustls(managed: &Managed, tls: Tls) -> (Server, u16) {
    let words = ["--stack", "rustls", "--resumption", "tickets", "--tls", tls.number()];
    let server = Server::with(managed.certify(&["localhost"]), &words);
    let port = server.listening.rsplit(':').next().and_then(|port| port.parse().ok());
    (server, port.expect("a port"))
}

/// OpenSSL's server: one whose page tells of the connection with `-www`, and one of the manager's
/// folder with `-WWW`.
pub(crate) fn s_server(managed: &Managed, tls: Tls, how: &str) -> Option<(Process, u16)> {
    let (certificate, key) = managed.certify(&["localhost"]);
    let version = if tls == Tls::V12 { "-tls1_2" } else { "-tls1_3" };
    let mut command = Command::new("openssl");
    command.args(["s_server", how, "-accept", "127.0.0.1:0", version]);
    command.args(["-cert", &certificate, "-key", &key]).current_dir(managed.file(""));
    started(&mut command, |line| line.strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok())
}

/// A source file, which Java compiles.
fn java(managed: &Managed, tls: Tls) -> Option<(Process, u16)> {
    let (certificate, key) = &managed.certify(&["localhost"]);
    let store = managed.file("java.p12");
    let mut export = Command::new("openssl");
    export.args(["pkcs12", "-export", "-passout", "pass:rejoin", "-out", &store]);
    let exported = export.args(["-in", certificate, "-inkey", key]).status();
    assert!(exported.is_ok_and(|status| status.success()), "a PKCS#12 file");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/java/Server.java");
    let mut command = Command::new("java");
    command.arg(source).arg(store).arg(format!("TLSv{}", tls.number()));
    started(&mut command, |line| line.parse().ok())
}

/// Starts a server that prints its port when it listens.
pub fn started(
    command: &mut Command,
    port: impl Fn(&str) -> Option<u16>,
) -> Option<(Process, u16)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Process::try_start(command).ok()?;
    let mut lines = BufReader::new(process.stdout.take()?).lines().map_while(Result::ok);
    let port = lines.find_map(|line| port(&line))?;
    // A server that goes on printing must not find its pipe closed, or full.
    std::thread::spawn(move || lines.for_each(drop));
    Some((process, port))
}

const NGINX: &str = "\
daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 4096; }
http {
  access_log off; keepalive_timeout 0; ssl_protocols PROTOCOL; ssl_session_cache shared:tls:1m;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  server { listen 127.0.0.1:PORT ssl; ssl_certificate CERTIFICATE; ssl_certificate_key KEY;
           return 200 \"session $ssl_session_reused\\n\"; }
}
";

fn nginx(managed: &Managed, tls: Tls) -> Option<(Process, u16)> {
    let (certificate, key) = &managed.certify(&["localhost"]);
    let folder = managed.file(&format!("nginx-{}", tls.number()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let port = port::reserve();
    let mut text = NGINX.to_owned();
    for (word, value) in [
        ("FOLDER", folder.as_str()),
        ("PROTOCOL", &format!("TLSv{}", tls.number())),
        ("PORT", &port.to_string()),
        ("CERTIFICATE", certificate),
        ("KEY", key),
    ] {
        text = text.replace(word, value);
    }
    let configuration = Path::new(&folder).join("nginx.conf");
    std::fs::write(&configuration, text).expect("a file");
    Some((nginx_listening(&configuration, port)?, port))
}

/// An nginx with this configuration, which has a server at this port. `None` where it is not installed.
///
/// # Panics
///
/// If it ends, or does not listen in time.
pub fn nginx_listening(configuration: &Path, port: u16) -> Option<Process> {
    let mut command = Command::new("nginx");
    command.arg("-c").arg(configuration).stdin(Stdio::null());
    let mut nginx = Process::try_start(&mut command).ok()?;
    wait_until("nginx", || {
        assert!(nginx.ended().is_none(), "nginx ended");
        port::is_open(port)
    });
    Some(nginx)
}
