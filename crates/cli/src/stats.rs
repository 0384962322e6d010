//! `rejoin stats`

mod reading;
mod serve;
mod watched;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rejoin_cache::Counters;
use rejoin_store::{CacheName, Reset, Store};
use rejoin_trace::grouped;

use crate::terminal::{self, Watch};
use reading::{Reading, found_percent, resumed_percent};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Counts are of all processes that share the cache, since it was made or its counts were reset.
Examples:
  rejoin stats web
  rejoin stats web --watch
  rejoin stats web --json
  rejoin stats web --serve 127.0.0.1:9464")]
pub(crate) struct Arguments {
    /// The cache that servers share
    #[arg(value_name = "NAME")]
    name: CacheName,
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
    let store = Store::open(&arguments.folder, &arguments.name, None)?;
    if let Some(address) = arguments.serve {
        return serve::serve(arguments.folder.clone(), store, address);
    }
    match arguments.reset {
        Some(What::Sessions) => store.reset(Reset::Sessions),
        Some(What::Counters) => store.reset(Reset::Counters),
        Some(What::Both) => store.reset(Reset::Both),
        None if arguments.watch => return watch(&store, arguments.json),
        None if arguments.json => {
            return terminal::print_result(&Reading::of(&store).json().to_string());
        }
        None => return terminal::print_result(&table(&Reading::of(&store))),
    }
    Ok(())
}

/// `localhost` needs no look-up: it is 127.0.0.1.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let parsed = port.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| "give ADDRESS:PORT, as 127.0.0.1:9464".to_owned())
}

fn percent(percent: Option<f64>) -> String {
    percent.map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1} %"))
}

fn table(reading: &Reading) -> String {
    let Reading { name, counters, facts, occupancy, capacity_sessions, .. } = reading;
    let head = format!(
        "{name}: of {} handshakes {} were resumed\n{} of {} sessions, {} bytes; of those asked for {} were there\n",
        grouped(counters.full_handshakes + counters.resumed_handshakes),
        percent(resumed_percent(counters)),
        grouped(counters.sessions),
        grouped(*capacity_sessions),
        grouped(facts.bytes),
        percent(found_percent(counters))
    );
    let memory = if facts.is_named { "" } else { "removed while in use: nobody new can open it\n" };
    let row = |(name, count): (&str, u64)| vec![name.replace('_', " "), grouped(count)];
    let counts = rejoin_report::table(&[0], ["counted", ""], reading.counts().map(row));
    let returns = occupancy.named().into_iter().map(row);
    let returns = rejoin_report::table(&[0], ["expected back", "sessions"], returns);
    format!("{head}{memory}{counts}\n\n{returns}")
}

/// A line for each second.
fn watch(store: &Store, json: bool) -> anyhow::Result<()> {
    const LINES_A_HEAD: usize = 20;
    let watch = Watch::start()?;
    let mut before = store.cache().counters();
    let mut next = Instant::now();
    for line in 0.. {
        next += Duration::from_secs(1);
        while Instant::now() < next && !watch.progress().stopped() {
            thread::sleep(Duration::from_millis(50));
        }
        if watch.progress().stopped() {
            return Ok(());
        }
        if json {
            terminal::print_result(&Reading::of(store).json().to_string())?;
            continue;
        }
        if line % LINES_A_HEAD == 0 {
            let head = "handshakes/s  resumed    hits/s  misses/s  stored/s  evicted/s  forged/s   sessions";
            terminal::print_result(head)?;
        }
        let now = store.cache().counters();
        terminal::print_result(&second(&before, &now))?;
        before = now;
    }
    Ok(())
}

fn second(before: &Counters, now: &Counters) -> String {
    let evicted = |c: &Counters| c.evicted_overdue + c.evicted_latest + c.evicted_oldest;
    let since = |count: fn(&Counters) -> u64| count(now).saturating_sub(count(before));
    let last = Counters {
        full_handshakes: since(|c| c.full_handshakes),
        resumed_handshakes: since(|c| c.resumed_handshakes),
        ..Counters::default()
    };
    format!(
        "{:>12}  {:>7}  {:>8}  {:>8}  {:>8}  {:>9}  {:>8}  {:>9}",
        last.full_handshakes + last.resumed_handshakes,
        percent(resumed_percent(&last)),
        since(|c| c.hits),
        since(|c| c.misses),
        since(|c| c.stored),
        evicted(now).saturating_sub(evicted(before)),
        since(|c| c.forged),
        now.sessions,
    )
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
