//! `rejoin disable`

use std::fs;
use std::path::{Path, PathBuf};

use rejoin_store::{CacheName, Store};

use super::clients::{self, Whose};
use super::unit::{self, Unit};
use super::{files, restarted, systemctl};
use crate::arguments::Misuse;
use crate::terminal::print;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes the two files that `rejoin enable NAME` wrote, and the service's cache, unless another service
uses it, too. A service that runs keeps Rejoin until its next start.
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
    let is_of_clients = *all || name.as_deref() == Some(clients::NAME);
    if is_of_clients && clients::disable(Whose::by_default())? && !all {
        return Ok(());
    }
    let files = name.as_ref().map_or_else(of_all, |name| of(name));
    let mut units = Vec::new();
    let mut caches = Vec::new();
    for file in files {
        caches.extend(cache_of(&file));
        if files::remove(&file)? {
            print(&format!("removed  {}", file.display()));
            units.extend(unit_of(&file));
        }
    }
    if units.is_empty() {
        let Some(name) = name else { return Ok(()) };
        return Err(Misuse(format!("{name}: `rejoin enable` has written nothing for it")).into());
    }
    systemctl::run(&["daemon-reload"])?;
    for unit in rejoin_report::distinct(units) {
        match Unit::named(&unit)? {
            found if *now => restarted(&found)?,
            found if found.main_process.is_some() => print(&format!(
                "{unit} keeps Rejoin until it next starts:  systemctl restart {}",
                found.short_name()
            )),
            _ => {}
        }
    }
    let others: Vec<_> = of_all().iter().filter_map(|file| cache_of(file)).collect();
    for (folder, cache) in caches.into_iter().filter(|cache| !others.contains(cache)) {
        if Store::remove(&folder, &cache)? {
            print(&format!("removed  the cache {cache}"));
        }
    }
    Ok(())
}

/// Returns the folder and the name of the cache that a settings file of ours names.
fn cache_of(settings: &Path) -> Option<(PathBuf, CacheName)> {
    let text = fs::read_to_string(settings).ok().filter(|_| files::is_ours(settings))?;
    let value = |name: &str| {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs
            .filter(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim().to_owned())
            .next_back()
    };
    let folder = value("folder").unwrap_or_else(|| Store::FOLDER.to_owned());
    Some((folder.into(), value("cache")?.parse().ok()?))
}

/// Returns the two files of a service, under each name that may be meant.
fn of(name: &str) -> Vec<PathBuf> {
    let name = name.strip_suffix(".service").unwrap_or(name);
    let files = |name: &str| {
        let folder = Path::new(files::UNITS).join(format!("{name}.service.d"));
        [files::settings(name), folder.join(files::DROP_IN)]
    };
    unit::names(name).into_iter().flat_map(files).collect()
}

/// Returns the files of all services.
fn of_all() -> Vec<PathBuf> {
    let paths = |folder| fs::read_dir(folder).into_iter().flatten().flatten().map(|of| of.path());
    let settings = paths(files::SETTINGS);
    let drop_ins = paths(files::UNITS).map(|folder| folder.join(files::DROP_IN));
    settings.chain(drop_ins).filter(|path| files::is_ours(path)).collect()
}

/// Returns the unit of a drop-in.
fn unit_of(drop_in: &Path) -> Option<String> {
    let folder = drop_in.parent()?.file_name()?.to_str()?;
    folder.strip_suffix(".d").map(str::to_owned)
}
