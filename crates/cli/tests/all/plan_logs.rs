//! Logs that lead `rejoin plan` astray: what it says of them.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_testkit::random::Random;
use serde_json::Value;

use crate::REJOIN;
use crate::program::{complaint, done, file, interrupt, path, refusal, scratch, start};

/// The first time of the logs, in seconds since 1970.
const BEGINS_S: u64 = 1_795_600_000;
const HOUR_S: u64 = 3_600;

/// A visit: the second from the beginning on, and the client.
type Visit = (u64, u64);

/// Returns the lines of visits in JSON, with more members at the end of each.
fn lines(visits: &[Visit], more: &str) -> String {
    let line = |(second, client): &Visit| {
        format!("{{\"time\":{},\"client\":\"c{client}\"{more}}}\n", BEGINS_S + second)
    };
    visits.iter().map(line).collect()
}

/// Returns visits of clients, each of which comes back after `every_s`, in order.
fn regular(clients: u64, every_s: u64, until_s: u64) -> Vec<Visit> {
    let of = |client: u64| {
        let first_s = client * every_s / clients;
        (first_s..until_s).step_by(every_s as usize).map(move |second| (second, client))
    };
    let mut visits: Vec<Visit> = (0..clients).flat_map(of).collect();
    visits.sort_unstable();
    visits
}

/// Returns visits of clients that come at random, at most every `most_s`.
fn random(clients: u64, most_s: u64, until_s: u64) -> Vec<Visit> {
    let (mut random, mut visits) = (Random::new(clients), Vec::new());
    for client in 0..clients {
        let mut second = random.below(most_s);
        while second < until_s {
            visits.push((second, client));
            second += 100 + random.below(most_s);
        }
    }
    visits.sort_unstable();
    visits
}

fn answer(arguments: &[&str]) -> Value {
    let said = done(&[&["plan", "--json"], arguments].concat());
    serde_json::from_str(&said).expect("JSON")
}

fn warnings(answer: &Value) -> Vec<&str> {
    let warnings = answer["warnings"].as_array().expect("a list");
    warnings.iter().map(|warning| warning.as_str().expect("text")).collect()
}

