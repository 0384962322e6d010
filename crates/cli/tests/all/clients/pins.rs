//! Programs that compare a server's key with one of their own after the handshake.

use std::fs;
use std::process::{Command, Stdio};

use rejoin_testkit::manager::Managed;
use rejoin_testkit::port;
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::shipped::library;
use rejoin_testkit::stacks::{Tls, started};

const VISITS: usize = 15;

/// Writes a certificate for these names, its key, and the pin of that.
pub(crate) fn certify(managed: &Managed, file: &str, names: &[&str]) -> (String, String, String) {
    let pair = rcgen::KeyPair::generate().expect("a key");
    let (certificate, key) = managed.issue(&pair, (names, file), |_| {});
    let pin = managed.file(&format!("{file}.pub"));
    fs::write(&pin, pair.public_key_pem()).expect("a file");
    (certificate, key, pin)
}

/// A program that can pin a key, and its exit code if the server has another.
pub(super) type Pinning = (&'static str, i32);

pub(super) const CURL: Pinning = ("curl", 90);
pub(super) const WGET: Pinning = ("wget", 5);

/// Visits a name at a port, through Rejoin or without it. Returns the exit code, and the page or Rejoin's line.
pub(super) fn visit(
    managed: &Managed,
    program: Pinning,
    (name, port): (&str, u16),
    pin: Option<&str>,
    with: bool,
) -> (i32, String) {
    let ca = managed.file("ca.pem");
    let mut command = Command::new(program.0);
    match program.0 {
        "wget" => command.args(["-nv", "-O-", "--tries=1", &format!("--ca-certificate={ca}")]),
        _ => {
            let place = format!("{name}:{port}:127.0.0.1");
            command.args(["-sS", "--resolve", &place, "--cacert", &ca])
        }
    };
    command.args(pin.into_iter().flat_map(|pin| ["--pinnedpubkey", pin]));
    command.arg(format!("https://{name}:{port}/")).stdin(Stdio::null());
    if with {
        command.env("LD_PRELOAD", library("librejoin_preload.so"));
        command.env("REJOIN_MANAGER", managed.socket()).env("REJOIN_DEBUG", "1");
        command.env("REJOIN_PATIENCE_MS", "20000");
    }
    let output = command.output().expect("it is installed");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!with || told.contains("through the manager"), "{told}");
    (output.status.code().expect("no signal"), told)
}

/// Two names of one server, of which the first one's certificate covers both. Programs that pin the second one's key
/// need that.
#[test]
fn a_pinned_program_resumes_no_session_of_another_name() {
    let managed = Managed::start("pins-names");
    let (certificate, key, _) = certify(&managed, "a", &["a.test", "b.test"]);
    let (other_certificate, other_key, pin) = certify(&managed, "b", &["b.test"]);
    let mut server = Command::new("openssl");
    server.args(["s_server", "-www", "-accept", "127.0.0.1:0", "-tls1_3", "-cert", &certificate]);
    server.args(["-key", &key, "-servername", "b.test"]);
    server.args(["-cert2", &other_certificate, "-key2", &other_key]);
    let port = |line: &str| line.strip_prefix("ACCEPT 127.0.0.1:")?.parse::<u16>().ok();
    let (_server, port) = started(&mut server, port).expect("openssl is installed");
    for with in [false, true] {
        assert_eq!(visit(&managed, CURL, ("a.test", port), None, with).0, 0);
        let codes = (0..26).map(|_| visit(&managed, CURL, ("b.test", port), Some(&pin), with).0);
        assert_eq!(codes.collect::<Vec<_>>(), [0; 26], "with: {with}");
    }
    // Each name keeps its own.
    for name in ["a.test", "b.test"] {
        let told = visit(&managed, CURL, (name, port), None, true).1;
        assert!(told.contains("through the manager: resumed"), "{name}: {told}");
    }
}

