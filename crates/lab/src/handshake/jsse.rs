//! The JDK's handshakes, measured by JMH in a process of its own: `bindings/java/bench`.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use super::chains::Chains;
use super::{Batch, Cell, Missing, Mode, Row, Side, Stack, Suite};
use crate::Error;
use crate::child::lines;
use crate::experiment::{Step, Turns};
use crate::java::{self, cause};
use crate::over_memory::failed;
use crate::scratch::{self, Scratch};
use rejoin_serve::KeyType;

/// How the JDK is measured.
#[derive(Debug, Clone)]
pub struct Java {
    /// Where the benchmark was built to: `classes` and `lib` are in it.
    pub target: PathBuf,
    /// Shorter warming up, and shorter batches.
    pub quick: bool,
}

impl Default for Java {
    fn default() -> Self {
        Self { target: Self::TARGET.into(), quick: false }
    }
}

/// The runtime on the path.
const JAVA: &str = "java";
/// For one combination: a JVM that starts, warms up and measures.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often it is seen that the run was interrupted.
const LOOK: Duration = Duration::from_millis(100);
/// The longest complaint that is read.
const LONGEST_COMPLAINT_BYTES: u64 = 1 << 20;

impl Java {
    /// Where `make bench-handshake` builds it, from the repository's root.
    pub const TARGET: &str = "bindings/java/bench/target";

    /// How many combinations there are to be measured.
    pub(super) fn combinations(&self, suites: &[Suite]) -> usize {
        if self.missing().is_some() { 0 } else { possible(suites).count() * Mode::ALL.len() }
    }

    fn missing(&self) -> Option<Missing> {
        let why = if !self.target.join("classes/rejoin/HandshakeBench.class").is_file() {
            let target = self.target.display();
            format!(
                "no benchmark in {target}: build it with `make bench-handshake`, or name its folder by --jmh"
            )
        } else if java::starts(JAVA.as_ref(), &[]).is_err() {
            "no `java` on the path: install a JDK, 17 or newer".to_owned()
        } else {
            return None;
        };
        Some(Missing { what: Stack::Jsse.name().to_owned(), why })
    }
}

/// Returns the suites that the JDK's TLS has.
fn possible(suites: &[Suite]) -> impl Iterator<Item = Suite> {
    suites.iter().copied().filter(|suite| suite.key != KeyType::MlDsa65)
}

/// Measures each combination until told to `stop`, and adds the JDK to the `libraries`, or what is `missing`.
pub(super) fn measure(
    java: &Java,
    suites: &[Suite],
    (turns, stop, began): (&mut Turns, &AtomicBool, &mut impl FnMut(&Step)),
    (libraries, missing): (&mut Vec<String>, &mut Vec<Missing>),
) -> Vec<Row> {
    if let Some(all) = java.missing() {
        missing.push(all);
        return Vec::new();
    }
    if suites.iter().any(|suite| suite.key == KeyType::MlDsa65) {
        let what = format!("{} {}", Stack::Jsse.name(), KeyType::MlDsa65.name());
        let why = "the JDK's TLS has no signatures by ML-DSA".to_owned();
        missing.push(Missing { what, why });
    }
    let cells: Vec<Cell> = possible(suites).flat_map(cells).collect();
    let mut process = None;
    turns.run(cells.clone(), stop, began, |cell, _| {
        let process = match &mut process {
            Some(process) => process,
            none => none.insert(Process::start(java, written(suites)?, &cells)?),
        };
        let Some(told) = process.next(stop)? else { return Ok(None) };
        let jdk = format!("JDK {}", told.jdk);
        if !libraries.contains(&jdk) {
            libraries.push(jdk);
        }
        let batches = told.batches.iter().map(Batch::from).collect();
        Row::of(&(cell, batches)).map(Some).ok_or_else(|| failed("java measured no batch"))
    })
}

fn cells(suite: Suite) -> [Cell; 3] {
    Mode::ALL.map(|mode| Cell { stack: Stack::Jsse, suite, mode, pair: 0 })
}

/// A line of the benchmark: a combination.
#[derive(Debug, Deserialize)]
struct Told {
    jdk: String,
    batches: Vec<ToldBatch>,
}

/// An iteration of JMH's.
#[derive(Debug, Deserialize)]
struct ToldBatch {
    handshakes: u64,
    server_ns: u64,
    client_ns: u64,
    server_bytes: u64,
    client_bytes: u64,
}

impl From<&ToldBatch> for Batch {
    fn from(told: &ToldBatch) -> Self {
        let side = |ns, sent_bytes| Side {
            cpu: Duration::from_nanos(ns),
            user_instructions: None,
            sent_bytes,
        };
        Self {
            handshakes: told.handshakes,
            server: side(told.server_ns, told.server_bytes),
            client: side(told.client_ns, told.client_bytes),
        }
    }
}

