//! `rejoin bench`, in a test program of its own: it measures, and shares the machine with nobody. What it
//! measures in time is not asserted: that is `make check-cost`'s affair.

use crate::REJOIN;
use crate::program::{complaint, file, interrupt, objects, rejoin, scratch, start, text};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn throughput(name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(REJOIN);
    command.args(["bench", "throughput", "--json", "--folder"]).arg(folder(name));
    // A key that costs little, so that no machine is saturated.
    command.args(["--key-type", "p-256", "--speedup", "60"]).args(more);
    command
}

fn rows(output: &Output) -> Vec<Value> {
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object per line"))
        .collect()
}

/// A hundred devices run at a time. A cache of a thousand holds all sessions in use and their like for
/// minutes; one of fifty has to choose.
#[test]
#[ignore = "slow: eight servers, one after the other; make test-all"]
fn prediction_counts_where_the_cache_is_short() {
    let short = ["--devices", "2400", "--warm-up", "180", "--duration", "240"];
    let measured = |name: &str, cache: &str, more: &[&str]| {
        let page = folder(name).with_extension("html");
        let mut command = throughput(name, &short);
        command.args(["--capacity-sessions", cache]).args(more).arg("--html").arg(&page);
        let output = command.output().expect("the program runs");
        (objects(&output), std::fs::read_to_string(page).expect("the page"))
    };
    // On a machine that is too busy clients are late, which nobody predicted: three attempts.
    let kept_up = |rows: &[Value]| rows.iter().all(|row| row["kept_up"] == true);
    let mut attempts = (0..3).map(|_| measured("bench-large", "1000", &[]));
    let Some((large, page)) = attempts.find(|(rows, _)| kept_up(rows)) else {
        eprintln!("the machine did not keep up: nothing is measured");
        return;
    };
    let names: Vec<_> = large.iter().map(|row| &row["resumption"]).collect();
    assert_eq!(names, ["predictive", "openssl", "tickets", "none"]);
    large.iter().for_each(is_consistent);
    let hits: Vec<f64> = large.iter().map(|row| number(row, "hit_after_first_of_run")).collect();
    assert!(hits[..3].iter().all(|hit| *hit > 97.0) && hits[3] == 0.0, "{large:#?}");
    // The first connection of a run is not to be resumed, by nobody: 28 % of all.
    let of_all: Vec<f64> = large.iter().map(|row| number(row, "hit_percent")).collect();
    assert!(of_all[..3].iter().all(|hit| (60.0..85.0).contains(hit)), "{large:#?}");
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(!page.contains("src=") && !page.contains("Incomplete"));

    let is_worth_it = |rows: &Vec<Value>| {
        rows.iter().for_each(is_consistent);
        let [ours, theirs] = [&rows[0], &rows[1]].map(|row| number(row, "hit_after_first_of_run"));
        !kept_up(rows) || ours > theirs + 15.0
    };
    let resumption = ["--resumption", "predictive,openssl"];
    let mut attempts = (0..3).map(|_| measured("bench-small", "50", &resumption).0);
    assert!(attempts.any(|rows| is_worth_it(&rows)), "no better than OpenSSL's own cache");
}

/// Apps that write their sessions down have them at the next run.
#[test]
#[ignore = "slow: make test-all"]
fn sessions_that_are_kept_are_resumed_in_the_next_run() {
    let short =
        ["--devices", "1200", "--warm-up", "600", "--duration", "120", "--capacity-sessions", "9"];
    let hit = |more: &[&str]| {
        let mut command = throughput("bench-kept", &short);
        let output = command.args(["--resumption", "tickets"]).args(more).output();
        let rows = rows(&output.expect("the program runs"));
        number(&rows[0], "hit_percent")
    };
    // About a fifth of the first connections of a run are of devices that ran before.
    let (lost, kept) = (hit(&[]), hit(&["--keep-sessions"]));
    assert!(kept > lost + 2.0, "{kept} and {lost}");
}

