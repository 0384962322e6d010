//! `rejoin enable` and `rejoin disable`: a service of systemd gets Rejoin, and loses it again.
//!
//! A service gets two files: `/etc/rejoin/NAME.cnf`, which loads librejoin.so and has its settings, and a drop-in of the
//! unit, which names the first. Both begin with the line that tells whose they are; no other file is written or removed.

mod clients;
pub(crate) mod disable;
mod files;
mod linked;
mod plan;
mod seen;
mod systemctl;
mod unit;

use std::path::PathBuf;

use anyhow::Context;
use rustix::fs::Mode;

use crate::arguments::Misuse;
use crate::terminal::{complain, print};
use crate::units::Bytes;
use clients::Whose;
use plan::Plan;
use unit::Unit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes /etc/rejoin/NAME.cnf, which loads librejoin.so and has its settings, and a drop-in of the
unit that sets OPENSSL_CONF to it. The server itself is not changed. Rejoin begins with the unit's
next start: --now restarts it, connects to it twice, and tells whether the second connection
resumed, or why not. If it does not start, the files are removed again. Files that are there are
kept as they are, with the settings that you gave them. `rejoin disable NAME` removes both.
`clients` stands for programs that are not changed, such as curl, Python and git: they go through
the TLS manager, which is started. By default root means all users, and others mean themselves.
Exit codes: 0 if done, 1 if not, or with --now if no connection resumed, 2 for wrong arguments.
Examples:
  rejoin enable nginx --dry-run
  rejoin enable nginx --now
  rejoin enable haproxy --now --stateful --capacity 256MiB
  rejoin enable clients --dry-run")]
pub(crate) struct Arguments {
    /// The service's name, as systemctl knows it, or `clients`
    #[arg(value_name = "NAME")]
    name: String,
    /// Restart the service now, and see whether clients resume
    #[arg(long)]
    now: bool,
    /// Write nothing; tell what would be written
    #[arg(long, conflicts_with = "now")]
    dry_run: bool,
    /// Memory that the cache may take [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,
    /// Issue no stateless tickets, so that the sessions of TLS 1.3 clients are in the cache, too
    #[arg(long)]
    stateful: bool,
    /// librejoin.so [default: the one beside this program, else in the system's library folders]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Everybody may read the files and root alone may write them, whatever this shell's umask.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let library = crate::run::library(arguments.library.as_deref())?;
    if arguments.name == clients::NAME {
        let of_services = [
            ("--now", arguments.now),
            ("--capacity", arguments.capacity.is_some()),
            ("--stateful", arguments.stateful),
        ];
        if let Some((option, _)) = of_services.into_iter().find(|(_, is_given)| *is_given) {
            return Err(clients::not_of(option).into());
        }
        return clients::enable(Whose::by_default(), &library, arguments.dry_run);
    }
    let unit = Unit::named(&arguments.name)?;
    let linked = linked::of(&unit);
    let capacity = arguments.capacity.unwrap_or(Bytes(64 << 20));
    let plan = Plan::new(&unit, &linked, &library, capacity, arguments.stateful)
        .map_err(|why| Misuse(format!("{}: {why}", unit.id)))?;
    plan.notes.iter().for_each(|note| complain(&format!("{}: {note}", unit.id)));
    if arguments.dry_run {
        plan.files.iter().for_each(|file| print(&file.shown()));
        return Ok(());
    }
    for file in &plan.files {
        file.check()?;
    }
    let mut written = Vec::new();
    for file in &plan.files {
        if file.write()? {
            print(&format!("wrote    {}", file.path.display()));
            written.push(file.path.clone());
        } else {
            print(&format!("kept     {}, with what it says", file.path.display()));
        }
    }
    systemctl::reload()?;
    let attached = Unit::named(&unit.id)?;
    if let Some(why) = attached.overrides(&files::settings(unit.short_name())) {
        complain(&format!("{}: Rejoin would not be loaded: {why}", unit.id));
    }
    if !arguments.now {
        print(&format!(
            "Rejoin begins when {} next starts:  systemctl restart {}",
            unit.id,
            unit.short_name()
        ));
        return Ok(());
    }
    if let Err(why) = restarted(&unit) {
        return Err(taken_back(&unit, &written, why));
    }
    let tells = format!("rejoin doctor {}", unit.short_name());
    seen::tell(&attached).with_context(|| format!("see  {tells}"))
}

/// Restarts a unit, whatever it counts against it.
fn restarted(unit: &Unit) -> anyhow::Result<()> {
    print(&format!("restarting {}", unit.id));
    let _ = systemctl::run(&["reset-failed", &unit.id]);
    systemctl::run(&["restart", &unit.id])
}

/// Removes the files that were just written, because the unit does not start, and starts it again if it ran before. Returns
/// the error to be told.
fn taken_back(unit: &Unit, written: &[PathBuf], why: anyhow::Error) -> anyhow::Error {
    let name = unit.short_name();
    if written.is_empty() {
        // The files were there before, with the operator's settings.
        let file = files::settings(name);
        let mend = format!("mend {}, or: rejoin disable {name} --now", file.display());
        return why.context(format!("it does not start, and is down: {mend}"));
    }
    for path in written {
        let _ = files::remove(path);
    }
    let again = systemctl::reload().and_then(|()| match unit.is_running() {
        true => restarted(unit),
        false => Ok(()),
    });
    why.context(match again {
        Ok(()) => "it did not start with Rejoin, which was taken back: it is as it was".to_owned(),
        Err(_) => format!(
            "it does not start, without Rejoin either, and is down: see  journalctl --unit {name}"
        ),
    })
}
