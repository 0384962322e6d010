//! `rejoin stats --manager`: what programs did through a real manager, with real servers.

use crate::REJOIN;
use rejoin_testkit::serve::{Server, interrupt, scratch};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::shown::{Shown, number, text_of};
use rejoin_manager::client::{Manager, Stream};
use rejoin_manager::protocol::Connect;
use rejoin_testkit::manager::Managed;
use serde_json::{Value, json};

const REQUEST: &str = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";

/// A manager, and two services.
pub(crate) struct House {
    pub(crate) managed: Managed,
    pub(crate) services: [Server; 2],
}

impl House {
    pub(crate) fn new(name: &str) -> Self {
        let managed = Managed::start(name);
        // TLS 1.2: one session for each, and it is there when the handshake is over.
        let serve = || Server::with(managed.certify(&["localhost"]), &["--tls", "1.2"]);
        let services = [serve(), serve()];
        Self { managed, services }
    }

    /// One program's visit.
    fn visit(&self, target: &str) -> Output {
        let mut child = Command::new(REJOIN)
            .args(["connect", "--manager", &self.managed.socket(), target])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        // Who refused to connect does not listen.
        let _ = child.stdin.take().expect("piped").write_all(REQUEST.as_bytes());
        child.wait_with_output().expect("an end")
    }

    /// Three visits to the first service, one to the second, and one to nobody; and a connection of this
    /// program's own to the first, which stays open.
    pub(crate) fn visit_all(&self) -> Stream {
        let [first, second] = &self.services;
        for service in [first, first, first, second] {
            let visit = self.visit(&service.target);
            assert!(visit.status.success(), "{}", String::from_utf8_lossy(&visit.stderr));
        }
        assert!(!self.visit("127.0.0.1:1").status.success());
        let (host, port) = first.target.split_once(':').expect("a port");
        let port = port.parse().expect("a port");
        let wanted = Connect::new(host.parse().expect("a name"), port);
        let stream = self.manager().connect(&wanted).expect("a connection");
        // The visitors' sockets are closed before the manager has seen to it.
        let until = Instant::now() + Duration::from_secs(20);
        while self.json()["open"] != 1 {
            assert!(Instant::now() < until, "{}", self.json());
        }
        stream
    }

    pub(crate) fn manager(&self) -> Manager {
        Manager::at(self.managed.socket())
    }

    fn stats(&self, more: &[&str]) -> Command {
        let mut command = Command::new(REJOIN);
        command.args(["stats", "--manager", &self.managed.socket()]).args(more);
        command
    }

    fn told(&self, more: &[&str]) -> String {
        let told = self.stats(more).output().expect("the program runs");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("UTF-8")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.told(&["--json"])).expect("JSON")
    }

    pub(crate) fn shown(&self) -> Shown {
        Shown::start(&["--manager", &self.managed.socket()])
    }
}

/// Returns the name by which the manager knows this program.
fn own_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").expect("a name");
    name.trim_end().to_owned()
}

/// Names, and their handshakes in full, resumed, failed.
fn shares(of: &Value) -> Vec<(String, [u64; 3])> {
    let share = |share: &Value| {
        let count = |kind: &str| share["handshakes"][kind].as_u64().expect("a count");
        (
            share["name"].as_str().expect("a name").to_owned(),
            ["full", "resumed", "failed"].map(count),
        )
    };
    of.as_array().expect("names").iter().map(share).collect()
}

fn expected(house: &House) -> [Vec<(String, [u64; 3])>; 2] {
    let [first, second] = house.services.each_ref().map(|service| service.target.clone());
    let programs = vec![("rejoin".to_owned(), [2, 2, 1]), (own_name(), [0, 1, 0])];
    // Of two that are as busy the first by name.
    let services =
        vec![(first, [1, 3, 0]), ("127.0.0.1:1".to_owned(), [0, 0, 1]), (second, [1, 0, 0])];
    [programs, services]
}

/// The line that begins with this word, as words.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let words = |line: &'a str| line.split_whitespace().collect::<Vec<_>>();
    let row = table.lines().map(words).find(|words| words.first() == Some(&name));
    row.unwrap_or_else(|| panic!("no {name} in {table}"))
}

#[test]
fn the_table_and_json_say_what_programs_did() {
    let house = House::new("stats");
    let _open = house.visit_all();
    let told = house.json();
    let [programs, services] = expected(&house);
    assert_eq!((shares(&told["programs"]), shares(&told["services"])), (programs, services));
    assert_eq!((&told["sessions"], &told["open"]), (&json!(2), &json!(1)));
    assert_eq!(
        (&told["resumed_percent"], &told["socket"]),
        (&json!(60.0), &json!(house.managed.socket()))
    );
    let table = house.told(&[]);
    assert!(table.contains("of 5 handshakes 60.0 % were resumed"), "{table}");
    assert!(table.contains("; 1 connections are open"), "{table}");
    assert_eq!(row(&table, "rejoin"), ["rejoin", "50.0", "%", "2", "2", "1"]);
    let first = &house.services[0].target;
    assert_eq!(row(&table, first), [first, "75.0", "%", "1", "3", "0"]);
    assert_eq!(row(&table, "127.0.0.1:1"), ["127.0.0.1:1", "–", "0", "0", "1"]);
}

