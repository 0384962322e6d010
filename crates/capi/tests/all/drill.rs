//! `rejoin cluster drill`

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rejoin_testkit::machines::{Cluster, Plan};
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::shipped::rejoin;
use serde_json::Value;

fn cluster(name: &'static str) -> Option<Cluster> {
    Cluster::start(Plan::of_sessions(name))
}

/// A drill of a cluster's servers, at 20 visits a second.
fn drill(cluster: &Cluster, more: &[&str]) -> Command {
    let mut command = Command::new(rejoin());
    command.args(["cluster", "drill", "--json", "--insecure", "--name", "localhost"]);
    command.args(["--per-second", "20"]).args(more);
    let servers = cluster.machines.iter().map(|machine| machine.site.address().to_string());
    command.args(servers).stdin(Stdio::null());
    command
}

fn report(output: &Output) -> Value {
    let told = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

/// The letter of a process's state (proc(5)).
fn state(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, after) = stat.rsplit_once(") ").expect("a name");
    after[..1].to_owned()
}

fn valkey(cluster: &Cluster) -> String {
    let told = cluster.ask_valkey(&["INFO", "server"]);
    let pid = told.lines().find_map(|line| line.strip_prefix("process_id:"));
    pid.expect("Valkey tells").trim().to_owned()
}

#[test]
fn clients_see_valkey_stand_still_and_are_all_answered() {
    let Some(cluster) = cluster("drill-pause") else { return };
    let valkey = valkey(&cluster);
    let output = drill(&cluster, &["--staging", "--phase", "5s", "--pause", &valkey]).output();
    let output = output.expect("it runs");
    let report = report(&output);
    // 3: this machine was busy.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{report}");
    assert_ne!(state(&valkey), "T");
    let resumed = |part: &str| report[part]["resumed_percent"].as_f64().expect("a number");
    for part in ["before", "during", "after"] {
        assert_eq!(report[part]["failed"], serde_json::json!({}), "{report}");
        assert!(report[part]["answered"].as_u64() > Some(10), "{report}");
    }
    assert!(resumed("during") + 15.0 < resumed("before"), "{report}");
    assert!(report["resumed_again_s"].is_number() && report["complete"] == true, "{report}");
}

#[test]
fn what_is_broken_is_mended_whatever_ends_the_drill() {
    let Some(cluster) = cluster("drill-ends") else { return };
    let [broken, mended] = ["broken", "mended"].map(|name| cluster.folder.join(name));
    let (begin, end) = (touch(&broken), touch(&mended));
    let commands = ["--staging", "--run", &begin, "--mend", &end];
    let words = |phase: &'static str| [&commands[..], &["--phase", phase]].concat();

    // The fault is short, and so is what lasts as long before it.
    let mut command = drill(&cluster, &words("2s"));
    let mut interrupted = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the fault", || broken.exists());
    assert_eq!(interrupted.terminate().code(), Some(1));
    assert!(mended.exists(), "interrupted while it was broken");

    fs::remove_file(&mended).expect("it is there");
    let fails = ["--staging", "--run", "exit 5", "--mend", &end, "--phase", "500ms"];
    let output = drill(&cluster, &fails).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("\"exit 5\": exit status: 5") && mended.exists(), "{told}");

    let wrong: [&[&str]; 4] = [
        &["--pause", "4194305", "--staging"],
        &["--pause", "1", "--staging"],
        &["--run", "true"],
        &["--staging"],
    ];
    for words in wrong {
        let output = drill(&cluster, words).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn a_visit_that_is_not_answered_is_told() {
    let Some(cluster) = cluster("drill-fails") else { return };
    let ids = cluster.machines[1].site.running.iter().map(|child| child.id().to_string());
    // The master stops its workers.
    let stop = format!("kill -TERM {}", ids.collect::<Vec<_>>().join(" "));
    let output = drill(&cluster, &["--staging", "--run", &stop, "--phase", "2s"]).output();
    let output = output.expect("it runs");
    let report = report(&output);
    assert!(matches!(output.status.code(), Some(1 | 3)), "{report}");
    let failed = report["during"]["failed"].as_object().expect("reasons");
    assert!(failed.keys().any(|why| why.contains("refused")), "{report}");
}

fn touch(path: &Path) -> String {
    format!("touch {}", path.display())
}
