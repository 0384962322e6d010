//! Faults of Valkey under load: no connection fails, and no handshake waits longer than the
//! deadline.
//!
//! A machine that has other things to do makes some handshakes slow by itself. So a second cluster, to
//! which nothing happens, has the same load at the same time: during the fault the p99 may be the other's, and
//! the deadline.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::load::{Load, Phase};
use super::relay::Relay;
use super::ring::{change, keys};
use super::{Effort, Found};
use rejoin_testkit::cluster::ValkeyCluster;
use rejoin_testkit::machines::{Cluster, Machine, NGINX, Plan, SHARDS};
use rejoin_testkit::process::Signal;
use rejoin_testkit::site::Versions;

const MACHINES: usize = 2;
const DEADLINE_MS: u64 = 5;
const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn restart(effort: Effort) -> Option<Found> {
    check(effort, restarted)
}

pub(crate) fn pause(effort: Effort) -> Option<Found> {
    check(effort, paused)
}

pub(crate) fn scripts(effort: Effort) -> Option<Found> {
    check(effort, flushed)
}

pub(crate) fn full(effort: Effort) -> Option<Found> {
    check(effort, filled)
}

pub(crate) fn altered(effort: Effort) -> Option<Found> {
    check(effort, |world, _| changed(world, CORRUPT))
}

pub(crate) fn replayed(effort: Effort) -> Option<Found> {
    check(effort, |world, _| changed(world, REPLAY))
}

pub(crate) fn failover(effort: Effort) -> Option<Found> {
    Some(World::clustered()?.endure(effort, failed_over))
}

pub(crate) fn cut(effort: Effort) -> Option<Found> {
    Some(World::of_tickets()?.endure(effort, cut_off))
}

/// Machines, who has their sessions, and others that nothing happens to.
struct World {
    cluster: Cluster,
    /// Between the first machine and Valkey.
    relay: Option<Relay>,
    nodes: Option<ValkeyCluster>,
    control: Cluster,
}

/// The fault, and what shows that it happened.
type Fault = fn(&mut World, Effort) -> Result<String, String>;

struct Outcome {
    before: Phase,
    during: Phase,
    /// The same, in a cluster without the fault.
    control: Phase,
    after: Phase,
    seen: Result<String, String>,
}

fn check(effort: Effort, fault: Fault) -> Option<Found> {
    Some(World::alone()?.endure(effort, fault))
}

impl Outcome {
    fn failed(&self) -> Vec<&String> {
        let phases = [&self.before, &self.during, &self.control, &self.after];
        phases.into_iter().flat_map(|phase| &phase.failed).collect()
    }

    fn is_in_time(&self) -> bool {
        self.during.p99_ms <= self.control.p99_ms + DEADLINE_MS as f64
    }

    fn found(self) -> Found {
        let failed = self.failed();
        failed.iter().take(3).for_each(|why| println!("     {why}"));
        let holds = failed.is_empty() && self.is_in_time() && self.seen.is_ok();
        Found { figure: format!("{} failed; {}", failed.len(), self.figure()), holds }
    }

    fn figure(&self) -> String {
        let Self { before, during, control, after, seen } = self;
        let (Ok(seen) | Err(seen)) = seen;
        let share = |of: &Phase| format!("{:.0} and {:.0} %", of.resumed[0], of.resumed[1]);
        format!(
            "p99 {:.1} ms, where nothing happened {:.1}; of {} resumed (TLS 1.2, 1.3) {}, before {}, \
             after {}; {seen}",
            during.p99_ms,
            control.p99_ms,
            during.connections,
            share(during),
            share(before),
            share(after)
        )
    }
}

impl World {
    const PLAN: Plan = Plan {
        name: "check-faults",
        servers: &[NGINX],
        machines: MACHINES,
        tickets: false,
        agents: true,
        capacity: "4MiB",
        deadline_ms: None,
    };

    /// One Valkey.
    fn alone() -> Option<Self> {
        Self::of(Cluster::start(Self::PLAN)?, None)
    }

    /// Three primaries, and a replica of each.
    fn clustered() -> Option<Self> {
        let mut cluster = Cluster::without_machines(Self::PLAN)?;
        let nodes = ValkeyCluster::with_replicas();
        cluster.agents_ask = nodes.nodes.iter().map(|node| node.port).collect();
        cluster.clustered = true;
        cluster.add_machines()?;
        Self::of(cluster, Some(nodes))
    }

