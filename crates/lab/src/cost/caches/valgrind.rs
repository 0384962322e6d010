//! `rejoin serve` under valgrind: how much it does and misses (cachegrind), and what it refers to (lackey).

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::process::{self, ServerProcess, Service, Starting};
use super::super::{Suite, Traffic};
use super::simulator::{Hierarchies, Tally};
use super::talk::{self, Talk};
use super::trace::Trace;
use super::{Geometry, Halt};
use crate::Error;
use crate::experiment::lock;
use crate::scratch::Scratch;
use rejoin_serve::{Identity, KeyType, Resumption};

/// For a server to listen: one that is traced has taken 45 seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
const REST: Duration = Duration::from_millis(50);
/// A server of which nothing was heard in so many looks is at rest.
const LOOKS: u32 = 4;
/// For a trace to fill its pipe.
const GATHER: Duration = Duration::from_millis(1);
/// Read of a trace at a time: a pipe holds as much.
const PIECE_BYTES: usize = 1 << 16;
/// Valgrind counts each byte that `rep movsb` copies as an instruction, a branch and two accesses; the C library has
/// copies without it, which take as many as a processor would count (`tunables(7)` of glibc).
const VECTOR_COPIES: &str = "glibc.cpu.hwcaps=-ERMS,-FSRM";
const MISSING: &str = "the studies of caches need valgrind: install the package valgrind";

/// The counts of cachegrind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Misses {
    pub(super) instructions: u64,
    pub(super) data: u64,
    /// Misses of the first level for instructions.
    pub(super) first_instructions: u64,
    /// Misses of the first level for data.
    pub(super) first_data: u64,
    /// Misses of the second level.
    pub(super) second: u64,
    /// Branches, conditional or to where a register says. Jumps and calls to a place in the program are not counted.
    pub(super) branches: u64,
    /// Mispredicted branches among these, by a small predictor.
    pub(super) mispredicted: u64,
}

impl Misses {
    /// The last line of a file of cachegrind's, by its line of names. `None` unless all is told.
    fn parse(text: &str) -> Option<Self> {
        let line = |name| text.lines().find_map(|line: &str| line.strip_prefix(name));
        let names: Vec<&str> = line("events: ")?.split_whitespace().collect();
        let figures: Vec<&str> = line("summary: ")?.split_whitespace().collect();
        let value = |name: &str| -> Option<u64> {
            let at = names.iter().position(|known| *known == name)?;
            figures.get(at)?.parse().ok()
        };
        Some(Self {
            instructions: value("Ir")?,
            data: value("Dr")? + value("Dw")?,
            first_instructions: value("I1mr")?,
            first_data: value("D1mr")? + value("D1mw")?,
            second: value("ILmr")? + value("DLmr")? + value("DLmw")?,
            branches: value("Bc")? + value("Bi")?,
            mispredicted: value("Bcm")? + value("Bim")?,
        })
    }
}

/// Returns valgrind's name and version.
pub(super) fn version() -> Result<String, Error> {
    let told = Command::new("valgrind").arg("--version").stdin(Stdio::null()).output();
    let told = told.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::System { what: MISSING, source },
        _ => Error::System { what: "valgrind cannot be run", source },
    })?;
    Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// Runs servers under valgrind.
pub(super) struct Valgrind<'a> {
    pub(super) program: &'a Path,
    pub(super) suites: &'a [Suite],
    pub(super) halt: &'a Halt<'a>,
    pub(super) folder: &'a Folder,
}