#[test]
fn prometheus_says_it_too() {
    counts_are_shown(false);
}

#[test]
#[ignore = "slow: needs Chromium; make test-all"]
fn the_page_says_it_too() {
    counts_are_shown(true);
}

fn counts_are_shown(on_page: bool) {
    let house = House::new(if on_page { "stats-page" } else { "stats-metrics" });
    let shown = house.shown();
    let _open = house.visit_all();
    let sum = |stats: &Value, of: &str| -> u64 {
        let counts = stats["history"][of].as_array().expect("counts");
        counts.iter().filter_map(Value::as_u64).sum()
    };
    let is_so = |stats: &Value| {
        stats["open"] == 1 && (sum(stats, "handshakes"), sum(stats, "resumed")) == (5, 3)
    };
    shown.wait("seen", is_so);
    let metrics = shown.get("/metrics");
    let [programs, services] = expected(&house);
    for (label, names) in [("program", &programs), ("service", &services)] {
        for (name, counts) in names {
            for (kind, count) in ["full", "resumed", "failed"].iter().zip(counts) {
                let line = format!(
                    "rejoin_manager_{label}_handshakes_total{{{label}=\"{name}\",kind=\"{kind}\"}} {count}"
                );
                assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
            }
        }
    }
    for line in [
        "rejoin_manager_handshakes_total{kind=\"resumed\"} 3",
        "rejoin_manager_sessions 2",
        "rejoin_manager_connections 1",
        "rejoin_manager_up 1",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
    if !on_page {
        return;
    }
    let page = shown.drawn(&scratch(&format!("stats-manager-{}", std::process::id())));
    let percent = ["resumed-percent", "resumed-percent-note"].map(|id| text_of(&page, id));
    assert_eq!(percent, ["60.0 %", "of 5 handshakes"]);
    let numbers = ["resumed-handshakes", "full-handshakes", "sessions", "open", "failed"];
    assert_eq!(numbers.map(|id| number(&page, id)), [3, 2, 2, 1, 1]);
    assert_eq!((text_of(&page, "name"), text_of(&page, "notice")), ("TLS manager", ""));
    for (id, names) in [("programs", &programs), ("services", &services)] {
        let told = rows(&page, id).into_iter().map(|cells| {
            let counts = [2, 3, 5].map(|at: usize| cells[at].parse().expect("a count"));
            (cells[0].clone(), counts)
        });
        assert_eq!(&told.collect::<Vec<_>>(), names);
    }
}

/// The texts of the cells of the table's body with this id.
fn rows(page: &str, id: &str) -> Vec<Vec<String>> {
    let (_, rest) = page.split_once(&format!("id=\"{id}\">")).expect("a table");
    let (body, _) = rest.split_once("</tbody>").expect("its end");
    let text = |cell: &str| {
        let (_, text) = cell.split_once('>').expect("a cell");
        text.split('<').next().unwrap_or_default().to_owned()
    };
    let cells = |row: &str| {
        let row = row.replace("<th", "<td");
        row.split("<td").skip(1).map(text).collect()
    };
    body.split("<tr").skip(1).map(cells).collect()
}

#[test]
fn a_manager_that_ends_is_said_to_and_its_successor_shown() {
    let mut house = House::new("stats-end");
    let shown = house.shown();
    drop(house.visit_all());
    shown.wait("counted", |stats| stats["handshakes"]["full"] == 2 && stats["problem"].is_null());
    house.managed.kill();
    shown.wait("gone", |stats| stats["problem"].is_string());
    assert!(shown.get("/metrics").contains("rejoin_manager_up 0\n"));
    house.managed.run();
    shown.wait("back", |stats| stats["problem"].is_null() && stats["handshakes"]["full"] == 0);
    assert!(shown.get("/metrics").contains("rejoin_manager_up 1\n"));
}

/// Killed when dropped.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        // Already ended, when the test went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_second_has_a_line() {
    let house = House::new("stats-watch");
    let child = house.stats(&["--watch"]).stdout(Stdio::piped()).spawn();
    let mut watching = Watching(child.expect("the program runs"));
    let stdout = BufReader::new(watching.0.stdout.take().expect("piped"));
    let mut lines = stdout.lines().map_while(Result::ok);
    assert!(lines.next().is_some_and(|head| head.starts_with("handshakes/s")));
    assert!(house.visit(&house.services[0].target).status.success());
    let seen = lines.by_ref().take(60).find(|line| line.split_whitespace().next() == Some("1"));
    let seen = seen.expect("a line with a handshake");
    assert_eq!(seen.split_whitespace().nth(1), Some("0.0"), "{seen}");
    interrupt(&watching.0);
    assert_eq!(watching.0.wait().expect("our own child").code(), Some(0));
}

#[test]
fn without_a_manager_one_line_says_so() {
    for (arguments, word, code) in [
        (&["--manager", "/nowhere/m.sock"][..], "`rejoin manager` is not running", 1),
        (&["web", "--manager"], "cannot be used with", 2),
        (&["--manager", "--reset", "both"], "cannot be used with", 2),
    ] {
        let output = Command::new(REJOIN).arg("stats").args(arguments).output();
        let output = output.expect("the program runs");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(line.contains(word) && line.lines().count() == 1, "{arguments:?}: {line}");
        assert_eq!(output.status.code(), Some(code), "{line}");
    }
}