/// Twice as many as saturate a server are played at a sixth of the speed, and everything is measured anew in
/// each round, each way of resuming first in its turn.
#[test]
#[ignore = "slow: make test-all"]
fn a_server_that_is_to_keep_up_gets_its_time() {
    let mut command =
        throughput("bench-keeps-up", &["--devices", "100,600", "--saturation", "300"]);
    command.args(["--keep-up", "--rounds", "2", "--warm-up", "5", "--duration", "40"]);
    let output = command.args(["--resumption", "tickets,none"]).output().expect("the program runs");
    let rows = rows(&output);
    let order: Vec<_> = rows
        .iter()
        .map(|row| (number(row, "round"), number(row, "devices"), row["resumption"].as_str()))
        .collect();
    let (tickets, none) = (Some("tickets"), Some("none"));
    let first =
        [(0.0, 100.0, tickets), (0.0, 100.0, none), (0.0, 600.0, tickets), (0.0, 600.0, none)];
    let second =
        [(1.0, 100.0, none), (1.0, 100.0, tickets), (1.0, 600.0, none), (1.0, 600.0, tickets)];
    assert_eq!(order, [first, second].concat(), "{}", text(&output.stderr));
    for row in &rows {
        let speed = if row["devices"] == 100 { 60.0 } else { 10.0 };
        assert_eq!(number(row, "speed_up"), speed, "{row}");
    }
}

#[test]
fn what_was_measured_survives_an_interrupt() {
    let page = folder("bench-cut.html");
    let short = ["--devices", "400,800", "--capacity-sessions", "20", "--warm-up", "30"];
    let mut command = throughput("bench-cut", &short);
    command.args(["--duration", "60", "--resumption", "none,tickets,openssl", "--html"]);
    let mut child = start(command.arg(&page));
    // Whatever else the machine does: after the first of six.
    let mut told = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let first = told.next().expect("a server was measured").expect("text");
    interrupt(&child);
    let rows = 1 + told.count();
    let output = child.wait_with_output().expect("an end");
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!((1..6).contains(&rows), "{rows}, {first}");
    assert!(complaint.contains(&format!("interrupted after {rows} of 6 servers")), "{complaint}");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains(&format!("Incomplete: {rows} of 6 servers.")));
}

/// Checks allocations, which hardly depend on the load of the machine.
#[test]
#[ignore = "slow: make test-all"]
fn certificates_that_are_decoded_once_need_less_memory() {
    let output = rejoin(&["bench", "interning", "--json", "--quick", "--certificates", "1,30"]);
    let outcome = &objects(&output)[0];
    assert_eq!(outcome["complete"], true);
    let rows = outcome["rows"].as_array().expect("rows");
    let cells: Vec<_> = rows.iter().map(|row| (&row["tls"], &row["certificates"])).collect();
    let expected = [("1.2", 1), ("1.2", 30), ("1.3", 1), ("1.3", 30)]
        .map(|(tls, certificates)| (Value::from(tls), Value::from(certificates)));
    assert!(
        cells.iter().zip(&expected).all(|((tls, n), (t, m))| *tls == t && *n == m),
        "{cells:?}"
    );
    assert_eq!(rows.len(), expected.len());
    for row in rows {
        let saved = number(row, "saved_bytes");
        assert!(number(row, "decoded_bytes") > 1_000.0, "{row}");
        assert!(saved >= number(row, "decoded_bytes"), "{row}");
        // It is all that was allocated to decode it, and what came along.
        assert!(saved >= 0.9 * number(row, "decoding_allocates_bytes"), "{row}");
    }
}

/// A program's bytes do not depend on the chain where it resumes.
#[test]
fn programs_are_measured_with_the_manager_and_without() {
    let library = rejoin_testkit::shipped::library("librejoin.so").display().to_string();
    let few =
        ["--programs", "2", "--round-trip-ms", "0,20", "--chain", "p-256,ml-dsa", "--tls", "1.2"];
    let words = [&["bench", "client", "--json", "--library", &library][..], &few].concat();
    let outcome = &objects(&rejoin(&words))[0];
    assert_eq!(outcome["complete"], true);
    let rows = outcome["rows"].as_array().expect("rows");
    let paths: Vec<_> = rows.iter().map(|row| row["round_trip_ms"].as_u64()).collect();
    assert_eq!(paths, [Some(0), Some(20), Some(0), Some(20)]);
    for row in rows {
        assert_eq!(number(row, "resumed_percent"), 100.0, "{row}");
        // TCP's round trip, one or two of TLS, and the request's.
        let least = [4.0, 3.0].map(|trips| trips * number(row, "round_trip_ms"));
        let wall = ["without", "with"].map(|way| number(&row[way], "wall_ms"));
        assert!(wall[0] > least[0] && wall[1] > least[1], "{row}");
        assert!(
            ["client_ms", "server_ms"].iter().all(|of| number(&row["with"], of) > 0.0),
            "{row}"
        );
        assert!(
            number(&row["with"], "manager_ms") > number(&row["without"], "manager_ms"),
            "{row}"
        );
    }
    let bytes = |row: usize, way: &str| number(&rows[row][way], "bytes");
    assert!(bytes(2, "without") > bytes(0, "without") + 13_000.0, "{rows:?}");
    assert!((bytes(2, "with") - bytes(0, "with")).abs() < 100.0, "{rows:?}");
}

