//! Primaries that are killed under load, one after the other: of a Valkey with sentinels, and of a Valkey cluster.
//!
//! Before each kill a ticket key is made and the last one revoked, so that every promoted replica has another ring to keep.

use std::thread;
use std::time::{Duration, Instant};

use rejoin_testkit::cluster::ValkeyCluster;
use rejoin_testkit::machines::{Cluster, HAPROXY, NGINX, Plan, Server};
use rejoin_testkit::sentinels::Watched;

use super::faults::until;
use super::load::Load;
use super::ring::{change, keys};
use super::{Effort, Found};

const SERVERS: &[Server] = &[NGINX, NGINX, HAPROXY];
const REPLICAS: usize = 2;
const RING: &str = "rejoin:{web}:ring";
const SECOND: Duration = Duration::from_secs(1);
/// The time from a promotion until clients resume as before.
const RESUMED_WITHIN: Duration = Duration::from_secs(5);
/// Fewer resume as before if it is less by so many points.
const AS_BEFORE: f64 = 10.0;
/// The least percentage of the connections that must be made in time.
const LEAST_KEPT_UP: f64 = 95.0;

/// Valkey, with a way to kill a primary.
enum Valkeys {
    Watched(Watched),
    Cluster(ValkeyCluster),
}

/// The course of one kill.
struct Kill {
    promoted_after: Duration,
    /// The time from the promotion until clients resumed as before, if they did.
    resumed_after: Option<Duration>,
}

pub(crate) fn sentinel(effort: Effort) -> Option<Found> {
    let watched = Watched::start(REPLICAS, &[]);
    endure(effort, "check-sentinel", Valkeys::Watched(watched))
}

pub(crate) fn clustered(effort: Effort) -> Option<Found> {
    endure(effort, "check-clustered", Valkeys::Cluster(ValkeyCluster::with_replicas()))
}

fn endure(effort: Effort, name: &'static str, mut valkeys: Valkeys) -> Option<Found> {
    let kills = if effort.quick { 3 } else { 20 };
    let cluster = machines(name, &valkeys)?;
    let load = Load::on(&cluster, Load::DOUBLE);
    let began = Instant::now();
    thread::sleep(4 * SECOND);
    let mut done = Vec::new();
    let ring = (0..kills).try_for_each(|number| {
        let keys = change_keys(&cluster)?;
        done.push(kill(&mut valkeys, &load, number));
        keep(&cluster, &keys)
    });
    let (kept_up, phase) = (load.kept_up(), load.since(began));
    phase.failed.iter().take(3).for_each(|why| println!("     {why}"));
    let seconds = |of: fn(&Kill) -> Option<Duration>| {
        let all = done.iter().map(|kill| of(kill).map(|time| time.as_secs_f64()));
        // One that did not happen took for ever.
        all.map(|seconds| seconds.unwrap_or(f64::INFINITY)).fold(0.0, f64::max)
    };
    let resumed_s = seconds(|kill| kill.resumed_after);
    let marked = match kept_up >= LEAST_KEPT_UP {
        true => "",
        false => ", which is too few: the machine did not keep up",
    };
    let (Ok(ring_is) | Err(ring_is)) = &ring.map(|()| "as it was".to_owned());
    let figure = format!(
        "{} kills; {} failed of {}; promoted after {:.1} s at most, resumed again {resumed_s:.1} s later at most; \
         ring {ring_is}; {kept_up:.0} % of 250 a second{marked}",
        done.len(),
        phase.failed.len(),
        phase.connections,
        seconds(|kill| Some(kill.promoted_after)),
    );
    let is_whole = done.len() == kills && ring_is == "as it was";
    let holds = phase.failed.is_empty() && resumed_s <= RESUMED_WITHIN.as_secs_f64() && is_whole;
    Some(Found { figure, holds })
}

/// Three machines whose agents look for Valkey there.
fn machines(name: &'static str, valkeys: &Valkeys) -> Option<Cluster> {
    let mut cluster = Cluster::without_machines(Plan {
        name,
        servers: SERVERS,
        machines: SERVERS.len(),
        tickets: false,
        agents: true,
        capacity: "4MiB",
        deadline_ms: None,
    })?;
    match valkeys {
        Valkeys::Watched(watched) => {
            cluster.sentinels = watched.sentinels.iter().map(|sentinel| sentinel.port).collect();
        }
        Valkeys::Cluster(nodes) => {
            cluster.agents_ask = nodes.nodes.iter().map(|node| node.port).collect();
            cluster.clustered = true;
        }
    }
    cluster.add_machines()?;
    Some(cluster)
}

/// Kills a primary, and starts it again once clients resume.
fn kill(valkeys: &mut Valkeys, load: &Load, number: usize) -> Kill {
    const STEP: Duration = Duration::from_millis(250);
    let killed = Instant::now();
    let before = load.resumed(killed - 3 * SECOND, killed);
    let failed = match valkeys {
        Valkeys::Watched(watched) => watched.fail_over(),
        Valkeys::Cluster(nodes) => {
            // The primary of the ring, and those of the other two thirds of the slots.
            let slot = nodes.slot(RING) + u16::try_from(number % 3).expect("small") * 5_461;
            nodes.fail_over(slot % 16_384)
        }
    };
    let promoted = Instant::now();
    thread::sleep(RESUMED_WITHIN);
    let is_as_before = |end: &Duration| {
        load.resumed(promoted + *end - SECOND, promoted + *end) >= before - AS_BEFORE
    };
    let ends = (4..).map(|steps| steps * STEP).take_while(|end| *end <= RESUMED_WITHIN);
    let resumed_after = ends.into_iter().find(is_as_before);
    match valkeys {
        Valkeys::Watched(watched) => watched.start_again(failed),
        Valkeys::Cluster(nodes) => nodes.start_again(failed),
    }
    let kill = Kill { promoted_after: promoted - killed, resumed_after };
    let last = load.resumed(promoted + RESUMED_WITHIN - SECOND, promoted + RESUMED_WITHIN);
    println!(
        "     kill {}: promoted after {:.1} s; resumed {before:.0} % before, {last:.0} % in the last second of {}",
        number + 1,
        kill.promoted_after.as_secs_f64(),
        RESUMED_WITHIN.as_secs(),
    );
    kill
}

/// Makes a key, revokes the last one, and waits until all machines know. Returns the keys that are left.
fn change_keys(cluster: &Cluster) -> Result<Vec<String>, String> {
    let machine = &cluster.machines[0];
    let before = keys(machine);
    change(machine, "rotate", &[])?;
    until("the next key", || keys(machine).len() == before.len() + 1)?;
    let mut left = keys(machine);
    if let [_, .., last] = &before[..] {
        change(machine, "revoke", &[last])?;
        left.retain(|key| key != last);
    }
    until("the keys on all machines", || are_on_all(cluster, &left))?;
    Ok(left)
}

/// Waits until all machines have these keys, and no other.
fn keep(cluster: &Cluster, keys: &[String]) -> Result<(), String> {
    // What a promoted replica lacks is put back within a second or two.
    thread::sleep(SECOND);
    until("the same keys on all machines", || are_on_all(cluster, keys))
}

fn are_on_all(cluster: &Cluster, expected: &[String]) -> bool {
    cluster.machines.iter().all(|machine| keys(machine) == expected)
}
