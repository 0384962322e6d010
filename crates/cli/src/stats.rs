//! `rejoin stats`

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rejoin_cache::Counters;
use rejoin_store::{CacheName, Facts, Reset, Store};
use rejoin_trace::grouped;
use serde_json::{Value, json};

use crate::terminal::{self, Watch};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Counts are of all processes that share the cache, since it was made or its counts were reset.
Examples:
  rejoin stats web
  rejoin stats web --watch
  rejoin stats web --json")]
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
    match arguments.reset {
        Some(What::Sessions) => store.reset(Reset::Sessions),
        Some(What::Counters) => store.reset(Reset::Counters),
        Some(What::Both) => store.reset(Reset::Both),
        None if arguments.watch => return watch(&store, arguments.json),
        None if arguments.json => return terminal::print_result(&record(&store).to_string()),
        None => return terminal::print_result(&table(&store)),
    }
    Ok(())
}

/// Everything that is counted.
fn record(store: &Store) -> Value {
    let (counters, facts) = (store.cache().counters(), store.facts());
    let mut record = json!({
        "name": store.name().to_string(),
        "capacity_sessions": store.cache().capacity_sessions(),
        "resumed_percent": resumed_percent(&counters),
        "mean_prediction_error_ms": counters.mean_prediction_error_ms(),
    });
    let counts = counters.named().into_iter().chain(kept(&facts));
    for (name, count) in counts {
        record[name] = count.into();
    }
    record
}

fn kept(facts: &Facts) -> [(&'static str, u64); 6] {
    [
        ("bytes", facts.bytes),
        ("created_unix_s", facts.created_unix_s),
        ("lock_waits", facts.lock_waits),
        ("lock_timeouts", facts.lock_timeouts),
        ("locks_broken", facts.locks_broken),
        ("emptied", facts.emptied),
    ]
}

/// Of the clients that presented a session of ours.
fn resumed_percent(counters: &Counters) -> Option<f64> {
    let asked = counters.hits + counters.misses;
    (asked > 0).then(|| 100.0 * counters.hits as f64 / asked as f64)
}

fn percent(counters: &Counters) -> String {
    resumed_percent(counters).map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1} %"))
}

fn table(store: &Store) -> String {
    let (counters, facts) = (store.cache().counters(), store.facts());
    let capacity = grouped(store.cache().capacity_sessions());
    let head = format!(
        "{}: {} of {capacity} sessions, {} bytes; of those that were asked for {} were there\n",
        store.name(),
        grouped(counters.sessions),
        grouped(facts.bytes),
        percent(&counters)
    );
    let memory = if facts.is_named { "" } else { "removed while in use: nobody new can open it\n" };
    let counts = counters.named().into_iter().chain(kept(&facts).into_iter().skip(2));
    let rows = counts.map(|(name, count)| vec![name.replace('_', " "), grouped(count)]);
    head + memory + &rejoin_report::table(&[0], ["counted", ""], rows)
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
            terminal::print_result(&record(store).to_string())?;
            continue;
        }
        if line % LINES_A_HEAD == 0 {
            let head = "  hits/s  misses/s  stored/s  evicted/s  forged/s   sessions   there";
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
    let last =
        Counters { hits: since(|c| c.hits), misses: since(|c| c.misses), ..Counters::default() };
    format!(
        "{:>8}  {:>8}  {:>8}  {:>9}  {:>8}  {:>9}  {:>6}",
        last.hits,
        last.misses,
        since(|c| c.stored),
        evicted(now).saturating_sub(evicted(before)),
        since(|c| c.forged),
        now.sessions,
        percent(&last)
    )
}