impl Valgrind<'_> {
    /// Returns the counts of a server from its start to its end: it warms up, and `then` has so many transactions.
    pub(super) fn misses(
        &self,
        service: Service,
        (first, second): (Geometry, Geometry),
        then: Option<(Traffic, u32)>,
    ) -> Result<Misses, Error> {
        let path = self.folder.file("cachegrind");
        let mut command = Self::command("cachegrind");
        command.args(["--cache-sim=yes", "--branch-sim=yes"]);
        command.args([first.option("I1"), first.option("D1")]);
        command.args([second.option("LL"), format!("--cachegrind-out-file={}", path.display())]);
        let log = self.folder.file("log");
        command.args([format!("--log-file={}", log.display())]);
        self.serve(&mut command, service);
        let counted = self.run(command, service, then).and_then(|()| read(&path));
        counted.map_err(|error| last_word(&log).unwrap_or(error))
    }

    fn run(
        &self,
        command: Command,
        service: Service,
        then: Option<(Traffic, u32)>,
    ) -> Result<(), Error> {
        let starting = Starting::spawn(command, service)?;
        let server = self.watched(starting.id(), || {
            let server = starting.listening(PATIENCE)?;
            // It listens before it has all it starts with: where that lies in memory decides what each connection
            // takes there later, up to 3 % of a plain transaction.
            rest(|| cpu_ns(&server))?;
            let mut talk = self.talk(&server, service)?;
            talk.warm_up()?;
            then.map_or(Ok(()), |(traffic, count)| talk.have(traffic, count))?;
            Ok(server)
        })?;
        server.end(PATIENCE)
    }

    /// Tells what `all` count of so many transactions of each kind, one kind after the other, after warming up.
    pub(super) fn trace(
        &self,
        service: Service,
        all: Hierarchies,
        kinds: &[(Traffic, u32)],
        mut tell: impl FnMut(&Tally),
    ) -> Result<(), Error> {
        let mut command = Self::command("lackey");
        command.args(["--trace-mem=yes", "--basic-counts=no"]).stderr(Stdio::piped());
        self.serve(&mut command, service);
        let mut starting = Starting::spawn(command, service)?;
        let stderr = starting.take_stderr();
        let (all, id) = (Mutex::new(all), starting.id());
        thread::scope(|scope| {
            // It ends with the server.
            scope.spawn(|| stderr.map(|trace| follow(trace, &all)));
            self.watched(id, || {
                let server = starting.listening(PATIENCE)?;
                let look = || Ok((lock(&all).tally().clone(), cpu_ns(&server)?));
                rest(look)?;
                let mut talk = self.talk(&server, service)?;
                talk.warm_up()?;
                let (mut before, _) = rest(look)?;
                for (traffic, count) in kinds {
                    talk.have(*traffic, *count)?;
                    let (after, _) = rest(look)?;
                    tell(&after.since(&before));
                    before = after;
                }
                Ok(())
            })
        })
    }

    fn command(tool: &str) -> Command {
        let mut command = Command::new("valgrind");
        // No file for debuggers, nothing of its own to say, and no symbols from elsewhere.
        command.args([&format!("--tool={tool}"), "--vgdb=no", "-q"]);
        command.env_remove("DEBUGINFOD_URLS");
        command.env("GLIBC_TUNABLES", VECTOR_COPIES);
        command
    }

    fn serve(&self, command: &mut Command, service: Service) {
        command.arg(self.program);
        process::serve(command, Resumption::Predictive, service);
        command.args(["--patience-s", &talk::PATIENCE.as_secs().to_string()]);
        if service.key.is_some() {
            // Making a key takes a different time each time.
            command.arg("--certificate").arg(self.folder.scratch.path().join(CERTIFICATE));
            command.arg("--key").arg(self.folder.scratch.path().join(KEY));
        }
    }

    fn talk(&self, server: &ServerProcess, service: Service) -> Result<Talk, Error> {
        let suites = if service.key.is_some() { self.suites } else { &[] };
        Talk::new(server.address(), service.body_bytes, suites)
    }

    /// Does `work` with a process that has not been waited for, which is killed when all is to stop.
    fn watched<T>(&self, id: u32, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let (working, over) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while over.recv_timeout(REST) == Err(RecvTimeoutError::Timeout) {
                    if self.halt.is_asked() {
                        let pid = Pid::from_raw(id as i32);
                        return pid.map(|pid| kill_process(pid, Signal::KILL));
                    }
                }
                None
            });
            // Dropped when the work is over, even by a panic.
            let _working = working;
            work()
        })
    }
}

fn cpu_ns(server: &ServerProcess) -> Result<u64, Error> {
    Ok(server.usage()?.cpu_ns)
}

