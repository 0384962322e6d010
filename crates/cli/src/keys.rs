//! `rejoin keys`

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use rejoin_store::{CacheName, Store};
use rejoin_tickets::{KeyId, KeyRing, KeyState, KeyStatus};
use serde_json::json;

use crate::arguments::Misuse;
use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The servers that share a cache share the keys of stateless tickets, which change by themselves; see
docs/servers.md. Key bytes are never printed.
Examples:
  rejoin keys list web
  rejoin keys rotate web
  rejoin keys retire web 3f2a")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Where caches lie
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER, global = true)]
    folder: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Name the keys, from the oldest to the newest, and what each is for
    List {
        #[arg(value_name = "NAME")]
        name: CacheName,
    },
    /// Make the next key now, before it is due
    Rotate {
        #[arg(value_name = "NAME")]
        name: CacheName,
    },
    /// Wipe a key that is not to be trusted: tickets under it become full handshakes
    Retire {
        #[arg(value_name = "NAME")]
        name: CacheName,
        /// The key's id, or as much of its beginning as no other key has
        #[arg(value_name = "KEY")]
        key: String,
    },
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { action, folder, json } = arguments;
    let now_s = SystemTime::UNIX_EPOCH.elapsed().context("the clock is before 1970")?.as_secs();
    match action {
        Action::List { name } => list(&ring(&open(folder, name)?)?, now_s, *json),
        Action::Rotate { name } => rotate(&open(folder, name)?, now_s, *json),
        Action::Retire { name, key } => retire(&open(folder, name)?, key, now_s, *json),
    }
}

fn open(folder: &Path, name: &CacheName) -> anyhow::Result<Store> {
    Ok(Store::open(folder, name, None)?)
}

fn ring(store: &Store) -> anyhow::Result<KeyRing> {
    store.ring()?.with_context(|| {
        let name = store.name();
        format!("no ticket keys in cache {name}: start a server on it, with ticket_keys = shared")
    })
}

fn list(ring: &KeyRing, now_s: u64, json: bool) -> anyhow::Result<()> {
    if json {
        for key in ring.list(now_s) {
            terminal::print_result(&record(&key).to_string())?;
        }
        return Ok(());
    }
    let rows = ring.list(now_s).map(|key| {
        let turn = key.encrypts_from_s.checked_sub(now_s).filter(|wait_s| *wait_s > 0);
        let turn = turn.map_or_else(|| "begun".to_owned(), |wait_s| format!("in {}", time(wait_s)));
        let rest_s = key.opens_until_s.map(|until_s| until_s.saturating_sub(now_s));
        let rest = rest_s.map_or_else(|| "–".to_owned(), |rest_s| format!("in {}", time(rest_s)));
        vec![key.id.to_string(), state(key.state).to_owned(), time(key.age_s), turn, rest]
    });
    let head = ["key", "is", "age", "turn", "is wiped"];
    terminal::print_result(&rejoin_report::table(&[0, 1], head, rows))
}

fn rotate(store: &Store, now_s: u64, json: bool) -> anyhow::Result<()> {
    // A ring is made by servers, which know its schedule.
    ring(store)?;
    let id = store.rotate_keys(now_s)?;
    let key = ring(store)?.list(now_s).find(|key| key.id == id);
    let key = key.context("another has changed the keys meanwhile: see rejoin keys list")?;
    if json {
        return terminal::print_result(&record(&key).to_string());
    }
    let wait = time(key.encrypts_from_s.saturating_sub(now_s));
    terminal::print_result(&format!("made {id}, which encrypts in {wait}"))
}

fn retire(store: &Store, beginning: &str, now_s: u64, json: bool) -> anyhow::Result<()> {
    let ring = ring(store)?;
    let fits = |key: &KeyStatus| key.id.to_string().starts_with(&beginning.to_lowercase());
    let found: Vec<KeyId> = ring.list(now_s).filter(fits).map(|key| key.id).collect();
    let [id] = found.as_slice() else {
        let what = if found.is_empty() { "no key begins" } else { "several keys begin" };
        let text = format!("{what} with {beginning:?}: see rejoin keys list {}", store.name());
        return Err(Misuse(text).into());
    };
    anyhow::ensure!(store.retire_key(id)?, "{id}: somebody else has retired it");
    if json {
        return terminal::print_result(&json!({"retired": id.to_string()}).to_string());
    }
    terminal::print_result(&format!("retired {id}: no server opens its tickets a second from now"))
}

fn record(key: &KeyStatus) -> serde_json::Value {
    json!({
        "key": key.id.to_string(),
        "state": state(key.state),
        "age_s": key.age_s,
        "encrypts_from_unix_s": key.encrypts_from_s,
        "opens_until_unix_s": key.opens_until_s,
    })
}

fn state(state: KeyState) -> &'static str {
    match state {
        KeyState::Upcoming => "upcoming",
        KeyState::Encrypting => "encrypting",
        KeyState::Opening => "opening",
        KeyState::Expired => "expired",
    }
}

/// The two largest units that are not zero at the front: `11 h 3 min`.
fn time(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_short() {
        let told = [0, 59, 61, 3_599, 3_600, 86_399, 90_000].map(time);
        let expected =
            ["0 s", "59 s", "1 min 1 s", "59 min 59 s", "1 h 0 min", "23 h 59 min", "1 d 1 h"];
        assert_eq!(told, expected);
    }
}
