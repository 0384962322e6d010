//! Servers that the tests start, and stop by pid.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::certificates::Pair;
use crate::process::{Process, Signal, signal};
use crate::shipped::{rejoin, target};

/// A `rejoin serve`, killed when dropped.
pub struct Server {
    process: Process,
    stdout: BufReader<ChildStdout>,
    pub listening: String,
    /// The same with `localhost`, which is the certificate's name.
    pub target: String,
    pub metrics: String,
    pub certificate: String,
    /// Empty where the server made its key.
    pub key: String,
}

impl Server {
    pub fn start(more: &[&str]) -> Self {
        Self::with(pair(), more)
    }

    /// With this certificate and key.
    pub fn with((certificate, key): (String, String), more: &[&str]) -> Self {
        let own = ["--certificate", &certificate, "--key", &key];
        Self::spawn(&[&own, more].concat(), &certificate, &key)
    }

    /// With a certificate that the server makes itself, and writes here for clients to trust.
    pub fn making(certificate: &Path, more: &[&str]) -> Self {
        let certificate = certificate.to_str().expect("UTF-8");
        Self::spawn(&[&["--write-certificate", certificate], more].concat(), certificate, "")
    }

    fn spawn(arguments: &[&str], certificate: &str, key: &str) -> Self {
        let mut serve = Command::new(rejoin());
        serve.args(["serve", "--json", "--end-with-parent"]);
        serve.args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]).args(arguments);
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let mut process = Process::start(serve.stdout(Stdio::piped()));
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).expect("what it listens on");
        let address = |what: &str| said[what].as_str().expect("an address").to_owned();
        let listening = address("listening");
        let target = listening.replace("127.0.0.1", "localhost");
        Self { process, stdout, listening, target, metrics: address("metrics"), certificate, key }
    }

    /// Its summary.
    pub fn stop(mut self) -> Value {
        interrupt(&self.process);
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).expect("a summary");
        assert!(self.process.wait().success());
        serde_json::from_str(&said).expect("JSON")
    }
}

/// Sends SIGINT, as Ctrl-C does.
pub fn interrupt(child: &Child) {
    signal(child, Signal::INT);
}

/// A folder of this run's own.
pub fn scratch(name: &str) -> PathBuf {
    let folder = target().join("tmp").join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A fresh certificate and its key.
fn pair() -> (String, String) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static PAIRS: AtomicU32 = AtomicU32::new(0);
    let number = PAIRS.fetch_add(1, Ordering::Relaxed);
    let folder = scratch("certificates");
    let stem = folder.join(format!("{}-{number}", std::process::id()));
    Pair::of_localhost().write(&stem);
    ["pem", "key"].map(|ending| format!("{}.{ending}", stem.display())).into()
}
