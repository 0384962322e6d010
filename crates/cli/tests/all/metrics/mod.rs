//! The metrics of all exporters: their formats, their names, and what reads them.

mod document;
mod names;
mod prometheus;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rejoin_manager::client::Stream;
use rejoin_manager::protocol::Directly;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::Process;

use crate::cluster::Cluster;
use crate::shown::{Shown, get};
use crate::stats_manager::House;
use crate::stats_page::Cached;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One exporter of each kind, on loopback, with something to tell.
struct Exporters {
    house: House,
    manager: Shown,
    /// Held open, so that the manager has a connection.
    _open: Stream,
    _cached: Cached,
    cache: Shown,
    cluster: Cluster,
    _agent: Process,
    agent: String,
    capture: Following,
}

impl Exporters {
    fn start(name: &str) -> Self {
        let (house, cached, cluster) = (House::new(name), Cached::new(), Cluster::start());
        let open = house.visit_all();
        house.manager().went_directly(Directly::Datagrams, 2).expect("told");
        cached.fill();
        let (cache, manager) = (cached.shown(), house.shown());
        let (agent, address) = cluster.agent();
        let agents = Self {
            house,
            manager,
            _open: open,
            _cached: cached,
            cache,
            cluster,
            _agent: agent,
            agent: address,
            capture: Following::start(),
        };
        agents.wait_for_the_ring();
        agents
    }

    /// Without a ring of ticket keys the agent has no age of a key to tell.
    fn wait_for_the_ring(&self) {
        rejoin_testkit::process::wait_until("the agent's ring", || {
            get(&self.agent, "/metrics", "")
                .contains("\nrejoin_agent_key_ring_version{cluster=\"web\"} 1\n")
        });
    }

    /// Returns their names, as the documents call them, and their addresses.
    fn all(&self) -> [(&'static str, &str); 5] {
        [
            ("server", &self.house.services[0].metrics),
            ("cache", &self.cache.address),
            ("manager", &self.manager.address),
            ("agent", &self.agent),
            ("capture", &self.capture.address),
        ]
    }
}

/// A `rejoin capture` that follows a folder, and serves metrics.
pub(crate) struct Following {
    pub(crate) child: Process,
    pub(crate) folder: Folder,
    pub(crate) address: String,
}

impl Following {
    fn start() -> Self {
        Self::with(Folder::new(), &[])
    }

    /// With more arguments.
    pub(crate) fn with(folder: Folder, more: &[&str]) -> Self {
        let mut command = Command::new(crate::REJOIN);
        command.args(["capture", "--metrics", "127.0.0.1:0", "--follow"]).arg(folder.path());
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Process::start(&mut command);
        let mut line = String::new();
        let told = child.stderr.as_mut().expect("piped");
        while !line.ends_with('\n') {
            let mut letter = [0];
            told.read_exact(&mut letter).expect("a line");
            line.push(char::from(letter[0]));
        }
        let address = line.trim().strip_suffix("/metrics").expect("an address");
        let (_, address) = address.split_once("http://").expect("an address");
        Self { child, folder, address: address.to_owned() }
    }
}

/// Returns the content type and the body of an exporter's metrics for a client that accepts this.
fn metrics(address: &str, accept: &str) -> (String, String) {
    let answer = get(address, "/metrics", &format!("Accept: {accept}\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    let content_type = head.lines().find_map(|line| line.strip_prefix("Content-Type: "));
    (content_type.expect("a content type").to_owned(), body.to_owned())
}

/// The folder of what operators install.
fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// The lines of samples: names, labels and values.
fn samples(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn each_exporter_serves_the_format_that_is_accepted_and_the_same_in_both() {
    let exporters = Exporters::start("formats");
    for (name, address) in exporters.all() {
        let of = |accept: &str| metrics(address, accept);
        for plain in ["*/*", "text/plain", "text/html", "application/openmetrics-text;q=0"] {
            assert_eq!(of(plain).0, PROMETHEUS, "{name}: {plain}");
        }
        let (content_type, open) = of("application/openmetrics-text;version=1.0.0,*/*;q=0.1");
        assert_eq!(content_type, OPENMETRICS, "{name}");
        assert!(open.ends_with("\n# EOF\n") && open.contains("# TYPE rejoin_build info"), "{open}");
        let plain = of("text/plain").1;
        assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"), "{name}: {plain}");
        let names = |text: &str| -> Vec<String> {
            let name = |line: &&str| line.rsplit_once(' ').expect("a value").0.to_owned();
            samples(text).iter().map(name).collect()
        };
        assert_eq!(names(&open), names(&plain), "{name}");
        assert!(plain.contains(concat!(
            "rejoin_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\"} 1"
        )));
    }
}

/// It holds the keys of the cluster, so other machines do not reach it, and it serves no more than its metrics.
#[test]
fn an_agent_shows_itself_on_loopback_only_and_no_key() {
    let (line, code) = crate::program::complaint(&crate::program::rejoin(&[
        "cluster",
        "run",
        "--metrics",
        "0.0.0.0:0",
    ]));
    assert!(line.contains("127.0.0.1:9466") && code == 2, "{code}: {line}");
    let cluster = Cluster::start();
    let (_agent, address) = cluster.agent();
    for (path, fields, status) in [
        ("/metrics", "", "200"),
        ("/", "", "404"),
        ("/stats.json", "", "404"),
        ("/metrics", "Host: rebound.example\r\n", "421"),
    ] {
        let answer = get(&address, path, fields);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
    let key = cluster.key();
    let text = get(&address, "/metrics", "");
    assert!(key.len() > 20 && !text.contains(&key), "{text}");
}
