//! `rejoin disable`

use std::fs;
use std::path::{Path, PathBuf};

use rejoin_store::{CacheName, Store};
use rustix::fs::Mode;

use super::clients::{self, Whose};
use super::unit::{self, Unit};
use super::{files, restarted, systemctl};
use crate::arguments::Misuse;
use crate::status;
use crate::terminal::{chain, complain, print};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes the two files that `rejoin enable NAME` wrote, and the service's cache, unless it is in use.
A service that runs keeps Rejoin until its next start, and until then an empty file of settings,
because it may read them again. Run the command again then, or give --now.
Examples:
  rejoin disable nginx --now
  rejoin disable --all")]
pub(crate) struct Arguments {
    /// The service's name, as systemctl knows it, or `clients`
    #[arg(value_name = "NAME", required_unless_present = "all")]
    name: Option<String>,
    /// All services that `rejoin enable` attached
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// Restart the service now
    #[arg(long)]
    now: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { name, all, now } = arguments;
    if *now && name.as_deref() == Some(clients::NAME) {
        return Err(clients::not_of("--now").into());
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let is_of_clients = *all || name.as_deref() == Some(clients::NAME);
    if is_of_clients && clients::disable(Whose::by_default())? && !all {
        return Ok(());
    }
    let names = match name {
        Some(name) => names(name)?,
        None => of_all(),
    };
    let attached: Vec<String> = names.into_iter().filter(|name| has_files(name)).collect();
    if attached.is_empty() {
        let Some(name) = name else { return Ok(()) };
        return Err(Misuse(format!("{name}: `rejoin enable` has written nothing for it")).into());
    }
    // One that cannot be taken back keeps no other.
    let mut failed = None;
    for name in &attached {
        if let Err(why) = taken_back(name, *now, *all) {
            complain(&format!("{name}: {}", chain(&why)));
            failed = Some(why);
        }
    }
    failed.map_or(Ok(()), |_| Err(anyhow::anyhow!("not all was taken back")))
}

/// Returns the names without `.service` that may be meant, an alias' own name included.
fn names(name: &str) -> anyhow::Result<Vec<String>> {
    unit::check(name)?;
    let known = Unit::named(name).ok().map(|unit| unit.short_name().to_owned());
    let given = unit::names(name.strip_suffix(".service").unwrap_or(name));
    Ok(rejoin_report::distinct(given.into_iter().map(str::to_owned).chain(known)))
}

fn drop_in(name: &str) -> PathBuf {
    Path::new(files::UNITS).join(format!("{name}.service.d")).join(files::DROP_IN)
}

fn has_files(name: &str) -> bool {
    files::is_ours(&files::settings(name)) || files::is_ours(&drop_in(name))
}

/// Takes back what was done to a service. `is_all`: the libraries go, too.
fn taken_back(name: &str, now: bool, is_all: bool) -> anyhow::Result<()> {
    let (settings, drop_in) = (files::settings(name), drop_in(name));
    let cache = cache_of(&settings);
    if files::remove(&drop_in)? {
        print(&format!("removed  {}", drop_in.display()));
    }
    systemctl::reload()?;
    // One that systemd does not know has no processes.
    let unit = Unit::named(name).ok().filter(Unit::is_running);
    match &unit {
        Some(unit) if now => restarted(unit)?,
        Some(unit) => {
            files::disarm(&settings)?;
            print(&format!(
                "{} keeps Rejoin until it next starts:  systemctl restart {}",
                unit.id,
                unit.short_name()
            ));
        }
        None => {}
    }
    if unit.is_none() || now {
        files::remove(&settings)?;
        print(&format!("removed  {}", settings.display()));
    }
    let Some((folder, cache)) = cache else { return Ok(()) };
    if !is_all && !status::found::with_cache(&folder, &cache, false)?.is_empty() {
        print(&format!(
            "kept     the cache {cache}, which is in use: `rejoin store remove {cache}` removes it"
        ));
    } else if Store::remove(&folder, &cache)? {
        print(&format!("removed  the cache {cache}"));
    }
    Ok(())
}

/// Returns the folder and the name of the cache that a settings file of ours names.
fn cache_of(settings: &Path) -> Option<(PathBuf, CacheName)> {
    let text = fs::read_to_string(settings).ok().filter(|_| files::is_ours(settings))?;
    let value = |name: &str| {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs
            .filter(|(key, _)| key.trim_start_matches(['#', ' ']).trim_end() == name)
            .map(|(_, value)| value.split('#').next().unwrap_or_default().trim().to_owned())
            .next_back()
    };
    let folder = value("folder").unwrap_or_else(|| Store::FOLDER.to_owned());
    Some((folder.into(), value("cache")?.parse().ok()?))
}

/// Returns the names of all services that have files of ours.
fn of_all() -> Vec<String> {
    let entries = |folder| fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    let without =
        |ending: &'static str| move |name: String| name.strip_suffix(ending).map(str::to_owned);
    let settings = entries(files::SETTINGS).filter_map(name).filter_map(without(".cnf"));
    let drop_ins = entries(files::UNITS).filter_map(name).filter_map(without(".service.d"));
    let names = rejoin_report::distinct(settings.chain(drop_ins));
    names.into_iter().filter(|name| has_files(name)).collect()
}
