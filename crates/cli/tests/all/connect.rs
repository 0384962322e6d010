//! `rejoin connect` through a real manager, to real servers, on loopback.

use crate::REJOIN;
use crate::program::{complaint, text};
use rejoin_testkit::port::reserve;
use rejoin_testkit::process::Signal;
use rejoin_testkit::serve::{Server, scratch};
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rejoin_testkit::manager::Managed;
use serde_json::Value;

const REQUEST: &str = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";

/// A manager, and `rejoin connect`.
struct House(Managed);

impl House {
    fn new(name: &str) -> Self {
        Self(Managed::start(name))
    }

    fn serve(&self, more: &[&str]) -> Server {
        Server::with(self.0.certify(&["localhost", "127.0.0.1"]), more)
    }

    fn begin(&self, arguments: &[&str]) -> Child {
        Command::new(REJOIN)
            .args(["connect", "--manager", &self.0.socket()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs")
    }

    /// Says this, and hears everything.
    fn connect(&self, arguments: &[&str], said: &str) -> Output {
        let mut child = self.begin(arguments);
        // Who refused to connect does not listen.
        let _ = child.stdin.take().expect("piped").write_all(said.as_bytes());
        child.wait_with_output().expect("an end")
    }

    /// One request; the session.
    fn session(&self, server: &Server, more: &[&str]) -> Value {
        let output = self.connect(&[&[&server.target, "--json"], more].concat(), REQUEST);
        let told = text(&output.stderr);
        assert!(output.status.success(), "{more:?}: {told}");
        assert!(output.stdout.starts_with(b"HTTP/1.1 200"), "{}", text(&output.stdout));
        serde_json::from_str(&told).expect("JSON")
    }
}

#[test]
fn the_second_program_resumes_what_the_first_began() {
    let house = House::new("resumes");
    for stack in ["openssl", "rustls"] {
        for (tls, version) in [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
            let server = house.serve(&["--stack", stack, "--tls", tls]);
            let seen = [(); 3].map(|()| house.session(&server, &[]));
            for (session, resumed) in seen.iter().zip([false, true, true]) {
                assert_eq!(session["resumed"], resumed, "{stack} {tls}: {seen:#?}");
                assert_eq!(session["version"], version);
            }
            let counted = server.stop();
            assert_eq!((&counted["full"], &counted["resumed"]), (&1.into(), &2.into()));
        }
    }
}

#[test]
fn what_is_not_to_be_shared_is_not() {
    let house = House::new("apart");
    let server = house.serve(&[]);
    let why = |more: &[&str]| house.session(&server, more)["why"].clone();
    assert_eq!([why(&[]), why(&[])], ["no_session", "resumed"]);
    assert_eq!([why(&["--no-share"]), why(&["--insecure"])], ["not_wanted", "not_verified"]);
    let label = ["--label", "work"];
    assert_eq!([why(&label), why(&label), why(&[])], ["no_session", "resumed", "resumed"]);
}

#[test]
fn a_line_says_what_connection_it_is_and_three_why() {
    let house = House::new("line");
    let server = house.serve(&["--tls", "1.3"]);
    let line = |more: &[&str]| {
        text(&house.connect(&[&[&server.target[..]], more].concat(), REQUEST).stderr)
    };
    let [first, second] = [line(&[]), line(&["-v"])];
    assert!(first.starts_with("rejoin: full handshake, TLSv1.3, TLS13_"), "{first}");
    assert_eq!(first.lines().count(), 1, "{first}");
    assert!(second.starts_with("rejoin: resumed, TLSv1.3"), "{second}");
    assert!(second.contains("why: the server took a session"), "{second}");
    assert!(second.contains("certificate 0: CN="), "{second}");
}

#[test]
fn trust_is_as_the_program_says() {
    let house = House::new("trust");
    let server = house.serve(&[]);
    let own = house.0.file("ca.pem");
    let other = server_of_nobody();
    assert_eq!(house.session(&server, &["--ca", &own])["resumed"], false);
    let digest = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &server.certificate])
        .output()
        .expect("openssl is installed");
    let digest = text(&digest.stdout);
    let pin = digest.trim().rsplit('=').next().expect("a digest").replace(':', "");
    house.session(&server, &["--pin", &pin]);
    let zeros = "0".repeat(64);
    for (arguments, word) in [
        (["--ca", &other], "UnknownIssuer"),
        (["--ca", &other], "--ca"),
        (["--pin", &zeros], "pin"),
    ] {
        let output = house.connect(&[&[&server.target[..]], &arguments[..]].concat(), "");
        let (line, code) = complaint(&output);
        assert!(line.contains(word) && code == 1, "{line}");
    }
}

