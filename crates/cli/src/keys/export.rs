//! `rejoin keys export`

mod then;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rejoin_cluster::without_numbers;
use rejoin_outlet::{Context, Format, KeyFiles, Peers, Sds, haproxy};
use rejoin_store::{CacheName, OwnFolder};
use rejoin_tickets::{KeyRing, Reschedule, Schedule};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::source::Source;
use crate::arguments::{Choice, Misuse, one_of};
use crate::schedule::Turns;
use crate::share::listen;
use crate::{cluster, process, terminal};
use then::Then;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server holds the context's keys only, which differ from those of servers with Rejoin. Files have
mode 600 and are replaced as a whole. docs/keys.md has the line for each server.
Examples:
  rejoin keys export web --follow --format nginx --context shop --output /run/rejoin/nginx \\
    --then 'nginx -s reload'
  rejoin keys export --cluster --follow --format haproxy --context shop \\
    --output /run/rejoin/haproxy --push /run/haproxy/admin.sock
  rejoin keys export --ring /etc/rejoin/ring --follow --format envoy --context shop \\
    --output /run/rejoin/envoy.yaml")]
pub(crate) struct Arguments {
    /// The cache whose ring is exported, unless --cluster or --ring is given
    #[arg(value_name = "NAME")]
    name: Option<CacheName>,
    /// The server that reads the keys
    #[arg(long, value_parser = one_of(FORMATS))]
    format: Target,
    /// The file to write; for nginx, a folder, whose keys.conf the configuration includes; for
    /// envoy-sds, the socket to listen on
    #[arg(long, value_name = "PATH", alias = "into")]
    output: PathBuf,
    /// The context that the keys are derived for; servers open each other's tickets if they have the
    /// same context. It is the name of Envoy's secret, and of Kubernetes' object
    #[arg(long, value_name = "NAME")]
    context: String,
    /// A shell command to run whenever the files have changed; it is ended after a minute
    #[arg(long, value_name = "COMMAND")]
    then: Option<String>,
    /// HAProxy's runtime socket, to give it new keys without a reload
    #[arg(long, value_name = "SOCKET")]
    push: Option<PathBuf>,
    /// Follow the ring until Ctrl-C or SIGTERM, and make new keys when they are due
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    turns: Turns,
    /// Switch to this user once all files are read; only --then keeps the rights to signal a server
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A user whose Envoy gets keys by envoy-sds, beside root's and --user's; may be repeated
    #[arg(long, value_name = "NAME")]
    allow: Vec<String>,
    /// Accept the ring of ticket keys in Valkey, even if this machine has seen a newer one
    #[arg(long)]
    accept_older_ring: bool,
}

/// A value of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Files(Format),
    Sds,
}

const FORMATS: &[Choice<Target>] = &[
    (Target::Files(Format::Nginx), "nginx", "a folder of keys, and keys.conf"),
    (Target::Files(Format::Haproxy), "haproxy", "the file of tls-ticket-keys"),
    (Target::Files(Format::Apache), "apache", "the file of SSLSessionTicketKeyFile: one key"),
    (Target::Files(Format::Envoy), "envoy", "a file of the secret discovery service"),
    (Target::Sds, "envoy-sds", "the secret discovery service itself, on a Unix socket"),
    (Target::Files(Format::Kubernetes), "kubernetes", "a manifest of a Secret, as Cilium reads it"),
    (Target::Files(Format::Node), "node", "the option ticketKeys: one key"),
    (Target::Files(Format::Raw80), "raw80", "all keys of 80 bytes (name, HMAC, AES-256)"),
    (Target::Files(Format::Raw48), "raw48", "all keys of 48 bytes (name, HMAC, AES-128)"),
    (Target::Files(Format::Json), "json", "all keys of 80 bytes in base64, with their states"),
];

