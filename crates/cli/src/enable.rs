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

use crate::arguments::Misuse;
use crate::terminal::{complain, print};
use crate::units::Bytes;
use clients::Whose;
use plan::Plan;
use unit::Unit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes /etc/rejoin/NAME.cnf, which loads librejoin.so and has its settings, and a drop-in of the unit
that sets OPENSSL_CONF to it. The server itself is not changed. Rejoin begins with the unit's next
start: --now restarts it, connects to it twice, and tells whether the second connection resumed, or
why not. `rejoin disable NAME` removes both files.
`clients` stands for programs that are not changed, such as curl, Python and git: they go through the
TLS manager, which is started. By default root means all users, and others mean themselves.
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
    /// Memory that the cache may take
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    capacity: Bytes,
    /// Issue no stateless tickets, so that the sessions of TLS 1.3 clients are in the cache, too
    #[arg(long)]
    stateful: bool,
    /// librejoin.so [default: the one beside this program, else in the system's library folders]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let library = crate::run::library(arguments.library.as_deref())?;
    if arguments.name == clients::NAME {
        return clients::enable(Whose::by_default(), &library, arguments.dry_run);
    }
    let unit = Unit::named(&arguments.name)?;
    let linked = linked::of(&unit);
    let plan = Plan::new(&unit, &linked, &library, arguments.capacity, arguments.stateful)
        .map_err(|why| Misuse(format!("{}: {why}", unit.id)))?;
    plan.notes.iter().for_each(|note| complain(&format!("{}: {note}", unit.id)));
    if arguments.dry_run {
        plan.files.iter().for_each(|file| print(&file.shown()));
        return Ok(());
    }
    for file in &plan.files {
        print(&file.write()?);
    }
    systemctl::run(&["daemon-reload"])?;
    if !arguments.now {
        print(&format!(
            "Rejoin begins when {} next starts:  systemctl restart {}",
            unit.id,
            unit.short_name()
        ));
        return Ok(());
    }
    restarted(&unit)?;
    let tells = format!("rejoin status {}", unit.short_name());
    seen::tell(&unit).with_context(|| format!("see  {tells}"))
}

/// Restarts a unit. If it does not start, the files are told that may be the cause.
fn restarted(unit: &Unit) -> anyhow::Result<()> {
    print(&format!("restarting {}", unit.id));
    systemctl::run(&["restart", &unit.id]).with_context(|| {
        format!("it may be Rejoin's fault: rejoin disable {} --now", unit.short_name())
    })
}