const HAPROXY: &str = "\
global
  ssl-default-bind-options ssl-min-ver TLSvVERSION ssl-max-ver TLSvVERSION
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 60s
frontend f
  bind 127.0.0.1:PORT ssl crt PAIR tls-ticket-keys KEYS
  http-request return status 200 content-type text/plain string \"a page\"
";

/// HAProxy with this certificate, and ticket keys that outlive it. `None` where it is not installed.
pub(crate) fn haproxy(
    managed: &Managed,
    tls: Tls,
    port: u16,
    (certificate, key): (&str, &str),
) -> Option<Process> {
    let read = |path: &str| fs::read_to_string(path).expect("a file");
    let (pair, keys) = (managed.file("pair.pem"), managed.file("ticket.keys"));
    fs::write(&pair, read(certificate) + &read(key)).expect("a file");
    // 48 bytes of base64 each.
    fs::write(&keys, ["A", "B", "C"].map(|letter| letter.repeat(64) + "\n").concat())
        .expect("a file");
    let text = HAPROXY.replace("VERSION", tls.number()).replace("PORT", &port.to_string());
    let configuration = managed.file("haproxy.cfg");
    fs::write(&configuration, text.replace("PAIR", &pair).replace("KEYS", &keys)).expect("a file");
    let mut command = Command::new("haproxy");
    command.args(["-q", "-f", &configuration]).stdin(Stdio::null()).stderr(Stdio::null());
    let haproxy = Process::try_start(&mut command).ok()?;
    wait_until("haproxy", || port::is_open(port));
    Some(haproxy)
}

/// A server whose key changes and whose ticket keys stay: it resumes sessions that began with the old key. Whoever pins
/// the new one cannot know that before it has been shown the old one, once.
#[test]
fn a_key_that_changes_costs_a_pinned_program_one_connection() {
    for (tls, program) in [(Tls::V12, CURL), (Tls::V13, CURL), (Tls::V12, WGET), (Tls::V13, WGET)] {
        let managed = Managed::start(&format!("pins-{}-{}", tls.number(), program.0));
        let (old, old_key, old_pin) = certify(&managed, "old", &["localhost"]);
        let (new, new_key, new_pin) = certify(&managed, "new", &["localhost"]);
        let port = port::reserve();
        let of = ("localhost", port);
        let Some(mut server) = haproxy(&managed, tls, port, (&old, &old_key)) else {
            return eprintln!("skipped: a key that changes (needs haproxy)");
        };
        assert_eq!(visit(&managed, program, of, None, true).0, 0);
        // Over TLS 1.3 it gives two tickets after a full handshake, and none after a resumption.
        for _ in 0..4 {
            let (code, told) = visit(&managed, program, of, Some(&old_pin), true);
            assert_eq!(code, 0);
            if told.contains("through the manager: in full") {
                break;
            }
        }
        server.kill();
        let _server = haproxy(&managed, tls, port, (&new, &new_key));
        assert_eq!(visit(&managed, program, of, Some(&new_pin), false).0, 0);
        // Without a pin nothing is wrong.
        assert_eq!(visit(&managed, program, of, None, true).0, 0);
        let codes: Vec<_> =
            (0..VISITS).map(|_| visit(&managed, program, of, Some(&new_pin), true).0).collect();
        assert_eq!(codes[0], program.1, "{tls:?} {program:?}: the ticket keys did not stay");
        assert_eq!(codes[1..], [0; VISITS - 1], "{tls:?} {program:?}");
        // The old pin is wrong for good, and costs others one full handshake at a time.
        for _ in 0..3 {
            assert_eq!(visit(&managed, program, of, Some(&old_pin), true).0, program.1);
        }
        let told = [(); 2].map(|()| visit(&managed, program, of, None, true).1);
        assert!(told[0].contains("through the manager: in full"), "{told:?}");
        assert!(told[1].contains("through the manager: resumed"), "{told:?}");
    }
}