/// The benchmark; it and the JVMs that it starts end when it is dropped.
struct Process {
    child: Child,
    lines: Receiver<String>,
    complaints: PathBuf,
    /// Removed after the process ended.
    _folder: Scratch,
}

impl Process {
    fn start(bench: &Java, folder: Scratch, cells: &[Cell]) -> Result<Self, Error> {
        let complaints = folder.path().join("complaints");
        let file = fs::File::create(&complaints)
            .map_err(|source| Error::file(complaints.clone(), source))?;
        let main = "rejoin.HandshakeBench";
        let mut command = java::benchmark(JAVA.as_ref(), &bench.target, main);
        command.arg(folder.path());
        command.args(bench.quick.then_some("--quick"));
        command.args(cells.iter().map(|Cell { suite, mode, .. }| {
            let Suite { versions, key, client_certificates } = suite;
            format!("{},{},{client_certificates},{}", versions.name(), key.name(), mode.name())
        }));
        // Ctrl-C is for who measures, and what ends it ends the JVMs that it starts.
        let started = command.stdout(Stdio::piped()).stderr(file).process_group(0).spawn();
        let cannot = |source| Error::System { what: "cannot start java", source };
        let mut child = started.map_err(cannot)?;
        let stdout = child.stdout.take();
        let lines = stdout.map(lines).ok_or_else(|| failed("java has no output"))?;
        Ok(Self { child, lines, complaints, _folder: folder })
    }

    /// `None` if told to stop.
    fn next(&mut self, stop: &AtomicBool) -> Result<Option<Told>, Error> {
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) if line.starts_with('{') => {
                    return serde_json::from_str(&line).map(Some).map_err(failed);
                }
                // Of JMH, or of the runtime.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if began.elapsed() < PATIENCE => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(failed("java said nothing for three minutes"));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(failed(self.complaint())),
            }
        }
        Ok(None)
    }

    fn complaint(&self) -> String {
        let mut text = String::new();
        let read = fs::File::open(&self.complaints)
            .and_then(|file| file.take(LONGEST_COMPLAINT_BYTES).read_to_string(&mut text));
        let why = read.map_or_else(|error| error.to_string(), |_| cause(&text));
        format!("java ended early: {why}")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its group has its own number. Gone already, it cannot be told.
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Writes certificates and keys for the benchmark, which are there only while it runs.
fn written(suites: &[Suite]) -> Result<Scratch, Error> {
    let folder = Scratch::new("handshake")?;
    for suite in possible(suites) {
        let own = folder.path().join(suite.key.name());
        if !own.exists() {
            scratch::create(&own)?;
            write(&own, &Chains::made(suite.key)?)?;
        }
    }
    Ok(folder)
}

fn write(folder: &Path, chains: &Chains) -> Result<(), Error> {
    let path = folder.join("authority.pem");
    fs::write(&path, chains.authority_pem()?).map_err(|source| Error::file(path, source))?;
    chains.server.write(&folder.join("server.pem"), &folder.join("server.key"))?;
    Ok(chains.client.write(&folder.join("client.pem"), &folder.join("client.key"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rejoin_serve::Versions;

    #[test]
    fn a_line_is_a_combination() {
        let line = r#"{"jdk":"17","batches":[{"handshakes":4,"server_ns":8000,"client_ns":12000,
            "server_bytes":400,"client_bytes":80}]}"#;
        let told: Told = serde_json::from_str(line).expect("a line");
        let suite =
            Suite { versions: Versions::Tls12, key: KeyType::P256, client_certificates: false };
        let [cell, ..] = cells(suite);
        let batches = told.batches.iter().map(Batch::from).collect();
        let row = Row::of(&(cell, batches)).expect("a batch");
        assert_eq!((row.stack, row.server.cpu_us, row.client.cpu_us), ("jsse", 2.0, 3.0));
        assert_eq!((row.server.sent_bytes, row.client.sent_bytes), (100.0, 20.0));
    }

    #[test]
    fn keys_are_the_owners_alone_and_go() {
        let suite =
            Suite { versions: Versions::Tls12, key: KeyType::P256, client_certificates: false };
        let folder = written(&[suite]).expect("a folder");
        let path = folder.path().to_owned();
        let mode = |path: &Path| {
            use std::os::unix::fs::PermissionsExt;
            fs::metadata(path).expect("it is there").permissions().mode() & 0o777
        };
        assert_eq!((mode(&path), mode(&path.join("P-256/server.key"))), (0o700, 0o600));
        drop(folder);
        assert!(!path.exists());
    }
}