/// A user whose programs are led to a manager, and to a proxy, compares with programs that are not.
#[test]
fn programs_are_measured_without_the_users_own_manager() {
    let house = rejoin_testkit::manager::Managed::start("bench-client");
    let library = |name| rejoin_testkit::shipped::library(name).display().to_string();
    let home = scratch("bench-client-home");
    file(&home, ".curlrc", "proxy = http://127.0.0.1:1\n");
    let words = "bench client --json --programs 2 --round-trip-ms 0 --chain p-256 --tls 1.3";
    let mut bench = Command::new(REJOIN);
    bench.args(words.split(' ')).args(["--library", &library("librejoin.so")]);
    bench.env("LD_PRELOAD", library("librejoin_preload.so")).env("HOME", &home);
    bench.env("REJOIN_MANAGER", house.socket()).env("https_proxy", "http://127.0.0.1:1");
    let outcome = &objects(&bench.output().expect("the program runs"))[0];
    let row = &outcome["rows"][0];
    assert_eq!(number(row, "resumed_percent"), 100.0, "{row}");
    assert!(number(&row["without"], "bytes") > number(&row["with"], "bytes"), "{row}");
    let stats = rejoin_manager::client::Manager::at(house.socket()).stats().expect("its counters");
    assert_eq!((stats.handshakes.full, stats.handshakes.resumed), (0, 0), "{stats:?}");
    assert_eq!((stats.directly.len(), stats.programs.len()), (0, 0), "{stats:?}");
}

/// Starts a comparison of very many programs, and returns it with the folder of its server and its manager.
fn comparing() -> (std::process::Child, PathBuf) {
    let library = rejoin_testkit::shipped::library("librejoin.so").display().to_string();
    let words = "bench client --json --programs 10000 --round-trip-ms 0 --chain p-256 --tls 1.3";
    // Under nohup this test ignores the terminal's end, and so would its child.
    let mut bench = Command::new("env");
    bench.args(["--default-signal=HUP", REJOIN]).args(words.split(' '));
    bench.args(["--library", &library]);
    let child = start(&mut bench);
    let folder = std::env::temp_dir().join(format!("rejoin-client-{}", child.id()));
    let socket = folder.join("m.sock");
    rejoin_testkit::process::wait_until("the manager", || socket.exists());
    (child, folder)
}

/// Returns true if a process has a word in its command line.
fn is_named(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| text(&line).contains(word))
}

#[test]
fn a_manager_does_not_outlive_its_comparison() {
    let (mut child, folder) = comparing();
    let socket = folder.join("m.sock").display().to_string();
    assert!(is_named(&socket), "the manager runs");
    child.kill().expect("our own child");
    child.wait().expect("it ended");
    let gone = (0..20).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        !is_named(&socket)
    });
    let _ = std::fs::remove_dir_all(folder);
    assert!(gone, "two seconds later the manager still runs");
}

/// SIGTERM, and the terminal's end, are heard between two programs, and leave nothing behind.
#[test]
fn a_comparison_that_is_told_to_end_tidies_up() {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::TERM, Signal::HUP] {
        let (child, folder) = comparing();
        std::thread::sleep(std::time::Duration::from_millis(500));
        kill_process(Pid::from_child(&child), signal).expect("our own child");
        let output = child.wait_with_output().expect("an end");
        let (line, code) = complaint(&output);
        assert!(line.contains("interrupted") && code == 1, "{signal:?}: {code}, {line}");
        let socket = folder.join("m.sock").display().to_string();
        assert!(!folder.exists() && !is_named(&socket), "{signal:?}: left behind");
    }
}

