//! Access logs that real servers write under real clients, and what `rejoin plan` makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rejoin_testkit::certificates::Pair;
use rejoin_testkit::clock::Clock;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::port::{reserve, wait_until_open};
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::random::Random;
use rejoin_testkit::site::{Client, Versions};
use serde_json::Value;

use crate::REJOIN;
use crate::program::{done, file, path, refusal, scratch, text};

const PLAN_MD: &str = include_str!("../../../../docs/plan.md");

/// Returns the block of the document that begins like this.
fn documented(beginning: &str) -> &'static str {
    let (before, _) = PLAN_MD.split_once(&format!("\n{beginning}")).expect("a block");
    let rest = &PLAN_MD[before.len() + 1..];
    rest.split_once("```").expect("its end").0
}

/// A server with a log of its own.
struct Server {
    folder: Folder,
    port: u16,
    process: Process,
}

impl Server {
    /// Starts a server; `None` if it is not installed. In the configuration, FOLDER and @PORT@ are filled in.
    fn start(clock: &Clock, configuration: &str, program: &[&str]) -> Option<Self> {
        let (folder, port) = (Folder::new(), reserve());
        let Pair { certificate, key, .. } = Pair::of_localhost();
        folder.write("cert.pem", &certificate);
        folder.write("key.pem", &key);
        folder.write("both.pem", format!("{certificate}{key}"));
        folder.write("index.html", "hello");
        let name = folder.path().display().to_string();
        let filled =
            |text: &str| text.replace("FOLDER", &name).replace("@PORT@", &port.to_string());
        folder.write("configuration", filled(configuration));
        let mut command = clock.command(program[0]);
        command.args(program[1..].iter().map(|word| filled(word)));
        command.env_remove("OPENSSL_CONF").current_dir(folder.path()).stdin(Stdio::null());
        // Apache ends by a signal to its whole group.
        command.process_group(0);
        let log = fs::File::create(folder.file("stdout")).expect("a file");
        command.stdout(log).stderr(fs::File::create(folder.file("stderr")).expect("a file"));
        let Ok(process) = Process::try_start(&mut command) else {
            eprintln!("{} is not installed: nothing is tested with it", program[0]);
            return None;
        };
        wait_until_open(port);
        Some(Self { folder, port, process })
    }

    /// Waits until the log has so many lines of devices, and returns them.
    fn log(mut self, name: &str, lines: usize) -> String {
        let read = || {
            let log = fs::read_to_string(self.folder.file(name)).expect("a log");
            // The test looked from another address whether the server listens.
            let served = |line: &&str| line.contains("127.0.7.") || line.contains("127.0.8.");
            log.lines().filter(served).map(|line| format!("{line}\n")).collect::<String>()
        };
        wait_until("the log is written", || read().lines().count() >= lines);
        let log = read();
        self.process.terminate();
        log
    }
}

/// A device at an address of its own, or at one that it shares.
struct Device {
    client: Client,
    address: Ipv4Addr,
    agent: String,
}

impl Device {
    fn new(port: u16, address: Ipv4Addr, agent: &str, versions: Versions) -> Self {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { client: Client::new(server, versions), address, agent: agent.to_owned() }
    }

    /// Connects, and makes so many requests. Returns true if the session was resumed.
    fn visit(&self, requests: usize) -> bool {
        let stream = from_address(self.address, self.client.address.port());
        let mut tls = self.client.shake_hands_over(stream).expect("a handshake");
        for _ in 0..requests {
            let request =
                format!("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {}\r\n\r\n", self.agent);
            tls.write_all(request.as_bytes()).expect("a request");
            read_answer(&mut tls);
        }
        let _ = tls.shutdown();
        tls.ssl().session_reused()
    }
}

/// Connects to a port on loopback from this address, and from a port that no connection before had: a log tells
/// connections apart by it.
fn from_address(address: Ipv4Addr, port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket};
    static USED: Mutex<BTreeSet<SocketAddrV4>> = Mutex::new(BTreeSet::new());
    let bound = || {
        let made = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&made, &SocketAddrV4::new(address, 0)).expect("an address of loopback");
        let own = getsockname(&made).expect("its address").try_into().expect("of IPv4");
        USED.lock().expect("no panic").insert(own).then_some(made)
    };
    let made = std::iter::repeat_with(bound).flatten().next().expect("a port is left");
    connect(&made, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).expect("a connection");
    let stream = TcpStream::from(made);
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    stream
}

