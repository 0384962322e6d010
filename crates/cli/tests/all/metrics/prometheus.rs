//! Metrics, rules and settings, given to a real Prometheus: it scrapes, answers, and raises an alarm.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rejoin_testkit::folder::Folder;
use rejoin_testkit::port;
use rejoin_testkit::process::{Process, output, wait_as_long_as, wait_for, wait_until};
use rejoin_testkit::shipped::target;
use serde_json::Value;

use super::{Exporters, deploy, document, metrics};
use crate::shown;

/// A minute until the alarm, and what the machine needs besides.
const LONGEST: Duration = Duration::from_secs(240);

/// Returns the folder of Prometheus' programs, downloaded or installed. `None` without `make target/prometheus`, or
/// where that downloads nothing.
fn programs() -> Option<PathBuf> {
    let folders = [target().join("prometheus/root/usr/bin"), PathBuf::from("/usr/bin")];
    let found = folders.into_iter().find(|folder| folder.join("prometheus").exists());
    if found.is_none() {
        eprintln!("without make target/prometheus, or not on Debian 12: nothing is tested");
    }
    found
}

fn promtool(programs: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs.join("promtool"));
    command.args(arguments).current_dir(deploy().join("prometheus"));
    command
}

#[test]
#[ignore = "slow: needs Prometheus; make test-all"]
fn promtool_finds_no_fault_in_rules_and_settings_and_each_alert_is_tested() {
    let Some(programs) = programs() else { return };
    for arguments in [
        ["check", "rules", "rejoin.rules.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "rejoin.rules.test.yml"],
    ] {
        let told = output(&mut promtool(&programs, &arguments), LONGEST);
        let lines = String::from_utf8_lossy(&told.stdout) + String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success(), "{arguments:?}: {lines}");
    }
    let read =
        |file: &str| fs::read_to_string(deploy().join("prometheus").join(file)).expect("a file");
    let (rules, tests) = (read("rejoin.rules.yml"), read("rejoin.rules.test.yml"));
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.split_once("- alert: ")).collect();
    assert!(alerts.len() >= 5);
    for (_, alert) in alerts {
        assert!(tests.contains(&format!("alertname: {alert}\n        exp_alerts:")), "{alert}");
    }
}

