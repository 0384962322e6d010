//! The cost of a visit to the agents and Valkey, by the number of masters: many machines with real agents and caches, and
//! servers that use them as libssl does for TLS 1.3. A visit takes the session that another machine made, and makes one.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_cache::{ContextTag, NewSession, SecretBytes, SessionId, SessionStore};
use rejoin_cluster::{Agent, ClusterSecret, Settings};
use rejoin_store::{Mailbox, Store, Tiered, now_ms};
use rejoin_testkit::cluster::ValkeyCluster;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::{cpu_ns, wait_until};
use tokio::sync::watch;
use tokio::task::LocalSet;

use super::{Effort, Found};

pub(crate) const PROMISE: &str = "visits a second, and what each costs (99 % find their session)";

const MACHINES: usize = 100;
/// The threads that agents share.
const AGENTS_THREADS: usize = 4;
/// The rate of all visits, which two cores bear beside the servers and agents. Whoever asks faster is not answered in time.
const VISITS_A_SECOND: u32 = 2_000;
/// The threads of all servers, one for each. A thread waits for its cluster for a quarter of its time at most.
const VISITORS: u32 = MACHINES as u32;
const LEAST_FOUND: f64 = 0.99;
/// The time after which a client comes back: its session has reached Valkey by then.
const AWAY: Duration = Duration::from_millis(100);
const CONTEXT: ContextTag = ContextTag(1);
/// The length of an OpenSSL session without a client certificate.
const VALUE_BYTES: usize = 150;

pub(crate) fn at<const MASTERS: u16>(effort: Effort) -> Option<Found> {
    let longest = Duration::from_secs(if effort.quick { 3 } else { 15 });
    let house = House::new(MASTERS);
    let idle = house.measure(|| thread::sleep(longest));
    let busy = house.measure(|| house.serve(longest));
    let visits = busy.visits.max(1);
    let each = |total: u64| total as f64 / visits as f64;
    let found = busy.found as f64 / visits as f64;
    let figure = format!(
        "{:.0}; each {:.0} µs of CPU in Valkey and {:.0} in agents and servers, {:.1} commands, {:.0} bytes; the busiest \
         master has {:.0} %; {:.2} % found ({} late, {} not asked for, {} announced in vain); idle, a machine costs Valkey {:.0} µs and {:.0} bytes a second",
        visits as f64 / busy.lasted.as_secs_f64(),
        each(busy.valkeys_ns()) / 1e3,
        each(busy.own_ns) / 1e3,
        each(busy.commands),
        each(busy.bytes),
        100.0 * busy.nodes_ns.iter().max().copied().unwrap_or(0) as f64 / busy.valkeys_ns() as f64,
        100.0 * found,
        busy.late,
        busy.skipped,
        busy.dropped,
        idle.valkeys_ns() as f64 / 1e3 / idle.machine_seconds(),
        idle.bytes as f64 / idle.machine_seconds(),
    );
    Some(Found { figure, holds: found >= LEAST_FOUND })
}

/// Machines, of which nothing but their agents runs by itself.
struct House {
    valkey: ValkeyCluster,
    stores: Vec<Arc<Store>>,
    servers: Vec<Tiered>,
    next_id: AtomicU64,
    visits: AtomicU64,
    found: AtomicU64,
    stop: Option<watch::Sender<()>>,
    agents: Vec<thread::JoinHandle<()>>,
    _folder: Folder,
}

/// The processor time, commands and bytes of a span of time.
struct Cost {
    lasted: Duration,
    nodes_ns: Vec<u64>,
    own_ns: u64,
    commands: u64,
    bytes: u64,
    visits: u64,
    found: u64,
    late: u64,
    skipped: u64,
    dropped: u64,
}

impl House {
    fn new(masters: u16) -> Self {
        let (valkey, folder) = (ValkeyCluster::of(masters), Folder::new());
        let key = folder.join("key");
        ClusterSecret::create(&key).expect("a key");
        let nodes = valkey.nodes.iter().map(|node| format!("\"127.0.0.1:{}\"", node.port));
        let nodes = nodes.collect::<Vec<_>>().join(", ");
        let agents: Vec<_> = (0..MACHINES)
            .map(|number| {
                let own = folder.join(number.to_string());
                fs::create_dir(&own).expect("a folder");
                fs::copy(&key, own.join("key")).expect("copied");
                let text = format!(
                    "name = \"web\"\nclustered = true\nservers = [{nodes}]\nkey_file = {:?}\nfolder = {own:?}\n\
                     capacity = \"1MiB\"\ndeadline_ms = 50\n",
                    own.join("key")
                );
                let file = own.join("cluster.toml");
                fs::write(&file, text).expect("written");
                Agent::new(Settings::read(&file).expect("settings")).expect("an agent")
            })
            .collect();
        let stores: Vec<_> = agents.iter().map(|agent| Arc::clone(agent.store())).collect();
        let (stop, stopped) = watch::channel(());
        let mut agents = agents.into_iter();
        let agents = (0..AGENTS_THREADS)
            .map(|_| {
                let some: Vec<_> = agents.by_ref().take(MACHINES / AGENTS_THREADS).collect();
                let stopped = stopped.clone();
                thread::spawn(move || run(some, &stopped))
            })
            .collect();
        let is_ready = |store: &Arc<Store>| {
            let is_linked = store.mailbox().is_some_and(|mailbox| mailbox.facts().is_linked);
            is_linked && store.ring().ok().flatten().is_some()
        };
        wait_until("all agents are linked", || stores.iter().all(is_ready));
        Self {
            valkey,
            servers: stores.iter().cloned().map(Tiered::new).collect(),
            stores,
            next_id: AtomicU64::new(0),
            visits: AtomicU64::new(0),
            found: AtomicU64::new(0),
            stop: Some(stop),
            agents,
            _folder: folder,
        }
    }

