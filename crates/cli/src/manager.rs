//! `rejoin manager`

use std::future::Future;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rejoin_manager::protocol::Stats;
use rejoin_manager::{Control, Event, SYSTEM_SOCKET, Settings, Sockets};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{process, terminal};

/// The default file of the settings, which may be missing.
const SETTINGS: &str = "/etc/rejoin/manager.toml";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Programs ask the manager for TLS connections, and so share sessions that none of them holds
itself; see docs/manager.md.
Examples:
  rejoin manager
  rejoin manager --socket /run/rejoin/manager.sock --user rejoin
SIGTERM and Ctrl-C end it when its connections are done (drain_s in the settings is the limit), and
a second one ends it at once. SIGHUP reads the settings again.")]
pub(crate) struct Arguments {
    /// The socket to listen on [default: $XDG_RUNTIME_DIR/rejoin.sock, else
    /// /run/rejoin/manager.sock]; unused if the service manager passes a socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The manager's settings [default: /etc/rejoin/manager.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Take the socket over from the manager that serves it, if one does. It makes no new connections
    /// then, and ends when its last one is done
    #[arg(long)]
    take_over: bool,
    /// Switch to this user once the socket exists; programs of the user's group may use the socket
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print the counters as JSON at the end
    #[arg(long)]
    json: bool,
    /// End when the parent process ends
    #[arg(long, hide = true)]
    end_with_parent: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { settings: path, user, json, .. } = arguments;
    process::harden()?;
    terminal::raise_descriptor_limit();
    if !process::lock_memory(user.is_none()) && process::may_be_swapped() {
        terminal::complain(
            "what is in memory may be written to swap: lift the limit (ulimit -l, LimitMEMLOCK=infinity)",
        );
    }
    let settings = read(path.as_deref())?;
    let (sockets, place) = sockets(arguments)?;
    if let Some(name) = user {
        process::become_user(name)?;
    }
    if arguments.end_with_parent {
        process::end_with_parent()?;
    }
    let done = serve(sockets, settings, &place, path.clone())?;
    terminal::print_result(&if *json { serde_json::to_string(&done)? } else { summary(&done) })
}

/// Opens the socket, or takes it over. Returns the name of the place, too.
fn sockets(arguments: &Arguments) -> anyhow::Result<(Sockets, String)> {
    let Arguments { socket, user, take_over, .. } = arguments;
    if let Some(listener) = rejoin_manager::inherited()? {
        let place = "the service manager's socket".to_owned();
        return Ok((Sockets { listener, lock: None, predecessor: None }, place));
    }
    let path = match socket {
        Some(path) => path.clone(),
        None => place()?,
    };
    let shown = path.display().to_string();
    if *take_over {
        let uid = user.as_deref().map(process::uid).transpose()?;
        if let Some(sockets) = rejoin_manager::take_over(&path, uid)? {
            return Ok((sockets, shown));
        }
    }
    make_folder(&path)?;
    let (listener, lock) = rejoin_manager::listen(&path, mode(&path, user.is_some()))?;
    if let Some(name) = user {
        process::hand_over(&path, name)?;
    }
    Ok((Sockets { listener, lock: Some(lock), predecessor: None }, shown))
}

/// Returns the socket of the user's own manager, or of the system's for root.
fn place() -> anyhow::Result<PathBuf> {
    let path = rejoin_manager::default_socket();
    if path != Path::new(SYSTEM_SOCKET) {
        return Ok(path);
    }
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "XDG_RUNTIME_DIR is not set, so your own manager has no place for its socket: set it to a \
         folder that only you can open (usually /run/user/{}), here and for your programs; or give \
         --socket PATH here, and REJOIN_MANAGER=PATH to them",
        rustix::process::getuid()
    );
    Ok(path)
}

