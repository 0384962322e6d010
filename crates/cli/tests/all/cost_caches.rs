//! `rejoin cost caches`, in a test program of its own. Where valgrind is not installed, it says so.

use crate::REJOIN;
use crate::program::{complaint, interrupt, objects, start, text};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LITTLE: &str =
    "--sizes 30 --mode plain,full,resumed --tls 1.3 --key-type p-256 --transactions 5 --traced 0";

#[test]
#[ignore = "slow: needs valgrind; make test-all"]
fn transactions_do_and_miss_what_they_are() {
    if !valgrind() {
        return;
    }
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("caches.html");
    let mut command = caches(&format!("{LITTLE} --l1 16KB --l2 512KB --json --html"));
    let output = command.arg(&page).output().expect("the program runs");
    let outcome = &objects(&output)[0];
    assert_eq!(
        (&outcome["complete"], outcome["cells"].as_array().map(Vec::len)),
        (&true.into(), Some(3))
    );
    let figure = |mode: &str, name: &str| {
        let mut cells = outcome["cells"].as_array().expect("cells").iter();
        let cell = cells.find(|cell| cell["mode"] == mode).expect(mode);
        cell[name].as_f64().expect(name)
    };
    let instructions = |mode| figure(mode, "instructions");
    // A handshake is a thousand times what is left without one, and half of it is not done to resume.
    assert!(instructions("plain") > 5_000.0 && instructions("plain") < 200_000.0, "{outcome}");
    assert!(instructions("resumed") > 5.0 * instructions("plain"), "{outcome}");
    assert!(instructions("full") > 1.05 * instructions("resumed"), "{outcome}");
    for mode in ["plain", "full", "resumed"] {
        let missed = figure(mode, "l1i_misses") + figure(mode, "l1d_misses");
        assert!(missed > 100.0 && figure(mode, "l2_misses") < missed, "{outcome}");
        assert!(figure(mode, "l1d_misses") < figure(mode, "data_accesses"), "{outcome}");
    }
    let page = std::fs::read_to_string(&page).expect("the page");
    assert!(page.contains("<svg") && !page.contains("src="), "{page}");
}

#[test]
#[ignore = "slow: needs valgrind; make test-all"]
fn instructions_repeat() {
    if !valgrind() {
        return;
    }
    let run = || {
        // Two starts are about 100,000 instructions apart: of ten transactions that is less than a percent.
        let full = LITTLE.replace("plain,full,resumed", "full").replace(" 5 ", " 10 ");
        let mut command = caches(&format!("{full} --l1 16KB --l2 2MB --json"));
        let outcome = &objects(&command.output().expect("the program runs"))[0];
        outcome["cells"][0]["instructions"].as_f64().expect("a figure")
    };
    let runs = [run(), run(), run()];
    let (least, most) =
        (runs.into_iter().fold(f64::MAX, f64::min), runs.into_iter().fold(0.0, f64::max));
    assert!(most <= 1.02 * least, "{runs:?}");
}

#[test]
#[ignore = "slow: needs valgrind; make test-all"]
fn interrupted_it_tells_what_there_is_and_ends_valgrind() {
    if valgrind() {
        interrupted("cachegrind", LITTLE);
    }
}

#[test]
#[ignore = "slow: needs valgrind; make test-all"]
fn a_trace_is_interrupted_too() {
    if valgrind() {
        interrupted("lackey", &LITTLE.replace("--traced 0", "--traced 1"));
    }
}

/// Once a server runs under that tool.
fn interrupted(tool: &str, words: &str) {
    let child = started(words);
    let id = child.id();
    let servers = servers(id, tool);
    let folder = std::env::temp_dir().join(format!("rejoin-caches-{id}"));
    assert!(folder.exists(), "the server has its key from there");
    interrupt(&child);
    let asked = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(asked.elapsed() < Duration::from_secs(30), "it took its time");
    for server in servers {
        assert!(!Path::new(&format!("/proc/{server}")).exists(), "{server} is left");
    }
    assert!(!folder.exists(), "{} is left", folder.display());
    let text = text(&output.stdout);
    assert!(text.contains("partial: interrupted"), "{text}");
    let (line, code) = complaint(&output);
    assert!(
        line.contains("interrupted, or out of time, after 0 of") && code == 1,
        "{code}, {line}"
    );
}

/// With one server at a time.
fn started(words: &str) -> Child {
    start(&mut caches(&format!("--jobs 1 {words}")))
}

/// Returns the first process that it started under the tool.
fn servers(id: u32, tool: &str) -> Vec<String> {
    let began = Instant::now();
    loop {
        let mut servers = children(id);
        servers.retain(|server| is_under(tool, server));
        if !servers.is_empty() {
            return servers;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no server was started");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "slow: needs valgrind; make test-all"]
fn what_fails_leaves_the_rest() {
    if !valgrind() {
        return;
    }
    let child = started(&format!("{LITTLE} --l1 16KB --l2 512KB --json"));
    for server in servers(child.id(), "cachegrind") {
        kill_process(pid(&server), Signal::KILL).expect("it is there");
    }
    let output = child.wait_with_output().expect("it ends");
    let (line, code) = complaint(&output);
    let failed = line.contains("after 1 of 2 parts: plain, 30 B: L1 16 KB, L2 512 KB: ");
    assert!(failed && code == 1, "{code}, {line}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let cells = outcome["cells"].as_array().expect("cells");
    let modes: Vec<_> = cells.iter().map(|cell| cell["mode"].as_str().expect("a mode")).collect();
    assert_eq!((modes, &outcome["complete"]), (vec!["full", "resumed"], &false.into()));
    assert!(outcome["failure"].as_str().expect("why").starts_with("plain"), "{outcome}");
}

fn pid(process: &str) -> Pid {
    Pid::from_raw(process.parse().expect("a number")).expect("a process")
}

/// Returns true if a process runs a program under a tool of valgrind, not only to get its version.
fn is_under(tool: &str, process: &str) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{process}/cmdline"));
    line.is_ok_and(|line| line.contains(&format!("--tool={tool}")))
}

/// Processes whose parent it is.
fn children(id: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
    let all = threads.filter_map(|thread| of(thread).ok());
    all.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    for (arguments, why) in [
        ("--sizes 0", "a response has 1 byte to 64MB"),
        ("--l1 48KB", "cannot be built"),
        ("--l2 64", "cannot be built"),
        ("--line-bytes 48", "cannot be built"),
        ("--traced-l2 100KB", "cannot be built"),
        ("--traced-l2 4KiB", "cannot be built"),
        ("--traced-l2 32MB", "16MB at most"),
        ("--transactions 0", "1..=1000"),
        ("--mode once", "invalid value"),
        ("--key-type ml-dsa-65", "give --tls 1.3"),
    ] {
        let (line, code) = complaint(&caches(arguments).output().expect("the program runs"));
        assert!(line.contains(why) && code == 2, "{arguments}: {code}, {line}");
    }
}

#[test]
fn without_valgrind_the_package_is_named() {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-valgrind.html");
    let mut command = caches("--html");
    let output = command.arg(&page).env("PATH", "/nowhere").output().expect("the program runs");
    assert!(!page.exists(), "of nothing there is no page");
    let (line, code) = complaint(&output);
    assert!(line.contains("install the package valgrind") && code == 1, "{code}, {line}");
}

fn valgrind() -> bool {
    let told = Command::new("valgrind").arg("--version").output();
    told.is_ok_and(|told| told.status.success())
}

fn caches(words: &str) -> Command {
    let mut command = Command::new(REJOIN);
    command.args(["cost", "caches"]).args(words.split(' '));
    command
}