/// The certificate that `rejoin serve` writes is trusted by each of our clients, and by others.
#[test]
fn the_certificate_that_a_server_writes_is_trusted() {
    let house = House::new("written");
    for (stack, key_type) in [("openssl", "p-256"), ("openssl", "rsa-2048"), ("rustls", "p-256")] {
        let file = scratch("connect").join(format!("written-{stack}-{key_type}.pem"));
        let server = Server::making(&file, &["--stack", stack, "--key-type", key_type]);
        let trusting = ["--ca", &server.certificate];
        let seen = [(); 2].map(|()| house.session(&server, &trusting)["resumed"].clone());
        assert_eq!(seen, [false, true], "{stack} {key_type}");
        let few = "--devices 60 --speedup 600 --warm-up 60 --duration 60 --json".split(' ');
        let mut fleet = Command::new(REJOIN);
        fleet.args(["fleet", &server.target]).args(trusting).args(few);
        let output = fleet.output().expect("the program runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["failed"], serde_json::json!({}), "{stack} {key_type}: {report}");
        let url = format!("https://{}/", server.target);
        let python = "import ssl, sys, urllib.request as r; \
            r.urlopen(sys.argv[1], context=ssl.create_default_context(cafile=sys.argv[2]))";
        for program in [
            &["curl", "-sSf", "--cacert", &server.certificate, &url][..],
            &["python3", "-c", python, &url, &server.certificate],
        ] {
            let output = Command::new(program[0]).args(&program[1..]).output().expect("installed");
            assert!(output.status.success(), "{program:?}: {}", text(&output.stderr));
        }
    }
}

/// A certificate that no server has.
fn server_of_nobody() -> String {
    let path = scratch("connect").join("other.pem");
    let identity = rejoin_serve::Identity::made(rejoin_serve::KeyType::P256).expect("a pair");
    identity.write_certificate(&path).expect("a file");
    path.display().to_string()
}

#[test]
fn misuse_and_failure_are_one_line_each() {
    let mut house = House::new("misuse");
    let script = scratch("connect").join("odd.py");
    std::fs::write(&script, "import socket\n").expect("a file");
    let script = script.to_str().expect("UTF-8");
    let misused: [(&[&str], &str); 7] = [
        (&["localhost"], "HOST:PORT"),
        (&["localhost:0"], "65535"),
        (&["a b:443"], "host"),
        (&["localhost:443", "--pin", "12"], "64 hexadecimal"),
        (&["localhost:443", "--deadline-ms", "0"], "120000"),
        (&["localhost:443", "--label", "\u{e9}"], "ASCII"),
        (&["localhost:443", "--ca", script], "odd.py: no certificate in it"),
    ];
    for (arguments, remedy) in misused {
        let (line, code) = complaint(&house.connect(arguments, ""));
        assert!(line.contains(remedy) && code == 2, "{arguments:?}: {code}, {line}");
    }
    let (line, code) = complaint(&house.connect(&["127.0.0.1:1"], ""));
    assert!(line.contains("127.0.0.1") && code == 1, "{line}");
    house.0.kill();
    let (line, code) = complaint(&house.connect(&["127.0.0.1:1"], ""));
    assert!(line.contains("`rejoin manager` is not running") && code == 1, "{line}");
}

/// It is told from one that waits for a server.
#[test]
fn a_manager_that_hangs_is_given_up() {
    let house = House::new("hangs");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = silent.local_addr().expect("a port").to_string();
    let (line, code) = complaint(&house.connect(&[&target, "--deadline", "4s"], ""));
    assert!(line.contains("allow more time with --deadline") && code == 1, "{line}");
    let manager = house.0.child.as_ref().expect("it runs");
    manager.signal(Signal::STOP);
    // Waiting for as long as that would be no test that ends.
    let output = house.connect(&[&target, "--deadline", "2m"], "");
    manager.signal(Signal::CONT);
    let (line, code) = complaint(&output);
    assert!(line.contains("it has been silent for 3 seconds") && code == 1, "{line}");
}

#[test]
fn a_program_is_not_led_out_of_its_network_namespace() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no network namespace can be made");
        return;
    }
    let house = House::new("namespace");
    let server = house.serve(&[]);
    house.session(&server, &[]);
    let connect = ["connect", "--manager", &house.0.socket(), &server.target];
    let mut command = Command::new("unshare");
    command.args(["-n", "--", REJOIN]).args(connect).stdin(Stdio::null());
    let (line, code) = complaint(&command.output().expect("util-linux is installed"));
    assert!(line.contains("another network namespace") && code == 1, "{line}");
    assert!(line.contains("network_namespaces"), "{line}");
}