fn read_answer(from: &mut impl Read) {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&answer).to_lowercase();
    let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next());
    let length = length.and_then(|length| length.parse().ok()).expect("a length");
    from.read_exact(&mut vec![0; length]).expect("the rest");
}

fn plan(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(&[&["plan", "--json"], arguments].concat())).expect("JSON")
}

const DEVICES: u8 = 6;
const VISITS: usize = 3;

/// Visits a server: two devices at each address, all but the first of each one's visits resumed. Compares with what the
/// log says of it.
fn is_told_exactly(name: &str, server: Server, log: &str, versions: Versions, agents: bool) {
    let folder = scratch(&format!("access-logs/{name}"));
    let device = |at: u8| {
        let address = Ipv4Addr::new(127, 0, 7, 1 + at / 2);
        Device::new(server.port, address, &format!("device-{at} \"q\" [x] tls=-"), versions)
    };
    let devices: Vec<Device> = (0..DEVICES).map(device).collect();
    let (mut requests, mut resumed, mut connections) = (0, 0, 0);
    for visit in 0..VISITS {
        for (at, device) in devices.iter().enumerate() {
            let count = 1 + (visit + at) % 3;
            resumed += u32::from(device.visit(count));
            requests += count;
            connections += 1;
        }
    }
    let text = server.log(log, requests);
    let log = file(&folder, "access.log", &text);
    let answer = plan(&["--log", &log]);
    let told = &answer["log"];
    assert_eq!(told["requests"], requests, "{name}: {told}");
    assert_eq!(told["connections"], connections, "{name}: {told}");
    assert_eq!(told["malformed"].as_array().map(Vec::len), Some(0), "{name}: {told}");
    let is_13 = versions == Versions::Tls13;
    assert_eq!(told["tls_13_percent"], if is_13 { 100.0 } else { 0.0 }, "{name}: {told}");
    assert_eq!(answer["tls"], if is_13 { "1.3" } else { "1.2" });
    let resumed_percent = f64::from(resumed) * 100.0 / f64::from(connections);
    assert_eq!(told["resumed_percent"], resumed_percent, "{name}: {told}");
    assert!(resumed > 0, "{name}: nobody resumed, so that nothing is told apart");
    let clients = if agents { DEVICES } else { DEVICES / 2 };
    assert_eq!(answer["clients"], clients, "{name}: {answer}");
    if agents {
        let by_address = &answer["other_readings"][0];
        assert_eq!(by_address["clients"], DEVICES / 2, "{name}: {by_address}");
    }
    let said = answer.to_string();
    assert!(!said.contains("127.0.7.") && !said.contains("device-"), "{said}");
}

fn nginx(clock: &Clock, format: &str) -> Option<Server> {
    let configuration = format!(
        "daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{\n{format}\n\
         client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;\n\
         uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;\n\
         ssl_certificate FOLDER/cert.pem; ssl_certificate_key FOLDER/key.pem; ssl_protocols TLSv1.2 TLSv1.3;\n\
         server {{ listen 127.0.0.1:@PORT@ ssl; return 200; }}\n}}\n"
    );
    Server::start(clock, &configuration, &["nginx", "-c", "FOLDER/configuration"])
}

#[test]
fn nginx_tells_all_of_it_in_the_documented_formats() {
    for name in ["rejoin", "rejoin_json"] {
        for versions in [Versions::Tls12, Versions::Tls13] {
            let format = documented(&format!("log_format {name} "));
            let format = format!("{format}access_log FOLDER/access.log {name};");
            let Some(server) = nginx(&Clock::real(), &format) else { return };
            is_told_exactly(name, server, "access.log", versions, true);
        }
    }
}

#[test]
fn haproxy_tells_all_of_it_in_the_documented_format_and_in_its_own() {
    for (name, format, agents) in [
        ("haproxy", documented("http-request capture"), true),
        ("httpslog", "option httpslog\n", false),
    ] {
        for versions in [Versions::Tls12, Versions::Tls13] {
            let configuration = format!(
                "global\n  log stdout format raw local0\n  tune.ssl.default-dh-param 2048\n\
                 defaults\n  mode http\n  log global\n  timeout client 20s\n  timeout connect 9s\n  timeout server 9s\n\
                 frontend tls\n  bind 127.0.0.1:@PORT@ ssl crt FOLDER/both.pem\n{format}  http-request return status 200\n"
            );
            let program = ["haproxy", "-db", "-f", "FOLDER/configuration"];
            let Some(server) = Server::start(&Clock::real(), &configuration, &program) else {
                return;
            };
            is_told_exactly(name, server, "stdout", versions, agents);
        }
    }
}

