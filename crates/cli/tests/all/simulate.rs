//! `rejoin simulate` as its users run it.

use crate::REJOIN;
use crate::program::{self, file, interrupt, path, refusal, scratch, text};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use serde_json::Value;

const PLAN: &str = r#"
title = "A thousand devices"
duration_s = 1800
seeds = 2
capacities = [30, 60]
policies = ["lru", "predictive"]

[[group]]
kind = "devices"
devices = 1000
running_s = 120
waiting_s = 2760
intervals = "60:23,30:13,15:2"
"#;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn done(arguments: &[&str]) -> String {
    program::done(&[&["simulate"], arguments].concat())
}

fn cells(arguments: &[&str]) -> Vec<Value> {
    let lines = done(&[arguments, &["--json"]].concat());
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn complaint(arguments: &[&str]) -> (String, i32) {
    refusal(&[&["simulate"], arguments].concat())
}

#[test]
fn a_plan_becomes_one_object_for_each_policy_and_capacity() {
    let plan = file(&scratch("simulate/json"), "plan.toml", PLAN);
    let cells = cells(&["--plan", &plan, "--capacities", "20..40:10,60", "--seeds", "3"]);
    assert_eq!(cells.len(), 8);
    for (cell, (policy, capacity)) in cells
        .iter()
        .zip(["lru", "predictive"].into_iter().flat_map(|p| [20, 30, 40, 60].map(|c| (p, c))))
    {
        assert_eq!((&cell["policy"], &cell["capacity"]), (&policy.into(), &capacity.into()));
        assert_eq!(cell["seeds"], 3);
        for rate in ["hit_all", "hit_after_first_of_device", "hit_after_first_of_run"] {
            let mean = cell[rate]["mean"].as_f64().expect("a mean");
            let sd = cell[rate]["sd"].as_f64().expect("a deviation");
            assert!((0.0..=100.0).contains(&mean) && (0.0..20.0).contains(&sd), "{cell}");
        }
    }
    let rate = |cell: &Value| cell["hit_after_first_of_run"]["mean"].as_f64().expect("a mean");
    assert!(rate(&cells[5]) > rate(&cells[1]) + 20.0, "{cells:?}");
}

#[test]
fn a_table_a_page_and_values_are_written_whole() {
    let folder = scratch("simulate/reports");
    let plan = file(&folder, "plan.toml", PLAN);
    let (csv, html) = (path(&folder, "rates.csv"), path(&folder, "curves.html"));
    let table = done(&["--plan", &plan, "--csv", &csv, "--html", &html]);
    assert!(table.contains("A thousand devices") && table.contains("predictive"), "{table}");
    assert_eq!(table, done(&["--plan", &plan, "--table", "--threads", "1"]), "threads change it");
    assert_eq!(names(&folder), ["curves.html", "plan.toml", "rates.csv"]);
    assert_eq!(fs::read_to_string(&csv).expect("values").lines().count(), 5);
    assert!(fs::read_to_string(&html).expect("a page").ends_with("</html>\n"));
}

/// The same arrivals in each format, and their hit rates; oracleGeneral has no runs and whole
/// seconds.
#[test]
fn a_trace_is_written_and_played_in_every_format() {
    let folder = scratch("simulate/traces");
    let plan = file(&folder, "plan.toml", PLAN);
    let own = path(&folder, "own.trace");
    done(&["--plan", &plan, "--write-trace", &own]);
    let csv = path(&folder, "text.csv");
    done(&["--trace", &own, "--write-trace", &csv]);
    let oracle = path(&folder, "a.oracleGeneral.bin");
    done(&["--plan", &plan, "--write-trace", &oracle, "--seed", "1"]);
    assert_eq!(names(&folder), ["a.oracleGeneral.bin", "own.trace", "plan.toml", "text.csv"]);

    let try_out = ["--capacities", "30,60", "--policies", "lru,predictive,clairvoyant"];
    let drawn = cells(&[&["--plan", &plan, "--seeds", "1"], &try_out[..]].concat());
    for trace in [&own, &csv] {
        assert_eq!(cells(&[&["--trace", trace], &try_out[..]].concat()), drawn, "{trace}");
    }
    let played = cells(&[&["--trace", &oracle], &try_out[..]].concat());
    for (played, drawn) in played.iter().zip(&drawn) {
        assert_eq!(played["requests"], drawn["requests"]);
        let exact = played["policy"] != "predictive";
        assert!(!exact || played["hit_all"] == drawn["hit_all"], "{played} {drawn}");
    }
    let other = path(&folder, "other.trace");
    done(&["--plan", &plan, "--write-trace", &other, "--seed", "2"]);
    assert_ne!(fs::read(&other).expect("a trace"), fs::read(&own).expect("a trace"));
}

#[test]
fn a_plan_without_groups_gives_its_servers_to_a_trace() {
    let folder = scratch("simulate/servers");
    let plan = file(&folder, "plan.toml", PLAN);
    let trace = path(&folder, "own.trace");
    done(&["--plan", &plan, "--write-trace", &trace]);
    let servers = "servers = 4\npolicies = ['lru']\ncapacities = [1000]\nduration_s = 900";
    let servers = file(&folder, "servers.toml", servers);
    let four = &cells(&["--plan", &servers, "--trace", &trace])[0];
    let one = &cells(&["--trace", &trace, "--capacities", "1000", "--policies", "lru"])[0];
    let number = |cell: &Value| cell["requests"].as_f64().expect("a number");
    assert!((number(four) / number(one) - 0.5).abs() < 0.1, "{four} {one}");
    let rate = |cell: &Value| cell["hit_after_first_of_device"]["mean"].as_f64().expect("a rate");
    assert!((rate(four) - 25.0).abs() < 8.0 && rate(one) == 100.0, "{four} {one}");
}

#[test]
fn misuse_is_one_line_and_exit_code_2() {
    let folder = scratch("simulate/misuse");
    let plan = file(&folder, "plan.toml", PLAN);
    let unknown = file(&folder, "unknown.toml", PLAN.replace("seeds", "sedes"));
    let negative = file(&folder, "negative.toml", PLAN.replace("running_s = 1", "running_s = -1"));
    let empty = file(&folder, "empty.toml", "");
    let bare = file(&folder, "bare.toml", PLAN.replace("capacities", "# capacities"));
    let trace = file(&folder, "trace.csv", "time_ms,client\n0,1\n");
    let binary = file(&folder, "binary.toml", b"seeds = 1\n\xff");
    let control = file(&folder, "control.toml", "\"a\\n\\u001b[31m\" = 1");
    let out = path(&folder, "out");
    let out_again = folder.join("../misuse/out");
    let out_again = out_again.to_str().expect("UTF-8");
    let small = ["--trace", &trace, "--capacities", "5", "--csv", &trace];
    let wrong: [(&[&str], &str); 23] = [
        (&[], "--plan"),
        (&["--plan", &unknown], "unknown.toml: line 4: unknown field `sedes`"),
        (&["--plan", &negative], "running_s: -120 is not a number of seconds"),
        (&["--plan", &empty], "no [[group]]"),
        (&["--plan", &bare], "add --capacities"),
        (&["--plan", &plan, "--trace", &trace], "remove its groups"),
        (&["--plan", &plan, "--capacities", "0"], "write 300,600"),
        (&["--plan", &plan, "--capacities", "5..1:1"], "write 300,600"),
        (&["--plan", &plan, "--policies", "lifo"], "give one of predictive"),
        (&["--plan", &plan, "--seeds", "0"], "--seeds"),
        (&["--plan", &plan, "--threads", "0"], "--threads"),
        (&["--plan", &plan, "--json", "--table"], "--table"),
        (&["--plan", &plan, "--seed", "2"], "--write-trace"),
        (&["--plan", &plan, "--csv", "/"], "not the name of a file"),
        (&["--trace", &trace], "add --capacities"),
        (&["--trace", "/dev/null", "--capacities", "5"], "write it to a file"),
        (&["--plan", &plan, "--write-trace", "x", "--json"], "--json"),
        (&["--plan", &binary], "binary.toml: line 2: not UTF-8"),
        (&["--plan", "/dev/zero"], "/dev/zero: longer than 1 MiB"),
        (&["--plan", &control], "unknown field `a \u{fffd}[31m`"),
        (&["--plan", &plan, "--csv", &out, "--html", out_again], "give another name"),
        (&["--plan", &plan, "--html", &plan], "give another name"),
        (&small, "give another name"),
    ];
    for (arguments, remedy) in wrong {
        let (line, code) = complaint(arguments);
        assert!(line.contains(remedy) && code == 2, "{arguments:?}: {code}, {line}");
    }
    assert_eq!(names(&folder).len(), 8, "{:?}", names(&folder));
}

/// A device in the place of a file would be gone, and a link would be one no more.
#[test]
fn only_files_are_replaced() {
    let folder = scratch("simulate/replaced");
    let plan = file(&folder, "plan.toml", PLAN);
    let socket = path(&folder, "socket");
    let _listens = UnixListener::bind(&socket).expect("a socket");
    for flag in ["--csv", "--html", "--write-trace"] {
        let (line, code) = complaint(&["--plan", &plan, flag, &socket]);
        assert!(line.contains("not the name of a file to write") && code == 2, "{line}");
    }
    assert!(!fs::metadata(&socket).expect("the socket").is_file());
    let (old, link) = (file(&folder, "old.csv", "old"), path(&folder, "link.csv"));
    symlink("old.csv", &link).expect("a link");
    done(&["--plan", &plan, "--csv", &link]);
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert!(fs::read_to_string(&old).expect("values").starts_with("policy,"));
    assert_eq!(names(&folder), ["link.csv", "old.csv", "plan.toml", "socket"]);
}

#[test]
fn nothing_is_tried_twice() {
    let plan =
        file(&scratch("simulate/twice"), "plan.toml", PLAN.replace("[30, 60]", "[30, 60, 30]"));
    assert_eq!(cells(&["--plan", &plan, "--policies", "lru,fifo,lru"]).len(), 4);
    assert_eq!(cells(&["--plan", &plan, "--capacities", "5,7,5..9:2"]).len(), 6);
}

#[test]
fn results_that_nobody_can_keep_are_a_failure() {
    let plan = file(&scratch("simulate/full"), "plan.toml", PLAN);
    for arguments in [&["simulate", "--json"][..], &["simulate"], &["plan"]] {
        let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut command = Command::new(REJOIN);
        command.args(arguments).args(["--plan", &plan]).stdout(full);
        let output = command.output().expect("the program runs");
        let line = text(&output.stderr);
        assert!(line.contains("standard output cannot be written"), "{arguments:?}: {line}");
        assert_eq!((line.lines().count(), output.status.code()), (1, Some(1)), "{line}");
    }
}

#[test]
fn failure_is_one_line_and_exit_code_1() {
    let folder = scratch("simulate/failure");
    let plan = file(&folder, "plan.toml", PLAN);
    let whole = path(&folder, "whole.trace");
    done(&["--plan", &plan, "--write-trace", &whole]);
    let bytes = fs::read(&whole).expect("a trace");
    let cut = file(&folder, "cut.trace", &bytes[..bytes.len() / 2]);
    let version = [&bytes[..16], &[9, 0, 0, 0], &bytes[20..]].concat();
    let version = file(&folder, "version.trace", version);
    let unsorted = file(&folder, "unsorted.csv", "time_ms,client\n5,1\n4,2\n");
    let micros = file(&folder, "micros.csv", "time_ms,client\n1700000000000000,1\n");
    let other = file(&folder, "other.bin", "no trace");
    let out = path(&folder, "nowhere/rates.csv");
    let small = ["--capacities", "30", "--policies", "lru"];
    let with = |trace: &str| -> Vec<String> {
        ["--trace", trace].iter().chain(&small).map(ToString::to_string).collect()
    };
    let none = file(&folder, "none.csv", "time_ms,client\n");
    let html = ["--trace", &none, "--capacities", "1", "--html", &path(&folder, "none.html")];
    let failing: [(Vec<String>, &str); 10] = [
        (with(&micros), "event 1 is at 1700000000000000 ms"),
        (html.map(str::to_owned).to_vec(), "none.csv: no arrivals in the time that is counted"),
        (with("/nowhere/a.trace"), "/nowhere/a.trace: cannot be read"),
        (with(&cut), "cut.trace: cut after"),
        (with(&version), "version.trace: a trace of version 9"),
        (with(&unsorted), "sort the events by time"),
        (with(&other), "in no format known here"),
        (vec!["--plan".into(), "/nowhere/plan.toml".into()], "/nowhere/plan.toml: cannot be read"),
        (vec!["--plan".into(), plan, "--csv".into(), out], "rates.csv: cannot be written"),
        (vec!["--trace".into(), cut, "--write-trace".into(), path(&folder, "new")], "cut after"),
    ];
    for (arguments, told) in failing {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (line, code) = complaint(&arguments);
        assert!(line.contains(told) && code == 1, "{arguments:?}: {code}, {line}");
    }
    let left = [
        "cut.trace",
        "micros.csv",
        "none.csv",
        "other.bin",
        "plan.toml",
        "unsorted.csv",
        "version.trace",
        "whole.trace",
    ];
    assert_eq!(names(&folder), left, "something half-written was left");
}

/// Interrupts a process like Ctrl-C.
fn interrupt_after(child: &Child, seconds: f64) {
    thread::sleep(Duration::from_secs_f64(seconds));
    interrupt(child);
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(REJOIN);
    program::start(command.arg("simulate").args(arguments))
}

#[test]
fn interrupted_it_gives_what_is_finished() {
    let folder = scratch("simulate/interrupted");
    let plan = file(&folder, "plan.toml", PLAN);
    let csv = path(&folder, "rates.csv");
    let child = start(&["--plan", &plan, "--seeds", "10000", "--json", "--csv", &csv]);
    interrupt_after(&child, 2.0);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("interrupted"));
    let lines = text(&output.stdout);
    for line in lines.lines() {
        let cell: Value = serde_json::from_str(line).expect("JSON");
        assert!((1..10_000).contains(&cell["seeds"].as_u64().expect("seeds")), "{cell}");
    }
    assert_eq!(lines.lines().count(), 4);
    assert_eq!(names(&folder), ["plan.toml", "rates.csv"]);
}