/// An end without close_notify is no success; the servers of the other tests send close_notify.
#[test]
fn a_connection_that_breaks_off_is_told() {
    let house = House::new("truncated");
    let (certificate, key) = house.0.certify(&["localhost"]);
    let port = reserve();
    let mut server = s_server(port, &certificate, &key, &[]);
    let mut client = house.begin(&[&format!("localhost:{port}")]);
    server.stdin.as_mut().expect("piped").write_all(b"half of it\n").expect("it reads");
    let mut heard = [0; 11];
    client.stdout.as_mut().expect("piped").read_exact(&mut heard).expect("what it says");
    assert_eq!(&heard, b"half of it\n");
    server.kill().expect("our own child");
    server.wait().expect("our own child");
    let output = client.wait_with_output().expect("an end");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("broke off"), "{told}");
}

#[test]
fn early_data_goes_with_the_first_flight_when_a_session_allows_it() {
    let house = House::new("early");
    let (certificate, key) = house.0.certify(&["localhost"]);
    let port = reserve();
    let early = scratch("connect").join("early");
    std::fs::write(&early, "said early").expect("a file");
    let mut server = s_server(port, &certificate, &key, &["-early_data", "-tls1_3"]);
    let mut answers = Vec::new();
    for _ in 0..2 {
        let target = format!("localhost:{port}");
        let file = early.display().to_string();
        let arguments = [&target, "--json", "--half-close", "--early-data", &file];
        let output = house.connect(&arguments, "hello\n");
        let told = text(&output.stderr);
        let session = told.lines().next().unwrap_or_default();
        let session: Value = serde_json::from_str(session).unwrap_or_else(|_| panic!("{told}"));
        answers.push(session["early_data"].clone());
    }
    let _ = server.kill();
    let said = text(&server.wait_with_output().expect("an end").stdout);
    assert_eq!(answers, ["not_offered", "accepted"]);
    assert_eq!(said.matches("said early").count(), 1, "{said}");
}

#[test]
fn early_data_that_was_not_sent_is_told() {
    let house = House::new("unsent");
    let server = house.serve(&["--tls", "1.3"]);
    let early = scratch("connect").join("unsent");
    std::fs::write(&early, "said early").expect("a file");
    let early = early.display().to_string();
    let line = |more: &[&str]| {
        text(&house.connect(&[&[&server.target[..]], more].concat(), REQUEST).stderr)
    };
    let told = "0-RTT data not sent: no session allows it";
    let [with, without] = [line(&["--early-data", &early]), line(&[])];
    assert!(with.contains(told) && with.lines().count() == 1, "{with}");
    assert!(!without.contains("0-RTT"), "{without}");
}

#[test]
fn a_remedy_is_one_that_the_command_has() {
    let house = House::new("remedy");
    let (certificate, key) = house.0.certify(&["localhost"]);
    let port = reserve();
    let mut server = s_server(port, &certificate, &key, &["-Verify", "1", "-tls1_2"]);
    let output = house.connect(&[&format!("localhost:{port}")], "");
    let _ = server.kill();
    let _ = server.wait();
    let (line, code) = complaint(&output);
    assert!(line.contains("`rejoin connect` presents no certificate") && code == 1, "{line}");
}

/// OpenSSL's own server, which listens.
fn s_server(port: u16, certificate: &str, key: &str, more: &[&str]) -> Child {
    let child = Command::new("openssl")
        .args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-naccept", "9"])
        .args(["-cert", certificate, "-key", key])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    let until = Instant::now() + Duration::from_secs(20);
    while !is_listening(port) {
        assert!(Instant::now() < until, "it does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Without connecting: `s_server` has one client at a time.
fn is_listening(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let place = format!("0100007F:{port:04X} 00000000:0000 0A");
    table.contains(&place)
}