#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn apache_tells_all_of_it_in_the_documented_format() {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let configuration = format!(
            "ServerRoot /usr/lib/apache2\nPidFile FOLDER/apache.pid\nDefaultRuntimeDir FOLDER\n\
             ErrorLog FOLDER/error.log\nServerName localhost\nMutex file:FOLDER default\n\
             LoadModule mpm_event_module modules/mod_mpm_event.so\n\
             LoadModule authz_core_module modules/mod_authz_core.so\nLoadModule dir_module modules/mod_dir.so\n\
             LoadModule ssl_module modules/mod_ssl.so\nListen 127.0.0.1:@PORT@\nDocumentRoot FOLDER\n\
             SSLEngine on\nSSLCertificateFile FOLDER/cert.pem\nSSLCertificateKeyFile FOLDER/key.pem\n\
             SSLSessionCache none\n{}CustomLog FOLDER/access.log rejoin\n",
            documented("LogFormat")
        );
        let program = ["apache2", "-DFOREGROUND", "-f", "FOLDER/configuration"];
        let server = Server::start(&Clock::real(), &configuration, &program).expect("Apache");
        is_told_exactly("apache", server, "access.log", versions, true);
    }
}

const ADDRESSES: u8 = 30;
const ROUNDS: usize = 24;

/// An nginx that lives 200 times as fast writes the combined format for thirty addresses. Its log, shuffled, gzipped and on
/// standard input, gives an answer.
#[test]
fn a_shuffled_and_gzipped_combined_log_gives_an_answer() {
    let Some(clock) = Clock::faster(200) else {
        eprintln!("faketime is not installed: nothing is tested");
        return;
    };
    let Some(server) = nginx(&clock, "access_log FOLDER/access.log combined;") else { return };
    let device = |at: u8| {
        let address = Ipv4Addr::new(127, 0, 8, 1 + at);
        Device::new(server.port, address, "a browser", Versions::Tls13)
    };
    let devices: Vec<Device> = (0..ADDRESSES).map(device).collect();
    for _ in 0..ROUNDS {
        for device in &devices {
            device.visit(2);
            thread::sleep(Duration::from_millis(10));
        }
    }
    let visits = usize::from(ADDRESSES) * ROUNDS;
    let log = server.log("access.log", 2 * visits);
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    let connections = connections_of(&lines, 5);
    assert!(connections >= visits, "{connections}");
    let mut random = Random::new(6);
    random.shuffle(&mut lines);
    assert_eq!(lines.len(), 2 * visits);
    let folder = scratch("access-logs/combined");
    let log = file(&folder, "access.log", lines.join("\n") + "\n");
    let zipped = Command::new("gzip").arg(&log).status().expect("gzip");
    assert!(zipped.success());
    let zipped = fs::File::open(format!("{log}.gz")).expect("a log");
    let mut command = Command::new(REJOIN);
    command.args(["plan", "--log", "-", "--keep-alive", "5s", "--json"]).stdin(zipped);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["log"]["connections"], connections, "{}", answer["log"]);
    assert!(answer["log"]["out_of_order"].as_u64() > Some(0), "{}", answer["log"]);
    assert_eq!((&answer["clients"], &answer["tls"]), (&ADDRESSES.into(), &"1.2".into()));
    let best = &answer["recommendation"];
    assert!(best["sessions"].as_u64() >= Some(20), "{best}");
    assert!(answer["unseen"]["holds"].is_boolean(), "{}", answer["unseen"]);
}

