//! `rejoin share`

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener as Listener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rejoin_cache::{Capacity, Settings};
use rejoin_outlet::{Peers, Sds, Share, follow};
use rejoin_store::{CacheName, Error, SharedKeys, Store};
use rejoin_tickets::Reschedule;
use rustix::process::geteuid;
use tokio::net::UnixListener;
use tokio::sync::watch;

use crate::keys::source::complain;
use crate::schedule::{Turns, tell_of_cluster};
use crate::units::Bytes;
use crate::watch::Watch;
use crate::{cluster, process, runtime, terminal};

/// The default socket.
const SOCKET: &str = "/run/rejoin/share.sock";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Servers in Go, Node or Java, Caddy and others get ticket keys from here, and may keep their sessions
in the cache; docs/keys.md has the lines for each, and docs/share-protocol.md the protocol. The
cache may be that of servers with Rejoin, or of a cluster's agent; it is made if there is none.
Examples:
  rejoin share web
  rejoin share web --socket /run/rejoin/web.sock --allow caddy --user rejoin
  rejoin share web --sds /run/rejoin/sds.sock --allow envoy")]
pub(crate) struct Arguments {
    /// The cache's name
    #[arg(value_name = "NAME")]
    name: CacheName,
    /// The socket to listen on
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// A socket for Envoy's secret discovery service, too
    #[arg(long, value_name = "PATH")]
    sds: Option<PathBuf>,
    /// A user whose processes are answered, beside root and the user of this process; may be repeated
    #[arg(long, value_name = "NAME")]
    allow: Vec<String>,
    /// Memory that the cache may take, if it is made now
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    capacity: Bytes,
    #[command(flatten)]
    turns: Turns,
    /// A file in which the ticket keys outlive a restart of the machine, in a folder that belongs to
    /// --user
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The folder of the caches
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER)]
    folder: PathBuf,
    /// Switch to this user once the sockets and the cache are open
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { name, socket, sds, allow, user, .. } = arguments;
    let allowed =
        allow.iter().map(|name| process::uid(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let change = arguments.turns.change()?;
    let own = user.as_deref().map(process::uid).transpose()?;
    let open = || {
        let listen = |path: &Path| listen(path, user.as_deref(), !allow.is_empty());
        let sockets = (listen(socket)?, sds.as_deref().map(listen).transpose()?);
        Ok((open(arguments, change)?, sockets))
    };
    terminal::raise_descriptor_limit();
    let ((store, watch), ((listener, _lock), envoy)) = process::confined(user.as_deref(), open)?;
    let keys = keys(arguments, change, &store)?;
    let peers = Peers::new(allowed.into_iter().chain(own));
    runtime(2)?.block_on(async {
        let (rings, followed) = watch::channel(None);
        let listener = UnixListener::from_std(listener)?;
        let share = Share::new(Arc::clone(&store), followed.clone(), peers.clone())
            .complaining(terminal::complain);
        let sds_served = async {
            let Some((listener, _)) = &envoy else { return std::future::pending().await };
            let listener = UnixListener::from_std(listener.try_clone()?)?;
            let path = sds.as_deref().unwrap_or(socket);
            let service = Sds::new(followed.clone(), terminal::complain);
            anyhow::Ok(service.serve(listener, path, peers).await?)
        };
        terminal::print(&format!("cache {name}: shared on {}", socket.display()));
        process::notify("READY=1");
        tokio::select! {
            never = share.serve(listener) => match never {},
            served = sds_served => served,
            lost = follow(Arc::new(keys), rings, || watch.lost(&store)) => match lost {
                None => Ok(()),
                Some(lost) => anyhow::bail!(
                    "{}, because nobody else has its keys and sessions any more: start it again, as its unit does",
                    lost.ends("share", &store)
                ),
            },
            () = terminal::interrupted() => Ok(()),
        }
    })
}

/// Opens the cache, or makes it.
fn open(arguments: &Arguments, change: Reschedule) -> anyhow::Result<(Arc<Store>, Watch)> {
    let Arguments { name, capacity, folder, .. } = arguments;
    let settings = Settings::new(Capacity::Bytes(capacity.0));
    let store = match Store::open(folder, name, None) {
        Err(Error::NotFound { .. }) => Store::open(folder, name, Some(&settings)),
        opened => opened,
    };
    let store = Arc::new(store?);
    let watch = Watch::until_lost(&store);
    tell_of_cluster(&store, change);
    Ok((store, watch))
}

/// Opens the cache's keys, and their file. Must be called as the user who writes that file from now on: what root wrote first
/// would stay for ever.
fn keys(
    arguments: &Arguments,
    change: Reschedule,
    store: &Arc<Store>,
) -> anyhow::Result<SharedKeys> {
    let Arguments { name, key_file, user, .. } = arguments;
    let (now_s, file) = (cluster::now_s()?, key_file.as_deref());
    match file {
        Some(file) if store.mailbox().is_some() => terminal::complain(&format!(
            "cache {name} is a cluster's, which keeps its ring itself: --key-file {} is not used",
            file.display()
        )),
        Some(file) => check(file, user.as_deref())?,
        None => {}
    }
    let keys = SharedKeys::open_rescheduled(Arc::clone(store), change, file, now_s, complain)?;
    Ok(keys.for_others())
}

/// Refuses a key file that this user may not replace, because a restart of the machine would bring back keys that were retired.
/// A disk that is full may have room later: that is complained of, as for servers.
fn check(file: &Path, user: Option<&str>) -> anyhow::Result<()> {
    let Err(error) = SharedKeys::check_file(file) else { return Ok(()) };
    let stays = |cause: &std::io::Error| {
        use ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
        matches!(cause.kind(), NotFound | PermissionDenied | ReadOnlyFilesystem)
    };
    let Error::Refused { cause, .. } = &error else { return Err(error.into()) };
    if !stays(cause) {
        return Ok(());
    }
    let own = geteuid().as_raw();
    let user = user.map_or_else(|| own.to_string(), str::to_owned);
    let is_own = |path: &Path| path.symlink_metadata().ok().map(|found| found.uid() == own);
    let path = file.display();
    let [folder, given] = [
        format!(
            "give it a folder of its own that belongs to {user} (`install -d -o {user} -m 700 FOLDER`)"
        ),
        format!("give the file to {user} (`chown {user} {path}`)"),
    ];
    let in_own = file.parent().and_then(is_own) == Some(true);
    let remedy = match is_own(file) {
        Some(false) if in_own => given,
        Some(false) => format!("{folder}, and {given}"),
        _ => folder,
    };
    anyhow::bail!(
        "--key-file {path} cannot be written as user {user} ({error}), and a restart of the machine would bring back keys that \
         were retired: {remedy}"
    )
}

/// Listens on a socket that nobody else listens on.
fn bound(path: &Path, mode: u32) -> anyhow::Result<(Listener, std::fs::File)> {
    use rejoin_manager::Error;
    rejoin_manager::listen(path, mode).map_err(|error| match error {
        Error::Taken { path } => anyhow::anyhow!(
            "another process listens on {}: stop it, or name another socket",
            path.display()
        ),
        error => error.into(),
    })
}

/// Listens on a socket for this user, and for others if some are allowed: the kernel tells who connects.
pub(crate) fn listen(
    path: &Path,
    user: Option<&str>,
    for_others: bool,
) -> anyhow::Result<(Listener, std::fs::File)> {
    let mode = if for_others { 0o666 } else { 0o660 };
    let (listener, lock) = bound(path, mode)?;
    user.map_or(Ok(()), |name| process::hand_over(path, name))?;
    Ok((listener, lock))
}
