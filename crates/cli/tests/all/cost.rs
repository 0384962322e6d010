//! `rejoin cost`, in a test program of its own: it measures, and shares the machine with nobody.

use crate::REJOIN;
use crate::program::{complaint, interrupt, objects, start, text};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const MODES: [&str; 4] = ["plain", "full", "resumed", "once"];
const SIZES: [u64; 4] = [30, 4_096, 36_864, 262_144];

#[test]
#[ignore = "slow: make test-all"]
fn transactions_cost_what_they_are() {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cost.html");
    let words = "--json --sizes 30,4KB,36KB,256KB --tls 1.2,1.3 --key-type rsa-2048 --cipher aes-gcm \
                 --rounds 3 --round-duration 0.1 --html";
    let output = cost(words).arg(&page).output().expect("the program runs");
    let outcome = &objects(&output)[0];
    assert_eq!(outcome["complete"], true);
    for size in SIZES {
        for mode in MODES {
            let versions = if mode == "plain" {
                [Value::Null].to_vec()
            } else {
                TLS.map(Value::from).to_vec()
            };
            for tls in versions {
                check_cell(cell(outcome, mode, &tls, size), mode, size);
            }
        }
    }
    assert_eq!(outcome["cells"].as_array().expect("cells").len(), 4 + 2 * 3 * 4);
    check_model(outcome);
    check_counters(outcome);
    let page = std::fs::read_to_string(&page).expect("the page");
    assert_eq!(page.matches("<svg").count(), 4, "two pictures for each version");
    assert!(!page.contains("src=") && !page.contains("href=\"http"), "it asks somebody");
}

/// A server on all cores shares them with its clients, and the output says so.
#[test]
fn a_server_may_have_several_cores() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cost-cores.html");
    let words = format!(
        "--json --cores 1,{cores} --sizes 30,36KB {P256} --mode plain,resumed --rounds 1 \
         --round-duration 0.1 --html"
    );
    let output = cost(&words).arg(&page).output().expect("the program runs");
    let outcome = &objects(&output)[0];
    let cells = outcome["cells"].as_array().expect("cells");
    for number in [1, cores] {
        let its: Vec<_> = cells.iter().filter(|cell| cell["cores"] == number).collect();
        assert_eq!(its.len(), 4, "{outcome}");
        assert!(its.iter().all(|cell| cell["failed"] == 0), "{outcome}");
    }
    let placed = outcome["cores"].as_array().and_then(|all| all.last()).expect("places");
    assert_eq!(placed["server"].as_array().map(Vec::len), Some(cores), "{outcome}");
    let page = std::fs::read_to_string(&page).expect("the page");
    assert_eq!(page.contains("By the server's cores"), cores > 1);
    assert!(page.contains("server and clients shared"));
}

const TLS: [&str; 2] = ["1.2", "1.3"];

fn check_cell(cell: &Value, mode: &str, size: u64) {
    let count = |name: &str| cell[name].as_u64().expect(name);
    assert_eq!((count("failed"), count("rounds")), (0, 3), "{cell}");
    let transactions = count("transactions");
    assert!(transactions > 0, "{cell}");
    // By the server's own counts.
    let (full, resumed) = match mode {
        "full" => (transactions, 0),
        "resumed" => (0, transactions),
        _ => (0, 0),
    };
    assert_eq!((count("server_full"), count("server_resumed")), (full, resumed), "{cell}");
    assert_eq!(count("server_requests"), transactions, "{cell}");
    let wire = |name: &str| cell["wire"][name].as_f64().expect(name);
    assert!(wire("bytes_to_client") > size as f64, "{cell}");
    assert!(wire("bytes_to_client") < size as f64 * 1.1 + 4_000.0, "{cell}");
    // Segments hold no more than they may; a connection has some without data.
    assert!(wire("packets_to_client") >= wire("bytes_to_client") / 1_460.0, "{cell}");
    assert!(wire("packets_to_server") > 0.0, "{cell}");
    let figure = |at: &Value| at.as_f64().expect("a figure");
    let (per_s, used) = (figure(&cell["per_s"]), figure(&cell["utilisation"]));
    assert!(figure(&cell["server"]["cpu_ns"]) > 1_000.0 && per_s > 0.0 && used > 0.0, "{cell}");
    assert!(figure(&cell["first_byte_us"]) > 1.0, "{cell}");
}

/// Counters that the processor lacks are named with the reason; the others have plausible values.
fn check_counters(outcome: &Value) {
    let missing = &outcome["counters_missing"];
    for cell in outcome["cells"].as_array().expect("cells") {
        let counters = &cell["server"]["counters"];
        match counters["user_instructions"].as_f64() {
            Some(user) => assert!(user > 10_000.0, "{cell}"),
            None => assert!(missing.is_string(), "{outcome}"),
        }
        if missing.is_null() {
            let all = counters["instructions"].as_f64().expect("nothing is missing");
            assert!(all > counters["user_instructions"].as_f64().expect("counted"), "{cell}");
        }
    }
}

