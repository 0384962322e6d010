//! Two sites, each with a Valkey and nginx machines, whose agents reach the other's Valkey by a longer round trip.
//!
//! A handshake whose session is nowhere is compared with that of a machine without a cluster, in turns. Its sessions come
//! from a machine of the cluster whose agent has ended: all machines take their ids for the cluster's own, and nobody else
//! has them.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use openssl::ssl::SslSession;
use rejoin_serve::Versions as Played;
use rejoin_testkit::machines::{Cluster, Machine, NGINX, Plan};
use rejoin_testkit::proxy::delayed::SlowWay;
use rejoin_testkit::site::{Client, Versions};

use super::faults::until;
use super::relay::Relay;
use super::{Effort, Found};
use crate::arrivals::{Play, Seen, undisturbed};

pub(crate) const PROMISE: &str =
    "p99 with a session that is nowhere (≤ 1 ms above a machine alone), within and between sites";

const MOST_ABOVE_MS: f64 = 1.0;
const MOST_POINTS_APART: f64 = 2.0;
/// The least part of the misses for which the other site was asked, in percent.
const LEAST_SOUGHT: u64 = 90;
const CAPACITY: &str = "32MiB";
const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];
const SECOND: Duration = Duration::from_secs(1);
/// A session has reached its site's Valkey by then.
pub(super) const STORED: Duration = Duration::from_millis(200);

/// The sites, of which the first is the ring's home.
struct World {
    sites: [Cluster; 2],
    /// The ways to the other site's Valkey.
    _ways: [SlowWay; 2],
    round_trip: Duration,
}

pub(crate) fn at<const MS: u64>(effort: Effort) -> Option<Found> {
    let round_trip = Duration::from_millis(MS);
    let mut world = World::start(["check-site", "check-other-site"], [3, 1], false, round_trip)?;
    let misses = world.misses(if effort.quick { 300 } else { 2_000 })?;
    let moved = world.moved(if effort.quick { 10 } else { 50 });
    let within = world.within(effort);
    drop(world);
    let alone = alone(effort)?;
    let tickets = World::start(["check-site", "check-other-site"], [1, 1], true, round_trip)?;
    let (tickets, of_tickets) = tickets.tickets();
    let points = alone.resumed - within.resumed;
    moved.wrong.iter().take(3).for_each(|wrong| println!("     {wrong}"));
    let (moves, right) = (moved.clients, moved.clients - moved.wrong.len());
    let figure = format!(
        "{misses}; within a site {within}, one machine {alone}; {right} of {moves} that moved, from the second visit on; \
         {tickets} of {of_tickets} stateless tickets at the first"
    );
    let holds = misses.holds()
        && points <= MOST_POINTS_APART
        && within.failed == 0
        && right == moves
        && tickets == of_tickets;
    Some(Found { figure, holds })
}

/// The clients that moved.
struct Moves {
    clients: usize,
    /// Those that did not resume from the second visit on.
    wrong: Vec<String>,
}

/// A client on the move.
struct Moving {
    client: Client,
    versions: Versions,
    /// The session that it keeps, if it keeps its old one. OpenSSL gives up an object that was used, but not its copy.
    kept: Option<Vec<u8>>,
    resumed: Vec<bool>,
}

impl Moving {
    fn new(from: SocketAddr, versions: Versions, keeps: bool) -> Self {
        let mut client = Client::new(from, versions);
        client.connect();
        let session = client.session.lock().expect("no panic").clone();
        let kept = session.filter(|_| keeps).map(|session| session.to_der().expect("serialised"));
        Self { client, versions, kept, resumed: Vec::new() }
    }

    fn visit(&mut self, to: SocketAddr) {
        self.client.address = to;
        self.resumed.push(self.client.connect());
        if let Some(kept) = &self.kept {
            let kept = SslSession::from_der(kept).expect("a session");
            *self.client.session.lock().expect("no panic") = Some(kept);
        }
    }
}

impl std::fmt::Display for Moving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { versions, kept, resumed, .. } = self;
        write!(f, "{versions:?}, keeps its session: {}, resumed: {resumed:?}", kept.is_some())
    }
}

