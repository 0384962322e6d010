//! `rejoin stats`

mod cache;
mod history;
mod manager;
mod second;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;

use rejoin_store::{CacheName, Reset, Store};

use crate::arguments::{Choice, address, one_of};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Cache counters cover all processes that share the cache, since it was created or its counters were
reset. Manager counters cover your own programs (for root: those of all users) since the manager
started.
Examples:
  rejoin stats web
  rejoin stats web --watch
  rejoin stats web --json
  rejoin stats web --serve 127.0.0.1:9464
  rejoin stats --manager")]
pub(crate) struct Arguments {
    /// The shared cache [default: default, as for `rejoin run`]
    #[arg(value_name = "NAME")]
    name: Option<CacheName>,
    /// Show the TLS manager that listens on this socket instead [default PATH:
    /// $XDG_RUNTIME_DIR/rejoin.sock, else /run/rejoin/manager.sock]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["name", "folder", "reset"])]
    manager: Option<Option<PathBuf>>,
    /// The folder of the caches
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER)]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the changes of each second on a line, until Ctrl-C
    #[arg(long, conflicts_with = "reset")]
    watch: bool,
    /// Serve a live page, and metrics for Prometheus at /metrics, over plain HTTP until Ctrl-C; for
    /// port 0 the system chooses a port
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    #[arg(conflicts_with_all = ["json", "watch", "reset"])]
    serve: Option<SocketAddr>,
    /// Reset instead: wipe the sessions, zero the counters, or both
    #[arg(long, value_parser = one_of(PARTS), value_name = "WHAT")]
    reset: Option<Reset>,
}

const PARTS: &[Choice<Reset>] = &[
    (Reset::Sessions, "sessions", ""),
    (Reset::Counters, "counters", ""),
    (Reset::Both, "both", ""),
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { name, manager, .. } = arguments;
    match (name, manager) {
        (_, Some(path)) => manager::run(path.clone(), arguments),
        (Some(name), None) => cache::run(name, arguments),
        (None, None) => cache::run(&"default".parse()?, arguments),
    }
}

/// Returns a part of a whole in percent, or `None` if the whole is 0.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

fn shown_percent(percent: Option<f64>) -> String {
    percent.map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1} %"))
}
