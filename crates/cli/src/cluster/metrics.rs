//! The metrics of a cluster's agent, and the port that serves them.

use std::net::SocketAddr;
use std::sync::Arc;

use rejoin_cluster::{Agent, Health, HealthFacts, SoughtFacts};
use rejoin_serve::metrics::{Meters, by};
use rejoin_serve::{Answer, StatusPort};
use rejoin_store::{Mailbox, MailboxFacts, Store};

use crate::arguments::Misuse;
use crate::terminal;
use crate::ticket_keys::TicketKeys;

/// The port of an agent. It shows no key and no session, and listens on loopback only.
pub(super) struct Port {
    port: StatusPort,
    shown: Shown,
}

#[derive(Debug)]
struct Shown {
    cluster: String,
    store: Arc<Store>,
    health: Arc<Health>,
}

impl Port {
    /// Listens, and prints where.
    pub(super) async fn listen(
        agent: &Agent,
        cluster: String,
        address: SocketAddr,
    ) -> anyhow::Result<Self> {
        let port = StatusPort::listen(address).await?;
        terminal::print(&format!(
            "cluster {cluster}: metrics on http://{}/metrics",
            port.address()?
        ));
        let (store, health) = (Arc::clone(agent.store()), Arc::clone(agent.health()));
        Ok(Self { port, shown: Shown { cluster, store, health } })
    }

    /// Serves for ever.
    pub(super) async fn serve(self) {
        let Self { port, shown } = self;
        let page = move |path: &str| match path {
            "/metrics" => Answer::metrics(shown.meters()),
            _ => Answer::not_found("try /metrics\n"),
        };
        port.serve(page).await;
    }
}

/// Refuses addresses that other machines can reach: this process holds the keys of the cluster.
pub(super) fn check(address: SocketAddr) -> Result<SocketAddr, Misuse> {
    let is_loopback = address.ip().to_canonical().is_loopback();
    let line = "other machines could reach it; give an address on loopback, as 127.0.0.1:9466";
    is_loopback.then_some(address).ok_or_else(|| Misuse(format!("--metrics {address}: {line}")))
}

impl Shown {
    fn meters(&self) -> Meters {
        let Self { cluster, store, health } = self;
        let mut meters = Meters::new(vec![("cluster", cluster.clone())]);
        valkey(&mut meters, &health.read());
        sessions(&mut meters, &health.read());
        sites(&mut meters, &health.read());
        store.mailbox().map(Mailbox::facts).iter().for_each(|facts| lookups(&mut meters, facts));
        let help = "Steps of rejoin cluster rekey that the agent has taken: 1 after add, 2 after use, 0 after drop and before";
        meters.gauge("agent_rekey_step", help, health.read().rekey_step);
        let help = "Version of the ring of ticket keys that the servers of this machine use";
        meters.gauge("agent_key_ring_version", help, store.ring_version());
        TicketKeys::of(store).add_to(&mut meters);
        meters
    }
}

fn valkey(meters: &mut Meters, health: &HealthFacts) {
    let HealthFacts { is_linked, last_answer_s, answered, answered_within, unanswered, .. } =
        *health;
    let help =
        "1 while Valkey answers the agent; otherwise servers go on with what the machine has";
    meters.gauge("agent_valkey_connected", help, u64::from(is_linked));
    let help = "Time of Valkey's last answer, in seconds since 1970";
    meters.gauge_if_known("agent_valkey_last_answer_timestamp_seconds", help, last_answer_s);
    let help = "Times the agent asked Valkey for the ring of ticket keys, once a second";
    let results = [("answered", answered), ("unanswered", unanswered)];
    meters.counters("agent_valkey_exchanges", help, by("result", results));
    let help = "Time that Valkey took to answer these";
    meters.counter("agent_valkey_exchange_seconds", help, answered_within.as_secs_f64());
}

fn sessions(meters: &mut Meters, health: &HealthFacts) {
    let HealthFacts { stored, refused, unsent, .. } = *health;
    let help =
        "Sessions sent to Valkey; those it refused return later than all others, or are too large";
    let results = [("stored", stored), ("refused", refused), ("failed", unsent)];
    meters.counters("agent_sessions_sent", help, by("result", results));
    let HealthFacts { found, absent, unfit, unfetched, misses, .. } = *health;
    let help =
        "Sessions fetched from Valkey; unfit ones found no room, or belong to another context";
    let results = [("found", found), ("absent", absent), ("unfit", unfit), ("failed", unfetched)];
    meters.counters("agent_sessions_fetched", help, by("result", results));
    let help = "Sessions taken from Valkey that might have been taken before: their early data is rejected";
    meters.counter("agent_sessions_uncertain", help, health.uncertain);
    let help = "Values in Valkey that the agent did not accept as sessions";
    let reasons = [
        ("expired", misses.expired),
        ("malformed", misses.malformed),
        ("unknown_key", misses.unknown_key),
        ("altered", misses.altered),
    ];
    meters.counters("agent_values_rejected", help, by("reason", reasons));
}

fn sites(meters: &mut Meters, health: &HealthFacts) {
    let help =
        "1 while the site that is the home of the ticket keys answers; otherwise no key is made";
    let is_home_linked = health.is_home_linked.unwrap_or(health.is_linked);
    meters.gauge("agent_home_connected", help, u64::from(is_home_linked));
    let SoughtFacts { found, absent, unfit, failed, dropped, lately, removed, unremoved } =
        health.sought;
    let help = "Sessions that other sites were asked for, after handshakes without them";
    let results = [
        ("found", found),
        ("absent", absent),
        ("unfit", unfit),
        ("failed", failed),
        ("dropped", dropped),
        ("lately", lately),
    ];
    meters.counters("agent_site_lookups", help, by("result", results));
    let help = "Sessions that servers removed, and that other sites were told to remove";
    let results = [("removed", removed), ("failed", unremoved)];
    meters.counters("agent_site_removals", help, by("result", results));
}

fn lookups(meters: &mut Meters, facts: &MailboxFacts) {
    let MailboxFacts { asked, fetched, late, skipped, dropped, .. } = *facts;
    let help = "Sessions that servers of this machine asked the agent for";
    meters.counter("agent_lookups", help, asked);
    meters.counter("agent_lookups_fetched", "Lookups answered in time with a session", fetched);
    meters.counter("agent_lookups_late", "Lookups not answered in time", late);
    let help = "Lookups not made, because the agent or Valkey did not answer earlier ones";
    meters.counter("agent_lookups_skipped", help, skipped);
    let help = "Messages of servers to the agent that found no room";
    meters.counter("agent_messages_dropped", help, dropped);
}
