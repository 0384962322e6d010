//! `rejoin keys`

mod export;
pub(crate) mod source;

use std::path::{Path, PathBuf};

use anyhow::Context;
use rejoin_cluster::{ClusterKeys, KeyFile, Link, Replicas, Settings, Sites};
use rejoin_store::{CacheName, RingFile, Store};
use rejoin_tickets::{KeyId, KeyRing, KeyState, KeyStatus};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::arguments::Misuse;
use crate::status::process::Process;
use crate::units::time;
use crate::{cluster, status, terminal};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Servers that share a cache also share the keys of their stateless tickets, which rotate by
themselves: see docs/servers.md, and docs/cluster.md for servers on several machines. Key bytes are
never printed.
Examples:
  rejoin keys list web
  rejoin keys rotate web
  rejoin keys retire web 3f2a
  rejoin keys revoke --cluster 3f2a
  rejoin keys export web --follow --format nginx --context web --output /run/rejoin/nginx \\
    --then 'nginx -s reload'")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The folder of the caches
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER, global = true)]
    folder: PathBuf,
    /// Use the cluster's keys instead of a cache's; FILE holds the cluster's settings
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, global = true,
        default_missing_value = cluster::SETTINGS)]
    cluster: Option<PathBuf>,
    /// Use the keys of a file instead, for servers without a cache; `export` makes it if it does not exist
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "cluster")]
    ring: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the keys and their states, from the oldest to the newest
    #[command(after_help = LIST_EXAMPLES)]
    List {
        #[arg(value_name = "NAME")]
        name: Option<CacheName>,
    },
    /// Make the next key now, before it is due
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate {
        #[arg(value_name = "NAME")]
        name: Option<CacheName>,
    },
    /// Wipe a key that is no longer trusted; its tickets become full handshakes
    #[command(visible_alias = "revoke", override_usage = RETIRE_USAGE, after_help = RETIRE_EXAMPLES)]
    Retire {
        /// The key's id, or its first digits, 4 at least, if no other key has the same; before it the
        /// cache's name, unless --cluster or --ring is given
        #[arg(value_name = "KEY", num_args = 1..=2, required = true)]
        words: Vec<String>,
    },
    /// Write the keys for a server that does not load Rejoin, in its own format
    Export(Box<export::Arguments>),
}

const LIST_EXAMPLES: &str = "\
Examples:
  rejoin keys list web
  rejoin keys list --cluster --json";
const ROTATE_EXAMPLES: &str = "\
Examples:
  rejoin keys rotate web
  rejoin keys rotate --ring /var/lib/rejoin/ring";
const RETIRE_EXAMPLES: &str = "\
A process that still has an earlier cache of the name is not reached, nor is a machine of a cluster
that is cut off; they are named on standard error.
Examples:
  rejoin keys retire web 3f2a
  rejoin keys revoke --cluster 3f2a";
const RETIRE_USAGE: &str = "rejoin keys retire [OPTIONS] <NAME> <KEY>
       rejoin keys retire [OPTIONS] --cluster[=<FILE>] <KEY>
       rejoin keys retire [OPTIONS] --ring <FILE> <KEY>";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { action, folder, cluster, ring, json } = arguments;
    let now_s = cluster::now_s()?;
    let keys = |name: Option<CacheName>| match (cluster, ring, name) {
        (Some(settings), _, None) => {
            Keys::of_cluster(settings, !matches!(action, Action::List { .. }))
        }
        (None, Some(file), None) => Ok(Keys::File(file.clone(), RingFile::new(file, None))),
        (None, None, Some(name)) => Ok(Keys::Cache(Box::new(Store::open(folder, &name, None)?))),
        (_, _, name) => Err(one_ring(name.as_ref()).into()),
    };
    match action {
        Action::List { name } => list(&keys(name.clone())?.shown(now_s)?, now_s, *json),
        Action::Rotate { name } => rotate(&mut keys(name.clone())?, now_s, *json),
        Action::Retire { words } => {
            let (key, name) = words.split_last().expect("at least one word");
            let wrong = |error: rejoin_store::Error| Misuse(error.to_string());
            let name = name.first().map(|name| name.parse().map_err(wrong)).transpose()?;
            retire(&mut keys(name)?, key, folder, now_s, *json)
        }
        Action::Export(arguments) => {
            let from = match (cluster, ring, arguments.name()) {
                (Some(settings), _, None) => export::From::Cluster(settings),
                (None, Some(file), None) => export::From::File(file),
                (None, None, Some(name)) => export::From::Cache(folder, name),
                (_, _, name) => return Err(one_ring(name).into()),
            };
            export::run(arguments, &from, *json)
        }
    }
}

/// Returns the error of a command line that names no ring, or two.
fn one_ring(name: Option<&CacheName>) -> Misuse {
    Misuse(match name {
        Some(name) => format!("give a cache's name ({name}), --cluster or --ring, not two of them"),
        None => "give a cache's name, --cluster or --ring: see --help".to_owned(),
    })
}

