//! `rejoin keys export`

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use rejoin_cluster::{ClusterKeys, Error, KeyFiles, Link, Servers, Settings, WrappingKey};
use rejoin_tickets::ServerKeyFormat;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{MissedTickBehavior, interval};

use crate::arguments::{Choice, Misuse, one_of};
use crate::{cluster, process, terminal};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The server that reads the keys
    #[arg(long, value_parser = one_of(FORMATS))]
    format: ServerKeyFormat,
    /// For nginx, a folder, whose keys.conf the configuration includes; for HAProxy, the file of
    /// tls-ticket-keys
    #[arg(long, value_name = "PATH", alias = "into")]
    output: PathBuf,
    /// The context that the keys are derived for; servers open each other's tickets if they have the
    /// same context
    #[arg(long, value_name = "NAME")]
    context: String,
    /// A shell command to run whenever the files have changed
    #[arg(long, value_name = "COMMAND")]
    then: Option<String>,
    /// Follow the cluster's keys until Ctrl-C or SIGTERM, and make new keys when they are due
    #[arg(long)]
    follow: bool,
    /// Switch to this user once all files are read; only --then keeps the rights to signal a server
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Accept the ring of ticket keys in Valkey, even if this machine has seen a newer one
    #[arg(long)]
    accept_older_ring: bool,
}

const FORMATS: &[Choice<ServerKeyFormat>] =
    &[(ServerKeyFormat::Nginx, "nginx", ""), (ServerKeyFormat::Haproxy, "haproxy", "")];

pub(crate) fn run(arguments: &Arguments, settings: &Path, json: bool) -> anyhow::Result<()> {
    let Arguments { format, output, context, then, follow, user, .. } = arguments;
    let files = KeyFiles::new(*format, output, context);
    let files = files.map_err(|error| match error {
        Error::Ring(error) => anyhow::Error::new(Misuse(format!("--context: {error}"))),
        error => error.into(),
    })?;
    let runtime = cluster::runtime()?;
    let in_runtime = runtime.enter();
    let then = then.as_deref().map(Then::start).transpose()?;
    drop(in_runtime);
    let open = || Exporter::new(settings, files, arguments, then);
    let mut exporter = process::confined(user.as_deref(), open)?;
    exporter.keys.take_unrecorded().iter().for_each(cluster::complain_of_record);
    if *follow {
        return runtime.block_on(exporter.follow());
    }
    let changed = runtime.block_on(exporter.once())?;
    if json {
        return terminal::print_result(&json!({ "changed": changed }).to_string());
    }
    let what = if changed { "new keys" } else { "its keys are the newest" };
    terminal::print_result(&format!("{}: {what}", output.display()))
}

struct Exporter<'a> {
    arguments: &'a Arguments,
    files: KeyFiles,
    then: Option<Then>,
    servers: Servers,
    keys: ClusterKeys,
    link: Option<Link>,
}

impl<'a> Exporter<'a> {
    const LOOK_EVERY: Duration = Duration::from_secs(1);

    /// Reads all files that the settings name.
    fn new(
        settings: &Path,
        files: KeyFiles,
        arguments: &'a Arguments,
        then: Option<Then>,
    ) -> anyhow::Result<Self> {
        let settings = Settings::read(settings)?;
        let key = WrappingKey::read(&settings.key_file)?;
        let (schedule, servers) = (settings.schedule()?, settings.valkey()?);
        let keys = match arguments.follow {
            true => cluster::keys(&settings, &key, Some(schedule))?,
            false => cluster::keys(&settings, &key, None)?.only_followed(),
        };
        let keys = keys.accepting_older(arguments.accept_older_ring);
        Ok(Self { arguments, files, then, servers, keys, link: None })
    }

    async fn once(mut self) -> anyhow::Result<bool> {
        self.look().await?;
        let ring = self.keys.ring().context(super::NO_KEYS)?;
        let changed = self.files.write(ring, cluster::now_s()?)?;
        if let Some(then) = self.then.as_mut().filter(|_| changed) {
            then.run().await?;
        }
        Ok(changed)
    }

    async fn follow(mut self) -> anyhow::Result<()> {
        tokio::select! {
            never = self.look_again_and_again() => never,
            () = terminal::interrupted() => Ok(()),
        }
    }

    /// Writes the keys every second, for ever. Reports a failure once, until it is over or another
    /// failure follows.
    async fn look_again_and_again(&mut self) -> anyhow::Result<()> {
        let mut look = interval(Self::LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut told, mut is_ready) = (None, false);
        loop {
            look.tick().await;
            // Keys begin and end on schedule without Valkey, too.
            let followed = self.look().await;
            let written = self.write().await;
            if !is_ready && written.is_ok() && self.keys.ring().is_some() {
                process::notify("READY=1");
                is_ready = true;
            }
            let trouble = followed.map_err(anyhow::Error::from).and(written).err();
            let line = trouble.map(|error| terminal::chain(&error));
            if let Some(line) = line.as_ref().filter(|_| told != line) {
                terminal::complain(&format!("{line}; the server goes on with the keys it has"));
            }
            told = line;
        }
    }

    async fn look(&mut self) -> Result<(), Error> {
        let link = match &mut self.link {
            Some(link) => link,
            none => none.insert(Link::connect(&self.servers).await?),
        };
        let now_s = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        self.keys.follow(link, now_s).await.map(|_| ())
    }

    async fn write(&mut self) -> anyhow::Result<()> {
        let Arguments { output, .. } = self.arguments;
        let Some(ring) = self.keys.ring() else { return Ok(()) };
        if !self.files.write(ring, cluster::now_s()?)? {
            return Ok(());
        }
        terminal::print(&format!("{}: new keys", output.display()));
        let Some(then) = &mut self.then else { return Ok(()) };
        if let Err(error) = then.run().await {
            terminal::complain(&format!("{}; the files are written", terminal::chain(&error)));
        }
        Ok(())
    }
}

/// The shell that runs `--then`. It starts before the process gives up root, so that the command may signal a server of
/// root's. It gets nothing from this process but the word to run the command that the operator gave.
struct Then {
    command: String,
    asks: ChildStdin,
    ends: Lines<BufReader<ChildStdout>>,
    _shell: Child,
}

impl Then {
    /// Runs the command for each line that it reads, and answers each with the exit status.
    const SHELL: &str = "exec 3>&1 >&2; while read -r turn; do timeout 60 sh -c \"$1\" </dev/null 3>&-; echo $? >&3; done";

    /// Must be called in a runtime.
    fn start(command: &str) -> anyhow::Result<Self> {
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
    async fn run(&mut self) -> anyhow::Result<()> {
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
