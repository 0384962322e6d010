//! `rejoin doctor HOST[:PORT]`, against the reference server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rejoin_testkit::process::wait_until;
use rejoin_testkit::serve::Server;
use serde_json::Value;

use crate::REJOIN;
use crate::program::{complaint, interrupt, path, rejoin, scratch, start, text};
use crate::shown::get;

#[test]
fn a_server_that_resumes_is_well() {
    let server = Server::start(&["--resumption", "tickets"]);
    let folder = scratch("doctor");
    let page = path(&folder, "page.html");
    let first = rejoin(&["doctor", &server.target, "--wait", "1s", "--json", "--html", &page]);
    assert_eq!((first.status.code(), text(&first.stderr)), (Some(0), String::new()));
    let report: Value = serde_json::from_slice(&first.stdout).expect("JSON");
    assert_eq!(report["resumes"], true, "{report}");
    let ways = report["addresses"][0]["ways"].as_array().expect("ways");
    let resumed = |way: &str| {
        let way = ways.iter().find(|facts| facts["way"] == way).expect("the way");
        (way["at_once"]["resumed"].clone(), way["after_wait"]["resumed"].clone())
    };
    for way in ["tls1.2-ticket", "tls1.3-ticket"] {
        assert_eq!(resumed(way), (8.into(), true.into()), "{report}");
    }
    let html = fs::read_to_string(&page).expect("a page");
    assert!(html.contains("<h1>Resumption at localhost:") && html.contains("<h2>Findings</h2>"));
    // An earlier report is compared with.
    let earlier = path(&folder, "earlier.json");
    fs::write(&earlier, &first.stdout).expect("a file");
    thread::sleep(Duration::from_secs(1));
    let again = rejoin(&["doctor", &server.target, "--wait", "0", "--earlier", &earlier]);
    let told = text(&again.stdout);
    assert!(again.status.success() && told.contains("the same as 0 hours ago"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    // That of another server says nothing of this one.
    let other = rejoin(&["doctor", "localhost:1", "--earlier", &earlier]);
    let (line, code) = complaint(&other);
    assert!(line.contains("a report on localhost:") && code == 2, "{code}, {line}");
    assert!(line.contains(", not on localhost:1"), "{line}");
}

#[test]
fn a_server_that_keeps_nothing_is_exit_code_1() {
    let server = Server::start(&["--resumption", "none"]);
    let output = rejoin(&["doctor", &server.target, "--wait", "0"]);
    let (line, code) = complaint(&output);
    assert_eq!(code, 1, "{line}");
    assert!(line.contains("in the way"), "{line}");
    let told = text(&output.stdout);
    for part in
        ["LOSS: ", "  nginx ", "  HAProxy ", "  Apache ", "  Envoy ", "  Caddy ", "  with Rejoin "]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn what_cannot_be_examined_is_one_line_and_exit_code_2() {
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let gone = gone.expect("a port").to_string();
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    let speaks = plain.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for mut stream in plain.incoming().map_while(Result::ok) {
            let _ = std::io::Write::write_all(&mut stream, b"220 mail.example ESMTP\r\n");
        }
    });
    let wrong: [(&[&str], &str); 17] = [
        (&["doctor", &gone], "no TCP connection"),
        (&["doctor", &speaks], "does not speak TLS"),
        (&["doctor", "4194305"], "there is no process 4194305"),
        (&["doctor", "example.com:0"], "1 to 65535"),
        (&["doctor", &gone, "--earlier", "/nowhere"], "/nowhere"),
        (&["doctor", &gone, "--earlier", "Cargo.toml"], "no report"),
        // What is this machine's own is not connected to.
        (&["doctor", "1", "--replay"], "--replay is for a server"),
        (&["doctor", "--all", "--wait", "3s"], "--wait is for a server"),
        (&["doctor", "x.service", "--address", "::1"], "--address is for a server"),
        (&["doctor", "1", "--names", "a.example"], "--names is for a server"),
        (&["doctor", "1", "--attempts", "8"], "--attempts is for a server"),
        (&["doctor", "1", "--others", "24"], "--others is for a server"),
        (&["doctor", "1", "--deadline", "5s"], "--deadline is for a server"),
        (&["doctor", "1", "--connections", "160"], "--connections is for a server"),
        (&["doctor", "1", "--earlier", "/nowhere"], "--earlier is for a server"),
        (&["doctor", "1", "--html", "/nowhere/x", "--json"], "--html is for a server"),
        (&["doctor", "1", "--json", "--wait", "0"], "HOST:PORT"),
    ];
    for (arguments, remedy) in wrong {
        let output = rejoin(arguments);
        let (line, code) = complaint(&output);
        assert!(line.contains(remedy) && code == 2, "{arguments:?}: {code}, {line}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn an_interrupted_examination_shows_what_it_found() {
    let server = Server::start(&["--resumption", "tickets"]);
    let mut command = Command::new(REJOIN);
    let mut child = start(command.args(["doctor", &server.target, "--wait", "1h", "--json"]));
    // By then, it has returned with tickets of TLS 1.2.
    wait_until("connections", || {
        let metrics = get(&server.metrics, "/metrics", "");
        let counts =
            metrics.lines().filter(|line| line.starts_with("rejoin_server_handshakes_total"));
        let counts = counts.filter_map(|line| line.split(' ').nth(1)?.parse::<u32>().ok());
        counts.sum::<u32>() >= 25
    });
    interrupt(&child);
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert_eq!(child.wait().expect("our own child").code(), Some(1), "it is not known");
    let report: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&report["interrupted"], &report["resumes"]), (&true.into(), &Value::Null));
    assert_eq!(report["addresses"][0]["ways"][1]["at_once"]["resumed"], 8, "{report}");
}

#[test]
fn what_the_bound_of_connections_leaves_open_is_not_known() {
    let server = Server::start(&["--resumption", "tickets"]);
    let output = rejoin(&["doctor", &server.target, "--wait", "0", "--connections", "5"]);
    let (line, code) = complaint(&output);
    assert!(code == 1 && line.contains("not known"), "{code}, {line}");
    let told = text(&output.stdout);
    assert!(told.contains("raise --connections") && told.contains("5 connections"), "{told}");
    assert!(!told.contains("LOSS") && !told.contains("BROKEN"), "{told}");
}

#[test]
fn a_ticket_that_is_good_for_once_is_told_from_one_that_is_not() {
    let words = ["--stack", "rustls", "--resumption", "lru", "--tls", "1.3"];
    let server = Server::start(&words);
    let output = rejoin(&["doctor", &server.target, "--wait", "0", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{report}");
    assert_eq!(report["addresses"][0]["ways"][2]["reusable"], false, "{report}");
}
