//! JSSE's own cache (`sun.security.util.Cache`) on Java runtimes, by JMH in processes of theirs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::Row;
use crate::Error;
use crate::java::{self, cause};

/// How JSSE's caches are measured.
#[derive(Debug, Clone)]
pub struct Jmh {
    /// `bindings/java/bench/target`, where its classes and libraries are.
    pub folder: PathBuf,
    /// The programs `java`, in turn.
    pub javas: Vec<PathBuf>,
    /// Seconds of an iteration.
    pub iteration_s: u32,
    /// Iterations that are measured, in each of two processes; half as many go before.
    pub iterations: u32,
}

pub(super) const LEFT_OUT: &str =
    "JSSE's caches are left out: make bench-insert builds what measures them, and --jmh names it";
pub(super) const NO_JAVA: &str =
    "JSSE's caches are left out: there is no Java below /usr/lib/jvm; name one with --java";

/// Where distributions put them.
const FOLDER_OF_JDKS: &str = "/usr/lib/jvm";
/// JSSE's cache is no one else's to use.
const EXPORTS: &str = "--add-exports=java.base/sun.security.util=ALL-UNNAMED";

/// The Java runtimes of this machine that can be started, from Java 9 on; each once, the oldest name first.
pub fn installed() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(FOLDER_OF_JDKS).into_iter().flatten().flatten();
    let mut javas: Vec<PathBuf> =
        folders.filter_map(|folder| folder.path().join("bin/java").canonicalize().ok()).collect();
    javas.sort();
    javas.dedup();
    javas.retain(|java| started(java).is_ok());
    javas
}

/// The part of JMH's output that is needed.
#[derive(Deserialize)]
struct Measured {
    #[serde(rename = "jdkVersion")]
    version: String,
    params: Parameters,
    #[serde(rename = "primaryMetric")]
    metric: Metric,
}

#[derive(Deserialize)]
struct Parameters {
    entries: String,
    #[serde(rename = "lifetime")]
    lifetime_s: String,
}

#[derive(Deserialize)]
struct Metric {
    /// The figures of each iteration of each process.
    #[serde(rename = "rawData")]
    processes_ns: Vec<Vec<f64>>,
}

impl Jmh {
    /// That each runtime can be started, and there is something for it to run.
    pub(super) fn check(&self) -> Result<(), Error> {
        let classes = self.folder.join("classes");
        std::fs::metadata(&classes).map_err(|source| refused(&classes, source))?;
        self.javas.iter().try_for_each(|java| started(java))
    }

    /// Measures on one runtime.
    pub(super) fn rows(
        &self,
        java: &Path,
        entries: &[u32],
        lifetimes_s: &[u32],
    ) -> Result<Vec<Row>, Error> {
        let written = self.folder.join(format!("insert-{}.json", std::process::id()));
        let told = self.command(java, entries, lifetimes_s, &written).output();
        let told = told.map_err(|source| refused(java, source))?;
        let read = std::fs::read_to_string(&written);
        let _ = std::fs::remove_file(&written);
        if !told.status.success() {
            let text = [told.stdout, told.stderr]
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            return Err(refused(java, io::Error::other(cause(&text.concat()))));
        }
        let read = read.map_err(|source| refused(java, source))?;
        parsed(&read).map_err(|source| refused(java, source))
    }

    fn command(
        &self,
        java: &Path,
        entries: &[u32],
        lifetimes_s: &[u32],
        written: &Path,
    ) -> Command {
        let list =
            |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let seconds = self.iteration_s.to_string();
        let mut command = java::benchmark(java, &self.folder, "org.openjdk.jmh.Main");
        command
            .args([r"rejoin\.CacheInsert\.", "-foe", "true"])
            .args(["-jvmArgsAppend", EXPORTS])
            .args(["-p", &format!("entries={}", list(entries))])
            .args(["-p", &format!("lifetime={}", list(lifetimes_s))])
            .args(["-f", "2", "-r", &seconds, "-w", &seconds])
            .args(["-i", &self.iterations.to_string()])
            .args(["-wi", &self.iterations.div_ceil(2).to_string()])
            .args(["-rf", "json", "-rff"])
            .arg(written);
        command
    }
}

fn started(java: &Path) -> Result<(), Error> {
    java::starts(java, &[EXPORTS]).map_err(|source| refused(java, source))
}

fn refused(java: &Path, source: io::Error) -> Error {
    let source = io::Error::new(source.kind(), format!("{}: {source}", java.display()));
    Error::System {
        what: "JSSE's cache cannot be measured: --jmh is what make bench-insert built, --java a JDK \
               from 9 on",
        source,
    }
}

fn parsed(text: &str) -> io::Result<Vec<Row>> {
    let all: Vec<Measured> = serde_json::from_str(text)?;
    let row = |measured: Measured| {
        let number = |text: &str| text.parse().map_err(io::Error::other);
        let cell = (number(&measured.params.entries)?, number(&measured.params.lifetime_s)?);
        let iterations_ns = measured.metric.processes_ns.concat();
        let cache = format!("JSSE, JDK {}", measured.version);
        let is_empty = iterations_ns.is_empty();
        (!is_empty)
            .then(|| Row::new(cache, cell, iterations_ns))
            .ok_or_else(|| io::Error::other("no iterations"))
    };
    all.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_jmh_writes_is_read() {
        let text = r#"[{"benchmark": "rejoin.CacheInsert.put", "jdkVersion": "17.0.1", "mode": "avgt",
            "params": {"entries": "20480", "lifetime": "0"}, "primaryMetric": {"score": 2.0, "scoreUnit":
            "ns/op", "rawData": [[1.0, 2.5], [3.0]]}}]"#;
        let rows = parsed(text).expect("rows");
        let expected = Row {
            cache: "JSSE, JDK 17.0.1".to_owned(),
            kept_up: true,
            entries: 20_480,
            lifetime_s: 0,
            ns: 2.5,
            least_ns: 1.0,
            most_ns: 3.0,
            stored_percent: 100.0,
        };
        assert_eq!(rows, [expected]);
        for wrong in [
            "",
            "{}",
            "[{}]",
            &text.replace("20480", "many"),
            &text.replace("[1.0, 2.5], [3.0]", ""),
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
