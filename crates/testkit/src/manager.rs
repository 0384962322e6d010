//! A manager that tests start, and servers' certificates by an authority that it trusts.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rcgen::{CertificateParams, KeyPair};

use crate::certificates::Authority;
use crate::process::Process;
use crate::shipped::rejoin;
use crate::staples::staple;

/// A `rejoin manager`, its folder and its authority; killed when dropped.
pub struct Managed {
    /// Short: a socket's path has 107 characters at most.
    folder: PathBuf,
    authority: Authority,
    pub child: Option<Process>,
}

impl Managed {
    pub fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rejoin-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut managed = Self { folder, authority: Authority::new(), child: None };
        std::fs::write(managed.file("ca.pem"), managed.authority.pem()).expect("a file");
        managed.set("");
        managed
    }

    /// Starts the manager, and waits until it serves.
    pub fn run(&mut self) {
        let mut command = Command::new(rejoin());
        command.args(["manager", "--socket", &self.socket()]);
        command.args(["--settings", &self.file("manager.toml")]).stdout(Stdio::piped());
        self.child = Some(serving(&mut command));
    }

    pub fn kill(&mut self) {
        self.child = None;
    }

    pub fn socket(&self) -> String {
        self.file("m.sock")
    }

    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The authority that it trusts.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A certificate for these names and its key, as files.
    pub fn certify(&self, names: &[&str]) -> (String, String) {
        let pair = KeyPair::generate().expect("a key");
        self.issue(&pair, (names, names[0]), |_| {})
    }

    /// A certificate for this key, in files of this name, with its parameters changed.
    pub fn issue(
        &self,
        pair: &KeyPair,
        (names, file): (&[&str], &str),
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        self.authority.issue_for(pair, names, change).write(&self.folder.join(file));
        (self.file(&format!("{file}.pem")), self.file(&format!("{file}.key")))
    }

    /// An OCSP response about a certificate of its authority, as a file ([`staple`]).
    pub fn staple(&self, certificate: &str, says: (&str, &[&str])) -> String {
        staple(&self.folder, &self.authority, certificate, says)
    }

    /// Replaces its settings, and starts it anew.
    pub fn set(&mut self, settings: &str) {
        let own = format!("system_bundle = {:?}\n{settings}\n", self.file("ca.pem"));
        std::fs::write(self.file("manager.toml"), own).expect("a file");
        self.kill();
        self.run();
    }
}

/// Starts a manager whose standard output is piped, and waits until it serves.
pub fn serving(command: &mut Command) -> Process {
    let mut manager = Process::start(command);
    let mut line = String::new();
    let stdout = manager.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert!(line.starts_with("serving"), "{line}");
    manager
}

impl Drop for Managed {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