    /// One Valkey, whose network to the first machine can be cut.
    fn of_tickets() -> Option<Self> {
        let mut cluster = Cluster::without_machines(Plan { tickets: true, ..Self::PLAN })?;
        let valkey = cluster.port;
        let relay = Relay::round_robin(vec![SocketAddr::from(([127, 0, 0, 1], valkey))]);
        cluster.more_settings = SCHEDULE.to_owned();
        for port in [relay.address.port(), valkey] {
            cluster.agents_ask = vec![port];
            cluster.add_machine()?;
        }
        let plan = Plan { name: "check-control", tickets: true, ..Self::PLAN };
        let control = Cluster::start(plan)?;
        Some(Self { cluster, relay: Some(relay), nodes: None, control })
    }

    fn of(cluster: Cluster, nodes: Option<ValkeyCluster>) -> Option<Self> {
        let control = Cluster::start(Plan { name: "check-control", ..Self::PLAN })?;
        Some(Self { cluster, relay: None, nodes, control })
    }

    fn endure(mut self, effort: Effort, fault: Fault) -> Found {
        let quiet = if effort.quick { 4 * SECOND } else { 10 * SECOND };
        let [load, control] =
            [&self.cluster, &self.control].map(|cluster| Load::on(cluster, Load::USUAL));
        // Everybody has been everywhere.
        thread::sleep(2 * SECOND);
        let undisturbed = || {
            let from = Instant::now();
            thread::sleep(quiet);
            load.since(from)
        };
        let before = undisturbed();
        let from = Instant::now();
        let seen = fault(&mut self, effort);
        let (during, control) = (load.since(from), control.since(from));
        self.is_linked(true);
        thread::sleep(SECOND);
        Outcome { before, during, control, after: undisturbed(), seen }.found()
    }

    fn is_linked(&self, is_linked: bool) {
        let what = if is_linked { "agents are linked" } else { "agents notice" };
        for machine in &self.cluster.machines {
            machine.wait_until(what, |facts| facts.is_linked == is_linked);
        }
    }
}

fn restarted(world: &mut World, effort: Effort) -> Result<String, String> {
    world.cluster.signal_valkey(Signal::TERM);
    world.cluster.stop_valkey();
    world.is_linked(false);
    thread::sleep(if effort.quick { 3 * SECOND } else { 10 * SECOND });
    world.cluster.start_valkey().ok_or("it does not start again")?;
    world.is_linked(true);
    Ok("agents noticed, and came back".to_owned())
}

fn paused(world: &mut World, effort: Effort) -> Result<String, String> {
    let pause = if effort.quick { 3 * SECOND } else { 30 * SECOND };
    world.cluster.signal_valkey(Signal::STOP);
    thread::sleep(pause);
    let noticed = world.cluster.machines.iter().filter_map(Machine::facts);
    let all_noticed = noticed.filter(|facts| !facts.is_linked).count() == MACHINES;
    world.cluster.signal_valkey(Signal::CONT);
    let noticed = format!("for {} s, which agents noticed", pause.as_secs());
    if all_noticed { Ok(noticed) } else { Err("an agent did not notice".to_owned()) }
}

fn flushed(world: &mut World, _: Effort) -> Result<String, String> {
    const TIMES: usize = 5;
    for _ in 0..TIMES {
        let said = world.cluster.ask_valkey(&["SCRIPT", "FLUSH"]);
        if said.trim() != "OK" {
            return Err(said);
        }
        thread::sleep(SECOND);
    }
    Ok(format!("{TIMES} times"))
}

fn filled(world: &mut World, _: Effort) -> Result<String, String> {
    world.cluster.ask_valkey(&["CONFIG", "SET", "maxmemory", "1mb"]);
    thread::sleep(6 * SECOND);
    let errors = world.cluster.ask_valkey(&["INFO", "errorstats"]);
    world.cluster.ask_valkey(&["CONFIG", "SET", "maxmemory", "0"]);
    let refused = errors.lines().find_map(|line| line.strip_prefix("errorstat_OOM:count="));
    let refused = refused.ok_or("Valkey refused nothing")?;
    Ok(format!("Valkey refused {}", refused.trim()))
}

/// The last byte of each value is another.
const CORRUPT: &str = "\
for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
  local value = redis.call('HGET', KEYS[1], id)
  local last = string.char((value:byte(-1) + 1) % 256)
  redis.call('HSET', KEYS[1], id, value:sub(1, -2) .. last)
end";

/// Each id has the value of another.
const REPLAY: &str = "\
local ids = redis.call('HKEYS', KEYS[1])
local first = redis.call('HGET', KEYS[1], ids[1])
for at, id in ipairs(ids) do
  redis.call('HSET', KEYS[1], id, ids[at + 1] and redis.call('HGET', KEYS[1], ids[at + 1]) or first)
