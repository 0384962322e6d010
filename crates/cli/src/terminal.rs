//! What a person sees: lines, progress, and being told to stop.

use std::io::{ErrorKind, Write};
use std::sync::Arc;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rejoin_report::printable;
use tokio::signal::unix::{SignalKind, signal};

/// Prints a line of result. A reader who has gone away ends the output, not the run.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Prints what the run was for. A reader who has gone away has read enough; a full disk has not
/// kept it.
pub(crate) fn print_result(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written")
        }
        _ => Ok(()),
    }
}

/// Prints a line of complaint, one line whatever the names in it are.
pub(crate) fn complain(line: &str) {
    let line = printable(line);
    let _ = writeln!(std::io::stderr().lock(), "rejoin: {line}");
}

/// An error and its causes, in one line. A cause that the line already contains is left out.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |line, cause| match cause.to_string() {
        first if line.is_empty() => first,
        cause if line.contains(&cause) => line,
        cause => format!("{line}: {cause}"),
    })
}

/// Completes at Ctrl-C or when the process is asked to end.
pub(crate) async fn interrupted() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// What goes on beside a simulation: being told to stop, and the bar. Nothing of it is shown when
/// standard error is no terminal.
pub(crate) struct Watch {
    /// For signals and the bar; the simulation has threads of its own.
    runtime: tokio::runtime::Runtime,
    progress: Arc<rejoin_sim::Progress>,
}

impl Watch {
    /// The parts a simulation is counted in.
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

    /// A bar that moves until it is finished.
    pub(crate) fn bar(&self, label: &'static str) -> ProgressBar {
        let style = "{prefix} {bar:30} {percent:>3} %  {elapsed_precise}, {eta_precise} left";
        let style =
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(Self::PARTS).with_style(style).with_prefix(label);
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

/// Lets the process hold as many connections as the system allows.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused, the limit stays what it was, and connections beyond it fail one by one.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn each_cause_is_said_once() {
        let error = anyhow!("refused").context("port 1: refused").context("cannot connect");
        assert_eq!(super::chain(&error), "cannot connect: port 1: refused");
    }
}
