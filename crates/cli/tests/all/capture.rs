//! `rejoin capture` as its users run it.

use crate::REJOIN;
use crate::metrics::Following;
use crate::program::text;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::serve::{Server, scratch};
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rejoin_testkit::live_capture::{
    Listening, Watched, has_packet_socket, in_a_network_of_its_own, run, waiting_bytes,
};
use rejoin_testkit::made_capture::Capture;
use rejoin_testkit::process::{Process, Signal, signal, wait_until};
use serde_json::Value;

fn rejoin(arguments: &[&str]) -> Output {
    Command::new(REJOIN).arg("capture").args(arguments).output().expect("the program runs")
}

/// A capture of one full handshake.
fn full() -> Vec<u8> {
    Capture::of_full_1_2().0
}

/// A folder with these files.
fn folder(name: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let folder = scratch(name);
    for (file, bytes) in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
    folder
}

/// Replaces bytes by others.
fn replaced(capture: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut capture = capture.to_vec();
    for at in 0..=capture.len() - from.len() {
        if capture[at..].starts_with(from) {
            capture[at..at + to.len()].copy_from_slice(to);
        }
    }
    capture
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_folder_gives_a_report_and_a_list() {
    let whole = full();
    let files: [(&str, &[u8]); 3] =
        [("b.pcap", &whole), ("a/one.pcap", &whole), ("a/README", b"whence these are\n")];
    let folder = folder("capture-folder", &files);
    let output = rejoin(&["--json", shown(&folder)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = ["captures", "handshakes_seen", "handshakes", "full_observed"];
    // The second stands in the first.
    assert_eq!(figures.map(|figure| report[figure].as_u64()), [2, 2, 1, 1].map(Some));
    assert_eq!(report["passed_over"]["duplicate"], 1);
    let output = rejoin(&["--list", "--json", "--explain", shown(&folder)]);
    let records: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let files: Vec<_> = records.iter().map(|record| record["file"].as_str()).collect();
    assert_eq!(files, [Some("a/one.pcap"), Some("b.pcap")]);
    assert_eq!(
        (&records[0]["cls"], &records[0]["sni"]),
        (&"full".into(), &"rejoin.example".into())
    );
    let why = records[0]["explanation"].as_str().expect("a sentence");
    assert!(why.contains("frame 2"), "{why}");
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_analysed() {
    let whole = full();
    let cut = &whole[..whole.len() - 7];
    let files: [(&str, &[u8]); 4] =
        [("cut.pcap", cut), ("empty.pcap", b""), ("good.pcap", &whole), ("text.pcap", b"hello")];
    let folder = folder("capture-broken", &files);
    let output = rejoin(&["--json", shown(&folder), "/nonexistent.pcap"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    for (file, reason) in [
        ("cut.pcap", "ends inside a record"),
        ("empty.pcap", "empty"),
        ("text.pcap", "no capture"),
        ("/nonexistent.pcap", "No such file"),
    ] {
        let line = told.lines().find(|line| line.contains(&format!("{file}: ")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{file}: {told}");
    }
    assert!(!told.contains("good.pcap"), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["left_out"].as_array().map(Vec::len), Some(4));
    assert_eq!(report["full_observed"], 1);
}

#[test]
fn frames_that_cannot_be_looked_into_are_told() {
    let mut foreign = full();
    // IEEE 802.15.4.
    foreign[20] = 195;
    let files: [(&str, &[u8]); 2] = [("foreign.pcap", &foreign), ("good.pcap", &full())];
    let folder = folder("capture-foreign", &files);
    let output = rejoin(&["--json", shown(&folder)]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    let line = told.lines().find(|line| line.contains("foreign.pcap: ")).unwrap_or_default();
    assert!(line.contains("3 of link type 195"), "{told}");
    // What could be read in part is no failure.
    let mut mixed = Capture::of_full_1_2();
    mixed.packet(&rejoin_testkit::made_capture::ip(50, 443, &[7; 60]));
    let mixed_path = folder.join("mixed.pcap");
    fs::write(&mixed_path, &mixed.0).expect("a file");
    let output = rejoin(&["--json", shown(&mixed_path)]);
    let told = text(&output.stderr);
    assert!(output.status.success() && told.contains("1 of IP protocol 50 (ESP)"), "{told}");
}

#[test]
fn misuse_is_one_line_and_exit_code_2() {
    let folder = folder(
        "capture-misuse",
        &[("a.pcap", &full()), ("bad.csv", b"1,2\nx,y,z\n"), ("apps.tsv", b"x\ty\n")],
    );
    let [capture, bad, apps] = ["a.pcap", "bad.csv", "apps.tsv"].map(|file| folder.join(file));
    let (capture, bad, apps) = (shown(&capture), shown(&bad), shown(&apps));
    let wrong: [(&[&str], &str); 12] = [
        (&[], "<FILE>"),
        (&["--interface", "nosuch0"], "no such interface"),
        (&["--follow", capture, capture], "one folder"),
        (&["--follow", capture], "Not a directory"),
        (&["--networks", bad, capture], "line 2"),
        (&["--model", bad, capture], "line 1"),
        (&["--app-map", bad, capture], "tab"),
        (&["--html", capture, capture], "already read"),
        (&["--anonymise", "--anonymise-key", bad, capture], "32 hexadecimal digits"),
        (&["--anonymise", "--anonymise-key", bad, "--csv", bad, capture], "already read"),
        (&["--write-trace", "arrivals.csv.gz", capture], "uncompressed"),
        (&["--app-map", apps, capture], "none of the captures"),
    ];
    for (arguments, remedy) in wrong {
        let output = rejoin(arguments);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        assert!(told.contains(remedy), "{arguments:?}: {told}");
    }
}

#[test]
fn what_waits_can_be_told_to_stop() {
    let pipe = scratch("capture-pipe").join("pipe");
    let _ = fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    let child = Command::new(REJOIN).arg("capture").arg(&pipe).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program runs");
    thread::sleep(Duration::from_millis(300));
    rejoin_testkit::serve::interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert!(text(&output.stderr).contains("interrupted"), "{}", text(&output.stderr));
    // On an interface where nothing happens time passes all the same.
    let output = rejoin(&["--interface", "lo", "--server", "192.0.2.99", "--duration", "0.3"]);
    let told = text(&output.stderr);
    assert!(output.status.success() || told.contains("not permitted"), "{told}");
}

#[test]
fn a_list_that_nobody_reads_on_takes_nothing_from_the_files() {
    let (whole, name) = (full(), "capture-closed");
    let folder = folder(name, &[("a.pcap", &whole), ("b.pcap", &whole), ("c.pcap", &whole)]);
    let csv = scratch(name).join("../closed.csv");
    let mut child = Command::new(REJOIN)
        .args(["capture", "--list", "--json", "--csv", shown(&csv), shown(&folder)])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
    assert_eq!(fs::read_to_string(csv).expect("CSV").lines().count(), 4);
}

#[test]
fn a_list_of_standard_input_is_told_at_once() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut child = Command::new(REJOIN)
        .args(["capture", "--list", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&full()).expect("it reads");
    let mut line = String::new();
    // The input is still open.
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    drop(input);
    assert!(line.contains("rejoin.example") && line.contains("full"), "{line}");
    assert!(child.wait().expect("it ends").success());
}

/// The header of a capture, and its packets with their headers.
fn parts_of(capture: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let (header, mut rest) = capture.split_at(24);
    let mut packets = Vec::new();
    while let Some(length) = rest.get(8..12) {
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        let (packet, after) = rest.split_at(16 + length);
        packets.push(packet);
        rest = after;
    }
    (header, packets)
}

/// The same packets of a client with another port.
fn from_port(packets: &[&[u8]], port: u16) -> Vec<Vec<u8>> {
    let mut packets: Vec<Vec<u8>> = packets.iter().map(|packet| packet.to_vec()).collect();
    for packet in &mut packets {
        for place in [36, 38] {
            let end = &mut packet[place..place + 2];
            if *end == 40_000_u16.to_be_bytes() {
                end.copy_from_slice(&port.to_be_bytes());
            }
        }
    }
    packets
}

/// A capture of a handshake an hour, of a day and a quarter.
pub(crate) fn of_a_day() -> Vec<u8> {
    let whole = full();
    let (header, packets) = parts_of(&whole);
    let mut capture = header.to_vec();
    for hour in 0..30 {
        for mut packet in from_port(&packets, 41_000 + hour) {
            let time_s = 1_700_000_000 + 3_600 * u32::from(hour);
            packet[..4].copy_from_slice(&time_s.to_le_bytes());
            capture.extend(packet);
        }
    }
    capture
}

/// Packets of an interface whose clock is an hour ahead end a handshake only for who waits for what fails.
#[test]
fn a_file_at_rest_may_have_two_clocks() {
    let whole = full();
    let (header, packets) = parts_of(&whole);
    let mut ahead = from_port(&packets[..1], 41_000).remove(0);
    ahead[..4].copy_from_slice(&(1_700_000_000_u32 + 3_600).to_le_bytes());
    let [first, rest @ ..] = &packets[..] else { panic!("no packets") };
    let capture = [&[header, first, &ahead, &ahead][..], rest].concat().concat();
    let folder = folder("capture-clocks", &[("two.pcap", &capture)]);
    let file = folder.join("two.pcap");
    let classes = |input: &str| {
        let input_file = fs::File::open(&file).expect("a file");
        let mut command = Command::new(REJOIN);
        let command = command.args(["capture", "--list", "--json", input]).stdin(input_file);
        let output = command.output().expect("the program runs");
        let of_line = |line: &str| {
            let record: Value = serde_json::from_str(line).expect("JSON");
            let is_it = record["client_port"] == 40_000;
            is_it.then(|| record["cls"].as_str().expect("a class").to_owned())
        };
        text(&output.stdout).lines().filter_map(of_line).collect::<Vec<_>>()
    };
    assert_eq!(classes(shown(&file)), ["full"]);
    assert_eq!(classes("-"), ["no_serverhello"]);
}

#[test]
fn a_folder_that_rotates_is_followed() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let folder = Folder::new();
    folder.write("README", "whence these are");
    let whole = full();
    let (header, packets) = parts_of(&whole);
    let path = folder.path().to_owned();
    let write = |name: &str, packets: &[u8]| {
        let mut file = fs::File::create(path.join(name)).expect("a file");
        file.write_all(&[header, packets].concat()).expect("written");
        file
    };
    drop(write("part", packets[0]));
    let Following { mut child, address, folder: _folder } =
        Following::with(folder, &["--list", "--json"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    // A handshake that goes on in the next file.
    let mut growing = write("part1", &packets[1..].concat());
    let found = next();
    assert_eq!((&found["file"], &found["cls"]), (&"part1".into(), &"full".into()));
    assert_eq!(found["frame_ch"], 1);
    // A file that grows, by less than a packet.
    let more = from_port(&packets, 40_001).concat();
    growing.write_all(&more[..more.len() - 7]).expect("written");
    growing.flush().expect("written");
    wait_until("the packets so far", || {
        let answer = crate::shown::get(&address, "/metrics", "");
        answer.contains("rejoin_capture_handshakes_total{protocol=\"tls\",kind=\"full\"} 1\n")
            && answer.contains("rejoin_capture_files_total 3\n")
    });
    growing.write_all(&more[more.len() - 7..]).expect("written");
    assert_eq!(next()["file"], "part1");
    // The oldest file is begun anew, as a ring of files does.
    drop(write("part", &from_port(&packets, 40_002).concat()));
    assert_eq!(next()["file"], "part");
    child.signal(Signal::INT);
    assert!(child.wait().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().expect("a pipe"), &mut rest).expect("text");
    assert_eq!(rest, "");
}

/// Some programs begin one file again and again, such as `tcpdump -G 60 -w one.pcap`.
#[test]
fn a_file_that_is_begun_anew_while_it_is_read_is_read_anew() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let folder = Folder::new();
    let whole = full();
    let (header, packets) = parts_of(&whole);
    let path = folder.path().join("one");
    let begin = |port: u16, count: usize| {
        let packets = from_port(&packets, port);
        fs::write(&path, [header, &packets[..count].concat()].concat()).expect("written");
    };
    begin(40_000, 3);
    let Following { mut child, folder: _folder, .. } =
        Following::with(folder, &["--list", "--json"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(next()["client_port"], 40_000);
    // As long as before, and shorter.
    begin(40_001, 3);
    assert_eq!(next()["client_port"], 40_001);
    begin(40_002, 2);
    thread::sleep(Duration::from_millis(300));
    begin(40_003, 3);
    assert_eq!(next()["client_port"], 40_003);
    child.signal(Signal::INT);
    assert_eq!(child.wait().code(), Some(1));
    let mut told = String::new();
    child.stderr.as_mut().expect("a pipe").read_to_string(&mut told).expect("text");
    assert_eq!(told.matches("begun anew").count(), 3, "{told}");
}

/// A system gives the number of a file that is gone to another one.
#[test]
fn a_capture_in_place_of_another_file_is_read() {
    use std::io::{BufRead as _, BufReader};
    let folder = Folder::new();
    let notes = folder.write("notes.md", "whence these are");
    let capture = folder.path().join("a.pcap");
    let Following { mut child, address, folder: _folder } =
        Following::with(folder, &["--list", "--json"]);
    wait_until("the notes are passed over", || {
        let answer = crate::shown::get(&address, "/metrics", "");
        answer.contains("rejoin_capture_files_total 1\n")
    });
    thread::sleep(Duration::from_millis(300));
    fs::rename(&notes, &capture).expect("renamed");
    fs::write(&capture, full()).expect("written");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().expect("a line").expect("text").contains("a.pcap"));
    child.signal(Signal::INT);
    child.wait();
}

#[test]
fn files_that_the_time_was_too_short_for_are_told() {
    let (whole, folder) = (full(), Folder::new());
    for number in 0..300 {
        fs::write(folder.path().join(format!("{number}.pcap")), &whole).expect("written");
    }
    fs::write(folder.path().join("README"), "whence these are").expect("written");
    let output = rejoin(&["--follow", "--duration", "1ms", "--json", shown(folder.path())]);
    let told = text(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let read = report["captures"].as_u64().unwrap_or(0);
    let missing = format!("{} files are not read", 300 - read);
    assert!(output.status.code() == Some(1) && told.contains(&missing), "{read}: {told}");
}

#[test]
fn logs_of_zeeks_form_have_a_row_for_each_handshake() {
    let folder = folder("capture-zeek", &[("a.pcap", &full())]);
    let capture = folder.join("a.pcap");
    let output = rejoin(&["--zeek", shown(&folder), shown(&capture)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let fields = |log: &str| -> Vec<(String, String)> {
        let log = fs::read_to_string(folder.join(log)).expect("a log");
        let names = log.lines().find_map(|line| line.strip_prefix("#fields\t")).expect("names");
        let row = log.lines().last().expect("a row");
        let names = names.split('\t').map(str::to_owned);
        names.zip(row.split('\t').map(str::to_owned)).collect()
    };
    let (ssl, conn) = (fields("ssl.log"), fields("conn.log"));
    let value = |fields: &[(String, String)], name: &str| {
        fields.iter().find(|(known, _)| known == name).expect("a field").1.clone()
    };
    for (name, expected) in [
        ("id.orig_h", "10.0.0.1"),
        ("id.orig_p", "40000"),
        ("id.resp_p", "443"),
        ("version", "TLSv12"),
        ("server_name", "rejoin.example"),
        ("resumed", "F"),
        ("established", "T"),
        ("last_alert", "-"),
    ] {
        assert_eq!(value(&ssl, name), expected, "{name}");
    }
    assert_eq!((value(&conn, "proto"), value(&conn, "service")), ("tcp".into(), "ssl".into()));
    assert_eq!(value(&ssl, "uid"), value(&conn, "uid"));
}

#[test]
fn handshakes_are_counted_in_the_course_of_time() {
    let folder = folder("capture-day", &[("a.pcap", &of_a_day())]);
    let page = folder.join("a.html");
    let output = rejoin(&["--json", "--html", shown(&page), shown(&folder.join("a.pcap"))]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let over_time = &report["over_time"];
    let intervals = over_time["intervals"].as_array().expect("a list");
    // At most 24 between the first and the last.
    assert_eq!((&over_time["step_s"], intervals.len()), (&7_200.into(), 15));
    let first = serde_json::json!({ "begin_s": 1_699_999_200, "full": 2, "resumed": 0 });
    assert_eq!(intervals[0], first);
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("<th scope=\"row\">2023-11-14 22:00<td>"), "{page}");
}

/// Reads each form by a program for it, and prints what it found.
const READERS: &str = r#"
import json, sys
import duckdb, pandas, parsezeeklogs
folder = sys.argv[1]
frame = pandas.read_csv(f"{folder}/a.csv")
duckdb.sql(f"COPY (FROM '{folder}/a.csv') TO '{folder}/a.parquet'")
rows = duckdb.sql(f"SELECT cls, count(*), min(bytes_from_server) FROM '{folder}/a.parquet' GROUP BY cls")
ssl, conn = (list(parsezeeklogs.read_zeek(f"{folder}/{log}.log")) for log in ("ssl", "conn"))
print(json.dumps({
    "pandas": [len(frame), str(frame.t_ch.dtype), str(frame.client_port.dtype), str(frame.hrr.dtype)],
    "duckdb": rows.fetchall(),
    "zeek": [len(ssl), [type(ssl[0][name]).__name__ for name in ("id.orig_p", "resumed")], ssl[0]["server_name"]],
    "joined": [row["uid"] for row in ssl] == [row["uid"] for row in conn],
}))
"#;

#[test]
#[ignore = "needs target/readers; make test-all"]
fn each_form_is_read_by_the_programs_for_it() {
    let folder = folder("capture-readers", &[("a.pcap", &of_a_day())]);
    let (capture, csv) = (folder.join("a.pcap"), folder.join("a.csv"));
    let output = rejoin(&["--zeek", shown(&folder), "--csv", shown(&csv), shown(&capture)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let packages = rejoin_testkit::shipped::target().join("readers/root");
    let mut python = Command::new("python3");
    python.args(["-c", READERS, shown(&folder)]).env("PYTHONPATH", packages);
    let read = python.output().expect("Python");
    assert!(read.status.success(), "{}", text(&read.stderr));
    let read: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    assert_eq!(read["pandas"], serde_json::json!([30, "float64", "int64", "bool"]));
    assert_eq!(read["duckdb"][0][0], "full");
    assert_eq!(read["duckdb"][0][1], 30);
    assert!(read["duckdb"][0][2].as_u64() > Some(1_000), "{read}");
    assert_eq!(read["zeek"], serde_json::json!([30, ["int", "bool"], "rejoin.example"]));
    assert_eq!(read["joined"], true);
    let log = fs::File::open(folder.join("ssl.log")).expect("a log");
    let mut cut =
        Command::new(rejoin_testkit::shipped::target().join("readers/zeek/usr/bin/bro-cut"));
    let cut = cut.args(["server_name", "resumed"]).stdin(log).output().expect("zeek-cut");
    let lines = text(&cut.stdout);
    assert_eq!(lines.lines().count(), 30, "{lines}{}", text(&cut.stderr));
    assert!(lines.lines().all(|line| line.split('\t').next() == Some("rejoin.example")), "{lines}");
    assert!(
        lines.lines().all(|line| matches!(line.split('\t').nth(1), Some("F" | "T"))),
        "{lines}"
    );
}

#[test]
fn csv_page_and_trace_are_written_too() {
    let folder = folder("capture-outputs", &[("a.pcap", &full())]);
    let file = |name: &str| shown(&folder.join(name)).to_owned();
    let (capture, csv, html, trace) =
        (file("a.pcap"), file("a.csv"), file("a.html"), file("a.trace"));
    let output = rejoin(&["--csv", &csv, "--html", &html, "--write-trace", &trace, &capture]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("as observed"));
    // What nothing was given for is not shown as if it had been measured.
    let shown_text = text(&output.stdout);
    assert!(shown_text.contains("not measured: give --networks"), "{shown_text}");
    assert!(!shown_text.contains("shared on client and servers"), "{shown_text}");
    assert!(shown_text.contains("not measured, there is one application"), "{shown_text}");
    let networks = file("networks.csv");
    fs::write(&networks, "192.0.2.0/24,64500\n").expect("a file");
    let output = rejoin(&["--networks", &networks, &capture]);
    assert!(text(&output.stdout).contains("shared on client and servers"));
    let csv = fs::read_to_string(csv).expect("CSV");
    assert!(csv.starts_with("file,") && csv.contains("rejoin.example"), "{csv}");
    let html = fs::read_to_string(html).expect("a page");
    assert!(html.contains("rejoin.example") && !html.contains("http:"), "{html}");
    let trace = fs::File::open(trace).expect("a trace");
    let arrivals = rejoin_trace::Reader::new(trace).expect("a trace").count();
    assert_eq!(arrivals, 1);
}

/// A capture in pcapng whose statistics tell of packets that were dropped.
#[test]
fn packets_that_were_dropped_when_it_was_captured_are_told() {
    let block = |kind: u32, body: &[u8]| {
        let length = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let header = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let dropped = [&[0; 12][..], &[5, 0, 8, 0], &1_234_u64.to_le_bytes(), &[0; 4]].concat();
    let capture =
        [block(0x0a0d_0d0a, &header), block(1, &[1, 0, 0, 0, 0, 0, 0, 0]), block(5, &dropped)];
    let folder = folder("capture-dropped", &[("a.pcapng", &capture.concat()), ("b.pcap", &full())]);
    let output = rejoin(&["--json", shown(&folder)]);
    let (told, report) = (text(&output.stderr), serde_json::from_slice::<Value>(&output.stdout));
    assert!(told.contains("a.pcapng: 1234 packets were dropped when this was captured"), "{told}");
    assert_eq!(report.expect("JSON")["dropped"], 1_234);
}

/// Simple packets of a pcapng have no time: neither has what is made of them.
#[test]
fn packets_without_a_time_have_no_place_in_a_trace() {
    let block = |kind: u32, body: &[u8]| {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = ((12 + body.len() + padding.len()) as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &padding, &length].concat()
    };
    let header = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let mut capture = [block(0x0a0d_0d0a, &header), block(1, &[101, 0, 0, 0, 0, 0, 0, 0])].concat();
    let whole = Capture::of_full_1_2();
    for packet in whole.packets() {
        capture.extend(block(3, &[&(packet.len() as u32).to_le_bytes(), packet].concat()));
    }
    let folder = folder("capture-timeless", &[("a.pcapng", &capture)]);
    let (file, trace) = (folder.join("a.pcapng"), folder.join("a.trace"));
    let told = text(&rejoin(&[shown(&file)]).stdout);
    assert!(told.contains("of 1 no time is captured"), "{told}");
    let row = |begin: &str| told.lines().find(|line| line.trim().starts_with(begin));
    for begin in ["as observed", "TLS up to 1.2"] {
        assert!(row(begin).is_some_and(|row| row.contains('–')), "{begin}: {told}");
    }
    let none = folder.join("none.trace");
    let output = rejoin(&["--write-trace", shown(&none), shown(&file)]);
    let complaint = text(&output.stderr);
    assert!(complaint.contains("of no handshake a time is captured"), "{complaint}");
    assert!(output.status.code() == Some(1) && !none.exists(), "{complaint}");
    // Beside another it is left out, and told.
    let other = replaced(&full(), &[1; 32], &[5; 32]);
    fs::write(folder.join("b.pcap"), other).expect("a file");
    let output = rejoin(&["--write-trace", shown(&trace), shown(&folder)]);
    let complaint = text(&output.stderr);
    assert!(output.status.success() && complaint.contains("without 1 handshake "), "{complaint}");
    let arrivals = rejoin_trace::Reader::new(fs::File::open(trace).expect("a trace"));
    assert_eq!(arrivals.expect("a trace").count(), 1);
}

/// A handshake seen before and behind NAT, in captures that overlap, one of which cuts it.
#[test]
fn a_trace_has_each_handshake_once() {
    // A random of equal bytes would be taken for one that is made up.
    let whole = replaced(&full(), &[9; 32], &std::array::from_fn::<u8, 32, _>(|at| at as u8));
    let translated = replaced(&whole, &[10, 0, 0, 1], &[10, 0, 0, 99]);
    let files: [(&str, &[u8]); 4] = [
        ("a.pcap", &whole[..whole.len() / 3]),
        ("b.pcap", &[&whole[..], &translated].concat()),
        ("c.pcap", &whole),
        ("d.pcap", &translated),
    ];
    let folder = folder("capture-arrivals", &files);
    let trace = shown(&folder.join("arrivals.trace")).to_owned();
    let output = rejoin(&["--json", "--write-trace", &trace, shown(&folder)]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["handshakes_seen"], &report["handshakes"]), (&5.into(), &1.into()));
    let trace = fs::File::open(trace).expect("a trace");
    assert_eq!(rejoin_trace::Reader::new(trace).expect("a trace").count(), 1);
}

#[test]
fn anonymous_results_name_nobody() {
    let folder = folder("capture-anonymous", &[("phone.pcap", &full()), ("broken.pcap", b"x")]);
    let key = folder.parent().expect("a folder").join("capture.key");
    fs::write(&key, "000102030405060708090a0b0c0d0e0f\n").expect("a key");
    for more in [&["--list", "--json"][..], &["--list", "--explain"], &["--json"], &[]] {
        let arguments = [&["--anonymise", "--anonymise-key", shown(&key), shown(&folder)], more];
        let outputs = [(); 2].map(|()| rejoin(&arguments.concat()));
        let told = outputs.map(|output| text(&output.stdout) + &text(&output.stderr));
        for name in ["rejoin.example", "192.0.2.1", "10.0.0.1", "phone", "broken"] {
            assert!(!told[0].contains(name), "{name} in {}", told[0]);
        }
        assert_eq!(told[0], told[1]);
    }
}

#[test]
fn a_live_capture_agrees_with_what_the_server_counted() {
    let fleet = ["--devices", "200", "--speedup", "120", "--warm-up", "60", "--duration", "120"];
    for tls in ["1.2", "1.3"] {
        let server = ["--tls", tls, "--capacity-sessions", "50"];
        let Some(watched) = in_a_network_of_its_own(|| run(&server, &fleet)).flatten() else {
            eprintln!("no right to a network of its own, and a packet socket: nothing is captured");
            return;
        };
        let Watched { captured, counted, .. } = watched;
        assert!(counted.iter().all(|count| *count > 0), "TLS {tls}: {counted:?}");
        assert_eq!(captured, counted, "TLS {tls}");
    }
}

/// The program and the process at each end, as `/proc` of this machine shows them. The client stays until it was seen.
#[test]
fn a_live_capture_names_the_programs() {
    let named = in_a_network_of_its_own(|| {
        let server = Server::start(&["--tls", "1.3"]);
        let listening = Listening::start()?;
        let mut client = Command::new("openssl");
        client.args(["s_client", "-connect", &server.listening]).stdin(Stdio::piped());
        let client = Process::start(client.stdout(Stdio::null()).stderr(Stdio::null()));
        wait_until("a handshake", || listening.look(|seen| !seen.is_empty()));
        let process = client.id();
        drop(client);
        server.stop();
        Some((listening.end(), process))
    });
    let Some((seen, process)) = named.flatten() else {
        eprintln!("no right to a network of its own, and a packet socket: nothing is captured");
        return;
    };
    let [record] = &seen[..] else { panic!("one handshake: {seen:?}") };
    assert_eq!((&record["program"], &record["process"]), (&"openssl".into(), &process.into()));
    assert_eq!(record["server_program"], "rejoin", "{record}");
    assert!(record["server_process"].is_u64(), "{record}");
}

/// Returns true if a program's first thread waits for something.
fn sleeps(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}

/// Returns true if a program does something of its own at Ctrl-C.
fn catches_an_interrupt(pid: u32) -> bool {
    const INTERRUPT: u64 = 1 << (Signal::INT.as_raw() - 1);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & INTERRUPT != 0)
}

/// Loopback shows each packet twice, of which one is taken: what is lost is told once.
#[test]
fn what_is_lost_on_loopback_is_told_once() {
    if in_a_network_of_its_own(lose_on_loopback).is_none() {
        eprintln!("no right to a network of its own: nothing is captured");
    }
}

/// A report of loopback that is being made. `None` without the right to a packet socket.
fn reporting_on_loopback(more: &[&str]) -> Option<Child> {
    let capture = Command::new(REJOIN)
        .args(["capture", "--interface", "lo", "--json"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut capture = capture.expect("the program runs");
    wait_until("a packet socket", || {
        // Once it sleeps, the socket has its filter.
        has_packet_socket(capture.id())
            && catches_an_interrupt(capture.id())
            && sleeps(capture.id())
            || capture.try_wait().expect("our own child").is_some()
    });
    let has_ended = capture.try_wait().expect("our own child").is_some();
    if has_ended {
        eprintln!("no right to a packet socket: nothing is captured");
    }
    (!has_ended).then_some(capture)
}

/// Two sockets on loopback, of which the first sends to the second.
fn ends_on_loopback() -> [UdpSocket; 2] {
    let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    from.connect(to.local_addr().expect("bound")).expect("an address");
    [from, to]
}

/// The packets that a report counts, and those that it says are lost.
fn counted_and_lost(output: &Output) -> [u64; 2] {
    let told = text(&output.stderr);
    let lost = told.lines().find(|line| line.contains("arrived faster"));
    let lost = lost.and_then(|line| line.split_whitespace().find_map(|word| word.parse().ok()));
    let report = serde_json::from_slice(&output.stdout);
    let report: Value = report.unwrap_or_else(|_| panic!("{}: {told}", output.status));
    [report["frames"].as_u64().expect("a number"), lost.unwrap_or(0)]
}

/// Packets that wait when a capture ends are read, and those lost since the last one are told.
#[test]
fn what_waits_at_the_end_of_a_live_capture_counts() {
    let counted = in_a_network_of_its_own(|| {
        [(40_000, &[][..]), (400_000, &[]), (400_000, &["--duration", "500ms"])].map(
            |(sent, more)| {
                let capture = reporting_on_loopback(more)?;
                let [from, _to] = ends_on_loopback();
                signal(&capture, Signal::STOP);
                for _ in 0..sent {
                    from.send(b"x").expect("sent");
                }
                if more.is_empty() {
                    signal(&capture, Signal::INT);
                } else {
                    thread::sleep(Duration::from_millis(500));
                }
                signal(&capture, Signal::CONT);
                let output = capture.wait_with_output().expect("it ends");
                Some((sent, counted_and_lost(&output)))
            },
        )
    });
    let Some(counted) = counted else {
        eprintln!("no right to a network of its own: nothing is captured");
        return;
    };
    let [first, second, third] = counted;
    for (sent, [counted, lost]) in [first, second].into_iter().flatten() {
        assert_eq!((counted + lost, lost > 0), (sent, sent > 40_000), "{counted}, {lost}");
    }
    // Some came when the time was over.
    if let Some((sent, [counted, lost])) = third {
        assert!(counted > 10_000 && counted + lost <= sent, "{counted}, {lost}");
    }
}

fn lose_on_loopback() {
    const SENT: u64 = 400_000;
    let Some(capture) = reporting_on_loopback(&[]) else { return };
    let [from, _to] = ends_on_loopback();
    signal(&capture, Signal::STOP);
    for _ in 0..SENT {
        from.send(b"x").expect("sent");
    }
    signal(&capture, Signal::CONT);
    // A packet that finds room brings the number of those lost before it.
    wait_until("the program has caught up, and has read one more", || {
        from.send(b"x").expect("sent");
        waiting_bytes(capture.id()).is_none_or(|bytes| bytes < 100_000)
    });
    from.send(b"x").expect("sent");
    wait_until("it has read all", || waiting_bytes(capture.id()).is_none_or(|bytes| bytes == 0));
    signal(&capture, Signal::INT);
    let output = capture.wait_with_output().expect("it ends");
    let [counted, lost] = counted_and_lost(&output);
    assert!(lost > 0, "nothing is lost: {}", text(&output.stderr));
    let all = counted + lost;
    // And those that were sent until it had caught up.
    assert!((SENT..SENT * 5 / 4).contains(&all), "{all}: {}", text(&output.stderr));
}
