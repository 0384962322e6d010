//! `rejoin stats`

mod cache;
mod history;
mod manager;
mod second;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;

use rejoin_store::{CacheName, Store};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Counts of a cache are of all processes that share it, since it was made or its counts were reset.
Those of the manager are of the programs of who asks (of all, for root), since it started.
Examples:
  rejoin stats web
  rejoin stats web --watch
  rejoin stats web --json
  rejoin stats web --serve 127.0.0.1:9464
  rejoin stats --manager")]
pub(crate) struct Arguments {
    /// The cache that servers share [default: default, as for `rejoin run`]
    #[arg(value_name = "NAME")]
    name: Option<CacheName>,
    /// The TLS manager instead [default PATH: $XDG_RUNTIME_DIR/rejoin.sock, else
    /// /run/rejoin/manager.sock]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["name", "folder", "reset"])]
    manager: Option<Option<PathBuf>>,
    /// Where caches lie
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER)]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print a line every second, of what happened in it, until Ctrl-C
    #[arg(long, conflicts_with = "reset")]
    watch: bool,
    /// Show it on a live page and, at /metrics, to Prometheus, in clear, until Ctrl-C; port 0 is one
    /// of the system's choice
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    #[arg(conflicts_with_all = ["json", "watch", "reset"])]
    serve: Option<SocketAddr>,
    /// Forget instead: the sessions, which are wiped, or the counts
    #[arg(long, value_enum, value_name = "WHAT")]
    reset: Option<What>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Sessions,
    Counters,
    Both,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { name, manager, .. } = arguments;
    match (name, manager) {
        (_, Some(path)) => manager::run(path.clone(), arguments),
        (Some(name), None) => cache::run(name, arguments),
        (None, None) => cache::run(&"default".parse()?, arguments),
    }
}

/// `localhost` needs no look-up: it is 127.0.0.1.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let parsed = port.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| "give ADDRESS:PORT, as 127.0.0.1:9464".to_owned())
}

/// One part of a whole, in percent, if there is a whole.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

fn shown_percent(percent: Option<f64>) -> String {
    percent.map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1} %"))
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_have_ports_and_one_has_a_name() {
        for known in ["127.0.0.1:9464", "localhost:9464"] {
            assert_eq!(address(known).map(|known| known.to_string()), Ok("127.0.0.1:9464".into()));
        }
        for wrong in ["9464", ":9464", "localhost", "localhost:", "example.com:9464", ""] {
            assert!(address(wrong).is_err_and(|why| why.contains("127.0.0.1:9464")), "{wrong}");
        }
    }
}