/// Each cache with sessions that end and with some that do not, and nothing of Java's.
#[test]
fn insertions_are_measured_in_full_caches() {
    let output = rejoin(&["bench", "insert", "--json", "--quick", "--entries", "5000"]);
    let outcome = &objects(&output)[0];
    assert_eq!(outcome["complete"], true);
    assert!(outcome["left_out"].as_str().expect("a reason").contains("make bench-insert"));
    let rows = outcome["rows"].as_array().expect("rows");
    for lifetime in [86_400, 0] {
        let of = rows.iter().filter(|row| row["lifetime_s"] == lifetime);
        let caches: Vec<_> = of.map(|row| row["cache"].as_str().expect("a name")).collect();
        assert_eq!(caches.len(), 5, "{caches:?}");
        let starts =
            ["Rejoin, predictive", "Rejoin, by hints", "Rejoin, lru", "OpenSSL ", "rustls, "];
        assert!(caches.iter().zip(starts).all(|(cache, start)| cache.starts_with(start)));
    }
    let built = folder("bench-insert-built");
    std::fs::create_dir_all(built.join("classes")).expect("a folder");
    let built = built.to_str().expect("UTF-8");
    for (jmh, missing) in [("/nowhere", "/nowhere/classes"), (built, "/nowhere/java")] {
        let few = ["bench", "insert", "--quick", "--entries", "10"];
        let (line, code) =
            complaint(&rejoin(&[&few[..], &["--jmh", jmh, "--java", "/nowhere/java"]].concat()));
        assert!(line.contains(missing) && line.contains("make bench-insert"), "{line}");
        assert_eq!(code, 1, "{line}");
    }
}

