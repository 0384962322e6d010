//! The command that tells a server of new keys.

use std::process::Stdio;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

/// The shell that runs `--then`. It starts before the process gives up root, so that the command may signal a server of
/// root's. It gets nothing from this process but the word to run the command that the operator gave.
pub(super) struct Then {
    command: String,
    asks: ChildStdin,
    ends: Lines<BufReader<ChildStdout>>,
    _shell: Child,
}

impl Then {
    /// Runs the command for each line that it reads, and answers each with the exit status.
    const SHELL: &str = "exec 3>&1 >&2; while read -r turn; do timeout 60 sh -c \"$1\" </dev/null 3>&-; echo $? >&3; done";

    /// Must be called in a runtime.
    pub(super) fn start(command: &str) -> anyhow::Result<Self> {
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", Self::SHELL, "sh", command]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut shell = shell.spawn().context("cannot run sh")?;
        let pipes = shell.stdin.take().zip(shell.stdout.take());
        let (asks, ends) = pipes.context("sh has no pipes")?;
        let ends = BufReader::new(ends).lines();
        Ok(Self { command: command.to_owned(), asks, ends, _shell: shell })
    }

    /// Runs the command, and waits until it ends.
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let Self { command, asks, ends, .. } = self;
        asks.write_all(b"\n").await.with_context(|| format!("{command}: its shell has ended"))?;
        match ends.next_line().await?.as_deref() {
            Some("0") => Ok(()),
            Some("124") => anyhow::bail!("{command}: still running after a minute"),
            Some(status) => anyhow::bail!("{command}: exit status: {status}"),
            None => anyhow::bail!("{command}: its shell has ended"),
        }
    }
}
