//! `rejoin cluster`

mod machines;
mod metrics;
mod rekey;
mod status;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rejoin_cluster::{
    Agent, ClusterKeys, ClusterSecret, Error, KeyFile, Link, News, RekeyStep, RingRecord, Settings,
    Sites,
};
use rejoin_store::Store;
use rejoin_tickets::Schedule;

pub(crate) use machines::behind;

use crate::arguments::{address, one_of};
#[cfg(feature = "lab")]
use crate::instruments::drill;
use crate::{process, terminal};

/// The default file of a cluster's settings.
pub(crate) const SETTINGS: &str = "/etc/rejoin/cluster.toml";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Servers on several machines resume each other's sessions and share ticket keys through Valkey or
Redis; see docs/cluster.md. An agent must run on each machine before its servers start.
Examples:
  rejoin cluster key /etc/rejoin/cluster.key
  rejoin cluster run --user rejoin --metrics 127.0.0.1:9466
  rejoin cluster rekey add
  rejoin cluster status --json")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The cluster's settings
    #[arg(long, value_name = "FILE", default_value = SETTINGS, global = true)]
    settings: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make the key that encrypts all data that leaves a machine; copy it to the other machines. A file that
    /// exists is never written over
    #[command(after_help = KEY_EXAMPLES)]
    Key {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Replace the cluster's key, in three steps; copy the key file to all machines after each, before the next
    #[command(after_help = REKEY_EXAMPLES)]
    Rekey {
        #[arg(value_name = "STEP", value_parser = one_of(rekey::STEPS))]
        step: RekeyStep,
    },
    /// Run the agent, which carries ticket keys and sessions between this machine's servers and Valkey
    #[command(after_help = RUN_EXAMPLES)]
    Run {
        /// Switch to this user once all files are read and the cache exists
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Accept the ring of ticket keys in Valkey, even if this machine has seen a newer one
        #[arg(long)]
        accept_older_ring: bool,
        /// The address on loopback to serve /metrics for Prometheus on, over plain HTTP
        #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
        metrics: Option<SocketAddr>,
    },
    /// Show what the cluster holds, and all of its machines
    #[command(after_help = STATUS_EXAMPLES)]
    Status,
    #[cfg(feature = "lab")]
    /// Break something in a staging cluster, and report what handshakes saw
    Drill(Box<drill::Arguments>),
}

const KEY_EXAMPLES: &str = "\
Examples:
  rejoin cluster key /etc/rejoin/cluster.key";
const REKEY_EXAMPLES: &str = "\
Examples:
  rejoin cluster rekey add
  rejoin cluster rekey use
  rejoin cluster rekey drop";
const RUN_EXAMPLES: &str = "\
Examples:
  rejoin cluster run --user rejoin --metrics 127.0.0.1:9466";
const STATUS_EXAMPLES: &str = "\
Examples:
  rejoin cluster status
  rejoin cluster status --json --settings /etc/rejoin/staging.toml";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { action, settings, json } = arguments;
    match action {
        Action::Key { file } => {
            if file.symlink_metadata().is_ok() {
                let how = "to replace the key of a cluster that runs, use rejoin cluster rekey; else move the file away";
                let told =
                    format!("{}: it exists, and is never written over: {how}", file.display());
                return Err(anyhow::anyhow!(told));
            }
            ClusterSecret::create(file)?;
            terminal::print_result(&format!(
                "made {}: copy it to each machine of the cluster, and nowhere else",
                file.display()
            ))
        }
        Action::Rekey { step } => rekey::take(&settings_of(settings, None)?, *step, *json),
        Action::Run { user, accept_older_ring, metrics } => {
            let metrics = metrics.map(metrics::check).transpose()?;
            let settings = settings_of(settings, user.as_deref())?;
            let user = user.as_deref().or(settings.agent_user.as_deref());
            carry(&settings, user, *accept_older_ring, metrics)
        }
        Action::Status => status::show(&settings_of(settings, None)?, *json),
        #[cfg(feature = "lab")]
        Action::Drill(arguments) => drill::run(arguments, *json),
    }
}

/// Reads the cluster's settings. The key file may belong to the user that they name, or else to this one.
pub(crate) fn settings_of(path: &Path, user: Option<&str>) -> anyhow::Result<Settings> {
    let mut settings = Settings::read(path)?;
    settings.agent_user = settings.agent_user.or_else(|| user.map(str::to_owned));
    settings.agent_uid = settings.agent_user.as_deref().map(process::uid).transpose()?;
    Ok(settings)
}

/// Reads the key file again, if it has changed. Returns true if it has other keys, which are used from now on.
pub(crate) fn is_renewed(key_file: &mut KeyFile) -> bool {
    let renewed = key_file.renew();
    match &renewed {
        Ok(true) => terminal::print(&format!(
            "the cluster's key file has changed: {}",
            rekey::keys(key_file.secret())
        )),
        Ok(false) => {}
        Err(error) => terminal::complain(&format!("{error}; {}", rekey::stays(error))),
    }
    renewed.is_ok_and(|is_other| is_other)
}

/// Starts a runtime with one thread.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")
}

