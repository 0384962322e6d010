//! Servers that a test prepares, and their examination.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rejoin_doctor::{Cause, Error, Report, Settings, Severity, Watch, Way, WayFacts, examine};
use rejoin_testkit::certificates::Pair;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::port::reserve;
use rejoin_testkit::process::{Process, wait_until};

/// A folder with a certificate, a port that may be bound at several addresses of loopback, and servers.
pub(crate) struct Site {
    pub(crate) folder: Folder,
    pub(crate) port: u16,
    running: Vec<Process>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let Pair { certificate, key, .. } = Pair::of_localhost();
        folder.write("both.pem", format!("{certificate}{key}"));
        folder.write("cert.pem", certificate);
        folder.write("key.pem", key);
        Self { folder, port: reserve(), running: Vec::new() }
    }

    /// Fills in the folder and the port.
    pub(crate) fn filled(&self, text: &str) -> String {
        let text = text.replace("FOLDER", &self.folder.display().to_string());
        text.replace("PORT", &self.port.to_string())
    }

    /// Starts a server, and waits until it listens at this address.
    pub(crate) fn start(&mut self, program: &str, arguments: &[&str], address: &str) {
        let mut command = Command::new(program);
        command.args(arguments.iter().map(|argument| self.filled(argument)));
        command.current_dir(&*self.folder).stdin(Stdio::piped());
        let mut server = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let address = SocketAddr::new(address.parse().expect("an address"), self.port);
        wait_until(program, || {
            assert!(server.ended().is_none(), "{program} ended");
            TcpStream::connect(address).is_ok()
        });
        self.running.push(server);
    }

    /// Starts an nginx whose `http` has these settings, with a server at this address.
    pub(crate) fn nginx(&mut self, http: &str, address: &str) {
        let listen = format!("{http} server {{ listen {address}:PORT ssl; return 200 \"x\\n\"; }}");
        self.nginx_with(&listen, address);
    }

    /// Starts an nginx with this `http`.
    pub(crate) fn nginx_with(&mut self, http: &str, address: &str) {
        let number = self.running.len();
        let text = format!(
            "daemon off; master_process off; pid FOLDER/{number}.pid; error_log FOLDER/{number}.log;
             events {{ worker_connections 512; }}
             http {{ access_log off; client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy;
             fastcgi_temp_path FOLDER/fastcgi; uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
             ssl_certificate FOLDER/cert.pem; ssl_certificate_key FOLDER/key.pem; {http} }}"
        );
        let file = format!("nginx-{number}.conf");
        self.folder.write(&file, self.filled(&text));
        self.start("nginx", &["-c", &format!("FOLDER/{file}")], address);
    }

    pub(crate) fn stop(&mut self) {
        self.running.clear();
    }

    /// The settings of an examination of these addresses as `localhost`.
    pub(crate) fn settings(&self, addresses: &[&str]) -> Settings {
        let target = format!("localhost:{}", self.port).parse().expect("a server");
        let addresses = addresses.iter().map(|address| address.parse().expect("an address"));
        let addresses: Vec<IpAddr> = addresses.collect();
        Settings { addresses, wait: Duration::ZERO, ..Settings::new(target) }
    }

    pub(crate) fn examine(&self) -> Examined {
        examined(&self.settings(&["127.0.0.1"])).expect("handshakes")
    }
}

/// A report, and what tests ask of it.
pub(crate) struct Examined(pub(crate) Report);

pub(crate) fn examined(settings: &Settings) -> Result<Examined, Error> {
    let watch = Watch { stop: &AtomicBool::new(false), told: &|_, _| {} };
    examine(settings, watch).map(|facts| Examined(Report::new(facts)))
}

impl Examined {
    /// The causes of this weight.
    pub(crate) fn causes(&self, severity: Severity) -> BTreeSet<Cause> {
        let findings = self.0.findings.iter();
        findings.filter(|found| found.severity == severity).map(|found| found.cause).collect()
    }

    /// Asserts that these causes and no others stand in the way.
    pub(crate) fn assert_in_the_way(&self, causes: &[Cause]) {
        let found = self.0.findings.iter().filter(|found| found.is_in_the_way());
        let found: BTreeSet<Cause> = found.map(|found| found.cause).collect();
        assert_eq!(found, causes.iter().copied().collect(), "{}", self.0.text());
        assert_eq!(self.0.resumes, Some(causes.is_empty()));
        assert_eq!(self.causes(Severity::Risk), BTreeSet::new(), "{}", self.0.text());
        let widest = self.0.text().lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= 80), "{}", self.0.text());
    }

    /// Asserts that sessions resume, and that the report fits a terminal.
    pub(crate) fn assert_well_but_for_copies(&self) {
        assert_eq!(self.0.resumes, Some(true), "{}", self.0.text());
        let widest = self.0.text().lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= 80), "{}", self.0.text());
    }

    pub(crate) fn assert_noted(&self, cause: Cause) {
        assert!(self.causes(Severity::Note).contains(&cause), "{}", self.0.text());
    }

    /// The facts about a way at the first address.
    pub(crate) fn way(&self, way: Way) -> &WayFacts {
        self.0.facts.of_way(way).next().expect("each way is examined").1
    }
}
