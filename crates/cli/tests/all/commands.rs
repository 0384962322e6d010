//! The `rejoin` command as its users run it: real processes, real handshakes, on loopback.

use crate::REJOIN;
use crate::program::{complaint, file, has_measured, rejoin, text};
use crate::shown;
use rejoin_store::Store;
use rejoin_testkit::serve::{Server, scratch};
use rejoin_testkit::site::Site;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// A short run of devices against a server; its JSON.
fn fleet(server: &Server, more: &[&str]) -> Value {
    let mut arguments = vec!["fleet", &server.target, "--ca", &server.certificate, "--json"];
    let short = ["--speedup", "120", "--warm-up", "60", "--duration", "120"];
    arguments.extend(short.iter().chain(more));
    let output = rejoin(&arguments);
    assert!(has_measured(&output), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn misuse_is_one_line_and_exit_code_2() {
    let folder = scratch("misuse");
    let trace = folder.join("cut.trace");
    std::fs::write(&trace, b"not a trace").expect("a file");
    let wrong: [(&[&str], &str); 18] = [
        (&["serve", "--frobnicate"], "--frobnicate"),
        (&["serve", "--capacity-sessions", "0"], "at least 1"),
        (&["serve", "--capacity", "100"], "give at least"),
        (&["serve", "--capacity", "lots"], "64KiB"),
        (&["serve", "--capacity-sessions", "999999999"], "smaller capacity"),
        (&["serve", "--stack", "rustls", "--resumption", "openssl"], "--stack openssl"),
        (&["serve", "--resumption", "openssl", "--capacity-sessions", "0"], "--capacity-sessions"),
        (&["serve", "--response-bytes", "18446744073709551615"], "--response-bytes"),
        (&["serve", "--stack", "none", "--write-certificate", "/nowhere"], "leave it out"),
        (&["serve", "--ticket-keys", "web"], "--resumption tickets"),
        (&["serve", "--ticket-keys", "a/b", "--resumption", "tickets"], "--ticket-keys"),
        (&["fleet", "localhost"], "HOST:PORT"),
        (&["fleet", "127.0.0.1:1", "--devices", "0"], "devices is 0"),
        (&["fleet", "127.0.0.1:1", "--intervals", "60:0"], "weight"),
        (&["demo", "--capacity-share", "-1"], "0.6"),
        (&["demo", "--client", "--tls", "1.3"], "--tls"),
        (&["demo", "--client", "--devices", "60"], "--devices"),
        (&["disable", "clients", "--now"], "--now is for a service"),
    ];
    for (arguments, remedy) in wrong {
        let (line, code) = complaint(&rejoin(arguments));
        assert!(line.contains(remedy) && code == 2, "{arguments:?}: {code}, {line}");
    }
}

/// Containers often have systemctl alone, whose own words name no remedy.
#[test]
fn without_systemd_enable_says_what_else_there_is() {
    if Path::new("/run/systemd/system").exists() {
        return eprintln!("skipped: systemd runs here");
    }
    let folder = scratch("without-systemd");
    let library = file(&folder, "librejoin.so", "");
    let [with, without] = ["with", "without"].map(|name| folder.join(name));
    [&with, &without].iter().for_each(|folder| std::fs::create_dir_all(folder).expect("a folder"));
    let stand_in =
        "#!/bin/sh\necho 'System has not been booted with systemd as init system' >&2\nexit 1\n";
    let systemctl = file(&with, "systemctl", stand_in);
    std::fs::set_permissions(systemctl, Permissions::from_mode(0o755)).expect("a program");
    for (path, why) in [(with, "systemd does not run here"), (without, "is not installed")] {
        let mut command = Command::new(REJOIN);
        command.args(["enable", "nginx", "--library", &library]).env("PATH", path);
        let (line, code) = complaint(&command.output().expect("it runs"));
        let is_clear =
            [why, "`rejoin run`", "docs/servers.md"].iter().all(|part| line.contains(part));
        assert!(is_clear && code == 1, "{code}: {line}");
    }
}

#[test]
fn failure_is_one_line_and_exit_code_1() {
    let server = Server::start(&[]);
    let other = Server::start(&[]);
    let folder = scratch("failure");
    let trace = folder.join("cut.trace");
    let record = trace.to_str().expect("UTF-8");
    fleet(&server, &["--devices", "200", "--write-trace", record]);
    let whole = std::fs::read(&trace).expect("a trace");
    std::fs::write(&trace, &whole[..whole.len() / 2]).expect("half a trace");
    let insecure = ["--insecure", "--speedup", "1000"];
    let replay = [&["fleet", &server.target, "--trace", record][..], &insecure].concat();
    let failing: [(&[&str], &str); 6] = [
        (&replay, "cut after"),
        (&["fleet", "127.0.0.1:1"], "is the server running?"),
        (&["serve", "--listen", &server.listening], "--listen"),
        (&["serve", "--certificate", "/nowhere", "--key", "/nowhere"], "/nowhere"),
        (&["serve", "--certificate", "/dev/null", "--key", "/dev/null"], "no certificate in PEM"),
        (&["serve", "--certificate", &server.certificate, "--key", &other.key], "give the pair"),
    ];
    for (arguments, remedy) in failing {
        let (line, code) = complaint(&rejoin(arguments));
        assert!(line.contains(remedy) && code == 1, "{arguments:?}: {code}, {line}");
    }
}

/// A trace has its devices: what would draw others is refused, and not ignored.
#[test]
fn a_trace_and_a_population_exclude_each_other() {
    let options = [
        ["--devices", "9"],
        ["--running", "2m"],
        ["--waiting", "46m"],
        ["--intervals", "60:1"],
        ["--jitter", "1s"],
        ["--seed", "2"],
        ["--write-trace", "other.trace"],
    ];
    for option in options {
        let fleet = ["fleet", "127.0.0.1:1", "--trace", "arrivals.trace"];
        let (line, code) = complaint(&rejoin(&[&fleet[..], &option].concat()));
        assert!(line.contains(option[0]) && code == 2, "{option:?}: {code}, {line}");
    }
}

#[test]
fn server_and_devices_agree_on_every_handshake() {
    let openssl = ["predictive", "lru", "openssl", "tickets", "none"];
    let rustls = ["predictive", "lru", "tickets", "none"];
    let stacks = [("openssl", &openssl[..]), ("rustls", &rustls[..])];
    for (stack, resumptions) in stacks {
        for (resumption, tls) in resumptions.iter().flat_map(|r| [(*r, "1.2"), (*r, "1.3")]) {
            let what = ["--stack", stack, "--resumption", resumption, "--tls", tls];
            let server = Server::start(&[&what[..], &["--capacity-sessions", "1000"]].concat());
            let seen = fleet(&server, &["--devices", "500", "--tls", tls]);
            let counted = server.stop();
            let (ours, theirs) = (&seen["all"], &counted);
            for kind in ["full", "resumed"] {
                assert_eq!(ours[kind], theirs[kind], "{what:?}: {seen} {counted}");
            }
            assert_eq!(seen["failed"], serde_json::json!({}), "{what:?}");
            let resumed = seen["after_first_of_run"]["resumed"].as_u64().expect("a count");
            let full = seen["after_first_of_run"]["full"].as_u64().expect("a count");
            // A first visit during the warm-up may be a run's second connection to us.
            let expected = if resumption == "none" { 0 } else { (full + resumed) * 4 / 5 };
            assert!(resumed >= expected.max(u64::from(expected > 0)), "{what:?}: {seen}");
            assert!(resumption != "none" || resumed == 0, "{what:?}: {seen}");
        }
    }
}

#[test]
fn a_recorded_fleet_arrives_again() {
    let server = Server::start(&[]);
    let trace = scratch("replay").join("arrivals.trace");
    let trace = trace.to_str().expect("UTF-8");
    let first = fleet(&server, &["--devices", "300", "--seed", "5", "--write-trace", trace]);
    let again = fleet(&server, &["--trace", trace]);
    let total = |report: &Value| {
        let count = |kind| report["all"][kind].as_u64().expect("a count");
        count("full") + count("resumed") + report["skipped"].as_u64().expect("a count")
    };
    assert_eq!(total(&first), total(&again));
    assert_eq!(first["devices"], again["devices"]);
}

const NGINX: &str = "\
daemon off; master_process on; worker_processes 2; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 512; }
http {
  include FOLDER/nginx-http.conf;
  server { listen 127.0.0.1:@PORT@ ssl reuseport; ssl_protocols TLSv1.3; ssl_early_data on; return 200 x; }
}
";

#[test]
fn a_fleet_sends_early_data_if_asked_to() {
    let mut site = Site::new("fleet-early");
    site.configure("early_data = once");
    site.write("nginx.conf", NGINX);
    let configuration = site.shown("nginx.conf");
    site.start("nginx", &["-c", &configuration]).expect("installed");
    let target = site.address().to_string();
    let short = ["--devices", "200", "--speedup", "120", "--warm-up", "60", "--duration", "120"];
    let fleet = |more: &[&str]| {
        let fleet = ["fleet", &target, "--insecure", "--json"];
        let output = rejoin(&[&fleet[..], &short, more].concat());
        assert!(has_measured(&output), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["failed"], serde_json::json!({}), "{report}");
        let early = ["accepted", "rejected"].map(|what| report["early_data"][what].as_u64());
        (early.map(|count| count.expect("a count")), report["all"]["resumed"].as_u64())
    };
    let ([accepted, rejected], resumed) = fleet(&["--send-early-data"]);
    assert!(accepted > 20 && Some(accepted) <= resumed, "{accepted}, {rejected}, {resumed:?}");
    let store = Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("a cache");
    assert_eq!(store.cache().early_counters().accepted, accepted, "{rejected} were rejected");
    assert_eq!(fleet(&[]).0, [0, 0]);
}

#[test]
fn metrics_are_served() {
    let server = Server::start(&["--resumption", "predictive"]);
    fleet(&server, &["--devices", "300"]);
    let text = shown::get(&server.metrics, "/metrics", "");
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    };
    let resumed = value("rejoin_server_handshakes_total{kind=\"resumed\"}");
    assert!(resumed > 0.0);
    assert_eq!(value("rejoin_cache_hits_total"), resumed);
    assert!(value("rejoin_server_cpu_seconds_total") > 0.0);
    assert!(value("rejoin_cache_sessions") > 0.0);
    assert!(shown::get(&server.metrics, "/elsewhere", "").contains("try /metrics"));
}

#[test]
fn hostile_clients_lose_their_own_connection_only() {
    for stack in ["openssl", "rustls"] {
        let server = Server::start(&["--stack", stack, "--capacity-sessions", "50"]);
        let hello = [0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
        let mut silent: Vec<_> = (0..50).map(|_| connect(&server)).collect();
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5_000], &hello, &[0x16, 3, 1]] {
            for _ in 0..20 {
                // The server may close before it has read everything: that is its answer.
                let _ = connect(&server).write_all(garbage);
            }
        }
        let report = fleet(&server, &["--devices", "300"]);
        assert_eq!(report["failed"], serde_json::json!({}), "{stack}");
        let still_open = silent.iter_mut().all(|stream| {
            stream.set_nonblocking(true).expect("a socket");
            matches!(stream.read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
        });
        assert!(still_open, "{stack}: a silent client is given its ten seconds");
        drop(silent);
        let summary = server.stop();
        let stored = summary["cache"]["sessions"].as_u64().expect("a count");
        assert!(stored <= 50, "{stack}: {summary}");
    }
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(&server.target).expect("the server listens")
}

#[test]
fn an_interrupted_fleet_reports_what_it_saw() {
    let server = Server::start(&[]);
    let child = Command::new(REJOIN)
        .args(["fleet", &server.target, "--insecure", "--json", "--devices", "2000"])
        .args(["--warm-up", "1", "--duration", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    thread::sleep(Duration::from_secs(2));
    rejoin_testkit::serve::interrupt(&child);
    let output = child.wait_with_output().expect("an end");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["complete"], false);
    assert!(report["all"]["full"].as_u64() > Some(0), "{report}");
    assert_eq!(complaint(&output), ("rejoin: interrupted\n".to_owned(), 1));
}

/// A way to a server on which each fourth connection ends before its handshake.
fn broken_way(server: &Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let (here, to) = (listener.local_addr().expect("an address"), server.listening.clone());
    thread::spawn(move || {
        let clients = listener.incoming().map_while(Result::ok).enumerate();
        for (_, client) in clients.filter(|(number, _)| number % 4 != 3) {
            let Ok(server) = TcpStream::connect(&to) else { return };
            let again = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            for (mut from, mut to) in [(again(&client), again(&server)), (server, client)] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    here.to_string()
}

/// Its figures are those of the connections that were left.
#[test]
fn a_fleet_whose_connections_fail_is_no_success() {
    let server = Server::start(&[]);
    let words = "--insecure --json --devices 300 --speedup 120 --warm-up 60 --duration 120";
    let way = broken_way(&server);
    let output = rejoin(&[&["fleet", &way][..], &words.split(' ').collect::<Vec<_>>()].concat());
    let (line, code) = complaint(&output);
    assert!(line.contains(" % of the connections failed, most of them: ") && code == 1, "{line}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["all"]["full"].as_u64() > Some(0), "{report}");
}

#[test]
fn a_fleet_that_measured_nobody_says_so() {
    let server = Server::start(&[]);
    let words = "--insecure --devices 1 --speedup 600 --warm-up 1 --duration 1";
    let words = words.split(' ').collect::<Vec<_>>();
    let (line, code) = complaint(&rejoin(&[&["fleet", &server.target][..], &words].concat()));
    assert!(line.contains("no device connected in the measured time") && code == 2, "{line}");
}

/// OpenSSL's own server answers so, and some proxies.
#[test]
fn a_fleet_takes_answers_of_http_1_0() {
    let server = Server::start(&[]);
    let port = rejoin_testkit::port::reserve();
    let mut answering = Command::new("openssl")
        .args(["s_server", "-www", "-quiet", "-accept", &format!("127.0.0.1:{port}")])
        .args(["-cert", &server.certificate, "-key", &server.key])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    rejoin_testkit::process::wait_until("openssl", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let target = format!("127.0.0.1:{port}");
    let words = "--insecure --json --devices 60 --speedup 60 --warm-up 60 --duration 240";
    let output = rejoin(&[&["fleet", &target][..], &words.split(' ').collect::<Vec<_>>()].concat());
    let _ = answering.kill();
    let _ = answering.wait();
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(has_measured(&output), "{}", text(&output.stderr));
    assert_eq!(report["failed"], serde_json::json!({}), "{report}");
    assert!(report["all"]["full"].as_u64() > Some(0), "{report}");
}

#[test]
fn a_fleet_tells_what_was_answered_instead() {
    let server = Server::start(&["--stack", "openssl"]);
    let trace = scratch("fleet-answer").join("arrivals.trace");
    let record = trace.to_str().expect("UTF-8");
    fleet(&server, &["--devices", "200", "--write-trace", record]);
    let mut site = Site::new("fleet-answer");
    site.configure("");
    let nginx = NGINX.replace("return 200 x", "return 404 x");
    site.write("nginx.conf", &nginx);
    let configuration = site.shown("nginx.conf");
    site.start("nginx", &["-c", &configuration]).expect("installed");
    let target = site.address().to_string();
    let short = ["--speedup", "120", "--warm-up", "60", "--duration", "120", "--json"];
    let fleet = ["fleet", &target, "--insecure", "--trace", record];
    for more in [&[][..], &["--send-early-data"]] {
        let (line, code) = complaint(&rejoin(&[&fleet[..], &short, more].concat()));
        let why = "no connection was answered: the answer is not HTTP 200: HTTP/1.1 404 Not Found";
        assert!(line.contains(why) && code == 1, "{code}, {line}");
    }
}

/// Told to stop, a fleet stops, though the server accepts connections and never answers.
#[test]
fn a_fleet_behind_its_time_can_be_interrupted() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let target = silent.local_addr().expect("an address").to_string();
    let mut child = Command::new(REJOIN)
        .args(["fleet", &target, "--insecure", "--devices", "20000", "--speedup", "200"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    thread::sleep(Duration::from_secs(4));
    rejoin_testkit::serve::interrupt(&child);
    let ended = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(100));
        child.try_wait().expect("our own child").is_some()
    });
    let _ = child.kill();
    assert!(ended, "ten seconds after Ctrl-C it still runs");
}

#[test]
fn the_program_names_itself_rejoin() {
    let said = text(&rejoin(&["--version"]).stdout);
    assert!(said.starts_with("rejoin "), "{said}");
    assert!(!said.contains("rejoin-cli"), "{said}");
}

/// `rejoin run` makes the cache `default` if none is named; `rejoin stats` looks at it.
#[test]
fn statistics_are_of_the_cache_default_if_none_is_named() {
    let folder = scratch("stats-default");
    let folder = folder.to_str().expect("UTF-8");
    let (line, code) = complaint(&rejoin(&["stats", "--folder", folder]));
    assert!(line.contains("no cache default") && code == 1, "{code}, {line}");
}