#[test]
fn misuse_is_one_line_and_exit_code_2() {
    let wrong: [(&[&str], &str); 15] = [
        (&["bench", "client", "--programs", "0"], "--programs"),
        (&["bench", "client", "--chain", "ml-dsa-65"], "ml-dsa"),
        (&["bench", "insert", "--entries", "0"], "--entries"),
        (&["bench", "insert", "--entries", "1000000", "--lifetime", "7200"], "15 ms"),
        (&["bench", "insert", "--lifetime", "soon"], "--lifetime"),
        (&["bench", "insert", "--java", "java"], "--jmh"),
        (&["bench", "interning", "--certificates", "0"], "--certificates"),
        (&["bench", "interning", "--tls", "1.1"], "--tls"),
        (&["bench", "throughput", "--tls", "both"], "[possible values: 1.2, 1.3]"),
        (&["bench", "throughput", "--devices", "0"], "--devices"),
        (&["bench", "throughput", "--devices", "many"], "--devices"),
        (&["bench", "throughput", "--capacity-sessions", "0"], "--capacity-sessions"),
        (&["bench", "throughput", "--rounds", "0"], "--rounds"),
        (&["bench", "throughput", "--speedup", "-1"], "above 0"),
        (&["bench", "througput"], "throughput"),
    ];
    for (arguments, remedy) in wrong {
        let (line, code) = complaint(&rejoin(arguments));
        assert!(line.contains(remedy) && code == 2, "{arguments:?}: {code}, {line}");
    }
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

/// Figures that follow from each other.
fn is_consistent(row: &Value) {
    let number = |name| number(row, name);
    let transactions = number("transactions");
    assert!(transactions > 100.0, "{row}");
    assert_eq!(transactions, number("full") + number("resumed"), "{row}");
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * other.abs().max(1.0);
    assert!(near(number("hit_percent"), 100.0 * number("resumed") / transactions), "{row}");
    assert!(near(number("transactions_per_cpu_s") * number("server_cpu_us"), 1e6), "{row}");
    assert!(near(number("transactions_per_s") * number("measured_s"), transactions), "{row}");
    assert_eq!(number("failed"), 0.0, "{row}");
}

mod handshake {
    use super::*;

    fn handshake(more: &[&str]) -> Output {
        rejoin(&[&["bench", "handshake"], more].concat())
    }

    fn outcome(more: &[&str]) -> Value {
        objects(&handshake(&[&["--json"], more].concat())).remove(0)
    }

    /// Figures measured before a failure are shown all the same.
    #[test]
    fn a_jdk_that_fails_takes_nothing_from_the_others() {
        let java = Command::new("java").arg("-version").output();
        if !java.is_ok_and(|told| told.status.success()) {
            eprintln!("there is no java: a JDK that fails is not tested");
            return;
        }
        let target = folder("bench-handshake-broken");
        let class = target.join("classes/rejoin/HandshakeBench.class");
        std::fs::create_dir_all(class.parent().expect("a folder")).expect("a folder");
        std::fs::write(&class, "no class").expect("a file");
        let target = target.to_str().expect("UTF-8");
        let of =
            ["--json", "--quick", "--stack", "openssl,jsse", "--tls", "1.3", "--key-type", "p-256"];
        let output = handshake(&[&of[..], &["--jmh", target]].concat());
        let (line, code) = complaint(&output);
        assert!(line.contains("java ended early: java.lang.ClassFormatError"), "{line}");
        assert_eq!(code, 1, "{line}");
        let outcome: Value = serde_json::from_slice(&output.stdout).expect("an object");
        assert_eq!(outcome["complete"], false);
        assert_eq!(outcome["rows"].as_array().map(Vec::len), Some(6), "{outcome}");
    }

    /// Combinations without ML-DSA in the system's OpenSSL are named; rustls has its own ML-DSA.
    #[test]
    fn every_combination_is_measured_or_named() {
        let page = folder("bench-handshake.html");
        let told = outcome(&["--quick", "--html", page.to_str().expect("UTF-8")]);
        assert_eq!(told["complete"], true);
        let rows = told["rows"].as_array().expect("rows");
        let counts = told["counters_missing"].is_null();
        for stack in ["openssl", "rustls"] {
            for (tls, key) in
                [("1.2", "RSA-2048"), ("1.2", "P-256"), ("1.3", "RSA-2048"), ("1.3", "P-256")]
            {
                is_whole(rows, stack, tls, key, counts);
            }
        }
        is_whole(rows, "rustls", "1.3", "ML-DSA-65", counts);
        let missing = told["missing"].to_string();
        assert!(missing.contains("rustls TLS 1.2 ML-DSA-65"), "{missing}");
        let old = missing.contains("openssl TLS 1.3 ML-DSA-65");
        assert_eq!(rows.len(), if old { 54 } else { 60 }, "{missing}");
        if !old {
            is_whole(rows, "openssl", "1.3", "ML-DSA-65", counts);
        }
        let page = std::fs::read_to_string(page).expect("the page");
        assert_eq!(page.matches("<svg").count(), 10, "one for version, key and whose certificates");
        assert_eq!(page.matches("<rect").count(), 2 * rows.len());
        assert!(!page.contains("src=") && !page.contains("partial"));
    }

    /// Three batches of five, with client certificates and without, full, resumed and by tickets.
    fn is_whole(rows: &[Value], stack: &str, tls: &str, key: &str, counts: bool) {
        let of = |mode: &str, with: bool| {
            let is = |row: &&Value| {
                row["stack"] == stack
                    && row["tls"] == tls
                    && row["key"] == key
                    && row["mode"] == mode
                    && row["client_certificates"] == with
            };
            let row = rows.iter().find(is).unwrap_or_else(|| panic!("{stack} {tls} {key} {mode}"));
            assert_eq!((number(row, "batches"), number(row, "handshakes")), (3.0, 15.0), "{row}");
            for side in ["server", "client"] {
                let [cpu, low, high] = ["cpu_us", "cpu_us_lowest", "cpu_us_highest"]
                    .map(|name| number(&row[side], name));
                assert!(low > 1.0 && low <= cpu && cpu <= high, "{row}");
                let per_cpu_s = number(&row[side], "per_cpu_s");
                assert!((per_cpu_s * cpu - 1e6).abs() < 1.0, "{row}");
                let instructions = row[side]["user_instructions"].as_f64();
                assert_eq!(instructions.is_some(), counts, "{row}");
                assert!(instructions.is_none_or(|number| number > 10_000.0), "{row}");
            }
            ["server", "client"].map(|side| number(&row[side], "sent_bytes"))
        };
        // Certificates are what a handshake is made of, and who resumes sends none; two at a time, of
        // at least 300 bytes each.
        let [full, resumed] = ["full", "resumed"].map(|mode| of(mode, false));
        assert!(full[0] > resumed[0] + 600.0, "{stack} {tls} {key}: {full:?} {resumed:?}");
        let [full_with, resumed_with] = ["full", "resumed"].map(|mode| of(mode, true));
        assert!(full_with[1] > full[1] + 600.0, "{stack} {tls} {key}: {full_with:?} {full:?}");
        assert!((resumed_with[1] - resumed[1]).abs() < 100.0, "{stack} {tls} {key}");
        // A ticket carries the session, and with it the client's certificate.
        assert!(of("ticket", true)[1] > of("ticket", false)[1] + 300.0, "{stack} {tls} {key}");
    }

    /// RSA makes full handshakes so much dearer that no noise hides it: ten times over TLS 1.2.
    #[test]
    fn resumption_saves_the_server_a_signature() {
        let told = outcome(&["--quick", "--tls", "1.2", "--key-type", "rsa-2048"]);
        let rows = told["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 12);
        for three in rows.chunks(3).filter(|three| three[0]["client_certificates"] == false) {
            let modes: Vec<_> = three.iter().map(|row| row["mode"].clone()).collect();
            assert_eq!(modes, ["full", "resumed", "ticket"]);
            let cpu = |at: usize| number(&three[at]["server"], "cpu_us");
            assert!(cpu(0) > 1.5 * cpu(1) && cpu(0) > 1.5 * cpu(2), "{three:#?}");
        }
    }

    /// On a machine that is too busy nothing was measured yet: three attempts.
    #[test]
    fn what_was_measured_survives_an_interrupt() {
        let mut attempts = [1, 4, 16].into_iter();
        assert!(attempts.any(|seconds| interrupted_after(seconds).contains("rustls 1.3")));
    }

    fn interrupted_after(seconds: u64) -> String {
        let words = "bench handshake --rounds 1000 --tls 1.3 --key-type p-256";
        let child = start(Command::new(REJOIN).args(words.split(' ')));
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        interrupt(&child);
        let output = child.wait_with_output().expect("an end");
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("of 12000 batches"), "{complaint}");
        let text = text(&output.stdout);
        assert!(text.contains("partial: interrupted"), "{text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn misuse_and_what_is_missing_are_one_line() {
        let nowhere = ["--stack", "jsse", "--jmh", "/nowhere"];
        let old = ["--stack", "rustls", "--tls", "1.2", "--key-type", "ml-dsa-65"];
        let wrong: [(&[&str], i32, &str); 6] = [
            (&["--stack", "gnutls"], 2, "openssl"),
            (&["--key-type", "dsa"], 2, "ml-dsa-65"),
            (&["--rounds", "0"], 2, "--rounds"),
            (&["--client-certificates", "perhaps"], 2, "without"),
            (&nowhere, 1, "make bench-handshake"),
            (&old, 1, "TLS 1.3 only"),
        ];
        for (arguments, code, remedy) in wrong {
            let (line, found) = complaint(&handshake(arguments));
            assert!(line.contains(remedy) && found == code, "{arguments:?}: {found}, {line}");
        }
    }

    /// Before anything is measured: whether this OpenSSL is too old for the key, or the version of TLS.
    #[test]
    fn servers_are_refused_keys_that_they_cannot_have() {
        let both = ["cost", "--key-type", "ml-dsa-65", "--sizes", "30"];
        let throughput = ["bench", "throughput", "--key-type", "ml-dsa-65", "--tls", "1.2"];
        for arguments in [&both[..], &throughput[..]] {
            let (line, code) = complaint(&rejoin(arguments));
            assert!(line.contains("ML-DSA works in TLS 1.3 only: give --tls 1.3"), "{line}");
            assert_eq!(code, 2, "{line}");
        }
        let short =
            ["--tls", "1.3", "--rounds", "1", "--round-duration", "0.2", "--cipher", "aes-gcm"];
        let output = rejoin(&[&both[..], &short[..]].concat());
        let told = text(&output.stderr);
        // Debian 12 has 3.0; where there is 3.5, it is measured.
        let refused = output.status.code() == Some(1) && told.contains("ML-DSA needs OpenSSL 3.5");
        assert!(output.status.success() || refused && told.lines().count() == 1, "{told}");
    }
}
