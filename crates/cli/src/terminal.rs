//! Output on the terminal, progress bars, and Ctrl-C.

use std::future::poll_fn;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rejoin_report::printable;
use tokio::signal::unix::{SignalKind, signal};

/// Prints a line of a result. A closed pipe ends the output, not the run.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Prints the result of a run. A closed pipe is no error; a full disk is.
pub(crate) fn print_result(text: &str) -> anyhow::Result<()> {
    print_part(text).map(|_| ())
}

/// Prints a part of a result that goes on. Returns false if nobody reads it any more.
pub(crate) fn print_part(text: &str) -> anyhow::Result<bool> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("standard output cannot be written"),
    }
}

/// Prints an error or a warning. It stays on one line, whatever the names in it contain.
pub(crate) fn complain(line: &str) {
    let line = printable(line);
    let _ = writeln!(std::io::stderr().lock(), "rejoin: {line}");
}

/// Warns if other machines can reach an address that something is shown at.
pub(crate) fn warn_of_others(address: SocketAddr) {
    if !address.ip().to_canonical().is_loopback() {
        complain(&format!("warning: {address} is open to all who can reach it"));
    }
}

/// Returns an error and its causes in one line, without causes that the line already contains.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |line, cause| match cause.to_string() {
        first if line.is_empty() => first,
        cause if line.contains(&cause) => line,
        cause => format!("{line}: {cause}"),
    })
}

/// Completes at Ctrl-C, at SIGTERM, or when the terminal is closed (SIGHUP). They are heard from the call on, which needs a
/// runtime. The latter is not heard by a program that is to outlive its terminal, as under nohup.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    // Where nothing tells, the signal ends the program as it would.
    let hears = std::fs::read_to_string("/proc/self/status").is_ok_and(|told| hears_hangup(&told));
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()].into_iter();
    let kinds = kinds.chain(hears.then(SignalKind::hangup));
    let mut signals: Vec<_> = kinds.filter_map(|kind| signal(kind).ok()).collect();
    poll_fn(move |context| {
        match signals.iter_mut().any(|heard| heard.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
}

/// Returns true if a process with this status (`proc_pid_status(5)`) does not ignore SIGHUP, which is the lowest bit.
fn hears_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 0)
}

/// Returns a bar of this length and style, which is hidden unless standard error is a terminal.
pub(crate) fn bar(length: u64, style: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(style);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The companion of a simulation: it listens for Ctrl-C and moves the bar, which is hidden unless
/// standard error is a terminal.
pub(crate) struct Watch {
    /// A runtime for signals and the bar; the simulation has its own threads.
    runtime: tokio::runtime::Runtime,
    progress: Arc<rejoin_sim::Progress>,
}

impl Watch {
    /// The steps of the bar.
    const PARTS: u64 = 10_000;

    pub(crate) fn start() -> anyhow::Result<Self> {
        let (runtime, progress) = (crate::runtime(1)?, Arc::<rejoin_sim::Progress>::default());
        let told = Arc::clone(&progress);
        runtime.spawn(async move {
            interrupted().await;
            told.stop();
        });
        Ok(Self { runtime, progress })
    }

    pub(crate) fn progress(&self) -> &rejoin_sim::Progress {
        &self.progress
    }

    /// Runs something beside the work, until this is dropped.
    pub(crate) fn spawn(&self, beside: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(beside);
    }

    pub(crate) fn block_on<T>(&self, first: impl Future<Output = T>) -> T {
        self.runtime.block_on(first)
    }

    /// Returns a bar that moves until it is finished.
    pub(crate) fn bar(&self, label: &'static str) -> ProgressBar {
        let style = "{prefix} {bar:30} {percent:>3} %  {elapsed_precise}, {eta_precise} left";
        let bar = bar(Self::PARTS, style).with_prefix(label);
        let (moved, progress) = (bar.clone(), Arc::clone(&self.progress));
        self.runtime.spawn(async move {
            while !moved.is_finished() {
                moved.set_position((progress.part_over() * Self::PARTS as f64) as u64);
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        });
        bar
    }

    pub(crate) fn finish(self, bar: &ProgressBar) {
        bar.finish_and_clear();
        self.runtime.shutdown_background();
    }
}

/// Raises the limit of open files to the maximum that the system allows.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the limit stays, and connections beyond it fail one by one.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn a_signal_that_is_ignored_stays_so() {
        let hears = |mask| super::hears_hangup(&format!("Name:\tx\nSigIgn:\t{mask}\nSigCgt:\t1\n"));
        assert_eq!([hears("0000000000001000"), hears("0000000000001001")], [true, false]);
        assert!(!super::hears_hangup("Name:\tx\n"));
    }

    #[test]
    fn each_cause_is_said_once() {
        let error = anyhow!("refused").context("port 1: refused").context("cannot connect");
        assert_eq!(super::chain(&error), "cannot connect: port 1: refused");
    }
}
