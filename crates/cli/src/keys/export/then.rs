//! The command that tells a server of new keys.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

/// The shell that runs `--then`. It starts before the process gives up root, so that the command may signal a server of
/// root's. It gets nothing from this process but the word to run the command that the operator gave.
pub(super) struct Then {
    command: String,
    asks: ChildStdin,
    ends: Lines<BufReader<ChildStdout>>,
    shell: Child,
    /// True once a pipe from the shell or to it was found closed, or no answer came.
    is_cut: bool,
}

impl Then {
    /// Runs the command for each line that it reads, and answers each with the exit status.
    ///
    /// A command has a minute. `timeout` asks it to end then, and kills it five seconds later. The shell of the command may end
    /// when it is asked to, and leave others that do not, so the process group that `timeout` has made is killed, too. That of a
    /// command that ended by itself is not: it may have started its server, whose process is still in the group.
    const SHELL: &str = r#"
        exec 3>&1 4>&2 2>/dev/null
        while read -r turn; do
            group=$(timeout -k 5 60 sh -c 'echo $PPID; exec sh -c "$1" >&2' sh "$1" </dev/null 2>&4 3>&- 4>&-)
            status=$?
            case $status in 124 | 137)
                for second in 1 2 3 4 5; do
                    kill -s 0 -- "-$group" || break
                    sleep 1
                done
                kill -s KILL -- "-$group"
            esac
            echo $status >&3
        done"#;
    /// The longest wait for an answer of the shell, which takes at most 70 seconds if it gets to run.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// Must be called in a runtime.
    pub(super) fn start(command: &str) -> anyhow::Result<Self> {
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", Self::SHELL, "sh", command]);
        // It ends with its input, and not before it has ended a command.
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().context("cannot run sh")?;
        let pipes = shell.stdin.take().zip(shell.stdout.take());
        let (asks, ends) = pipes.context("sh has no pipes")?;
        let ends = BufReader::new(ends).lines();
        Ok(Self { command: command.to_owned(), asks, ends, shell, is_cut: false })
    }

    /// Runs the command, and waits until it ends.
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let answer = timeout(Self::PATIENCE, self.ask()).await;
        let command = &self.command;
        let status = match answer {
            Ok(Ok(Some(status))) => status,
            Ok(_) => {
                self.is_cut = true;
                anyhow::bail!("{command}: its shell has ended");
            }
            Err(_) => {
                // A later answer would be taken for the next one's.
                self.is_cut = true;
                let waited_s = Self::PATIENCE.as_secs();
                anyhow::bail!("{command}: its shell has not answered for {waited_s} s");
            }
        };
        match &*status {
            "0" => Ok(()),
            "124" | "137" => anyhow::bail!("{command}: still running after a minute"),
            status => anyhow::bail!("{command}: exit status: {status}"),
        }
    }

    async fn ask(&mut self) -> io::Result<Option<String>> {
        self.asks.write_all(b"\n").await?;
        self.ends.next_line().await
    }

    /// Returns true if the shell runs no command any more, or does not say so.
    pub(super) fn has_ended(&mut self) -> bool {
        self.is_cut || self.shell.try_wait().is_ok_and(|ended| ended.is_some())
    }
}
