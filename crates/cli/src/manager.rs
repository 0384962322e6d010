//! `rejoin manager`

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rejoin_manager::protocol::Stats;
use rejoin_manager::{SYSTEM_SOCKET, Settings};

use crate::{cluster, process, terminal};

/// The default file of the settings, which may be missing.
const SETTINGS: &str = "/etc/rejoin/manager.toml";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Programs ask the manager for TLS connections, and so share sessions that none of them holds
itself; see docs/manager.md.
Examples:
  rejoin manager
  rejoin manager --socket /run/rejoin/manager.sock --user rejoin")]
pub(crate) struct Arguments {
    /// The socket to listen on [default: $XDG_RUNTIME_DIR/rejoin.sock, else
    /// /run/rejoin/manager.sock]; unused if the service manager passes a socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The manager's settings [default: /etc/rejoin/manager.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Switch to this user once the socket exists; programs of the user's group may use the socket
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print the counters as JSON at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { socket, settings, user, json } = arguments;
    process::harden()?;
    terminal::raise_descriptor_limit();
    let settings = read(settings.as_deref())?;
    let (listener, _lock, place) = match rejoin_manager::inherited()? {
        Some(listener) => (listener, None, "the service manager's socket".to_owned()),
        None => {
            let path = socket.clone().unwrap_or_else(rejoin_manager::default_socket);
            let (listener, lock) = rejoin_manager::listen(&path, mode(&path, user.is_some()))?;
            if let Some(name) = user {
                process::hand_over(&path, name)?;
            }
            (listener, Some(lock), path.display().to_string())
        }
    };
    if let Some(name) = user {
        process::become_user(name)?;
    }
    let done = serve(listener, settings, &place)?;
    terminal::print_result(&if *json { serde_json::to_string(&done)? } else { summary(&done) })
}

fn read(path: Option<&Path>) -> anyhow::Result<Settings> {
    match path {
        Some(path) => Ok(Settings::read(path)?),
        None if Path::new(SETTINGS).exists() => Ok(Settings::read(Path::new(SETTINGS))?),
        None => Ok(Settings::default()),
    }
}

/// Returns the socket's mode. A group may use the system's manager, and one with its own user; only
/// the user may use a user's manager.
fn mode(path: &Path, has_user: bool) -> u32 {
    if has_user || path == Path::new(SYSTEM_SOCKET) { 0o660 } else { 0o600 }
}

fn serve(listener: UnixListener, settings: Settings, place: &str) -> anyhow::Result<Stats> {
    let runtime = crate::runtime(rejoin_manager::threads() as u16)?;
    let done = runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener);
        let listener = listener.context("cannot wait on the socket")?;
        let place = place.to_owned();
        let ready = move || {
            terminal::print(&format!("serving programs at {place}"));
            cluster::ready();
        };
        let run = rejoin_manager::run(listener, settings, ready, terminal::interrupted());
        // Runs on a worker, which continues with the connections that it accepts; this thread would
        // have to wake one.
        Ok(tokio::spawn(run).await.context("the manager failed")??)
    });
    // Does not wait for name look-ups in progress.
    runtime.shutdown_background();
    done
}

fn summary(done: &Stats) -> String {
    let grouped = rejoin_trace::grouped;
    let of = &done.handshakes;
    format!(
        "{} handshakes resumed, {} full, {} failed",
        grouped(of.resumed),
        grouped(of.full),
        grouped(of.failed)
    )
}