/// RSA makes a full handshake so much dearer that no noise hides it: five times over TLS 1.2. Over TLS
/// 1.3 there is a key exchange in any case: twice.
fn check_model(outcome: &Value) {
    for (tls, times) in TLS.map(Value::from).into_iter().zip([1.5, 1.2]) {
        let cpu =
            |mode| cell(outcome, mode, &tls, 30)["server"]["cpu_ns"].as_f64().expect("a time");
        let (full, resumed) = (cpu("full"), cpu("resumed"));
        assert!(full > times * resumed, "TLS {tls}: {full} {resumed}");
        let models = outcome["models"].as_array().expect("models");
        let model = models.iter().find(|model| model["tls"] == tls).expect("one for each version");
        let at_36_kb = &model["sizes"][2];
        assert_eq!(at_36_kb["size_bytes"], 36_864);
        let saved = at_36_kb["saved_percent"].as_f64().expect("resumption was measured");
        assert!(saved > 0.0 && saved < 100.0, "{at_36_kb}");
        let paper = at_36_kb["paper_percent"]["handshake"].as_f64().expect("the paper's");
        assert!((paper - 43.05).abs() < 0.01, "{paper}");
    }
}

fn cell<'a>(outcome: &'a Value, mode: &str, tls: &Value, size: u64) -> &'a Value {
    let mut cells = outcome["cells"].as_array().expect("cells").iter();
    let is =
        |cell: &&Value| cell["mode"] == mode && cell["tls"] == *tls && cell["size_bytes"] == size;
    cells.find(is).unwrap_or_else(|| panic!("no cell of TLS {tls} {mode} {size}"))
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    for (arguments, why) in [
        ("--sizes 0", "a response has 1 byte to 64MB"),
        ("--sizes 30,10GB", "a response has 1 byte to 64MB"),
        ("--round-duration 0", "a time above 0"),
        ("--round-duration 61", "from 1ms to 60s"),
        ("--resumption none", "resumes nothing"),
    ] {
        let (line, code) = complaint(&cost(arguments).output().expect("the program runs"));
        assert!(line.contains(why) && code == 2, "{arguments}: {code}, {line}");
    }
}

#[test]
fn interrupted_it_tells_what_there_is() {
    let words = format!("--sizes 30 {P256} --rounds 1000 --round-duration 0.1");
    let child = start(&mut cost(&words));
    std::thread::sleep(std::time::Duration::from_secs(3));
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    let text = text(&output.stdout);
    assert!(text.contains("partial: interrupted"), "{text}");
    let (line, code) = complaint(&output);
    assert!(line.contains("interrupted after") && code == 1, "{code}, {line}");
}

/// Figures, page and all: minutes of measuring are not thrown away for one round.
#[test]
fn a_server_that_is_lost_leaves_what_was_measured() {
    use rustix::process::{Pid, Signal, kill_process};
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cost-lost.html");
    let lost_after = |seconds| {
        let words = "--sizes 30 --mode resumed --rounds 1000 --round-duration 0.1 --html";
        let child = start(cost(&format!("{P256} {words}")).arg(&page));
        let server = (0..600).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let path = format!("/proc/{0}/task/{0}/children", child.id());
            std::fs::read_to_string(path).expect("it is there").trim().parse().ok()
        });
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        let server = Pid::from_raw(server.expect("one server")).expect("a process");
        kill_process(server, Signal::KILL).expect("it is there");
        child.wait_with_output().expect("it ends")
    };
    // On a busy machine it takes long to be through with the first round.
    let mut attempts = [2, 8, 32].into_iter().map(lost_after);
    let output =
        attempts.find(|output| !output.stdout.is_empty()).expect("a round in half a minute");
    let text = text(&output.stdout);
    assert!(text.contains("partial: TLS 1.3 P-256 AES-GCM resumed 30 B: "), "{text}");
    let (line, code) = complaint(&output);
    let lost = line.contains(" of 1000 rounds: TLS 1.3 P-256 AES-GCM resumed 30 B: ");
    assert!(lost && code == 1, "{code}, {line}");
    let page = std::fs::read_to_string(&page).expect("the page");
    assert!(page.contains("partial: TLS 1.3"), "{page}");
}

const P256: &str = "--tls 1.3 --key-type p-256 --cipher aes-gcm";

fn cost(words: &str) -> Command {
    let mut command = Command::new(REJOIN);
    command.arg("cost").args(words.split(' '));
    command
}