const NO_KEYS: &str = "the cluster has no ticket keys: start an agent with rejoin cluster run, or wait for half a minute if \
                       one runs: it lets other machines put lost keys back first";

/// The keys of a cache, a file or a cluster.
enum Keys {
    Cache(Box<Store>),
    File(PathBuf, RingFile),
    Cluster { runtime: Runtime, link: Link, keys: Box<ClusterKeys>, of: Box<OfCluster> },
}

/// The settings by which a cluster's machines are looked at.
struct OfCluster {
    settings: Settings,
    key_file: KeyFile,
    sites: Sites,
}

impl Keys {
    /// Opens a cluster's ring, to change it, or to look at it.
    fn of_cluster(settings: &Path, to_change: bool) -> anyhow::Result<Self> {
        let settings = cluster::settings_of(settings, None)?;
        let key_file = settings.open_key_file()?;
        let runtime = cluster::runtime()?;
        let mut keys = cluster::keys(&settings, key_file.secret(), None)?.only_followed();
        keys.take_unrecorded().iter().for_each(cluster::complain_of_record);
        let sites = settings.all_sites()?;
        let link = runtime.block_on(async {
            match to_change {
                true => cluster::link_with_home(&sites).await,
                false => cluster::link_to_look(&sites).await,
            }
        })?;
        let of = Box::new(OfCluster { settings, key_file, sites });
        Ok(Self::Cluster { runtime, link, keys: Box::new(keys), of })
    }

    fn ring(&mut self, now_s: u64) -> anyhow::Result<KeyRing> {
        match self {
            Self::Cache(store) => store.ring()?.with_context(|| {
                let name = store.name();
                match store.mailbox() {
                    Some(_) => format!(
                        "no ticket keys of its cluster have come to cache {name}: they do when its agent, rejoin cluster run, reaches Valkey"
                    ),
                    None => format!(
                        "no ticket keys in cache {name}: start a server on it, with ticket_keys = shared"
                    ),
                }
            }),
            Self::File(path, file) => {
                // It would be made.
                let is_there = path.try_exists().unwrap_or(true);
                anyhow::ensure!(is_there, "there is no file {}", path.display());
                Ok(file.look(now_s)?)
            }
            Self::Cluster { runtime, link, keys, .. } => {
                runtime.block_on(keys.follow(link, now_s))?;
                keys.take_unrecorded().iter().for_each(cluster::complain_of_record);
                let ring = keys.ring().cloned();
                ring.context(NO_KEYS)
            }
        }
    }

    /// Returns the ring without a change: a file that cannot be written can be shown.
    fn shown(&mut self, now_s: u64) -> anyhow::Result<KeyRing> {
        let Self::File(path, file) = self else { return self.ring(now_s) };
        file.read()?.with_context(|| format!("there is no file {}", path.display()))
    }

    fn rotate(&mut self, now_s: u64) -> anyhow::Result<KeyId> {
        Ok(match self {
            Self::Cache(store) => store.rotate_keys(now_s)?,
            Self::File(_, file) => file.rotate(now_s)?,
            Self::Cluster { runtime, link, keys, .. } => {
                runtime.block_on(keys.rotate(link, now_s))?
            }
        })
    }

    fn retire(&mut self, id: &KeyId, now_s: u64) -> anyhow::Result<bool> {
        Ok(match self {
            Self::Cache(store) => store.retire_key(id)?,
            Self::File(_, file) => file.retire(id)?,
            Self::Cluster { runtime, link, keys, .. } => {
                runtime.block_on(keys.revoke(link, id, now_s))?
            }
        })
    }

    /// Waits until the replicas of a cluster's Valkey have the last change, and warns if some have not: the change would then
    /// be lost with the primary. Returns the replicas, if there are any.
    fn replicas(&mut self, now_s: u64) -> Option<Replicas> {
        let Self::Cluster { runtime, link, keys, .. } = self else { return None };
        match runtime.block_on(keys.replicated(link, now_s)) {
            Ok(Some(replicas)) => {
                let Replicas { connected, reached } = replicas;
                if reached < connected {
                    terminal::complain(&format!(
                        "{} of {connected} replicas of Valkey have not confirmed the change: if the primary fails before \
                         they have it, and before an agent has read it, it is lost; list the keys again in a few seconds",
                        connected - reached
                    ));
                }
                Some(replicas).filter(|_| connected > 0)
            }
            Ok(None) => {
                let line =
                    "whether replicas of Valkey have the change is not known: its user needs +info";
                terminal::complain(line);
                None
            }
            Err(error) => {
                terminal::complain(&format!(
                    "whether replicas of Valkey have the change is not known: {error}; list the keys again"
                ));
                None
            }
        }
    }

