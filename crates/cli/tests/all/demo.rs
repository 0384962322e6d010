//! `rejoin demo`, in a test program of its own: it measures, and shares the machine with nobody.

use crate::REJOIN;
use crate::program::{complaint, interrupt, objects, scratch, start, text};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Requirements 2 and 3 of the session cache, with a margin for machines under load: OpenSSL's
/// own cache resumed 0 to 25 % here, ours about 70 %. Clients come when they come: on a machine that
/// is too busy for them they are late, and nobody predicted that. So there are three attempts.
#[test]
#[ignore = "slow: a minute of devices; make test-all"]
fn the_demonstration_shows_what_prediction_is_worth() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo");
    let mut attempts = (0..3).map(|_| demonstrate(&folder));
    let rows = attempts.find(|rows| TLS.iter().all(|tls| is_prediction_worth_it(rows, tls)));
    let rows = rows.expect("in one of three attempts, prediction is worth what it should be");
    for tls in TLS {
        let hit = |resumption| hit(&rows, tls, resumption);
        assert!(hit("tickets") > 98.0 && hit("none") == 0.0, "TLS {tls}: {rows:#?}");
        let bytes = |resumption| {
            row(&rows, tls, resumption)["cache_bytes_per_session"].as_f64().expect("a size")
        };
        assert!(bytes("openssl") > 2.0 * bytes("predictive") && bytes("predictive") > 100.0);
    }
    for row in &rows {
        assert_eq!(row["client_resumed"], row["server_resumed"], "{row}");
        assert_eq!(row["client_full"], row["server_full"], "{row}");
        assert_eq!(row["failed"], 0, "{row}");
    }
    let page = std::fs::read_to_string(folder.join("demo.html")).expect("the page");
    assert_eq!(page.matches("<svg").count(), 2);
    for outside in ["src=", "href=\"http", "@import"] {
        assert!(!page.contains(outside), "the page asks for something outside: {outside}");
    }
}

/// One server of three has the key of a client's last ticket. The way of each connection is drawn, and the same in each
/// run: only its handshake is measured.
#[test]
#[ignore = "slow: make test-all"]
fn several_servers_resume_each_others_tickets_under_shared_keys() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo-several");
    let words = "demo --json --tls 1.3 --resumption tickets --devices 1500 --speedup 60 --warm-up 60 \
                 --duration 60 --folder";
    let mut command = Command::new(REJOIN);
    let output = command.args(words.split(' ')).arg(folder).output().expect("the program runs");
    let rows = objects(&output);
    assert_eq!(rows.len(), 5);
    let hit = |resumption| hit(&rows, "1.3", resumption);
    assert!((10.0..60.0).contains(&hit("tickets, balanced")), "{rows:#?}");
    assert!((30.0..99.0).contains(&hit("tickets, restarted")), "{rows:#?}");
    for all in ["tickets", "shared keys, balanced", "shared keys, restarted"] {
        assert_eq!(hit(all), 100.0, "{all}: {rows:#?}");
    }
    for row in &rows {
        assert_eq!(row["client_resumed"], row["server_resumed"], "{row}");
        assert_eq!(row["client_full"], row["server_full"], "{row}");
    }
}

/// A server whose measurement never begins is not waited for.
#[test]
fn a_demonstration_that_nobody_comes_to_ends() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo-nobody");
    let mut demo = Command::new(REJOIN);
    demo.args(["demo", "--devices", "1", "--folder"]).arg(folder);
    let mut child = start(&mut demo);
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until && child.try_wait().expect("our own child").is_none() {
        std::thread::sleep(Duration::from_millis(100));
    }
    let is_over = child.try_wait().expect("our own child").is_some();
    let _ = child.kill();
    assert!(is_over, "it still runs");
    let output = child.wait_with_output().expect("an end");
    let (line, code) = complaint(&output);
    assert!(line.contains("no device connected in the measured time") && code == 2, "{line}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
}

#[test]
fn the_page_of_a_demonstration_that_was_interrupted_says_so() {
    let folder = scratch("demo-cut");
    let words = "demo --json --one-server --tls 1.3 --resumption none,tickets,lru --devices 400 --speedup 60 \
                 --warm-up 30 --duration 60 --folder";
    let mut demo = Command::new(REJOIN);
    let mut child = start(demo.args(words.split_whitespace()).arg(&folder));
    let mut told = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    told.next().expect("a server was measured").expect("text");
    interrupt(&child);
    let rows = 1 + told.count();
    let output = child.wait_with_output().expect("an end");
    let (line, code) = complaint(&output);
    let after = format!("interrupted after {rows} of 3 servers");
    assert!(rows < 3 && line.contains(&after) && code == 1, "{rows}: {code}, {line}");
    let page = std::fs::read_to_string(folder.join("demo.html")).expect("the page");
    assert!(page.contains("incomplete\">incomplete: interrupted</p>"), "{page}");
}

const TLS: [&str; 2] = ["1.2", "1.3"];

fn demonstrate(folder: &Path) -> Vec<Value> {
    let words = "demo --json --one-server --devices 6000 --warm-up 200 --duration 150 --folder";
    let mut command = Command::new(REJOIN);
    let output = command.args(words.split(' ')).arg(folder).output().expect("the program runs");
    let rows = objects(&output);
    assert_eq!(rows.len(), 10);
    rows
}

fn row<'a>(rows: &'a [Value], tls: &str, resumption: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["tls"] == tls && row["resumption"] == resumption);
    found.expect("a row for each way of resuming")
}

fn hit(rows: &[Value], tls: &str, resumption: &str) -> f64 {
    row(rows, tls, resumption)["hit_after_first_of_run"].as_f64().expect("a rate")
}

fn is_prediction_worth_it(rows: &[Value], tls: &str) -> bool {
    let hit = |resumption| hit(rows, tls, resumption);
    let is = hit("predictive") >= 2.5 * hit("openssl")
        && hit("predictive") >= hit("lru") + 15.0
        && hit("predictive") > 40.0;
    if !is {
        eprintln!("TLS {tls}: {rows:#?}");
    }
    is
}