/// Looks until a server is at rest, or has not come to rest in time, and returns the last look.
fn rest<T: PartialEq>(look: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let (mut last, mut same, began) = (look()?, 0, Instant::now());
    while same < LOOKS && began.elapsed() < PATIENCE {
        thread::sleep(REST);
        let now = look()?;
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    Ok(last)
}

fn read(path: &Path) -> Result<Misses, Error> {
    let unread = |source| Error::System { what: "cachegrind's counts cannot be read", source };
    let text = fs::read_to_string(path).map_err(unread)?;
    // A run leaves megabytes.
    let _ = fs::remove_file(path);
    Misses::parse(&text).ok_or_else(|| unread(io::Error::other("they are not all there")))
}

/// Returns valgrind's last complaint that is not a warning.
fn last_word(log: &Path) -> Option<Error> {
    let text = fs::read_to_string(log).ok()?;
    let line = text.lines().rev().find(|line| !line.contains("warning:"))?;
    let source = io::Error::other(line.to_owned());
    Some(Error::System { what: "valgrind failed", source })
}

/// Until the trace ends. Lackey writes a few lines at a time: who waits for each is woken millions of times, and takes
/// its processor from it as often.
fn follow(mut from: ChildStderr, all: &Mutex<Hierarchies>) {
    let mut trace = Trace::default();
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        trace.feed(&piece[..read], &mut lock(all));
        if read < PIECE_BYTES / 2 {
            thread::sleep(GATHER);
        }
    }
}

const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server.key";

/// A folder with a certificate, its key, and the files of runs.
#[derive(Debug)]
pub(super) struct Folder {
    scratch: Scratch,
    files: AtomicU32,
}

impl Folder {
    pub(super) fn new(key: KeyType) -> Result<Self, Error> {
        let scratch = Scratch::new("caches")?;
        let file = |name| scratch.path().join(name);
        Identity::made(key)?.write(&file(CERTIFICATE), &file(KEY))?;
        Ok(Self { scratch, files: AtomicU32::new(0) })
    }

    /// Returns the path of a file that does not exist yet.
    fn file(&self, ending: &str) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.scratch.path().join(format!("{number}.{ending}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulator::{Lru, Second};
    use super::*;

    const TEXT: &str = "desc: I1 cache: 16384 B, 32 B, 4-way associative\n\
        events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw Bc Bcm Bi Bim \n\
        fn=main\n0 12 3 2 3 1 0 3 0 0 1 0 0 0\n\
        summary: 117 62 35 32 50 49 8 13 44 20 3 4 2\n";

    #[test]
    fn counts_are_whole_or_none() {
        let expected = Misses {
            instructions: 117,
            data: 40,
            first_instructions: 62,
            first_data: 63,
            second: 128,
            branches: 24,
            mispredicted: 5,
        };
        assert_eq!(Misses::parse(TEXT), Some(expected));
        for less in ["summary: 117", "events: Ir", " 2\n"] {
            assert_eq!(Misses::parse(&TEXT.replacen(less, "x", 1)), None, "{less}");
        }
    }

    /// A program of the system's: both tools see the same references of it.
    #[test]
    fn what_the_simulator_misses_is_what_cachegrind_misses() {
        if version().is_err() {
            return;
        }
        let run = |options: &[&str]| {
            let mut command = Command::new("valgrind");
            command.args(["--vgdb=no", "-q"]).args(options).args(["--", "/bin/true"]);
            command.output().expect("valgrind runs")
        };
        let trace = run(&["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"]).stderr;
        let file = std::env::temp_dir().join(format!("rejoin-cachegrind-{}", std::process::id()));
        for (first, second, ways, line) in
            [(16, 512, 4, 32), (32, 1_024, 8, 64), (1, 8, 2, 32), (4, 64, 1, 64)]
        {
            let geometry = |kb: u32, ways| Geometry::new(kb << 10, ways, line).expect("possible");
            let (first, second) = (geometry(first, ways), geometry(second, 16));
            let out = format!("--cachegrind-out-file={}", file.display());
            let caches = [first.option("I1"), first.option("D1"), second.option("LL"), out];
            let mut options = vec!["--tool=cachegrind", "--cache-sim=yes", "--branch-sim=yes"];
            options.extend(caches.iter().map(String::as_str));
            run(&options);
            let told = Misses::parse(&fs::read_to_string(&file).expect("its counts"));
            let told = told.expect("all counts");
            let mut all = Hierarchies::new(line, &[first], vec![Second::Alone(Lru::new(second))]);
            Trace::default().feed(&trace, &mut all);
            let tally = all.tally();
            let pairs = [
                (tally.instructions, told.instructions),
                (tally.data, told.data),
                (tally.first[0][0], told.first_instructions),
                (tally.first[0][1], told.first_data),
                (tally.second[0], told.second),
            ];
            for (ours, theirs) in pairs {
                // Their environments differ by a name.
                let apart = ours.abs_diff(theirs) as f64 / theirs as f64;
                assert!(apart < 0.005, "{ours} {theirs}, {pairs:?} of {first:?} {second:?}");
            }
        }
        fs::remove_file(&file).expect("it is there");
    }
}