    /// Waits until a cluster's machines have the last change, and warns of those that have not. Returns their names.
    fn machines_behind(&self) -> Vec<String> {
        let Self::Cluster { runtime, keys, of, .. } = self else { return Vec::new() };
        let OfCluster { settings, key_file, sites } = &**of;
        let follow = cluster::behind(&settings.name, key_file.secret(), sites, keys.version());
        let (behind, unknown) = runtime.block_on(follow);
        if !behind.is_empty() {
            terminal::complain(&format!(
                "these machines have not followed, or have not said so: {}; servers there may still open tickets of this key; see \
                 rejoin cluster status",
                behind.join(", ")
            ));
        }
        unknown.iter().for_each(|line| terminal::complain(line));
        behind
    }

    fn how_to_list(&self) -> String {
        match self {
            Self::Cache(store) => format!("rejoin keys list {}", store.name()),
            Self::File(path, _) => format!("rejoin keys list --ring {}", path.display()),
            Self::Cluster { .. } => "rejoin keys list --cluster".to_owned(),
        }
    }
}

fn list(ring: &KeyRing, now_s: u64, json: bool) -> anyhow::Result<()> {
    if json {
        let records: serde_json::Value = ring.list(now_s).map(|key| record(&key)).collect();
        return terminal::print_result(&records.to_string());
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
    // Only servers and agents make a ring, because they know its schedule.
    keys.ring(now_s)?;
    let id = keys.rotate(now_s)?;
    let key = keys.ring(now_s)?.list(now_s).find(|key| key.id == id);
    let changed = || format!("another process has changed the keys: see {}", keys.how_to_list());
    let key = key.with_context(changed)?;
    let replicas = keys.replicas(now_s);
    if json {
        return terminal::print_result(&with_replicas(record(&key), replicas).to_string());
    }
    let wait = time(key.encrypts_from_s.saturating_sub(now_s));
    terminal::print_result(&format!("made {id}, which encrypts in {wait}{}", told(replicas)))
}

fn retire(
    keys: &mut Keys,
    beginning: &str,
    folder: &Path,
    now_s: u64,
    json: bool,
) -> anyhow::Result<()> {
    let ring = keys.ring(now_s)?;
    // An empty beginning would fit the only key, which encrypts.
    let is_id = |text: &str| text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id(beginning) {
        let how = "give at least 4 hexadecimal digits of the key's id";
        return Err(Misuse(format!("{beginning:?}: {how}: see {}", keys.how_to_list())).into());
    }
    let fits = |key: &KeyStatus| key.id.to_string().starts_with(&beginning.to_lowercase());
    let found: Vec<KeyId> = ring.list(now_s).filter(fits).map(|key| key.id).collect();
    let [id] = found.as_slice() else {
        let what = if found.is_empty() { "no key begins" } else { "several keys begin" };
        let text = format!("{what} with {beginning:?}: see {}", keys.how_to_list());
        return Err(Misuse(text).into());
    };
    anyhow::ensure!(keys.retire(id, now_s)?, "{id}: another process has retired it");
    let replicas = keys.replicas(now_s);
    let out_of_reach = out_of_reach(keys, folder);
    let behind = keys.machines_behind();
    if json {
        let mut record = with_replicas(json!({"retired": id.to_string()}), replicas);
        if matches!(keys, Keys::Cache(_)) {
            record["out_of_reach"] = out_of_reach.into();
        }
        if matches!(keys, Keys::Cluster { .. }) {
            record["machines_behind"] = behind.into();
        }
        return terminal::print_result(&record.to_string());
    }
    let (who, soon) = match keys {
        Keys::Cache(_) => ("no server that uses this cache", "a second"),
        Keys::File(..) => ("no server that uses this file", "a second"),
        Keys::Cluster { .. } => ("no server whose agent reaches Valkey", "three seconds"),
    };
    let replicas = told(replicas);
    terminal::print_result(&format!(
        "retired {id}: {who} opens its tickets {soon} from now{replicas}"
    ))
}

/// Returns the processes that still have an earlier cache of this name, with a ring of its own, and warns of them.
fn out_of_reach(keys: &Keys, folder: &Path) -> Vec<u32> {
    let Keys::Cache(store) = keys else { return Vec::new() };
    let name = store.name();
    let found = status::found::with_cache(folder, name, true).unwrap_or_default();
    for Process { id, program, .. } in &found {
        terminal::complain(&format!(
            "process {id} ({program}) uses a cache {name} that has lost its name, and may still open tickets of this key: \
             restart it"
        ));
    }
    found.iter().map(|process| process.id).collect()
}

/// Says how many replicas have a change.
fn told(replicas: Option<Replicas>) -> String {
    replicas.map_or_else(String::new, |Replicas { connected, reached }| {
        format!("; {reached} of {connected} replicas of Valkey have the change")
    })
}

fn with_replicas(mut record: serde_json::Value, replicas: Option<Replicas>) -> serde_json::Value {
    if let Some(Replicas { connected, reached }) = replicas {
        record["replicas"] = connected.into();
        record["replicas_with_the_change"] = reached.into();
    }
    record
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