fn carry(
    settings: &Settings,
    user: Option<&str>,
    accepts_older: bool,
    metrics: Option<SocketAddr>,
) -> anyhow::Result<()> {
    let agent = process::confined(user, || Ok(Agent::new(settings.clone())?))?;
    let agent = agent.accepting_older_ring(accepts_older);
    let name = settings.name.clone();
    terminal::print(&format!(
        "cluster {name}: cache {} in {}",
        agent.store().name(),
        settings.folder.display()
    ));
    let store = Arc::clone(agent.store());
    let tell = |news: News<'_>| match news {
        News::Linked(primary) => {
            terminal::print(&format!("cluster {name}: linked with {primary}"));
        }
        News::Cut(error) => {
            terminal::complain(&format!("cluster {name}: {error}; {}", goes_on_with(&store)));
        }
        News::HomeLinked(site) => {
            terminal::print(&format!(
                "cluster {name}: linked with {site}, the home of its ticket keys"
            ));
        }
        News::HomeCut(site, error) => terminal::complain(&format!(
            "cluster {name}: {site}, the home of its ticket keys: {error}; servers go on with the keys that they have, \
             and none is made"
        )),
        News::Denied(error) => complain_of_denial(settings, error),
        News::TwoPrimaries(error) | News::Unseen(error) => {
            terminal::complain(&format!("cluster {name}: {error}"));
        }
        News::ClocksApart(Some(ahead_s)) => terminal::complain(&format!(
            "cluster {name}: {}; no key is made here, and no session is removed for its age",
            Error::ClocksApart { ahead_s }
        )),
        News::ClocksApart(None) => {
            terminal::print(&format!("cluster {name}: the clock is right again"));
        }
        News::WaitsForRing(true) => terminal::complain(&format!(
            "cluster {name}: Valkey has lost the ring of ticket keys, and this machine has none: a new one begins in half a \
             minute, if no other machine puts the last one back"
        )),
        News::WaitsForRing(false) => {
            terminal::print(&format!("cluster {name}: there are ticket keys again"));
        }
        News::Unrecorded(error) => complain_of_record(error),
        News::Rekeyed(secret) => terminal::print(&format!(
            "cluster {name}: the key file has changed: {}",
            rekey::keys(secret)
        )),
        News::NotRekeyed(error) => {
            terminal::complain(&format!("cluster {name}: {error}; {}", rekey::stays(error)))
        }
    };
    runtime()?.block_on(async {
        let port = match metrics {
            Some(address) => Some(metrics::Port::listen(&agent, name.to_string(), address).await?),
            None => None,
        };
        process::notify("READY=1");
        let served = async {
            match port {
                Some(port) => port.serve().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = agent.run(terminal::interrupted(), tell) => Ok(done?),
            () = served => Ok(()),
        }
    })
}

/// Returns what servers have while Valkey does not answer.
fn goes_on_with(store: &Store) -> &'static str {
    match store.ring() {
        Ok(None) => {
            "this machine has no ticket keys of the cluster so far: a ticket that its servers issue opens on this machine alone"
        }
        _ => "servers go on with what this machine has",
    }
}

/// Returns the cluster's keys as this machine has seen them: a ring that is older than the newest seen is refused.
pub(crate) fn keys(
    settings: &Settings,
    secret: &ClusterSecret,
    schedule: Option<Schedule>,
) -> anyhow::Result<ClusterKeys> {
    let record = RingRecord::open(&settings.key_file, secret, &settings.name)?;
    Ok(ClusterKeys::new(settings.name.clone(), secret, schedule)?.recorded_in(record))
}

/// Connects to the Valkey in which the cluster's ring is changed.
pub(crate) async fn link_with_home(sites: &Sites) -> anyhow::Result<Link> {
    let linked = Link::connect(sites.home()).await;
    match sites.home_elsewhere() {
        None => Ok(linked?),
        Some(site) => linked.with_context(|| {
            format!("{site}, the home of the ticket keys, cannot be reached from here")
        }),
    }
}

/// Connects to the Valkey that shows the cluster's ring: the home's, or else the own site's, which has a copy.
pub(crate) async fn link_to_look(sites: &Sites) -> anyhow::Result<Link> {
    match link_with_home(sites).await {
        Err(error) if sites.home_elsewhere().is_some() => {
            let why = terminal::chain(&error);
            terminal::complain(&format!("{why}; this site has a copy of them"));
            Ok(Link::connect(sites.own()).await?)
        }
        linked => linked,
    }
}

/// Says what Valkey does not do, and the remedy where it is the user's rules.
fn complain_of_denial(settings: &Settings, error: &Error) {
    let consequence = match error.is_refusal() {
        true => "; clients that change machines make full handshakes".to_owned(),
        false => {
            let user = settings.user.as_deref().unwrap_or("USER");
            format!(", that is: ACL SETUSER {user} {}", settings.acl_rules())
        }
    };
    terminal::complain(&format!("cluster {}: {error}{consequence}", settings.name));
}

pub(crate) fn complain_of_record(error: &Error) {
    terminal::complain(&format!(
        "{error}: after a restart of this machine, an older ring of ticket keys will not be recognised"
    ));
}

/// Returns the Unix time in seconds.
pub(crate) fn now_s() -> anyhow::Result<u64> {
    Ok(std::time::SystemTime::UNIX_EPOCH.elapsed().context("the clock is before 1970")?.as_secs())
}
