//! The resumptions of the paper's devices where a balancer sends each connection to the next machine: paper
//! 004's step from caches of each server to one for all.

use rejoin_serve::Versions;

use super::relay::Relay;
use super::{Effort, Found};
use crate::arrivals::{Play, Seen, undisturbed};
use rejoin_testkit::machines::{Cluster, HAPROXY, Machine, NGINX, Plan, Server};

const MACHINES: usize = 3;
/// The servers that machines run, in turn.
const SERVERS: &[Server] = &[NGINX, NGINX, HAPROXY];
const MOST_POINTS_APART: f64 = 2.0;
/// Room for all devices: nothing is lost to eviction.
const CAPACITY: &str = "32MiB";

pub(crate) fn tls12(effort: Effort) -> Option<Found> {
    compare(Versions::Tls12, effort)
}

pub(crate) fn tls13(effort: Effort) -> Option<Found> {
    compare(Versions::Tls13, effort)
}

/// Each machine alone, the cluster's sessions and its ticket keys, against one machine for all.
fn compare(versions: Versions, effort: Effort) -> Option<Found> {
    let play = Play::of(effort.quick);
    let seen = |machines, agents, tickets| {
        undisturbed(|| resumed(&play, versions, plan(machines, agents, tickets)))
    };
    let single = seen(1, false, false)?;
    let alone = seen(MACHINES, false, false)?;
    let sessions = seen(MACHINES, true, false)?;
    let tickets = seen(MACHINES, true, true)?;
    let is_near = |of: &Seen| single.resumed - of.resumed <= MOST_POINTS_APART;
    let failed = single.failed + alone.failed + sessions.failed + tickets.failed;
    let figure = format!(
        "each alone {alone}; sessions {sessions}; ticket keys {tickets}; one for all {single}"
    );
    Some(Found { figure, holds: is_near(&sessions) && is_near(&tickets) && failed == 0 })
}

fn plan(machines: usize, agents: bool, tickets: bool) -> Plan {
    Plan {
        name: "check-fleet",
        servers: SERVERS,
        machines,
        tickets,
        agents,
        capacity: CAPACITY,
        deadline_ms: None,
    }
}

fn resumed(play: &Play, versions: Versions, plan: Plan) -> Option<Seen> {
    let cluster = Cluster::start(plan)?;
    let machines = cluster.machines.iter().map(|machine: &Machine| machine.site.address());
    let balancer = Relay::round_robin(machines.collect());
    Some(play.against(balancer.address, versions))
}