/// Lines of devices that come in turns of ten minutes for six hours; `growth` times as many at the end as at first.
pub(crate) fn made_log(folder: &std::path::Path, growth: u64) -> String {
    let (mut random, mut lines) = (Random::new(growth), Vec::new());
    let (hours, at_first) = (6 * 3_600, 300);
    for device in 0..at_first * growth {
        let begins_s = if device < at_first { 0 } else { random.below(hours) };
        let mut second = begins_s + random.below(600);
        while second < hours {
            let (hour, minute) = (second / 3_600, second / 60 % 60);
            lines.push(format!(
                "10.0.{}.{} - - [25/Nov/2026:{hour:02}:{minute:02}:{:02} +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"a\"\n",
                device / 250,
                device % 250,
                second % 60
            ));
            second += 300 + random.below(600);
        }
    }
    file(folder, &format!("made-{growth}.log"), lines.concat())
}

/// The sizes that are recommended resume as much in the half that comes after, or there is a warning. The half is played
/// by `rejoin simulate`, which knows nothing of the first.
#[test]
fn a_recommended_size_holds_in_the_other_half_or_there_is_a_warning() {
    let folder = scratch("access-logs/halves");
    for growth in [1, 4] {
        let log = made_log(&folder, growth);
        let trace = path(&folder, "whole.csv");
        done(&["simulate", "--log", &log, "--write-trace", &trace]);
        let whole = fs::read_to_string(&trace).expect("a trace");
        let (head, events) = whole.split_once('\n').expect("lines");
        let after = |line: &&str| {
            let (ms, _) = line.split_once(',').expect("a time");
            ms.parse::<u64>().expect("a time") >= 3 * 3_600_000
        };
        let second: String = events.lines().filter(after).map(|line| format!("{line}\n")).collect();
        let second = file(&folder, "second.csv", format!("{head}\n{second}"));
        for wish in [&[][..], &["--target", "90"]] {
            let answer = plan(&[&["--log", &log], wish].concat());
            let best = &answer["recommendation"];
            let sessions = best["sessions"].to_string();
            let policy = best["policy"].as_str().expect("a policy");
            let played = ["--capacities", &sessions, "--policies", policy];
            let played = done(&[&["simulate", "--json", "--trace", &second], &played[..]].concat());
            let played: Value = serde_json::from_str(&played).expect("JSON");
            let found = played["hit_after_first_of_device"]["mean"].as_f64().expect("a rate");
            let told = best["returning_percent"].as_f64().expect("a rate");
            let warnings = answer["warnings"].as_array().expect("a list");
            let warned = warnings.iter().any(|text| text.to_string().contains("second half"));
            assert!(warned || (found - told).abs() <= 3.0, "{growth} {wish:?}: {found} {answer}");
            assert_eq!(warned, growth > 1, "{growth} {wish:?}: {found}, {}", answer["unseen"]);
        }
    }
}

/// Returns the second of its day in which a line was written.
fn second(line: &str) -> u64 {
    let (_, time) =
        line.split_once('[').and_then(|(_, rest)| rest.split_once(':')).expect("a time");
    let part = |at: usize| time[at..at + 2].parse::<u64>().expect("a number");
    part(0) * 3_600 + part(3) * 60 + part(6)
}

/// Counts the connections of lines in order: a pause of more than `keep_alive_s` ends one. A busy machine makes pauses of
/// its own.
fn connections_of(lines: &[String], keep_alive_s: u64) -> usize {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let begins = |line: &&String| {
        let (address, _) = line.split_once(' ').expect("an address");
        let before = last.insert(address.to_owned(), second(line));
        // The clock may pass midnight.
        before.is_none_or(|before| (second(line) + 86_400 - before) % 86_400 > keep_alive_s)
    };
    lines.iter().filter(begins).count()
}