fn warns_of(answer: &Value, what: &str) -> bool {
    warnings(answer).iter().any(|warning| warning.contains(what))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Returns what a store without bounds resumes of the returning clients, in percent, if a session lives for so long from the
/// handshake that made it.
fn resumed_percent(visits: &[Visit], lifetime_s: u64) -> f64 {
    let mut made = std::collections::BTreeMap::new();
    let (mut returned, mut resumed) = (0, 0);
    for (second, client) in visits {
        let known = made.get(client).copied();
        returned += u32::from(known.is_some());
        if known.is_some_and(|made_s| second - made_s < lifetime_s) {
            resumed += 1;
        } else {
            made.insert(client, *second);
        }
    }
    f64::from(resumed) * 100.0 / f64::from(returned)
}

/// Half of the clients come back every two hours and half every 26, for two weeks. A session of TLS 1.2 lives for a day, whether
/// in a cache or in a ticket; TLS 1.3 makes a new one at each visit, which may live for a week.
#[test]
fn sessions_that_have_grown_too_old_do_not_resume() {
    let folder = scratch("plan-logs/lifetime");
    let two_weeks_s = 14 * 24 * HOUR_S;
    let mut visits = regular(100, 2 * HOUR_S, two_weeks_s);
    let seldom = regular(900, 26 * HOUR_S, two_weeks_s);
    visits.extend(seldom.iter().map(|(second, client)| (*second, client + 100)));
    visits.sort_unstable();
    let log = file(&folder, "week.log", lines(&visits, ""));
    let page = path(&folder, "week.html");
    let found = answer(&["--log", &log, "--html", &page]);
    let expected = resumed_percent(&visits, 86_400);
    assert!(expected < 70.0, "{expected}");
    let near = |value: &Value| (number(value) - expected).abs() < 1e-9;
    assert!(near(&found["unlimited"]["hit_after_first_of_device"]["mean"]), "{found}");
    assert!(near(&found["tickets_percent"]), "{expected}, {}", found["tickets_percent"]);
    for row in found["rows"].as_array().expect("rows") {
        let percent = number(&row["hit_after_first_of_device"]["mean"]);
        assert!(percent <= expected + 0.1, "{expected}: {row}");
    }
    assert!(warns_of(&found, "find it older than 1 d"), "{:?}", warnings(&found));
    assert!(warns_of(&found, &format!("at most {expected:.1} % resume at any size")));
    let said = fs::read_to_string(page).expect("a page");
    assert!(said.contains("sessions live 1 d"), "the page has no lifetime");
    let servers = file(&folder, "servers.toml", "tls = '1.3'");
    let found = answer(&["--log", &log, "--plan", &servers]);
    assert!(number(&found["recommendation"]["returning_percent"]) > 90.0, "{found}");
    assert_eq!(number(&found["tickets_percent"]), 100.0);
    assert!(!warns_of(&found, "older"), "{:?}", warnings(&found));

    let seldom = file(&folder, "seldom.log", lines(&seldom, ""));
    let (line, code) = refusal(&["plan", "--log", &seldom]);
    assert!(
        line.contains("every client that comes back finds its session older than 1 d"),
        "{line}"
    );
    assert_eq!(code, 1);
}

/// Clients come every 80 s, and a lifetime of 200 s is given: each third visit finds its session too old.
#[test]
fn a_lifetime_that_is_given_counts_in_every_figure() {
    let folder = scratch("plan-logs/given");
    let visits = regular(200, 80, 2 * HOUR_S);
    let log = file(&folder, "regular.log", lines(&visits, ""));
    let found = answer(&["--log", &log, "--keep-alive", "5s", "--lifetime", "200s"]);
    let expected = resumed_percent(&visits, 200);
    assert!((60.0..70.0).contains(&expected), "{expected}");
    assert!((number(&found["tickets_percent"]) - expected).abs() < 1e-9, "{found}");
    assert!(number(&found["recommendation"]["returning_percent"]) <= expected + 0.1, "{found}");
    let lifetime = &found["lifetime"];
    assert!((number(&lifetime["lost_percent"]) - (100.0 - expected)).abs() < 1e-9, "{lifetime}");
    assert_eq!((&lifetime["seconds"], &found["lifetime_s"]), (&200.into(), &200.into()));
    let capacity = ["--capacities", "200", "--policies", "lru"];
    let simulated = |more: &[&str]| {
        let read = ["simulate", "--json", "--tls", "1.2", "--log", &log, "--keep-alive", "5s"];
        let said = done(&[&read, &capacity[..], more].concat());
        let cell: Value = serde_json::from_str(&said).expect("JSON");
        number(&cell["hit_after_first_of_device"]["mean"])
    };
    let planned = answer(
        &[&["--log", &log, "--keep-alive", "5s", "--lifetime", "200s"], &capacity[..]].concat(),
    );
    let planned = number(&planned["rows"][0]["hit_after_first_of_device"]["mean"]);
    assert_eq!(simulated(&["--lifetime", "200s"]), planned);
    assert!(simulated(&[]) > planned, "without it sessions live for ever");
    assert!(warns_of(&found, "find it older than 3 min 20 s"), "{:?}", warnings(&found));
    let longer = answer(&["--log", &log, "--keep-alive", "5s", "--lifetime", "2d"]);
    assert!(!warns_of(&longer, "older"), "{:?}", warnings(&longer));
    let none = ["plan", "--log", &log, "--keep-alive", "5s", "--lifetime", "60s"];
    let (line, code) = refusal(&none);
    assert!(
        line.contains("older than 1 min") && line.contains("--lifetime") && code == 1,
        "{line}"
    );
}

/// Clients that come every 100 s for 12 h, of which 10 min are recorded: what is configured by those must hold for all of it.
#[test]
fn a_short_recording_does_not_shorten_the_life_of_sessions() {
    let folder = scratch("plan-logs/short");
    let visits = regular(200, 100, 12 * HOUR_S);
    let recorded = |(second, _): &&Visit| (HOUR_S..HOUR_S + 600).contains(second);
    let slice: Vec<Visit> = visits.iter().filter(recorded).copied().collect();
    let tls = ",\"tls\":\"TLSv1.2\"";
    let (slice, all) = (
        file(&folder, "slice.log", lines(&slice, tls)),
        file(&folder, "all.log", lines(&visits, tls)),
    );
    let found = answer(&["--log", &slice, "--keep-alive", "5s"]);
    let (best, seconds) = (&found["recommendation"], found["lifetime_s"].to_string());
    let sessions = best["sessions"].to_string();
    let configured = ["--lifetime", &seconds, "--capacities", &sessions, "--policies", "learned"];
    let later = answer(&[&["--log", &all, "--keep-alive", "5s"], &configured[..]].concat());
    let percent = number(&later["rows"][0]["hit_after_first_of_device"]["mean"]);
    let promised = number(&best["returning_percent"]);
    assert!(percent >= promised - 3.0, "{promised} is promised, {percent} resume");
    let source = found["lifetime_source"].as_str().expect("text");
    assert!(source.starts_with("the longest allowed, as arrivals of 10 min are too"), "{source}");
    let said = done(&["plan", "--log", &slice, "--keep-alive", "5s"]);
    assert!(said.contains("keep them for 1 d") && !said.contains("at most 1 %"), "{said}");
    let over_13 = answer(&["--log", &slice, "--keep-alive", "5s", "--tls", "1.3"]);
    assert_eq!(over_13["lifetime_s"], 120, "no gap is longer, and there are five");
}

/// Returns counters, whose only one has these samples: seconds from the beginning on, and counts.
fn counters(folder: &std::path::Path, samples: &[(u64, u64)]) -> String {
    let sample = |(second, count): &(u64, u64)| format!("[{},\"{count}\"]", BEGINS_S + second);
    let values: Vec<String> = samples.iter().map(sample).collect();
    let name = r#"{"__name__":"nginx_connections_accepted"}"#;
    let result = format!(r#"{{"metric":{name},"values":[{}]}}"#, values.join(","));
    let data = format!(r#"{{"resultType":"matrix","result":[{result}]}}"#);
    file(folder, "counters.json", format!(r#"{{"status":"success","data":{data}}}"#))
}

#[test]
fn counters_of_another_time_are_not_passed_over() {
    let folder = scratch("plan-logs/counters");
    let log = file(&folder, "regular.log", lines(&regular(200, 400, 2 * HOUR_S), ""));
    let another_day = [(100 * 86_400, 0), (100 * 86_400 + HOUR_S, 1_800)];
    for samples in [&another_day[..], &[(HOUR_S, 7)]] {
        let counters = counters(&folder, samples);
        let found = answer(&["--log", &log, "--counters", &counters]);
        assert_eq!(found["counters"], Value::Array(Vec::new()));
        let what = "have no two samples between 2026-11-25 09:46:40 and 2026-11-25 11:46:38 UTC, the time \
                    of the log: nothing was compared";
        assert!(warns_of(&found, what), "{:?}", warnings(&found));
    }
}

/// Each third request came without TLS; the counter counts all connections.
#[test]
fn plain_requests_are_no_reason_to_doubt_the_log() {
    let folder = scratch("plan-logs/plain");
    let visits = regular(300, 400, 2 * HOUR_S);
    let all: Vec<String> =
        lines(&visits, ",\"tls\":\"TLSv1.2\"").lines().map(str::to_owned).collect();
    let plain = |(at, line): (usize, &String)| match at % 3 {
        0 => line.replace("TLSv1.2", "-") + "\n",
        _ => line.clone() + "\n",
    };
    let log = file(&folder, "plain.log", all.iter().enumerate().map(plain).collect::<String>());
    let within =
        |until_s: u64| visits.iter().filter(|(second, _)| *second <= until_s).count() as u64;
    let samples = [(600, within(600)), (HOUR_S, within(HOUR_S))];
    let counters = counters(&folder, &samples);
    let found = answer(&["--log", &log, "--counters", &counters]);
    assert!(!warns_of(&found, "the log lacks some"), "{:?}", warnings(&found));
    let checked = &found["counters"][0];
    assert_eq!(number(&checked["counter_growth"]), (samples[1].1 - samples[0].1) as f64);
    assert!(number(&checked["without_tls"]) > 0.0, "{checked}");
    let said = done(&["plan", "--log", &log, "--counters", &counters]);
    assert!(said.contains(" of them without TLS (+0.0 %)"), "{said}");
}

/// Two hours of visits, and one line of years ago; then the same two hours twice, three days apart.
#[test]
fn a_long_pause_is_told_with_its_place() {
    let folder = scratch("plan-logs/pause");
    let visits = random(300, 900, 2 * HOUR_S);
    let wrong = r#"{"time":946684800,"client":"c1"}"#;
    let log = file(&folder, "clock.log", format!("{}{wrong}\n", lines(&visits, "")));
    let found = answer(&["--log", &log]);
    let what = "between 2000-01-01 00:00:00 and 2026-11-25 09:46";
    assert!(warns_of(&found, what), "{:?}", warnings(&found));
    assert!(!warns_of(&found, "too short"), "{:?}", warnings(&found));
    assert!(warns_of(&found, "the first half of the time has 1 of the"), "{:?}", warnings(&found));

    let days_s = 3 * 86_400;
    let later: Vec<Visit> =
        visits.iter().map(|(second, client)| (second + days_s, *client)).collect();
    let log = file(&folder, "gap.log", lines(&[&visits[..], &later].concat(), ""));
    let found = answer(&["--log", &log]);
    assert!(warns_of(&found, "nobody came for 2 d 22 h"), "{:?}", warnings(&found));
    assert!(warns_of(&found, "rates a second are too low"), "{:?}", warnings(&found));
    let pause = &found["log"]["longest_pause_s"];
    assert!((250_000.0..260_000.0).contains(&number(pause)), "{pause}");

    let whole = file(&folder, "whole.log", lines(&visits, ""));
    assert!(!warns_of(&answer(&["--log", &whole]), "nobody came"));
}

/// An office behind one address, in the documented format of Apache: each connection has one request, and ports come again
/// within the hour.
#[test]
fn a_first_request_begins_a_connection_though_its_port_was_there_before() {
    let folder = scratch("plan-logs/office");
    let (mut random, mut log) = (Random::new(3), String::new());
    let visits = self::random(200, 900, 4 * HOUR_S);
    for (second, client) in &visits {
        let port = 32_768 + random.below(28_232);
        let time = BEGINS_S + second;
        log += &format!(
            "203.0.113.5 - - [25/Nov/2026:09:46:40 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"ua{client}\" tls=TLSv1.3 \
             reused=Initial port={port} kept=0 msec={time}\n"
        );
    }
    let log = file(&folder, "office.log", log);
    let found = answer(&["--log", &log]);
    // A few of them have the port that another had within the pause.
    let told = number(&found["log"]["connections"]) / visits.len() as f64;
    assert!((0.995..=1.0).contains(&told), "{told}, {}", found["log"]);
    assert!(!warns_of(&found, "port"), "{:?}", warnings(&found));
}

fn waits_for_input(arguments: &[&str]) -> Child {
    let mut command = Command::new(REJOIN);
    command.arg("plan").args(arguments).stdin(Stdio::piped());
    start(&mut command)
}

/// Waits for the end for ten seconds at most.
fn ends_soon(mut child: Child) -> Output {
    let begun = Instant::now();
    while child.try_wait().expect("our own child").is_none() {
        if begun.elapsed() > Duration::from_secs(10) {
            child.kill().expect("our own child");
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("an end")
}

#[test]
fn waiting_for_standard_input_ends_at_an_interrupt() {
    let zipped = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";
    for given in [&b""[..], b"{\"time\":1795600000,\"client\":\"a\"}\n", zipped] {
        let mut child = waits_for_input(&["--log", "-"]);
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(given).expect("room");
        thread::sleep(Duration::from_millis(500));
        interrupt(&child);
        let (line, code) = complaint(&ends_soon(child));
        assert!(line.contains("interrupted before anything was tried") && code == 1, "{line}");
        drop(input);
    }
}

#[test]
fn the_better_of_two_times_in_json_counts() {
    let folder = scratch("plan-logs/times");
    let visits = regular(200, 400, 2 * HOUR_S);
    let log = lines(&visits, "").replace(
        "{\"time\":",
        "{\"@timestamp\":\"2026-11-25T09:00:00Z\",\"time_iso8601\":\"2000-01-01T00:00:00Z\",\"msec\":",
    );
    let log = file(&folder, "times.log", log);
    let found = answer(&["--log", &log]);
    assert!((number(&found["counted_s"]) - 2.0 * HOUR_S as f64).abs() < 10.0, "{found}");
    let shipped = fs::read_to_string(&log).expect("a log").replace("\"msec\":", "\"n\":");
    let shipped = shipped.replace("2000-01-01T00:00:00Z", "2026-11-25T09:46:40+00:00");
    // What a shipper stamps is the time at which it has read the line.
    let shipped: String = shipped
        .lines()
        .enumerate()
        .map(|(at, line)| {
            line.replace("09:46:40", &format!("09:{:02}:{:02}", at / 60 % 60, at % 60)) + "\n"
        })
        .collect();
    let (line, _) = refusal(&[
        "plan",
        "--log",
        &file(&folder, "same.log", shipped.replace("time_iso8601", "other")),
    ]);
    assert!(line.contains("nothing to resume"), "{line}");
    let found = answer(&["--log", &file(&folder, "shipped.log", shipped), "--keep-alive", "1s"]);
    assert!(number(&found["counted_s"]) > 1_000.0, "{found}");
}

#[test]
fn a_header_or_the_servers_port_is_no_connection() {
    let folder = scratch("plan-logs/connection");
    let visits = regular(200, 400, 2 * HOUR_S);
    for (name, more) in [
        ("header.log", ",\"connection\":\"keep-alive\""),
        ("upgrade.log", ",\"connection\":\"Upgrade\""),
    ] {
        let log = file(&folder, name, lines(&visits, more));
        let found = answer(&["--log", &log]);
        assert_eq!(found["log"]["connections"], visits.len() as u64, "{name}: {}", found["log"]);
    }
    let port = ",\"port\":443";
    let log = file(&folder, "never.log", lines(&visits, port));
    let (line, _) = refusal(&["plan", "--log", &log]);
    assert!(
        line.contains("3,600 requests are 200 connections of 200 clients; is their port"),
        "{line}"
    );
    let visits = regular(200, 700, 4 * HOUR_S);
    let log = file(&folder, "port.log", lines(&visits, port));
    let found = answer(&["--log", &log]);
    let what = "all requests of nearly every client have the same port";
    assert!(warns_of(&found, what), "{:?}", warnings(&found));
    let mut random = Random::new(1);
    let own: String = visits
        .iter()
        .map(|visit| lines(&[*visit], &format!(",\"port\":{}", 20_000 + random.below(40_000))))
        .collect();
    let found = answer(&["--log", &file(&folder, "own.log", own)]);
    assert!(!warns_of(&found, "port"), "{:?}", warnings(&found));
}

#[test]
fn where_there_is_nothing_to_resume_the_cause_is_told() {
    let folder = scratch("plan-logs/one-address");
    let visits: Vec<Visit> = (0..5_000).map(|second| (second, 0)).collect();
    let log = file(&folder, "one.log", lines(&visits, ""));
    let (line, code) = refusal(&["plan", "--log", &log]);
    let told = "5,000 requests are 1 connection of 1 client";
    assert!(line.contains(told) && line.contains("--keep-alive") && code == 1, "{line}");
}

/// Clients of which nearly none comes back within two hours.
#[test]
fn an_answer_from_few_returns_is_called_that() {
    let folder = scratch("plan-logs/few-returns");
    let mut visits: Vec<Visit> = (0..3_000).map(|client| (client * 2, client)).collect();
    visits.extend([(5_000, 7), (5_600, 8)]);
    visits.sort_unstable();
    let log = file(&folder, "few.log", lines(&visits, ""));
    let found = answer(&["--log", &log]);
    assert_eq!((&found["requests"], &found["returning_requests"]), (&3_002.0.into(), &2.0.into()));
    assert!(warns_of(&found, "made only 2 of the 3,002"), "{:?}", warnings(&found));
    assert_eq!(found["unseen"], Value::Null, "two connections check nothing");
    let said = done(&["plan", "--log", &log]);
    assert!(said.contains(" 2 of them of returning devices"), "{said}");
    assert!(!said.contains("checked:"), "{said}");
    // Three hundred come back, all in the second half.
    let mut late: Vec<Visit> = (0..3_000).map(|client| (client * 2, client)).collect();
    late.extend((0..300).map(|client| (5_900 + client, client)));
    late.extend([(500, 1), (501, 2)]);
    late.sort_unstable();
    let found = answer(&["--log", &file(&folder, "late.log", lines(&late, ""))]);
    assert!(!warns_of(&found, "made only"), "{:?}", warnings(&found));
    assert!(warns_of(&found, "is not checked"), "{:?}", warnings(&found));
    let many = file(&folder, "many.log", lines(&regular(200, 400, 2 * HOUR_S), ""));
    let found = answer(&["--log", &many]);
    assert!(!warns_of(&found, "made only") && found["unseen"].is_object(), "{found}");
}

/// HAProxy writes times without a zone, and at 03:00 the clock goes back to 02:00.
#[test]
fn a_clock_that_goes_back_is_told() {
    let folder = scratch("plan-logs/summer");
    let visits = regular(100, 300, 6 * HOUR_S);
    let log = |hour_of: &dyn Fn(u64) -> u64| {
        let line = |(second, client): &Visit| {
            let of_day = hour_of(*second) * HOUR_S + second % HOUR_S;
            let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
            format!(
                "10.0.0.{client}:{} [25/Oct/2026:{hour:02}:{minute:02}:{second:02}.000] https~ web/s1 0/0/0/1/1 200 6 - - \
                 ---- 1/1/0/0/0 0/0 \"GET / HTTP/1.1\"\n",
                20_000 + of_day
            )
        };
        visits.iter().map(line).collect::<String>()
    };
    let back = file(&folder, "back.log", log(&|second| second / HOUR_S - second / (3 * HOUR_S)));
    let found = answer(&["--log", &back, "--tls", "1.2"]);
    let at = 1 + visits.iter().filter(|(second, _)| *second < 3 * HOUR_S).count();
    let what = format!("go back by an hour at line {at} of {back}");
    assert!(warns_of(&found, &what), "{:?}", warnings(&found));
    let on = file(&folder, "on.log", log(&|second| second / HOUR_S));
    let found = answer(&["--log", &on, "--tls", "1.2"]);
    assert!(!warns_of(&found, "an hour"), "{:?}", warnings(&found));
}

#[test]
fn only_what_tells_tls_is_called_tls() {
    let folder = scratch("plan-logs/tls-told");
    let visits = regular(200, 400, 2 * HOUR_S);
    let silent = file(&folder, "silent.log", lines(&visits, ""));
    let said = done(&["plan", "--log", &silent]);
    assert!(said.contains("3,600 requests, 3,600 connections"), "{said}");
    // All clients are there in turn: TLS 1.3 needs as many sessions or more, and the warning says which.
    let found = answer(&["--log", &silent]);
    let others = found["other_readings"].as_array().expect("a list");
    let over_13 = others.iter().find(|other| other["reading"] == "connections are of TLS 1.3");
    let sessions = number(&over_13.expect("an answer")["sessions"]);
    let more = sessions > number(&found["recommendation"]["sessions"]);
    assert_eq!(warns_of(&found, "and more are needed"), more, "{found}");
    let told = file(&folder, "told.log", lines(&visits, ",\"tls\":\"TLSv1.2\""));
    let said = done(&["plan", "--log", &told]);
    assert!(said.contains("3,600 requests over TLS, 3,600 connections"), "{said}");
}

#[test]
fn a_file_that_is_given_twice_is_read_once_or_refused() {
    let folder = scratch("plan-logs/twice");
    let log = file(&folder, "access.log", lines(&regular(200, 400, 2 * HOUR_S), ""));
    let link = path(&folder, "link.log");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&log, &link).expect("a link");
    for again in [&log, &link] {
        let (line, code) = refusal(&["plan", "--log", &log, again]);
        assert!(line.contains("is given twice") && code == 2, "{line}");
    }
}

/// Three balancers whose connections come again after a pause, so that there is something to resume.
#[test]
fn few_clients_with_many_requests_may_be_balancers() {
    let folder = scratch("plan-logs/balancers");
    let seconds = (0..5_000).filter(|second| second % 1_000 < 900);
    let visits: Vec<Visit> = seconds.map(|second| (second, second % 3)).collect();
    let log = file(&folder, "balancers.log", lines(&visits, ""));
    let found = answer(&["--log", &log]);
    let hint = "4,500 requests are 15 connections of 3 clients; is it a balancer's address? log the client's";
    assert!(warns_of(&found, hint), "{:?}", warnings(&found));
    let short = "too short, with 15 connections of 4,500 requests, to check";
    assert!(warns_of(&found, short), "{:?}", warnings(&found));
    for (name, visits) in
        [("many.log", random(300, 900, 2 * HOUR_S)), ("few.log", regular(3, 400, 2 * HOUR_S))]
    {
        let found = answer(&["--log", &file(&folder, name, lines(&visits, ""))]);
        assert!(!warns_of(&found, "balancer"), "{name}: {:?}", warnings(&found));
    }
}

#[test]
fn what_needs_no_recommendation_is_told_without_one() {
    let folder = scratch("plan-logs/none");
    let log = file(&folder, "regular.log", lines(&regular(200, 400, 2 * HOUR_S), ""));
    let counters = counters(&folder, &[(600, 0), (HOUR_S, 1_500)]);
    let page = path(&folder, "none.html");
    let small = ["--log", &log, "--counters", &counters, "--capacities", "1,2", "--html", &page];
    let said = done(&[&["plan"], &small[..]].concat());
    assert!(said.contains("no size up to 2 sessions is enough"), "{said}");
    for what in ["counter: nginx_connections_accepted", "tickets would resume 100 %"] {
        let page = fs::read_to_string(&page).expect("a page");
        assert!(said.contains(what) && page.contains(what), "{what}: {said}");
    }
}

/// Each file is whole, and another follows that is compressed in another way.
#[test]
fn another_compression_that_follows_is_told_with_a_remedy() {
    let folder = scratch("plan-logs/another-compression");
    let line = lines(&[(0, 0)], "");
    // A frame of one raw block (RFC 8878, section 3.1.1).
    let header = [0x28, 0xb5, 0x2f, 0xfd, 0x20, line.len() as u8];
    let block = (line.len() as u32) << 3 | 1;
    let zstd = [&header[..], &block.to_le_bytes()[..3], line.as_bytes()].concat();
    let plain = file(&folder, "one.log", &line);
    assert!(Command::new("gzip").args(["-f", &plain]).status().expect("gzip").success());
    let gzip = fs::read(format!("{plain}.gz")).expect("a file");
    for (name, parts, program) in
        [("gz-zst", [&gzip[..], &zstd], " zcat"), ("zst-gz", [&zstd[..], &gzip], " zstdcat")]
    {
        let (line, code) = refusal(&["plan", "--log", &file(&folder, name, parts.concat())]);
        let told = "something else follows after line 1; to read what is there:";
        let remedy = format!("{told}{program} FILE | rejoin plan --log -");
        assert!(line.contains(&remedy) && code == 1, "{line}");
    }
}

#[test]
fn a_compression_that_is_not_read_is_named_with_a_remedy() {
    let folder = scratch("plan-logs/compressed");
    let log = lines(&regular(200, 400, 2 * HOUR_S), "");
    for (name, first, remedy) in [
        ("access.log.bz2", &b"BZh91AY&SY"[..], "bzip2: bzcat FILE | rejoin plan --log -"),
        ("access.log.xz", &b"\xfd7zXZ\0\0\x04"[..], "xz: xzcat FILE | rejoin plan --log -"),
    ] {
        let file = file(&folder, name, [first, log.as_bytes()].concat());
        let (line, code) = refusal(&["plan", "--log", &file]);
        assert!(line.contains(remedy) && code == 1, "{line}");
    }
    let whole = file(&folder, "cut.log", &log);
    assert!(Command::new("gzip").args(["-f", &whole]).status().expect("gzip").success());
    let name = format!("{whole}.gz");
    let length = fs::metadata(&name).expect("a file").len();
    let zipped = File::options().write(true).open(&name).expect("a file");
    zipped.set_len(length / 2).expect("shorter");
    let (line, code) = refusal(&["plan", "--log", &name]);
    assert!(line.contains("zcat FILE | rejoin plan --log -") && code == 1, "{line}");
}

#[test]
fn a_folder_for_temporary_files_that_is_not_there_is_named() {
    let folder = scratch("plan-logs/temporary");
    let log = file(&folder, "regular.log", lines(&regular(20, 400, HOUR_S), ""));
    let mut command = Command::new(REJOIN);
    command.args(["plan", "--log", &log]).env("TMPDIR", "/nowhere/at/all");
    let (line, code) = complaint(&command.output().expect("the program runs"));
    assert!(line.contains("TMPDIR") && line.contains("/nowhere/at/all") && code == 1, "{line}");
}

#[test]
fn the_arrivals_of_a_log_are_connections() {
    let folder = scratch("plan-logs/head");
    let log = file(&folder, "regular.log", lines(&regular(200, 400, 2 * HOUR_S), ""));
    let said = done(&["plan", "--log", &log]);
    assert!(
        said.lines().next().is_some_and(|head| head.contains("3,600 connections, 0.5")),
        "{said}"
    );
    assert!(!said.contains("3,600 requests, 0.5"), "{said}");
}
