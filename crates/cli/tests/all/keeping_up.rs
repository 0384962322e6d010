//! Figures of a machine that does not keep up: marked, explained, and told by the exit code.

use crate::REJOIN;
use crate::program::{objects, rejoin, scratch, text};
use rejoin_testkit::serve::Server;
use std::process::{Command, Output};

/// More than a hundred thousand connections a second, which one thread makes nowhere: at half the speed, neither.
const TOO_FAST: [&str; 8] =
    ["--devices", "20000", "--speedup", "6000", "--warm-up", "60", "--duration", "60"];

/// Returns standard output and error of a program that says by its exit code that the machine did not keep up.
fn doubted(output: &Output) -> [String; 2] {
    let said = [&output.stdout, &output.stderr].map(|said| text(said));
    assert_eq!(output.status.code(), Some(3), "{said:?}");
    assert!(said[1].starts_with("rejoin: the machine did not keep up"), "{said:?}");
    assert_eq!(said[1].lines().count(), 1, "{said:?}");
    said
}

#[test]
#[ignore = "slow: make test-all"]
fn a_demonstration_that_is_too_fast_for_the_machine_is_marked() {
    let folder = scratch("too-fast");
    let demo = |more: &[&str]| {
        let mut demo = Command::new(REJOIN);
        demo.args(["demo", "--tls", "1.3", "--one-server", "--resumption", "tickets", "--folder"])
            .arg(&folder);
        demo.args(TOO_FAST).args(more).output().expect("the program runs")
    };
    let [table, _] = doubted(&demo(&[]));
    let row = table.lines().find(|line| line.contains("tickets")).expect("a row");
    assert!(row.contains(" *  "), "{table}");
    assert!(table.contains("\n* TLS 1.3 tickets: "), "{table}");
    assert!(table.contains("\n* The machine did not keep up") && table.contains("--speedup"));
    let page = std::fs::read_to_string(folder.join("demo.html")).expect("a page");
    assert!(page.contains("incomplete\">* TLS 1.3 tickets: "), "{page}");
    let output = demo(&["--json"]);
    doubted(&output);
    assert_eq!(objects(&output)[0]["kept_up"], false);
}

#[test]
#[ignore = "slow: make test-all"]
fn a_fleet_that_is_too_fast_for_the_machine_is_marked() {
    let server = Server::start(&[]);
    let fleet = [&["fleet", &server.target, "--insecure"], &TOO_FAST[..]].concat();
    let [report, _] = doubted(&rejoin(&fleet));
    assert!(report.contains("\n* fleet: ") && report.contains("\n* The machine did"), "{report}");
    let output = rejoin(&[&fleet[..], &["--json"]].concat());
    doubted(&output);
    assert_eq!(objects(&output)[0]["kept_up"], false);
}

/// In real time a connection is late after a second. Only another machine of the same host may disturb that.
#[test]
fn a_fleet_with_time_enough_is_not_marked() {
    let server = Server::start(&[]);
    let slow = ["--devices", "3000", "--speedup", "1", "--warm-up", "1", "--duration", "4"];
    let output = rejoin(&[&["fleet", &server.target, "--insecure", "--json"], &slow[..]].concat());
    let report = &objects(&output)[0];
    assert!(report["begun"].as_u64() > Some(0), "{report}");
    for percent in ["late_percent", "left_out_percent"] {
        assert_eq!(report[percent], 0.0, "{report}");
    }
    assert!(report["waited_percent"].as_f64() < Some(33.0), "{report}");
    if report["stolen_percent"].as_f64() < Some(5.0) {
        assert_eq!((&report["kept_up"], output.status.code()), (&true.into(), Some(0)));
        assert_eq!(text(&output.stderr), "");
    }
}