#[test]
#[ignore = "slow: needs Prometheus; make test-all"]
fn promtool_finds_no_fault_in_the_metrics_of_any_exporter() {
    let Some(programs) = programs() else { return };
    let exporters = Exporters::start("promtool");
    for (name, address) in exporters.all() {
        let text = metrics(address, "text/plain").1;
        let mut command = promtool(&programs, &["check", "metrics"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("promtool");
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
        let told = child.wait_with_output().expect("an end");
        let lines = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success() && lines.is_empty(), "{name}: {lines}");
    }
}

/// A Prometheus with the settings and rules that operators get, faster, and with the addresses of a test.
struct Prometheus {
    address: String,
    _process: Process,
    _folder: Folder,
}

impl Prometheus {
    fn start(programs: &Path, exporters: &Exporters) -> Self {
        let folder = Folder::new();
        let mut settings =
            fs::read_to_string(deploy().join("prometheus/prometheus.yml")).expect("a file");
        let ports = [("cache", 9464), ("manager", 9465), ("agent", 9466), ("server", 9467)];
        for (name, port) in ports {
            let of = |(known, _): &(&str, &str)| *known == name;
            let (_, address) = exporters.all().into_iter().find(of).expect("an exporter");
            let usual = format!("[\"127.0.0.1:{port}\"]");
            assert!(settings.contains(&usual), "{settings}");
            settings = settings.replace(&usual, &format!("[{address:?}]"));
        }
        let settings = folder.write("prometheus.yml", settings.replace(": 15s", ": 1s"));
        let rules = deploy().join("prometheus/rejoin.rules.yml");
        fs::copy(rules, folder.join("rejoin.rules.yml")).expect("copied");
        let port = port::reserve();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(programs.join("prometheus"));
        command.arg("--config.file").arg(settings);
        command.arg("--storage.tsdb.path").arg(folder.join("data"));
        command.arg(format!("--web.listen-address={address}"));
        let log = fs::File::create(folder.join("log")).expect("a file");
        let process = Process::start(command.stdin(Stdio::null()).stderr(log));
        port::wait_until_open(port);
        Self { address, _process: process, _folder: folder }
    }

    fn ask(&self, path: &str) -> Value {
        // A version of HTTP without chunks.
        let request = format!("GET /api/v1/{path} HTTP/1.0\r\n\r\n");
        let answer = shown::tell(&self.address, request.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        // It listens before it is ready.
        if head.contains(" 503 ") {
            return Value::Null;
        }
        let answer: Value =
            serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {head} {body}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    fn series(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let found = self.ask(&format!("query?query={encoded}"));
        found["result"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the value of the one series that a query finds.
    fn value(&self, query: &str) -> Option<f64> {
        let series = self.series(query);
        assert!(series.len() <= 1, "{query}: {series:?}");
        series.first()?["value"][1].as_str()?.parse().ok()
    }

    /// Returns the state of an alert: pending, or firing.
    fn state_of(&self, alert: &str) -> Option<String> {
        let alerts = self.ask("alerts");
        let alerts = alerts["alerts"].as_array()?;
        let found = alerts.iter().find(|found| found["labels"]["alertname"] == alert)?;
        found["state"].as_str().map(str::to_owned)
    }
}

#[test]
#[ignore = "slow: needs Prometheus, and a minute until an alarm; make test-all"]
fn prometheus_scrapes_all_exporters_and_raises_an_alarm() {
    let Some(programs) = programs() else { return };
    let mut exporters = Exporters::start("scraped");
    let prometheus = Prometheus::start(&programs, &exporters);
    wait_until("four exporters", || prometheus.value("count(up == 1)") == Some(4.0));
    for (query, expected) in [
        ("count(rejoin_build_info)", 4.0),
        ("rejoin_server_handshakes_total{job=\"rejoin-server\",kind=\"full\"}", 1.0),
        ("rejoin_server_handshakes_total{job=\"rejoin-server\",kind=\"resumed\"}", 3.0),
        ("rejoin_cache_hits_total{job=\"rejoin-cache\",cache=\"web\"}", 37.0),
        ("rejoin_cache_handshakes_total{job=\"rejoin-cache\",kind=\"resumed\"}", 34.0),
        ("rejoin_ticket_keys{job=\"rejoin-cache\",state=\"encrypting\"}", 1.0),
        ("rejoin_manager_handshakes_total{kind=\"failed\"}", 1.0),
        ("sum(rejoin_manager_program_handshakes_total)", 6.0),
        ("rejoin_manager_bypasses_total{reason=\"datagrams\"}", 2.0),
        ("rejoin_agent_valkey_connected{cluster=\"web\"}", 1.0),
        ("rejoin_agent_key_ring_version", 1.0),
        // The next key is due before this one is twelve hours old.
        (
            "rejoin_ticket_key_next_rotation_timestamp_seconds{job=\"rejoin-agent\"} - time() > bool 11 * 3600",
            1.0,
        ),
        // Old names have the same values.
        (
            "rejoin_handshakes_full_total - on (instance) rejoin_server_handshakes_total{kind=\"full\"}",
            0.0,
        ),
    ] {
        let value = wait_for(query, || prometheus.value(query));
        assert!((value - expected).abs() < 1e-9, "{query}: {value}, not {expected}");
    }
    for query in document::queries() {
        wait_until(&query, || !prometheus.series(&query).is_empty());
    }
    let lost = "RejoinAgentLostValkey";
    assert_eq!(prometheus.state_of(lost), None);
    exporters.cluster.valkey.stop();
    let state = || prometheus.state_of(lost);
    let fires = || state().filter(|state| state == "firing");
    wait_as_long_as(LONGEST, "the alarm", fires);
    assert_eq!(prometheus.value("ALERTS{alertname!=\"RejoinAgentLostValkey\"}"), None);
    exporters.cluster.valkey.start_again();
    wait_until("its end", || state().is_none());
}
