//! Two machines with Valkey, and copies of first flights to both; also while Valkey fails.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_testkit::machines::{Cluster, Plan, Server, ask};
use rejoin_testkit::process::{Signal, signal};
use rejoin_testkit::site::Origin;

use super::copies::SETTLED;
use super::replays::{LEAST_ACCEPTED, Scene, Tally, players};
use super::{Effort, Found};
use crate::cluster::relay::Relay;

/// The least part of the originals that are accepted at the machine that did not issue the session, in percent.
const LEAST_ELSEWHERE: f64 = 95.0;
const SECOND: Duration = Duration::from_secs(1);
/// A session has reached the other machine by then.
const ARRIVED: Duration = Duration::from_millis(60);
/// The time for which agents must know Valkey (SECURITY.md).
const CERTAIN_AFTER: Duration = Duration::from_secs(18);
const AT_ONCE: usize = 8;
const COPIES: usize = 6_000;

const NGINX: &str = "\
daemon off; master_process on; worker_processes 2; pid FOLDER/nginx.pid; error_log FOLDER/error.log crit;
events { worker_connections 4096; }
http {
  include FOLDER/nginx-http.conf;
  server {
    listen 127.0.0.1:@PORT@ ssl reuseport backlog=4096; ssl_protocols TLSv1.2 TLSv1.3; ssl_early_data on;
    location / {
      proxy_pass http://@ORIGIN@; proxy_set_header Early-Data $ssl_early_data; proxy_ignore_client_abort on;
    }
  }
}
";

/// Machines, and the requests that their servers passed on.
struct Machines {
    cluster: Cluster,
    /// Between the first machine and Valkey.
    relay: Relay,
    origin: Origin,
}

/// The balancer's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Balancer {
    /// Clients come back to the machine that issued their session.
    ByAddress,
    /// Clients come back to the other machine.
    RoundRobin,
}

impl Machines {
    /// `None` if a program is not installed.
    fn start(name: &'static str, setting: &str) -> Option<Self> {
        let origin = Origin::start();
        let configuration = NGINX.replace("@ORIGIN@", &origin.address.to_string());
        let server = Server {
            program: "nginx",
            arguments: &["-c"],
            configuration: configuration.leak(),
            tickets: ["off", "on"],
        };
        let plan = Plan {
            name,
            servers: vec![server].leak(),
            machines: 2,
            tickets: false,
            agents: true,
            capacity: "4MiB",
            deadline_ms: Some(50),
        };
        let mut cluster = Cluster::without_machines(plan)?;
        cluster.server_settings = format!("early_data = {setting}");
        let valkey = cluster.port;
        let relay = Relay::round_robin(vec![SocketAddr::from(([127, 0, 0, 1], valkey))]);
        for port in [relay.address.port(), valkey] {
            cluster.agents_ask = vec![port];
            cluster.add_machine()?;
        }
        // The agents made the caches, of which servers are certain after a while, and agents later of Valkey.
        thread::sleep(CERTAIN_AFTER + SECOND);
        Some(Self { cluster, relay, origin })
    }

    /// A player from each machine.
    fn scenes(&self, balancer: Balancer) -> Vec<Scene> {
        let address = |number: usize| self.cluster.machines[number].site.address();
        let scene = |(issuer, other)| {
            let (here, other) = match balancer {
                Balancer::ByAddress => (issuer, other),
                Balancer::RoundRobin => (other, issuer),
            };
            Scene { issuer, here, other, at_once: AT_ONCE, answers: true, pause: ARRIVED }
        };
        [(address(0), address(1)), (address(1), address(0))].map(scene).into()
    }

    fn play(&self, balancer: Balancer, is_over: impl Fn(usize) -> bool + Sync) -> Tally {
        let mut tally = players(&self.scenes(balancer), is_over);
        thread::sleep(SETTLED);
        tally.compare(|path| self.origin.seen(path));
        tally
    }
}

/// `early_data = once`: accepted at the other machine, too, and once.
pub(super) fn once(effort: Effort) -> Option<Found> {
    replays(effort, &Machines::start("early-once", "once")?, Balancer::RoundRobin, LEAST_ELSEWHERE)
}

/// `early_data = once-here`: accepted at the machine that issued the session, and once.
pub(super) fn once_here(effort: Effort) -> Option<Found> {
    let machines = Machines::start("early-once-here", "once-here")?;
    replays(effort, &machines, Balancer::ByAddress, LEAST_ACCEPTED)
}

/// `early_data = once-here`, of clients that come to the other machine. It rejects their early data, and they send it again.
/// The machine that issued the session knows nothing of that: if it accepts a copy then, this falls short.
pub(super) fn once_elsewhere(effort: Effort) -> Option<Found> {
    let machines = Machines::start("early-elsewhere", "once-here")?;
    let copies = if effort.quick { 200 } else { 2_000 };
    let tally = machines.play(Balancer::RoundRobin, |sent| sent >= copies / 2);
    let holds = tally.accepted + tally.replayed + tally.failed == 0 && tally.originals > 0;
    Some(Found { figure: tally.to_string(), holds })
}

