//! `rejoin store`

use std::path::{Path, PathBuf};

use rejoin_report::printable;
use rejoin_store::{CacheName, Store};
use rejoin_trace::grouped;
use serde_json::json;

use crate::terminal;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A cache is a file that the processes of a server share; see docs/servers.md.
Examples:
  rejoin store list
  rejoin store check web
  rejoin store remove web")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The folder of the caches
    #[arg(long, value_name = "FOLDER", default_value = Store::FOLDER, global = true)]
    folder: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the caches
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// Check the integrity of every session of a cache, while servers use it
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        #[arg(value_name = "NAME")]
        name: CacheName,
    },
    /// Wipe a cache and remove it; servers that use it go on with an empty one. Only root can remove
    /// a cache of another user, which is not wiped
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove {
        #[arg(value_name = "NAME")]
        name: CacheName,
    },
}

const LIST_EXAMPLES: &str = "\
Examples:
  rejoin store list
  rejoin store list --json --folder /srv/web/caches";
const CHECK_EXAMPLES: &str = "\
Examples:
  rejoin store check web";
const REMOVE_EXAMPLES: &str = "\
Examples:
  rejoin store remove web";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { action, folder, json } = arguments;
    match action {
        Action::List => list(folder, *json),
        Action::Check { name } => check(folder, name, *json),
        Action::Remove { name } => remove(folder, name, *json),
    }
}

fn list(folder: &Path, json: bool) -> anyhow::Result<()> {
    let (mut rows, mut records) = (Vec::new(), Vec::new());
    for name in Store::list(folder)? {
        match Store::open(folder, &name, None) {
            Ok(store) if json => {
                let counters = store.cache().counters();
                let (bytes, capacity) = (store.facts().bytes, store.cache().capacity_sessions());
                let sessions = counters.sessions;
                records.push(json!({"name": name.to_string(), "bytes": bytes, "sessions": sessions, "capacity_sessions": capacity}));
            }
            Ok(store) => rows.push(vec![
                name.to_string(),
                grouped(store.facts().bytes),
                grouped(store.cache().counters().sessions),
                grouped(store.cache().capacity_sessions()),
            ]),
            // A cache that cannot be opened exists all the same.
            Err(error) if json => {
                records.push(json!({"name": name.to_string(), "problem": error.to_string()}));
            }
            Err(error) if error.cache().is_some() => terminal::complain(&error.to_string()),
            Err(error) => terminal::complain(&format!("{name}: {error}")),
        }
    }
    if json {
        return terminal::print_result(&serde_json::Value::from(records).to_string());
    }
    if rows.is_empty() {
        return Ok(());
    }
    let head = ["cache", "bytes", "sessions", "fit"];
    terminal::print_result(&rejoin_report::table(&[0], head, rows))
}

fn check(folder: &Path, name: &CacheName, json: bool) -> anyhow::Result<()> {
    let store = Store::open(folder, name, None)?;
    let shards = store.check();
    let wrong: Vec<String> = shards
        .iter()
        .enumerate()
        .filter_map(|(at, shard)| Some(format!("shard {at}: {}", shard.as_ref().err()?)))
        .collect();
    let sessions: u64 = shards.iter().flatten().map(|checked| checked.sessions).sum();
    if json {
        let found = json!({"shards": shards.len(), "sessions": sessions, "wrong": wrong});
        terminal::print_result(&found.to_string())?;
    } else {
        let (shards, sessions) = (grouped(shards.len() as u64), grouped(sessions));
        terminal::print_result(&format!("{name}: {shards} shards, {sessions} sessions"))?;
    }
    wrong.iter().for_each(|line| terminal::complain(&printable(line)));
    anyhow::ensure!(wrong.is_empty(), "{name}: {} shards are inconsistent", wrong.len());
    Ok(())
}

fn remove(folder: &Path, name: &CacheName, json: bool) -> anyhow::Result<()> {
    let removed = Store::remove(folder, name)?;
    anyhow::ensure!(removed, "{name}: no such cache; rejoin store list names them");
    if json {
        return terminal::print_result(&json!({"removed": name.to_string()}).to_string());
    }
    Ok(())
}
