//! `rejoin keys export`

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use rejoin_cluster::{ClusterKeys, Error, KeyFiles, Link, Servers, Settings, WrappingKey};
use rejoin_tickets::ServerKeyFormat;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Keys;
use crate::arguments::{Choice, Misuse, one_of};
use crate::{cluster, terminal};

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
}

const FORMATS: &[Choice<ServerKeyFormat>] =
    &[(ServerKeyFormat::Nginx, "nginx", ""), (ServerKeyFormat::Haproxy, "haproxy", "")];

pub(crate) fn run(arguments: &Arguments, settings: &Path, json: bool) -> anyhow::Result<()> {
    let Arguments { format, output, context, then, follow } = arguments;
    let files = KeyFiles::new(*format, output, context);
    let mut files = files.map_err(|error| match error {
        Error::Ring(error) => anyhow::Error::new(Misuse(format!("--context: {error}"))),
        error => error.into(),
    })?;
    if *follow {
        let exporter = Exporter::new(settings, files, arguments)?;
        return cluster::runtime()?.block_on(exporter.follow());
    }
    let now_s = cluster::now_s()?;
    let changed = files.write(&Keys::of_cluster(settings)?.ring(now_s)?, now_s)?;
    if let Some(command) = then.as_ref().filter(|_| changed) {
        cluster::runtime()?.block_on(done(command))?;
    }
    if json {
        return terminal::print_result(&json!({ "changed": changed }).to_string());
    }
    let what = if changed { "new keys" } else { "its keys are the newest" };
    terminal::print_result(&format!("{}: {what}", output.display()))
}

struct Exporter<'a> {
    arguments: &'a Arguments,
    files: KeyFiles,
    servers: Servers,
    keys: ClusterKeys,
    link: Option<Link>,
}

impl<'a> Exporter<'a> {
    const LOOK_EVERY: Duration = Duration::from_secs(1);

    fn new(settings: &Path, files: KeyFiles, arguments: &'a Arguments) -> anyhow::Result<Self> {
        let settings = Settings::read(settings)?;
        let key = WrappingKey::read(&settings.key_file)?;
        let (schedule, servers) = (settings.schedule()?, settings.valkey()?);
        let keys = ClusterKeys::new(settings.name, &key, Some(schedule))?;
        Ok(Self { arguments, files, servers, keys, link: None })
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
                cluster::ready();
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
        let Arguments { output, then, .. } = self.arguments;
        let Some(ring) = self.keys.ring() else { return Ok(()) };
        if !self.files.write(ring, cluster::now_s()?)? {
            return Ok(());
        }
        terminal::print(&format!("{}: new keys", output.display()));
        let Some(command) = then else { return Ok(()) };
        if let Err(error) = done(command).await {
            terminal::complain(&format!("{}; the files are written", terminal::chain(&error)));
        }
        Ok(())
    }
}

/// Runs a shell command and waits for its end.
async fn done(command: &str) -> anyhow::Result<()> {
    const WITHIN: Duration = Duration::from_secs(60);
    let mut shell = tokio::process::Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(WITHIN, shell.status()).await;
    let ended = ended.with_context(|| format!("{command}: still running after a minute"))?;
    let status = ended.context("cannot run sh")?;
    anyhow::ensure!(status.success(), "{command}: {status}");
    Ok(())
}