end";

/// All that Valkey has, again and again: of those that come meanwhile, some ask for it.
fn changed(world: &mut World, script: &str) -> Result<String, String> {
    const TIMES: usize = 10;
    let before = rejected(&world.cluster.machines[0])?;
    for _ in 0..TIMES {
        for shard in 0..SHARDS {
            let values = format!("rejoin:{{web.{shard}}}:values");
            let said = world.cluster.ask_valkey(&["EVAL", script, "1", &values]);
            if !said.trim().is_empty() {
                return Err(said);
            }
        }
        thread::sleep(SECOND / 5);
    }
    // Agents tell once a second.
    thread::sleep(2 * SECOND);
    let rejected = rejected(&world.cluster.machines[0])? - before;
    if rejected > 0 { Ok(format!("{rejected} rejected")) } else { Err("none rejected".to_owned()) }
}

/// The values that `rejoin cluster status` counts as rejected.
fn rejected(machine: &Machine) -> Result<u64, String> {
    let told = machine.rejoin(&["cluster", "status", "--json"]).output();
    let told = told.map_err(|error| error.to_string())?;
    let status: Result<serde_json::Value, _> = serde_json::from_slice(&told.stdout);
    let rejected = status.ok().and_then(|status| status["rejected"].as_u64());
    rejected.ok_or_else(|| String::from_utf8_lossy(&told.stderr).into_owned())
}

fn failed_over(world: &mut World, _: Effort) -> Result<String, String> {
    const RING: &str = "rejoin:{web}:ring";
    let nodes = world.nodes.as_mut().ok_or("no nodes")?;
    let slot = nodes.slot(RING);
    let began = Instant::now();
    nodes.fail_over(slot);
    let after = began.elapsed().as_secs_f64();
    world.is_linked(true);
    thread::sleep(2 * SECOND);
    Ok(format!("a replica took its place after {after:.1} s"))
}

/// A key is made ten minutes before its turn: for so long, nobody who is cut off misses one.
const SCHEDULE: &str = "rotate_every = \"20m\"\nticket_lifetime = \"1h\"";
const LEAD: Duration = Duration::from_secs(600);

/// One key's turn begins meanwhile, at the end, and another is made.
fn cut_off(world: &mut World, effort: Effort) -> Result<String, String> {
    let relay = world.relay.as_ref().ok_or("no relay")?;
    let [first, second] = &world.cluster.machines[..] else { return Err("not two".to_owned()) };
    let number_of_keys = || [first, second].map(|machine| keys(machine).len());
    let rotate = || change(second, "rotate", &[]);
    rotate()?;
    until("both have the next key", || number_of_keys() == [2, 2])?;
    let (began, length) = (Instant::now(), if effort.quick { 6 * SECOND } else { LEAD });
    relay.set_cut(true);
    first.wait_until("it is cut off", |facts| !facts.is_linked);
    rotate()?;
    until("the other has one more", || number_of_keys() == [2, 3])?;
    thread::sleep(length.saturating_sub(began.elapsed()));
    let opened = open_each_others_tickets(&world.cluster);
    let known = number_of_keys();
    relay.set_cut(false);
    opened?;
    if known != [2, 3] {
        return Err(format!("{known:?} keys: nothing was cut off"));
    }
    first.wait_until("it comes back", |facts| facts.is_linked);
    until("it has the newest key", || number_of_keys() == [3, 3])?;
    open_each_others_tickets(&world.cluster)?;
    Ok(format!("for {} s, each opened the other's tickets", began.elapsed().as_secs()))
}

pub(super) fn until(what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let until = Instant::now() + 20 * SECOND;
    while !is_so() {
        if Instant::now() > until {
            return Err(format!("not in time: {what}"));
        }
        thread::sleep(SECOND / 10);
    }
    Ok(())
}

/// A new ticket of each machine, at the next one.
fn open_each_others_tickets(cluster: &Cluster) -> Result<(), String> {
    for versions in [Versions::Tls12, Versions::Tls13] {
        for (at, from) in cluster.machines.iter().enumerate() {
            let to = &cluster.machines[(at + 1) % cluster.machines.len()];
            let mut client = from.site.client(versions);
            let first = client.try_connect().map_err(|error| error.to_string())?;
            client.address = to.site.address();
            let second = client.try_connect().map_err(|error| error.to_string())?;
            if [first, second] != [false, true] {
                return Err(format!("{versions:?}: a ticket of machine {at} is refused"));
            }
        }
    }
    Ok(())
}