    /// Measures what happens meanwhile.
    fn measure(&self, meanwhile: impl FnOnce()) -> Cost {
        let (before, began) = (self.counts(), Instant::now());
        meanwhile();
        let (lasted, after) = (began.elapsed(), self.counts());
        let nodes = after.nodes_ns.iter().zip(&before.nodes_ns);
        Cost {
            lasted,
            nodes_ns: nodes.map(|(after, before)| after - before).collect(),
            own_ns: after.own_ns - before.own_ns,
            commands: after.commands - before.commands,
            bytes: after.bytes - before.bytes,
            visits: after.visits - before.visits,
            found: after.found - before.found,
            late: after.late - before.late,
            skipped: after.skipped - before.skipped,
            dropped: after.dropped - before.dropped,
        }
    }

    fn counts(&self) -> Cost {
        let nodes = &self.valkey.nodes;
        let stats: Vec<_> = nodes.iter().map(|node| node.say("INFO all")).collect();
        let sum = |of: &str| {
            let counts = stats.iter().flat_map(|stats| stats.lines()).filter_map(|line| {
                let (name, count) = line.split_once(':')?;
                (name == of).then(|| count.trim().parse::<u64>().ok())?
            });
            counts.sum::<u64>()
        };
        // Each is a script; what those call counts as commands of its own, and agents' looks at the ring are few.
        let scripts = stats.iter().flat_map(|stats| stats.lines()).filter_map(|line| {
            let calls = line.strip_prefix("cmdstat_evalsha:calls=")?;
            calls.split(',').next()?.parse::<u64>().ok()
        });
        let mailboxes = self.stores.iter().filter_map(|store| store.mailbox());
        let mailboxes: Vec<_> = mailboxes.map(Mailbox::facts).collect();
        Cost {
            lasted: Duration::ZERO,
            nodes_ns: nodes
                .iter()
                .map(|node| cpu_ns(node.process().id()).expect("it runs"))
                .collect(),
            own_ns: cpu_ns(std::process::id()).expect("it runs"),
            commands: scripts.sum(),
            bytes: sum("total_net_input_bytes") + sum("total_net_output_bytes"),
            visits: self.visits.load(Ordering::Relaxed),
            found: self.found.load(Ordering::Relaxed),
            late: mailboxes.iter().map(|facts| facts.late).sum(),
            skipped: mailboxes.iter().map(|facts| facts.skipped).sum(),
            dropped: mailboxes.iter().map(|facts| facts.dropped).sum(),
        }
    }

    /// Lets clients visit for this long.
    fn serve(&self, longest: Duration) {
        let begin = Instant::now();
        thread::scope(|scope| {
            for number in 0..VISITORS {
                let first = begin + number * Duration::from_secs(1) / VISITS_A_SECOND;
                scope.spawn(move || self.visit_until(first, begin + longest));
            }
        });
    }

    fn visit_until(&self, first: Instant, end: Instant) {
        let mut away: VecDeque<(u64, Instant)> = VecDeque::new();
        let (mut taken, mut due) = (SecretBytes::default(), first);
        while due < end {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due += VISITORS * Duration::from_secs(1) / VISITS_A_SECOND;
            // It is made by one machine, and taken by another.
            let number = self.next_id.fetch_add(1, Ordering::Relaxed);
            self.insert(number);
            away.push_back((number, Instant::now()));
            if away.front().is_none_or(|(_, made)| made.elapsed() < AWAY) {
                continue;
            }
            let Some((number, _)) = away.pop_front() else { continue };
            let found = self.servers[(number as usize + 1) % MACHINES]
                .take(now_ms(), &id(number), CONTEXT, &mut taken)
                .found;
            self.visits.fetch_add(1, Ordering::Relaxed);
            self.found.fetch_add(u64::from(found), Ordering::Relaxed);
        }
    }

    fn insert(&self, number: u64) {
        let expires_ms = now_ms() + 3_600_000;
        let new = NewSession::new(id(number), &[7; VALUE_BYTES], expires_ms, CONTEXT);
        // A full cache refuses nothing that is new.
        let _ = self.servers[number as usize % MACHINES].insert(now_ms(), &new);
    }
}

impl Drop for House {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.agents.drain(..).for_each(|agents| agents.join().expect("no panic"));
    }
}

impl Cost {
    fn valkeys_ns(&self) -> u64 {
        self.nodes_ns.iter().sum()
    }

    fn machine_seconds(&self) -> f64 {
        MACHINES as f64 * self.lasted.as_secs_f64()
    }
}

fn run(agents: Vec<Agent>, stopped: &watch::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let local = LocalSet::new();
    for agent in agents {
        let mut stopped = stopped.clone();
        let until = async move { drop(stopped.changed().await) };
        local.spawn_local(async move { agent.run(until, |_| {}).await.expect("it works") });
    }
    runtime.expect("a runtime").block_on(local);
}

fn id(number: u64) -> SessionId {
    SessionId::new(&number.to_be_bytes().repeat(4)).expect("32 bytes")
}
