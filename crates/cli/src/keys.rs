//! `rejoin keys`

mod export;

use std::path::{Path, PathBuf};

use anyhow::Context;
use rejoin_cluster::{ClusterKeys, Link, Settings, WrappingKey};
use rejoin_store::{CacheName, Store};
use rejoin_tickets::{KeyId, KeyRing, KeyState, KeyStatus};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::arguments::Misuse;
use crate::{cluster, terminal};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The servers that share a cache share the keys of stateless tickets, which change by themselves; see
docs/servers.md, and for those of several machines docs/cluster.md. Key bytes are never printed.
Examples:
  rejoin keys list web
  rejoin keys rotate web
  rejoin keys retire web 3f2a
  rejoin keys revoke --cluster 3f2a
  rejoin keys export --cluster --follow --format nginx --context web --into /run/rejoin/nginx \
    --then 'nginx -s reload'")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Where caches lie
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER, global = true)]
    folder: PathBuf,
    /// Instead of a cache's, the keys of the cluster that these settings are of
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, global = true,
        default_missing_value = cluster::SETTINGS)]
    cluster: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Name the keys, from the oldest to the newest, and what each is for
    List {
        #[arg(value_name = "NAME")]
        name: Option<CacheName>,
    },
    /// Make the next key now, before it is due
    Rotate {
        #[arg(value_name = "NAME")]
        name: Option<CacheName>,
    },
    /// Wipe a key that is not to be trusted: tickets under it become full handshakes. KEY is its id, or as much
    /// of its beginning as no other key has
    #[command(visible_alias = "revoke")]
    Retire {
        #[arg(value_names = ["NAME", "KEY"], num_args = 1..=2, required = true)]
        words: Vec<String>,
    },
    /// Write the cluster's keys to files, for a server that knows nothing of Rejoin
    Export(export::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { action, folder, cluster, json } = arguments;
    let now_s = cluster::now_s()?;
    let keys = |name: Option<CacheName>| match (cluster, name) {
        (Some(settings), None) => Keys::of_cluster(settings),
        (None, Some(name)) => Ok(Keys::OfCache(Store::open(folder, &name, None)?)),
        (Some(_), Some(name)) => {
            Err(Misuse(format!("{name} or --cluster, not both: see --help")).into())
        }
        (None, None) => {
            Err(Misuse("name a cache, or give --cluster: see --help".to_owned()).into())
        }
    };
    match action {
        Action::List { name } => list(&keys(name.clone())?.ring(now_s)?, now_s, *json),
        Action::Rotate { name } => rotate(&mut keys(name.clone())?, now_s, *json),
        Action::Retire { words } => {
            let (key, name) = words.split_last().expect("one at least");
            let wrong = |error: rejoin_store::Error| Misuse(error.to_string());
            let name = name.first().map(|name| name.parse().map_err(wrong)).transpose()?;
            retire(&mut keys(name)?, key, now_s, *json)
        }
        Action::Export(arguments) => {
            let missing = || Misuse("give --cluster: see --help".to_owned());
            export::run(arguments, cluster.as_deref().ok_or_else(missing)?, *json)
        }
    }
}

/// Whose keys.
enum Keys {
    OfCache(Store),
    OfCluster { runtime: Runtime, link: Link, keys: ClusterKeys },
}

impl Keys {
    fn of_cluster(settings: &Path) -> anyhow::Result<Self> {
        let settings = Settings::read(settings)?;
        let key = WrappingKey::read(&settings.key_file)?;
        let runtime = cluster::runtime()?;
        let link = runtime.block_on(Link::connect(&settings.valkey()?))?;
        let keys = ClusterKeys::new(settings.name, &key, None)?.only_followed();
        Ok(Self::OfCluster { runtime, link, keys })
    }

    fn ring(&mut self, now_s: u64) -> anyhow::Result<KeyRing> {
        match self {
            Self::OfCache(store) => store.ring()?.with_context(|| {
                let name = store.name();
                format!("no ticket keys in cache {name}: start a server on it, with ticket_keys = shared")
            }),
            Self::OfCluster { runtime, link, keys } => {
                runtime.block_on(keys.follow(link, now_s))?;
                let ring = keys.ring().cloned();
                ring.context("the cluster has no ticket keys: start an agent, by rejoin cluster run")
            }
        }
    }

    fn rotate(&mut self, now_s: u64) -> anyhow::Result<KeyId> {
        Ok(match self {
            Self::OfCache(store) => store.rotate_keys(now_s)?,
            Self::OfCluster { runtime, link, keys } => {
                runtime.block_on(keys.rotate(link, now_s))?
            }
        })
    }

    fn retire(&mut self, id: &KeyId, now_s: u64) -> anyhow::Result<bool> {
        Ok(match self {
            Self::OfCache(store) => store.retire_key(id)?,
            Self::OfCluster { runtime, link, keys } => {
                runtime.block_on(keys.revoke(link, id, now_s))?
            }
        })
    }

    fn how_to_list(&self) -> String {
        match self {
            Self::OfCache(store) => format!("rejoin keys list {}", store.name()),
            Self::OfCluster { .. } => "rejoin keys list --cluster".to_owned(),
        }
    }
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

fn rotate(keys: &mut Keys, now_s: u64, json: bool) -> anyhow::Result<()> {
    // A ring is made by servers or agents, which know its schedule.
    keys.ring(now_s)?;
    let id = keys.rotate(now_s)?;
    let key = keys.ring(now_s)?.list(now_s).find(|key| key.id == id);
    let changed = || format!("another has changed the keys meanwhile: see {}", keys.how_to_list());
    let key = key.with_context(changed)?;
    if json {
        return terminal::print_result(&record(&key).to_string());
    }
    let wait = time(key.encrypts_from_s.saturating_sub(now_s));
    terminal::print_result(&format!("made {id}, which encrypts in {wait}"))
}

fn retire(keys: &mut Keys, beginning: &str, now_s: u64, json: bool) -> anyhow::Result<()> {
    let ring = keys.ring(now_s)?;
    let fits = |key: &KeyStatus| key.id.to_string().starts_with(&beginning.to_lowercase());
    let found: Vec<KeyId> = ring.list(now_s).filter(fits).map(|key| key.id).collect();
    let [id] = found.as_slice() else {
        let what = if found.is_empty() { "no key begins" } else { "several keys begin" };
        let text = format!("{what} with {beginning:?}: see {}", keys.how_to_list());
        return Err(Misuse(text).into());
    };
    anyhow::ensure!(keys.retire(id, now_s)?, "{id}: somebody else has retired it");
    if json {
        return terminal::print_result(&json!({"retired": id.to_string()}).to_string());
    }
    let soon = match keys {
        Keys::OfCache(_) => "a second",
        Keys::OfCluster { .. } => "three seconds",
    };
    terminal::print_result(&format!("retired {id}: no server opens its tickets {soon} from now"))
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