fn replays(effort: Effort, machines: &Machines, balancer: Balancer, least: f64) -> Option<Found> {
    let copies = if effort.quick { COPIES / 10 } else { COPIES };
    let tally = machines.play(balancer, |sent| sent >= copies / 2);
    let holds = tally.is_safe() && tally.percent_accepted() >= least;
    Some(Found { figure: tally.to_string(), holds })
}

/// A fault of Valkey. Returns what shows that it happened.
type Fault = fn(&mut Machines) -> Result<String, String>;

pub(super) fn killed(effort: Effort) -> Option<Found> {
    endure(effort, "early-killed", |machines| {
        machines.cluster.stop_valkey();
        machines.notice(0..2)?;
        machines.cluster.start_valkey().ok_or("it does not start again")?;
        machines.come_back()
    })
}

/// Valkey comes back with all that it had a moment before: it has lost its last writes.
pub(super) fn older(effort: Effort) -> Option<Found> {
    endure(effort, "early-older", |machines| {
        let saved = machines.cluster.ask_valkey(&["SAVE"]);
        if saved.trim() != "OK" {
            return Err(saved);
        }
        thread::sleep(2 * SECOND);
        machines.cluster.stop_valkey();
        machines.cluster.start_valkey().ok_or("it does not start again")?;
        machines.come_back()
    })
}

pub(super) fn paused(effort: Effort) -> Option<Found> {
    endure(effort, "early-paused", |machines| {
        machines.cluster.signal_valkey(Signal::STOP);
        let noticed = machines.notice(0..2);
        machines.cluster.signal_valkey(Signal::CONT);
        noticed?;
        machines.come_back()
    })
}

/// Servers find no agent, and turn clients away, whose sessions stay in Valkey. An agent of one machine alone would not do: what
/// that machine turns away, the other one may accept (SECURITY.md).
pub(super) fn frozen(effort: Effort) -> Option<Found> {
    endure(effort, "early-frozen", |machines| {
        machines.signal_agents(Signal::STOP);
        let noticed = machines.notice(0..2);
        machines.signal_agents(Signal::CONT);
        noticed?;
        machines.come_back()
    })
}

pub(super) fn flushed(effort: Effort) -> Option<Found> {
    endure(effort, "early-flushed", |machines| {
        const TIMES: usize = 10;
        for _ in 0..TIMES {
            let said = ask(machines.cluster.port, &["FLUSHALL"]);
            if said.trim() != "OK" {
                return Err(said);
            }
            thread::sleep(SECOND / 3);
        }
        Ok(format!("{TIMES} times"))
    })
}

pub(super) fn cut(effort: Effort) -> Option<Found> {
    endure(effort, "early-cut", |machines| {
        machines.relay.set_cut(true);
        let noticed = machines.notice(0..1);
        thread::sleep(2 * SECOND);
        machines.relay.set_cut(false);
        noticed?;
        machines.come_back()
    })
}

impl Machines {
    /// Waits until the agents of these machines have noticed that Valkey is away.
    fn notice(&self, machines: std::ops::Range<usize>) -> Result<(), String> {
        self.are_linked(machines, false)
    }

    fn signal_agents(&self, to: Signal) {
        let agents = self.cluster.machines.iter().filter_map(|machine| machine.agent.as_ref());
        agents.for_each(|agent| signal(agent, to));
    }

    fn come_back(&self) -> Result<String, String> {
        self.are_linked(0..2, true)?;
        Ok("agents noticed, and came back".to_owned())
    }

    fn are_linked(&self, machines: std::ops::Range<usize>, are_linked: bool) -> Result<(), String> {
        let until = Instant::now() + 20 * SECOND;
        let is_so = |number: usize| {
            self.cluster.machines[number].facts().is_some_and(|facts| facts.is_linked == are_linked)
        };
        while !machines.clone().all(is_so) {
            if Instant::now() > until {
                return Err(format!("agents are not linked = {are_linked}"));
            }
            thread::sleep(SECOND / 20);
        }
        Ok(())
    }
}

/// Lets clients come, and copies of their first flights, before a fault, during it, and after it.
fn endure(effort: Effort, name: &'static str, fault: Fault) -> Option<Found> {
    let mut machines = Machines::start(name, "once")?;
    let quiet = if effort.quick { 2 * SECOND } else { 8 * SECOND };
    let is_over = AtomicBool::new(false);
    let scenes = machines.scenes(Balancer::RoundRobin);
    let (mut tally, seen) = thread::scope(|scope| {
        let players = scope.spawn(|| players(&scenes, |_| is_over.load(Ordering::Relaxed)));
        thread::sleep(quiet);
        let seen = fault(&mut machines);
        thread::sleep(quiet);
        is_over.store(true, Ordering::Relaxed);
        (players.join().expect("no panic"), seen)
    });
    thread::sleep(SETTLED);
    tally.compare(|path| machines.origin.seen(path));
    let (Ok(told) | Err(told)) = &seen;
    let figure = format!("{tally}; {told}");
    Some(Found { figure, holds: tally.is_safe() && tally.originals > 0 && seen.is_ok() })
}