/// The ring that the command line names.
pub(super) enum From<'a> {
    Cluster(&'a Path),
    Cache(&'a Path, &'a CacheName),
    File(&'a Path),
}

impl Arguments {
    /// The cache's name, if one is given.
    pub(super) fn name(&self) -> Option<&CacheName> {
        self.name.as_ref()
    }

    fn source(&self, from: &From<'_>, change: Reschedule) -> anyhow::Result<Source> {
        let accepts_older = self.accept_older_ring;
        if accepts_older && !matches!(from, From::Cluster(_)) {
            return Err(Misuse("--accept-older-ring is for --cluster".to_owned()).into());
        }
        match from {
            From::Cluster(_) if change != Reschedule::default() => {
                let line = "the cluster's settings have its schedule: leave out --rotate-every and --ticket-lifetime";
                Err(Misuse(line.to_owned()).into())
            }
            From::Cluster(settings) => {
                Source::of_cluster(settings, self.follow, accepts_older, self.user.as_deref())
            }
            From::Cache(folder, name) => Source::of_cache(folder, name, change),
            From::File(file) => Source::of_file(file, change),
        }
    }
}

pub(crate) fn run(arguments: &Arguments, from: &From<'_>, json: bool) -> anyhow::Result<()> {
    let Arguments { format, output, context, then, push, follow, user, allow, .. } = arguments;
    let wrong = |error: rejoin_outlet::Error| anyhow::Error::new(Misuse(error.to_string()));
    let context = Context::new(context).map_err(|error| Misuse(format!("--context: {error}")))?;
    let change = arguments.turns.change()?;
    let runtime = cluster::runtime()?;
    if json && *follow {
        let line = "--json is for a single run: what follows prints a line for each change";
        return Err(Misuse(line.to_owned()).into());
    }
    if push.is_some() && *format != Target::Files(Format::Haproxy) {
        return Err(Misuse("--push is for --format haproxy".to_owned()).into());
    }
    let Target::Files(format) = *format else {
        if !*follow || then.is_some() {
            return Err(Misuse("envoy-sds needs --follow, and takes no --then".to_owned()).into());
        }
        let users = allow.iter().chain(user).map(|name| process::uid(name));
        let peers = Peers::new(users.collect::<anyhow::Result<Vec<_>>>()?);
        let listen = || listen(output, user.as_deref(), !allow.is_empty());
        let open = || Ok((arguments.source(from, change)?, listen()?));
        terminal::raise_descriptor_limit();
        let (source, (listener, _lock)) = process::confined(user.as_deref(), open)?;
        return runtime.block_on(serve_envoy(source, listener, output, peers));
    };
    if !allow.is_empty() {
        let line = "--allow is for --format envoy-sds: files are the owner's alone";
        return Err(Misuse(line.to_owned()).into());
    }
    let files = KeyFiles::new(format, output, context.clone()).map_err(wrong)?;
    let in_runtime = runtime.enter();
    let then = then.as_deref().map(Then::start).transpose()?;
    drop(in_runtime);
    let source = process::confined(user.as_deref(), || arguments.source(from, change))?;
    let (output, push) = (output.clone(), push.clone());
    let mut exporter = Exporter {
        source,
        format,
        context,
        files,
        output,
        push,
        then,
        again: None,
        is_refused: false,
        owes_then: false,
        restored: None,
        is_fit: false,
    };
    if *follow {
        return runtime.block_on(exporter.follow());
    }
    let changed = runtime.block_on(exporter.once())?;
    if json {
        return terminal::print_result(&json!({ "changed": changed }).to_string());
    }
    let what = if changed { "new keys" } else { "its keys are the newest" };
    terminal::print_result(&format!("{}: {what}", exporter.output.display()))
}

/// Serves Envoy until Ctrl-C.
async fn serve_envoy(
    mut source: Source,
    listener: std::os::unix::net::UnixListener,
    socket: &Path,
    peers: Peers,
) -> anyhow::Result<()> {
    let (rings, followed) = watch::channel(None);
    let listener = UnixListener::from_std(listener)?;
    let service = Sds::new(followed, terminal::complain);
    let follow = async {
        let (mut look, mut told) = (every(Exporter::LOOK_EVERY), Told::default());
        loop {
            look.tick().await;
            if let Err(lost) = source.check() {
                break Err(lost);
            }
            told.tell(source.look().await.err());
            let ring = source.ring().cloned().map(Arc::new);
            if ring.is_some() && rings.borrow().is_none() {
                process::notify("READY=1");
            }
            rings.send_replace(ring);
        }
    };
    tokio::select! {
        served = service.serve(listener, socket, peers) => Ok(served?),
        lost = follow => lost,
        () = terminal::interrupted() => Ok(()),
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut look = interval(period);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

/// The failure that was reported last, without its numbers: it is reported once, until it is over or another follows. Some tell
/// the time, and are another text each second.
#[derive(Default)]
struct Told(Option<String>);

impl Told {
    fn tell(&mut self, trouble: Option<anyhow::Error>) {
        let line = trouble.map(|error| terminal::chain(&error));
        let cause = line.as_deref().map(without_numbers);
        if let Some(line) = line.filter(|_| self.0 != cause) {
            terminal::complain(&format!("{line}; the server goes on with the keys it has"));
        }
        self.0 = cause;
    }
}

struct Exporter {
    source: Source,
    format: Format,
    context: Context,
    files: KeyFiles,
    output: PathBuf,
    push: Option<PathBuf>,
    then: Option<Then>,
    /// The time to tell the server again, if it has not taken the newest keys, or if HAProxy may have read older ones.
    again: Option<Instant>,
    /// True once the operator was told that the server has not taken the newest keys.
    is_refused: bool,
    /// True if `--then` has not succeeded with the newest keys.
    owes_then: bool,
    /// The last time that files were gone.
    restored: Option<Instant>,
    /// True once the operator was told what the server cannot hold.
    is_fit: bool,
}

impl Exporter {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    /// The pause before a server that refused is told again, and before HAProxy's keys are compared again.
    const AGAIN_AFTER: Duration = Duration::from_secs(30);

    /// Writes the keys, and tells the server if they are new, or if it was not told by the run before.
    async fn once(&mut self) -> anyhow::Result<bool> {
        match (self.source.look().await, self.source.ring()) {
            (Err(error), None) => return Err(error),
            (looked, _) => Told::default().tell(looked.err()),
        }
        let now_s = cluster::now_s()?;
        let ring = self.source.needed()?;
        self.files.make_folder()?;
        // It is set before the first file is replaced: the next run tells the server if this one is killed, or fails halfway.
        let mark = Untold::of(&self.output)?;
        let was_told = !mark.is_set();
        mark.set();
        let changed = self.files.write(ring, now_s)?;
        if changed {
            self.tell_of_shortfall();
        }
        // A run by hand that tells nobody owes nothing, and pays nothing.
        let tells = self.then.is_some() || self.push.is_some();
        if changed || !was_told {
            self.owes_then = true;
            let told = self.server().tell().await;
            self.then = told.then;
            // A reload has read the files, and is not run again for a socket that does not answer. Else it is set again: another
            // run that found nothing to do may have removed it.
            let has_read = self.then.is_some() && !told.owes_then;
            told.had.inspect_err(|_| if has_read { mark.clear() } else { mark.set() })?;
        }
        if was_told || tells {
            mark.clear();
        }
        Ok(changed)
    }

    async fn follow(mut self) -> anyhow::Result<()> {
        tokio::select! {
            ended = self.look_again_and_again() => ended,
            () = terminal::interrupted() => Ok(()),
        }
    }

    /// Writes the keys every second, until the cache is gone. The server is told meanwhile, for as long as that takes: a key that was revoked leaves
    /// the files at once, and a cluster's ring must be read.
    async fn look_again_and_again(&mut self) -> anyhow::Result<()> {
        let (mut look, mut is_ready) = (every(Self::LOOK_EVERY), false);
        let [mut told_of_ring, mut told_of_files] = [(); 2].map(|()| Told::default());
        // At first nobody knows what the server has taken: an earlier exporter may have ended before it did.
        let (mut telling, mut is_due, mut is_news) = (None, true, false);
        loop {
            let answer = async {
                match &mut telling {
                    Some(telling) => telling.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = look.tick() => {
                    self.source.check()?;
                    self.check_shell()?;
                    // Keys begin and end on schedule without Valkey, too.
                    let followed = self.source.look().await;
                    let written = self.write();
                    if !is_ready && written.is_ok() && self.source.ring().is_some() {
                        process::notify("READY=1");
                        is_ready = true;
                    }
                    is_due |= *written.as_ref().unwrap_or(&false);
                    told_of_ring.tell(followed.err());
                    told_of_files.tell(written.err());
                }
                answer = answer => {
                    let answer: Answer = answer?;
                    (telling, self.then, self.owes_then) = (None, answer.then, answer.owes_then);
                    self.check_shell()?;
                    self.note_answer(answer.had, is_news);
                }
            }
            let is_to_repeat = self.again.is_some_and(|time| time <= Instant::now());
            if telling.is_none() && (is_due || is_to_repeat) && self.source.ring().is_some() {
                is_news = std::mem::take(&mut is_due);
                self.owes_then |= is_news;
                let server = self.server();
                telling = Some(tokio::spawn(server.tell()));
            }
        }
    }

    /// Writes the keys. Returns true if they are others than before, or were gone, even if another process wrote them: nobody
    /// knows whether the server was told.
    fn write(&mut self) -> anyhow::Result<bool> {
        self.forget_lost();
        let Some(ring) = self.source.ring() else { return Ok(false) };
        let before = self.files.turns();
        let changed = self.files.write(ring, cluster::now_s()?)?;
        self.tell_of_shortfall();
        if changed {
            terminal::print(&format!("{}: new keys", self.output.display()));
        }
        Ok(self.files.turns() != before)
    }

    /// Has files written again that are gone: the server's next reload would fail. Whoever removes them each time does not
    /// have the server told every second.
    fn forget_lost(&mut self) {
        let is_due = self.restored.is_none_or(|last| last.elapsed() >= Self::AGAIN_AFTER);
        if is_due && self.files.are_lost() {
            self.files.forget();
            self.restored = Some(Instant::now());
            let output = self.output.display();
            terminal::complain(&format!("{output}: a file was removed; it is written again"));
        }
    }

    /// Must be called before the server is told.
    ///
    /// # Errors
    /// The shell of `--then` has ended. Another one would have only the rights that are left.
    fn check_shell(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.then.as_mut().is_some_and(Then::has_ended),
            "the shell that runs --then has ended; the export ends, because the server cannot be told of new keys, and goes on with \
             the keys it has: start it again, as its unit does"
        );
        Ok(())
    }

    /// Says whether the server has taken the keys, and when it is told again. `is_news`: it was told of these for the first
    /// time.
    fn note_answer(&mut self, answer: anyhow::Result<Had>, is_news: bool) {
        let again = Instant::now() + Self::AGAIN_AFTER;
        let output = self.output.display();
        match answer {
            Ok(had) => {
                let was_refused = std::mem::take(&mut self.is_refused);
                if was_refused {
                    terminal::print(&format!("{output}: the server has the keys now"));
                } else if had == Had::Others && !is_news {
                    terminal::print(&format!(
                        "{output}: the server had other keys, and has these now"
                    ));
                }
                // A reload reads the file early. Until the new process takes over, the socket is still the old one's.
                self.again = self.push.is_some().then_some(again);
            }
            Err(error) => {
                if is_news || !self.is_refused {
                    let has_read = self.then.is_some() && !self.owes_then;
                    let state = match has_read {
                        true => "and --then has succeeded: the socket is told again",
                        false => "and the server goes on with the keys it has: it is told again",
                    };
                    terminal::complain(&format!(
                        "{}; the files are written, {state} every {} s",
                        terminal::chain(&error),
                        Self::AGAIN_AFTER.as_secs()
                    ));
                }
                self.is_refused = true;
                self.again = Some(again);
            }
        }
    }

    /// Returns what it takes to tell the server of the keys as they are now.
    fn server(&mut self) -> Server {
        Server {
            push: self.push.clone().zip(self.source.ring().cloned()),
            output: self.output.clone(),
            context: self.context.clone(),
            then: self.then.take(),
            runs_then: self.owes_then,
        }
    }

    fn tell_of_shortfall(&mut self) {
        let schedule: Option<&Schedule> = self.source.ring().map(KeyRing::schedule);
        let Some(schedule) = schedule.filter(|_| !self.is_fit) else { return };
        let fault = self.format.fault().map(str::to_owned);
        for told in self.format.shortfall(schedule).into_iter().chain(fault) {
            terminal::complain(&format!("{}: {told}", self.output.display()));
        }
        self.is_fit = true;
    }
}

/// The file that is there as long as the server has not taken the keys. Where it cannot be made, a server that refuses is not told
/// again before the next keys.
struct Untold {
    folder: OwnFolder,
    name: OsString,
}

impl Untold {
    /// Names the file: beside the output, or in it if that is a folder.
    fn of(output: &Path) -> anyhow::Result<Self> {
        let mut name = OsString::from(".");
        let beside = if output.is_dir() {
            output.join("keys")
        } else {
            name.push(output.file_name().unwrap_or_default());
            name.push(".");
            output.to_owned()
        };
        name.push("untold");
        let folder = OwnFolder::of(&beside)?;
        let missing = || format!("{}: its folder is not there", output.display());
        Ok(Self { folder: folder.with_context(missing)?, name })
    }

    fn is_set(&self) -> bool {
        statat(self.folder.descriptor(), &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn set(&self) {
        // Always a new file: the owner of the folder may have put a link there.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        drop(openat(self.folder.descriptor(), &self.name, flags, mode));
    }

    fn clear(&self) {
        let _ = unlinkat(self.folder.descriptor(), &self.name, AtFlags::empty());
    }
}

/// The server that has to be told of new keys.
struct Server {
    push: Option<(PathBuf, KeyRing)>,
    output: PathBuf,
    context: Context,
    then: Option<Then>,
    runs_then: bool,
}

/// The keys of a server when it was told of new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Had {
    /// Other keys, as HAProxy showed.
    Others,
    /// The same, or nobody knows.
    These,
}

/// The end of telling a server of new keys.
struct Answer {
    /// The shell, for the next time.
    then: Option<Then>,
    /// True if `--then` was due, and has not succeeded.
    owes_then: bool,
    had: anyhow::Result<Had>,
}

impl Server {
    /// Gives HAProxy the keys, and runs `--then` if that is due. Neither waits for the other's success: a reload reads the
    /// files, whatever the runtime socket says.
    async fn tell(self) -> Answer {
        let Self { push, output, context, mut then, runs_then } = self;
        let pushed = Self::push(push, &output, &context).await;
        let ran = match then.as_mut().filter(|_| runs_then) {
            Some(then) => then.run().await,
            None => Ok(()),
        };
        let owes_then = ran.is_err();
        let had = match (pushed, ran) {
            (Err(pushed), Err(ran)) => {
                Err(anyhow::anyhow!("{}; {}", terminal::chain(&pushed), terminal::chain(&ran)))
            }
            (pushed, ran) => ran.and(pushed),
        };
        Answer { then, owes_then, had }
    }

    async fn push(
        push: Option<(PathBuf, KeyRing)>,
        output: &Path,
        context: &Context,
    ) -> anyhow::Result<Had> {
        let Some((socket, ring)) = push else { return Ok(Had::These) };
        let had_others = haproxy::push(&socket, output, &ring, context, cluster::now_s()?).await?;
        Ok(if had_others { Had::Others } else { Had::These })
    }
}
