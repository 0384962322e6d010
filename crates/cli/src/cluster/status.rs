//! `rejoin cluster status`

use std::path::Path;

use rejoin_cluster::sessions::Counts;
use rejoin_cluster::{Census, ClusterSecret, KeyName, Link, Sessions, Settings};
use rejoin_store::{Mailbox, MailboxFacts, Store};
use rejoin_tickets::{KeyRing, Schedule};
use rejoin_trace::grouped;
use serde_json::{Value, json};

use super::{keys, link_to_look, machines, now_s, rekey, runtime};
use crate::terminal;

/// The facts that are shown of a cluster.
struct Status {
    /// The ticket keys in the ring.
    keys: usize,
    ring_version: u64,
    /// The key that the ring in Valkey is under.
    ring_key: Option<KeyName>,
    sessions: Counts,
    census: Census,
    /// This machine's lookups, if an agent was started.
    here: Option<MailboxFacts>,
}

pub(super) fn show(settings: &Settings, json: bool) -> anyhow::Result<()> {
    let key_file = settings.open_key_file()?;
    let secret = key_file.secret();
    let status = runtime()?.block_on(read(settings, secret))?;
    terminal::print_result(&match json {
        true => status.record(settings, secret).to_string(),
        false => status.text(settings, secret),
    })
}

async fn read(settings: &Settings, secret: &ClusterSecret) -> anyhow::Result<Status> {
    let now_s = now_s()?;
    let sites = settings.all_sites()?;
    let own = Link::connect(sites.own()).await?;
    let mut keys = keys(settings, secret, None)?.only_followed();
    let mut link = match sites.home_elsewhere() {
        Some(_) => link_to_look(&sites).await?,
        None => own.clone(),
    };
    keys.follow(&mut link, now_s).await?;
    let ring = keys.ring().cloned().unwrap_or_else(|| KeyRing::new(Schedule::default()));
    let census = Census::take(&settings.name, secret, &sites, own.clone()).await;
    let sessions = Sessions::of_cluster(own, settings, secret, &ring)?.total().await?;
    Ok(Status {
        keys: ring.list(now_s).count(),
        ring_version: keys.version(),
        ring_key: keys.wrapped_under(),
        sessions,
        census,
        here: lookups(&settings.folder, settings)?,
    })
}

impl Status {
    fn record(&self, settings: &Settings, secret: &ClusterSecret) -> Value {
        let Self { sessions, here, census, .. } = self;
        let mut record = json!({
            "cluster": settings.name.as_str(),
            "keys": self.keys,
            "ring_version": self.ring_version,
            "cluster_key": rekey::record(secret),
            "ring_key": self.ring_key.map(|name| name.to_string()),
            "sessions": sessions.sessions,
            "bytes": sessions.bytes,
            "stored": sessions.stored,
            "evicted_overdue": sessions.overdue,
            "evicted_latest": sessions.latest,
            "expired": sessions.expired,
            "refused": sessions.refused,
            "rejected": sessions.rejected,
            "linked": here.is_some_and(|of| of.is_linked),
            "asked": here.map(|of| of.asked),
            "fetched": here.map(|of| of.fetched),
            "late": here.map(|of| of.late),
            "skipped": here.map(|of| of.skipped),
            "dropped": here.map(|of| of.dropped),
        });
        machines::add_to(&mut record, census, self.ring_version);
        record
    }

    fn text(&self, settings: &Settings, secret: &ClusterSecret) -> String {
        let Self { keys, sessions, here, .. } = self;
        let lines = [
            format!("cluster {}: {keys} ticket keys", settings.name),
            rekey::status(secret, self.ring_key),
            format!("sessions {} in {} bytes", grouped(sessions.sessions), grouped(sessions.bytes)),
            format!(
                "stored {}, evicted {} overdue and {} latest, expired {}, refused {}, rejected {}",
                grouped(sessions.stored),
                grouped(sessions.overdue),
                grouped(sessions.latest),
                grouped(sessions.expired),
                grouped(sessions.refused),
                grouped(sessions.rejected)
            ),
            here.map_or_else(|| "this machine: no agent was started".to_owned(), here_is),
            machines::text(&self.census, self.ring_version),
        ];
        lines.join("\n")
    }
}

fn here_is(of: MailboxFacts) -> String {
    format!(
        "this machine: {}; asked {}, fetched {}, late {}, not asked {}, dropped {}",
        if of.is_linked { "linked" } else { "not linked" },
        grouped(of.asked),
        grouped(of.fetched),
        grouped(of.late),
        grouped(of.skipped),
        grouped(of.dropped)
    )
}

fn lookups(folder: &Path, settings: &Settings) -> anyhow::Result<Option<MailboxFacts>> {
    match Store::open(folder, &settings.cache()?, None) {
        Ok(store) => Ok(store.mailbox().map(Mailbox::facts)),
        Err(rejoin_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