/// The handshakes whose sessions are nowhere.
struct Misses {
    /// At a machine with another site, and at one without a cluster.
    p99_ms: [f64; 2],
    handshakes: usize,
    /// The times that the other site was asked.
    sought: u64,
}

impl Misses {
    fn holds(&self) -> bool {
        self.p99_ms[0] - self.p99_ms[1] <= MOST_ABOVE_MS
            && 100 * self.sought >= LEAST_SOUGHT * self.handshakes as u64
    }
}

impl std::fmt::Display for Misses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p99_ms: [sited, alone], handshakes, sought } = self;
        write!(
            f,
            "p99 {sited:.2} ms, alone {alone:.2}, of {handshakes} each, {sought} asked for in the other site"
        )
    }
}

impl World {
    /// `None` if a program is not installed.
    fn start(
        names: [&'static str; 2],
        machines: [usize; 2],
        tickets: bool,
        round_trip: Duration,
    ) -> Option<Self> {
        let plan = |at: usize, deadline_ms| Plan { name: names[at], tickets, deadline_ms, ..PLAN };
        // Where no handshake is timed, a busy machine need not make lookups late.
        let [mut home, mut other] = [
            Cluster::without_machines(plan(0, None))?,
            Cluster::without_machines(plan(1, Some(50)))?,
        ];
        let ways = [other.port, home.port].map(|port| SlowWay::to(port, round_trip));
        let settings = |own: &str, name: &str, way: &SlowWay| {
            format!(
                "site = {own:?}\nhome = \"berlin\"\n[[sites]]\nname = {name:?}\nservers = [\"127.0.0.1:{}\"]",
                way.port
            )
        };
        home.more_settings = settings("berlin", "tokyo", &ways[0]);
        other.more_settings = settings("tokyo", "berlin", &ways[1]);
        (0..machines[0]).try_for_each(|_| home.add_machine())?;
        other.join(&home);
        (0..machines[1]).try_for_each(|_| other.add_machine())?;
        let world = Self { sites: [home, other], _ways: ways, round_trip };
        let has_ring =
            |machine: &Machine| machine.store().is_some_and(|store| store.ring_version() > 0);
        let all_have = || world.sites.iter().flat_map(|site| &site.machines).all(has_ring);
        until("the ring in both sites", all_have).ok()?;
        Some(world)
    }

    /// The home's last machine, whose agent ends: its sessions stay with it.
    fn isolate(&mut self) -> SocketAddr {
        let machine = self.sites[0].machines.last_mut().expect("a machine");
        machine.stop_agent();
        machine.wait_until("it is alone", |facts| !facts.is_linked);
        machine.site.address()
    }

    /// Measures until the promise holds, three times at most: where other programs keep the processors busy, an agent answers
    /// late, with other sites or without, and handshakes wait for up to `deadline_ms`.
    fn misses(&mut self, handshakes: usize) -> Option<Misses> {
        const ATTEMPTS: usize = 3;
        let minting = self.isolate();
        let plan = Plan { name: "check-alone", agents: false, machines: 1, ..PLAN };
        let alone = Cluster::start(plan)?;
        let mut attempts = (1..=ATTEMPTS).map(|attempt| {
            let misses = self.miss(minting, &alone, handshakes);
            (misses.holds() || attempt == ATTEMPTS, misses)
        });
        attempts.find(|(is_last, _)| *is_last).map(|(_, misses)| misses)
    }

    /// Comes with sessions that are nowhere, in turns to a machine with another site and to one without a cluster.
    fn miss(&self, minting: SocketAddr, alone: &Cluster, handshakes: usize) -> Misses {
        let first = &self.sites[0].machines[0];
        let mut clients = VERSIONS.map(|versions| Client::new(minting, versions));
        let sessions = mint(&mut clients, handshakes);
        let asked = || hgets(&self.sites[1]);
        let before = asked();
        let machines = [first, &alone.machines[0]].map(|machine| machine.site.address());
        let mut times = [Vec::new(), Vec::new()];
        for (client, session) in &sessions {
            for (address, times) in machines.iter().zip(&mut times) {
                times.push(handshake(&mut clients[*client], *address, session));
            }
        }
        thread::sleep(SECOND + self.round_trip);
        let p99_ms = times.map(|mut times| {
            times.sort();
            times[times.len() * 99 / 100].as_secs_f64() * 1_000.0
        });
        Misses { p99_ms, handshakes, sought: asked() - before }
    }

    /// Moves clients from the home to the other site, all at once: those that take a new session, and those that keep the old
    /// one. At the first of three visits, nobody has their sessions there.
    fn moved(&self, clients: usize) -> Moves {
        let [from, to] = self.sites.each_ref().map(|site| site.machines[0].site.address());
        let kinds = VERSIONS.into_iter().flat_map(|versions| [(versions, false), (versions, true)]);
        let kinds = kinds.cycle().take(clients * 2 * VERSIONS.len());
        let mut clients: Vec<_> =
            kinds.map(|(versions, keeps)| Moving::new(from, versions, keeps)).collect();
        thread::sleep(STORED);
        for _ in 0..3 {
            clients.iter_mut().for_each(|client| client.visit(to));
            thread::sleep(STORED + 2 * self.round_trip);
        }
        let is_wrong = |client: &&Moving| client.resumed != [false, true, true];
        let wrong = clients.iter().filter(is_wrong).map(Moving::to_string).collect();
        Moves { clients: clients.len(), wrong }
    }

    /// The paper's devices at two machines of the home.
    fn within(&self, effort: Effort) -> Seen {
        let machines = self.sites[0].machines[..2].iter();
        let balancer = Relay::round_robin(machines.map(|machine| machine.site.address()).collect());
        let play = || Some(Play::of(effort.quick).against(balancer.address, Played::Tls13));
        undisturbed(play).expect("it was played")
    }

    /// Clients with stateless tickets of the home, at the other site. Returns those that resumed, and all.
    fn tickets(&self) -> (usize, usize) {
        const CLIENTS: usize = 20;
        let [from, to] = self.sites.each_ref().map(|site| site.machines[0].site.address());
        let resumes = |versions| {
            let mut client = Client::new(from, versions);
            client.connect();
            client.address = to;
            client.connect()
        };
        let clients = VERSIONS.into_iter().flat_map(|versions| [versions; CLIENTS]);
        (clients.filter(|versions| resumes(*versions)).count(), VERSIONS.len() * CLIENTS)
    }
}

const PLAN: Plan = Plan {
    name: "",
    servers: &[NGINX],
    machines: 0,
    tickets: false,
    agents: true,
    capacity: CAPACITY,
    deadline_ms: None,
};

/// The paper's devices at one machine without a cluster.
fn alone(effort: Effort) -> Option<&'static Seen> {
    static SEEN: OnceLock<Option<Seen>> = OnceLock::new();
    SEEN.get_or_init(|| {
        undisturbed(|| {
            let plan = Plan { name: "check-one", agents: false, machines: 1, ..PLAN };
            let cluster = Cluster::start(plan)?;
            let target = cluster.machines[0].site.address();
            Some(Play::of(effort.quick).against(target, Played::Tls13))
        })
    })
    .as_ref()
}

/// Sessions of these clients in turns, that only the machine has to which they come, and whose they are.
pub(super) fn mint(clients: &mut [Client; 2], sessions: usize) -> Vec<(usize, SslSession)> {
    let mint = |number: usize| {
        let client = &mut clients[number % 2];
        client.connect();
        let session = client.session.lock().expect("no panic").take();
        (number % 2, session.expect("the server issued one"))
    };
    (0..sessions).map(mint).collect()
}

/// The time of a handshake that offers this session, which must not be resumed.
fn handshake(client: &mut Client, address: SocketAddr, session: &SslSession) -> Duration {
    client.address = address;
    *client.session.lock().expect("no panic") = Some(session.clone());
    let began = Instant::now();
    let tls = client.shake_hands().expect("a handshake");
    let time = began.elapsed();
    assert!(!tls.ssl().session_reused(), "the session is nowhere");
    time
}

/// The times that sessions were looked up in this site's Valkey.
fn hgets(site: &Cluster) -> u64 {
    let stats = site.ask_valkey(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hget:calls="));
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
}
