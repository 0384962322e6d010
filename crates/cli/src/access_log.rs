//! Access logs, as the planner and the simulator read them.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use rejoin_logs::{Arrivals, ClientsBy, Collector, Counters, Error, Facts, ReadAt, Reading, Told};
use rejoin_sim::{Pass, Progress, Source};
use rejoin_trace::Reader;

use crate::arguments::Misuse;
use crate::stoppable::Stoppable;

/// The pause that ends a connection: `keepalive_timeout` of nginx.
pub(crate) const KEEP_ALIVE_MS: u64 = 75_000;
/// Another such pause: `KeepAliveTimeout` of Apache.
const SHORT_KEEP_ALIVE_MS: u64 = 5_000;

/// Logs that are read, in one reading or more.
#[derive(Debug)]
pub(crate) struct Logs {
    /// The logs' name in messages.
    pub(crate) name: String,
    pub(crate) facts: Facts,
    /// The readings. The first is the one that the log supports best.
    pub(crate) readings: Vec<ReadLog>,
    /// The part of time in which counters are compared, in milliseconds since 1970.
    pub(crate) window_ms: Option<(u64, u64)>,
}

/// A reading of logs, as arrivals.
#[derive(Debug)]
pub(crate) struct ReadLog {
    pub(crate) told: Told,
    trace: Arc<File>,
}

impl Logs {
    /// Reads all logs. With `others`, the readings that differ from the first are made, too.
    pub(crate) fn read(
        paths: &[PathBuf],
        keep_alive_ms: u64,
        counters: Option<&Counters>,
        others: bool,
        progress: &Progress,
    ) -> anyhow::Result<Self> {
        let standard_input = paths.iter().filter(|path| is_standard_input(path)).count();
        if standard_input > 1 {
            return Err(Misuse("- is given twice: standard input is read once".to_owned()).into());
        }
        if let Some(path) = given_twice(paths) {
            let what = "is given twice, perhaps under another name: each request would count twice";
            return Err(Misuse(format!("{} {what}", path.display())).into());
        }
        let mut key = [0; 16];
        rejoin_store::fill_at_random(&mut key)?;
        let mut collector = Collector::new(key, temporary().with_context(no_temporary)?);
        if counters.is_some() {
            collector.keep_plain();
        }
        progress.prepare(paths.iter().map(|path| bytes(path)).sum());
        for path in paths {
            read_one(&mut collector, path, progress)?;
        }
        let name = name(paths);
        let facts = collector.facts();
        let readings = readings(facts, keep_alive_ms, others);
        let window_ms = counters.and_then(|counters| counters.window_ms(facts.span_ms?));
        let window = window_ms.unwrap_or_default();
        let finished = collector.finish(&readings, window, temporary, || progress.stopped());
        let Arrivals { facts, told } = finished.map_err(|error| failed(&name, error))?;
        let read = |told: Told| -> anyhow::Result<ReadLog> {
            let trace = Arc::new(told.trace.try_clone().with_context(no_temporary)?);
            Ok(ReadLog { told, trace })
        };
        let readings = told.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { name, facts, readings, window_ms })
    }
}

impl Logs {
    /// Returns true if most connections are of TLS 1.3, and `None` if no line tells.
    pub(crate) fn is_of_tls_13(&self) -> Option<bool> {
        let (of_13, known) = self.readings[0].told.tls_13;
        (known > 0).then_some(of_13 * 2 > known)
    }
}

fn no_temporary() -> String {
    let folder = std::env::temp_dir();
    format!("a temporary file cannot be made in {}: set TMPDIR to a folder", folder.display())
}

/// Makes a file without a name, which is gone when it is closed.
fn temporary() -> io::Result<File> {
    tempfile::tempfile()
}

fn read_one(collector: &mut Collector, path: &Path, progress: &Progress) -> anyhow::Result<()> {
    let name = shown(path);
    let bytes = bytes(path);
    let log = match is_standard_input(path) {
        true => Stoppable::standard_input(progress, |_| {}),
        false => Stoppable::open(path, progress, |length| {
            if bytes > 0 {
                progress.advance(length);
            }
        }),
    };
    let log = log.with_context(|| format!("{name}: cannot be read"))?;
    let read = collector.read(&name, log, || progress.stopped());
    read.map_err(|error| failed(&name, error))
}