/// Makes the folder of the system's socket, which does not outlive the machine's restart.
fn make_folder(socket: &Path) -> anyhow::Result<()> {
    let missing = socket.parent().filter(|folder| !folder.exists());
    let Some(folder) = missing.filter(|_| socket == Path::new(SYSTEM_SOCKET)) else {
        return Ok(());
    };
    let made = std::fs::DirBuilder::new().mode(0o755).create(folder);
    made.with_context(|| format!("cannot make {}", folder.display()))
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

fn serve(
    sockets: Sockets,
    settings: Settings,
    place: &str,
    path: Option<PathBuf>,
) -> anyhow::Result<Stats> {
    let runtime = crate::runtime(rejoin_manager::threads() as u16)?;
    let done = runtime.block_on(async {
        let (controls, received) = unbounded_channel();
        let signals = signals(path, controls).context("cannot wait for signals")?;
        let signals = tokio::spawn(signals);
        let place = place.to_owned();
        let run = rejoin_manager::serve(sockets, settings, received, move |event| {
            tell(&event, &place);
        });
        // Runs on a worker, which continues with the connections that it accepts; this thread would
        // have to wake one.
        let done = tokio::spawn(run).await.context("the manager failed");
        signals.abort();
        Ok(done??)
    });
    // Does not wait for name look-ups in progress.
    runtime.shutdown_background();
    done
}

/// Turns signals into instructions: SIGHUP reads the settings again, SIGTERM and SIGINT drain, and the
/// second one ends at once.
fn signals(
    path: Option<PathBuf>,
    controls: UnboundedSender<Control>,
) -> std::io::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let mut drains = false;
        loop {
            let control = tokio::select! {
                _ = hangup.recv() => match read(path.as_deref()) {
                    Ok(settings) => Control::Reload(Box::new(settings)),
                    Err(error) => {
                        not_reloaded(&error.to_string());
                        continue;
                    }
                },
                _ = terminate.recv() => stop(&mut drains),
                _ = interrupt.recv() => stop(&mut drains),
            };
            // A manager that has ended needs no instruction.
            let _ = controls.send(control);
        }
    })
}

fn stop(drains: &mut bool) -> Control {
    if std::mem::replace(drains, true) { Control::Stop } else { Control::Drain }
}

fn tell(event: &Event, place: &str) {
    match event {
        Event::Ready => {
            terminal::print(&format!("serving programs at {place}"));
            process::notify("READY=1");
        }
        Event::Reloaded { at_next_start } if at_next_start.is_empty() => {
            terminal::complain("new connections are served by the new settings");
        }
        Event::Reloaded { at_next_start } => terminal::complain(&format!(
            "new connections are served by the new settings, but {} takes effect at the next start",
            at_next_start.join(", ")
        )),
        Event::NotReloaded(error) => not_reloaded(&error.to_string()),
        Event::Drains { left, limit, is_replaced } => {
            let limit_s = limit.as_secs();
            // systemd waits for that long, whatever TimeoutStopSec says (sd_notify(3)).
            let patience_us = (limit_s + 10) * 1_000_000;
            process::notify(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={patience_us}"));
            let why = if *is_replaced { "another manager has taken over" } else { "shutting down" };
            terminal::complain(&format!(
                "{why}: {} on, for {limit_s} s at most; a second signal ends at once",
                going(*left)
            ));
        }
        Event::Left(left) => terminal::complain(&format!("shutting down: {} on", going(*left))),
        Event::CutOff(left) => terminal::complain(&format!(
            "the limit of drain_s is reached, and connections break off: {left}"
        )),
        Event::CannotAccept(why) => terminal::complain(&format!(
            "programs wait, because the manager cannot accept them: {why}; raise LimitNOFILE, or `ulimit -n`"
        )),
        _ => {}
    }
}

fn going(left: usize) -> String {
    match left {
        1 => "1 connection goes".to_owned(),
        left => format!("{left} connections go"),
    }
}

fn not_reloaded(why: &str) {
    terminal::complain(&format!("the settings stay as they were: {why}"));
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
