//! The command that tells a server of new keys.

use std::io;
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
    shell: Child,
    /// True once a pipe from the shell or to it was found closed.
    is_cut: bool,
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
        Ok(Self { command: command.to_owned(), asks, ends, shell, is_cut: false })
    }

    /// Runs the command, and waits until it ends.
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let Ok(Some(status)) = self.ask().await else {
            self.is_cut = true;
            anyhow::bail!("{}: its shell has ended", self.command);
        };
        let command = &self.command;
        match &*status {
            "0" => Ok(()),
            "124" => anyhow::bail!("{command}: still running after a minute"),
            status => anyhow::bail!("{command}: exit status: {status}"),
        }
    }

    async fn ask(&mut self) -> io::Result<Option<String>> {
        self.asks.write_all(b"\n").await?;
        self.ends.next_line().await
    }

    /// Returns true if the shell runs no command any more.
    pub(super) fn has_ended(&mut self) -> bool {
        self.is_cut || self.shell.try_wait().is_ok_and(|ended| ended.is_some())
    }
}