/// Counters of Prometheus, ten minutes after the log's first hour begins and ten minutes before its last one ends.
#[test]
fn counters_are_compared_with_the_log() {
    let folder = scratch("access-logs/counters");
    let log = made_log(&folder, 1);
    let text = fs::read_to_string(&log).expect("a log");
    let within = |line: &&str| (601..=21_000).contains(&second(line));
    let connections = text.lines().filter(within).count() as u64;
    let json = |name: &str, grown: u64| {
        let begins = 1_795_564_800;
        let values = [(begins - 1, 0), (begins + 600, 1_000), (begins + 21_000, 1_000 + grown)];
        let values = values.map(|(at, count)| format!("[{at},\"{count}\"]")).join(",");
        let result = format!(r#"{{"metric":{{"__name__":"{name}"}},"values":[{values}]}}"#);
        let data = format!(r#"{{"resultType":"matrix","result":[{result}]}}"#);
        file(&folder, "counters.json", format!(r#"{{"status":"success","data":{data}}}"#))
    };
    for (name, grown, warned) in [
        ("nginx_connections_accepted", connections, false),
        ("nginx_http_requests_total", connections * 2, true),
        ("x", connections * 103 / 100, false),
    ] {
        let counters = json(name, grown);
        let answer = plan(&["--log", &log, "--counters", &counters]);
        let checked = &answer["counters"][0];
        assert_eq!(checked["counter"], name, "{answer}");
        assert_eq!(checked["log_count"], connections, "{checked}");
        assert_eq!(checked["counter_growth"], grown as f64, "{checked}");
        let warnings = answer["warnings"].to_string();
        assert_eq!(warnings.contains(name), warned, "{warnings}");
    }
    let wrong = file(&folder, "wrong.json", "{}");
    let (line, code) = refusal(&["plan", "--log", &log, "--counters", &wrong]);
    assert!(line.contains("not the result of a range query") && code == 1, "{line}");
}

/// Several logs, the newer first, one of zstd and one of gzip, and lines that are none.
#[test]
fn rotated_logs_are_one_log_and_malformed_lines_are_told() {
    let folder = scratch("access-logs/rotated");
    let whole = made_log(&folder, 1);
    let text = fs::read_to_string(&whole).expect("a log");
    let lines: Vec<&str> = text.lines().collect();
    let (older, newer) = lines.split_at(lines.len() / 2);
    let broken = format!("{}\nnot a line\n{}", older[..10].join("\n"), older[10..].join("\n"));
    let newer = file(&folder, "access.log", newer.join("\n"));
    let older = file(&folder, "access.log.1", broken);
    assert!(Command::new("gzip").args(["-f", &older]).status().expect("gzip").success());
    let older = format!("{older}.gz");
    let (whole, both) = (plan(&["--log", &whole]), plan(&["--log", &newer, &older]));
    // Lines of one second are in the order of the files.
    for figure in ["clients", "requests"] {
        assert_eq!(both[figure], whole[figure]);
    }
    assert_eq!(both["recommendation"]["sessions"], whole["recommendation"]["sessions"]);
    let malformed = &both["log"]["malformed"];
    assert_eq!(malformed[0]["lines"], 1, "{malformed}");
    assert_eq!(malformed[0]["first_line"], 11, "{malformed}");
    assert_eq!(malformed[0]["first_log"], older.as_str(), "{malformed}");
    let said = done(&["plan", "--log", &newer, &older]);
    assert!(said.contains("1 malformed lines, no time") && said.contains("line 11 of"), "{said}");
}

#[test]
fn logs_that_give_nothing_are_refused_in_one_line() {
    let folder = scratch("access-logs/refused");
    let nothing = file(&folder, "nothing.log", "");
    let prose = file(&folder, "prose.log", "one\ntwo\n");
    let cut = file(&folder, "cut.gz", b"\x1f\x8b\x08\0\0");
    // The header of a frame with a window of 256 MiB, and an empty block.
    let window = file(&folder, "window.zst", b"\x28\xb5\x2f\xfd\0\x90\x01\0\0");
    let plain =
        "10.0.0.1 - - [25/Nov/2026:15:49:27 +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"a\" tls=-\n";
    let plain = file(&folder, "plain.log", plain);
    let refused: [(&[&str], &str, i32); 8] = [
        (&["--log", "/nowhere/access.log"], "/nowhere/access.log: cannot be read", 1),
        (&["--log", &nothing], "nothing.log: nothing is there", 1),
        (&["--log", &prose], "no line of 2 is in a known format; line 1: no time", 1),
        (&["--log", &cut], "cut.gz: cut after line 0", 1),
        (&["--log", &plain], "all 1 requests came without TLS", 1),
        (&["--log", &window], "a window of more than 128 MiB: zstd -dc --long=31", 1),
        (&["--log", "-", "-"], "- is given twice", 2),
        (&["--log", &plain, "--trace", &plain], "--trace", 2),
    ];
    for (arguments, told, expected) in refused {
        let (line, code) = refusal(&[&["plan"], arguments].concat());
        assert!(line.contains(told) && code == expected, "{arguments:?}: {code}, {line}");
    }
}