/// Returns the bytes of a file; 0 of what has no end that is known.
fn bytes(path: &Path) -> u64 {
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    found.map_or(0, |file| file.len())
}

fn failed(name: &str, error: Error) -> anyhow::Error {
    match error {
        Error::Stopped => anyhow!("interrupted before anything was tried"),
        Error::Compressed { by, program } => {
            anyhow!("{name}: compressed by {by}: {program} FILE | rejoin plan --log -")
        }
        Error::Read { line, cause } if cause.kind() == io::ErrorKind::UnexpectedEof => anyhow!(
            "{name}: cut after line {line}, or something else follows; to read what is there: zcat FILE | rejoin plan --log - \
             (of zstd: zstdcat)"
        ),
        Error::Read { ref cause, .. } if cause.to_string().contains(LARGE_WINDOW) => anyhow!(
            "{name}: compressed by zstd with a window of more than 128 MiB: zstd -dc --long=31 FILE | rejoin plan --log -"
        ),
        Error::Read { line, ref cause } => match program_up_to(&cause.to_string()) {
            Some(program) => anyhow!(
                "{name}: something else follows after line {line}; to read what is there: {program} FILE | rejoin plan --log -"
            ),
            None => anyhow::Error::new(error).context(name.to_owned()),
        },
        error => anyhow::Error::new(error).context(name.to_owned()),
    }
}

/// The decoder's complaint of a frame with too large a window.
const LARGE_WINDOW: &str = "window_size is too big";

/// Returns the program that prints what precedes something that is not compressed in the same way, if a decoder complains of
/// that.
fn program_up_to(complaint: &str) -> Option<&'static str> {
    let of = [("gzip header", "zcat"), ("BadMagicNumber", "zstdcat")];
    of.iter().find(|(says, _)| complaint.contains(says)).map(|(_, program)| *program)
}

/// Returns a file that was given before, under this name or another.
fn given_twice(paths: &[PathBuf]) -> Option<&PathBuf> {
    let mut seen = HashSet::new();
    paths.iter().find(|path| {
        let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
        // Errors are for where it is read.
        found.is_some_and(|file| !is_standard_input(path) && !seen.insert((file.dev(), file.ino())))
    })
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

fn shown(path: &Path) -> String {
    if is_standard_input(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn name(paths: &[PathBuf]) -> String {
    let first = paths.first().map(|path| shown(path)).unwrap_or_default();
    match paths.len() {
        0 | 1 => first,
        count => format!("{first} and {} more", count - 1),
    }
}

/// Returns the readings to make. The first tells clients apart by program where most lines name one.
fn readings(facts: &Facts, keep_alive_ms: u64, others: bool) -> Vec<Reading> {
    let has_agents = facts.with_agent * 2 > facts.requests;
    let clients = if has_agents { ClientsBy::Program } else { ClientsBy::Address };
    let first = Reading { clients, keep_alive_ms };
    let mut readings = vec![first];
    if others && has_agents {
        readings.push(Reading { clients: ClientsBy::Address, ..first });
    }
    if others && facts.with_connection < facts.requests {
        let longer = keep_alive_ms > SHORT_KEEP_ALIVE_MS;
        let keep_alive_ms = if longer { SHORT_KEEP_ALIVE_MS } else { KEEP_ALIVE_MS };
        readings.push(Reading { keep_alive_ms, ..first });
    }
    readings
}

impl Source for ReadLog {
    fn open(&self, _: u64) -> Result<Box<dyn Pass + '_>, rejoin_sim::Error> {
        Ok(Box::new(Reader::new(ReadAt::new(Arc::clone(&self.trace), 0))?))
    }

    fn part_over(&self, _: u64, events: u64) -> f64 {
        events as f64 / self.told.connections.max(1) as f64
    }
}