#[test]
fn interrupted_early_it_says_that_there_is_nothing() {
    let folder = scratch("simulate/early");
    let long = PLAN.replace("duration_s = 1800", "duration_s = 900000000");
    let plan = file(&folder, "plan.toml", long);
    let child = start(&["--plan", &plan, "--html", &path(&folder, "curves.html")]);
    interrupt_after(&child, 1.0);
    let output = child.wait_with_output().expect("an end");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    assert_eq!(text(&output.stderr), "rejoin: interrupted before any seed was finished\n");
    assert_eq!(names(&folder), ["plan.toml"]);
}

#[test]
fn an_interrupted_trace_is_not_left_behind() {
    let folder = scratch("simulate/unwritten");
    let long = PLAN.replace("duration_s = 1800", "duration_s = 900000000");
    let plan = file(&folder, "plan.toml", long);
    let child = start(&["--plan", &plan, "--write-trace", &path(&folder, "long.trace")]);
    interrupt_after(&child, 1.0);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("long.trace is not written"));
    assert_eq!(names(&folder), ["plan.toml"]);
}

/// The names that temporary files had, by which another user of the folder could have them written elsewhere.
#[test]
fn a_planted_link_is_not_followed() {
    let folder = scratch("planted");
    file(&folder, "plan.toml", PLAN);
    let victim = file(&folder, "victim", "untouched");
    let plant =
        "ln -s victim .rates.csv.$$.part && exec \"$0\" simulate --plan plan.toml --csv rates.csv";
    let done = Command::new("sh").args(["-c", plant, REJOIN]).current_dir(&folder).output();
    let done = done.expect("sh");
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(fs::read_to_string(victim).expect("there"), "untouched");
    let rates = folder.join("rates.csv");
    assert!(rates.symlink_metadata().expect("written").is_file());
    assert_eq!(fs::read_to_string(rates).expect("values").lines().count(), 5);
}
