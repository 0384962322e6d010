//! Child processes that end with the test, and waiting with a deadline.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};

/// The longest wait: far longer than anything takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The pause between two looks at a condition.
pub const STEP: Duration = Duration::from_millis(5);

/// A child process, killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        Self::try_start(command)
            .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()))
    }

    /// Starts it, or says why it cannot be started: [`io::ErrorKind::NotFound`] where the program
    /// is not installed.
    ///
    /// # Errors
    ///
    /// Those of [`Command::spawn`].
    pub fn try_start(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        Ok(Self { child, name: command.get_program().display().to_string() })
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours")
    }

    /// Waits until it ends.
    ///
    /// # Panics
    ///
    /// If it runs for longer than [`DEADLINE`].
    pub fn wait(&mut self) -> ExitStatus {
        self.wait_for(DEADLINE)
    }

    /// Waits until it ends, as long as this.
    ///
    /// # Panics
    ///
    /// If it runs for longer; it is killed then.
    pub fn wait_for(&mut self, longest: Duration) -> ExitStatus {
        let Some(handle) = self.handle() else { return self.child.wait().expect("a child") };
        if !is_readable(&handle, longest) {
            self.kill();
            panic!("{} still runs after {longest:?}", self.name);
        }
        self.child.wait().expect("a child of ours")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self::signal(&self.child, signal);
    }

    /// Asks it to end by `SIGTERM`, and waits until it has.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills it, if it still runs, and waits until it has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The lines of its standard output, which must be piped and not taken yet.
    pub fn lines(&mut self) -> Lines {
        Lines::of(self.child.stdout.take().expect("piped, and not taken yet"), self.name.clone())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Something that becomes readable when it ends. `None` if it has ended and was waited for.
    fn handle(&self) -> Option<OwnedFd> {
        pidfd_open(self.pid(), PidfdFlags::empty()).ok()
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The lines that a process writes, each waited for as long as [`DEADLINE`].
#[derive(Debug)]
pub struct Lines {
    lines: Receiver<String>,
    name: String,
}

impl Lines {
    fn of(stdout: ChildStdout, name: String) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // It ends when nobody wants more of them.
            let _ = lines.map(|line| sender.send(line)).take_while(Result::is_ok).count();
        });
        Self { lines, name }
    }

    /// The next line, without its end; `None` when the process has closed its output.
    ///
    /// # Panics
    ///
    /// If there is none before the deadline.
    pub fn next_line(&self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError;
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing", self.name),
        }
    }

    /// Reads on to the first line of which `read` makes something.
    ///
    /// # Panics
    ///
    /// If there is none before the deadline or the end of its output.
    pub fn find<T>(&self, mut read: impl FnMut(&str) -> Option<T>) -> T {
        let mut before = Vec::new();
        while let Some(line) = self.next_line() {
            if let Some(found) = read(&line) {
                return found;
            }
            before.push(line);
        }
        panic!("{} did not say it: {before:#?}", self.name);
    }

    /// All lines until the process closes its output.
    pub fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next_line()).collect()
    }
}

/// Sends a signal to a child that was not waited for.
pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a child of ours");
}

/// A size in `/proc/PID/status`, in KiB, such as `VmRSS`. `None` if the process has ended.
pub fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The CPU time of a process's threads, in nanoseconds (`Documentation/scheduler/sched-stats.rst`). Threads that have ended
/// do not count.
pub fn cpu_ns(pid: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let ran = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(threads.flatten().filter_map(ran).sum())
}

/// Asserts that a process has a user's ids, no capabilities and no way to get any, and memory that only root can read
/// (`proc_pid_status(5)`).
pub fn assert_has_no_rights(pid: u32, user: &str) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = |what: &str| -> Vec<&str> {
        let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {what} in {status}")).split_whitespace().collect()
    };
    let ids = |option: &str| {
        let told = Command::new("id").args([option, user]).output().expect("coreutils");
        let told = String::from_utf8(told.stdout).expect("text");
        told.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // Real, effective, saved, and the file system's.
    assert_eq!(line("Uid"), [ids("-u")[0].as_str(); 4]);
    assert_eq!(line("Gid"), [ids("-g")[0].as_str(); 4]);
    assert_eq!(line("Groups"), ids("-G"));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(line(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(line("NoNewPrivs"), ["1"]);
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"]);
    // Not even its own user can read its memory.
    let owner = std::fs::metadata(format!("/proc/{pid}/maps")).expect("it runs");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), 0);
}

/// Copies a program, by `cp`. Of a file that this process has written itself, a child that another thread starts has a copy of
/// the descriptor for a moment, and nobody can run the file then (`ETXTBSY`).
///
/// # Panics
///
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--preserve=mode").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is not copied", to.display());
}

/// Runs a command to its end, and returns what it printed. It reads nothing.
///
/// # Panics
///
/// If it cannot be started, or runs for longer than this; it is killed then.
pub fn output(command: &mut Command, longest: Duration) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command);
    let stdout = collected(process.stdout.take().expect("piped"));
    let stderr = collected(process.stderr.take().expect("piped"));
    let status = process.wait_for(longest);
    let bytes = |thread: thread::JoinHandle<Vec<u8>>| thread.join().expect("no panic");
    Output { status, stdout: bytes(stdout), stderr: bytes(stderr) }
}

fn collected(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe");
        bytes
    })
}

/// Waits until something is so.
///
/// # Panics
///
/// If it is not so before [`DEADLINE`].
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Waits until there is something, and returns it.
///
/// # Panics
///
/// If there is nothing before [`DEADLINE`].
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_as_long_as(DEADLINE, what, look)
}

/// Waits until there is something, as long as this, and returns it.
///
/// # Panics
///
/// If there is nothing by then.
pub fn wait_as_long_as<T>(longest: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + longest;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited {longest:?} in vain for {what}");
        thread::sleep(STEP);
    }
}

fn is_readable(handle: &OwnedFd, longest: Duration) -> bool {
    let until = Instant::now() + longest;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a deadline in this century");
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.expect("a handle") > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_those_of_the_command() {
        let script = "echo out; echo err >&2; exit 3";
        let output = output(Command::new("sh").args(["-c", script]), DEADLINE);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    #[should_panic(expected = "still runs")]
    fn what_runs_for_too_long_is_killed() {
        let _ = output(Command::new("sleep").arg("1000"), Duration::from_millis(50));
    }

    #[test]
    fn lines_are_read_one_by_one_and_the_end_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two 2; echo three"]).stdout(Stdio::piped());
        let mut process = Process::start(&mut command);
        let lines = process.lines();
        assert_eq!(lines.find(|line| line.strip_prefix("two ").map(str::to_owned)), "2");
        assert_eq!(lines.rest(), ["three"]);
        assert!(process.wait().success());
        assert!(process.wait().success(), "it may be asked again");
    }
}
