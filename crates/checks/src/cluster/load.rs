//! Clients that come back all the time, each to the next machine, and what came of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rejoin_testkit::machines::Cluster;
use rejoin_testkit::site::{Client, Versions};

const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];
/// Clients per thread, of both versions.
const CLIENTS: usize = 24;
/// The time between two connections of a thread.
const EVERY: Duration = Duration::from_millis(16);

/// Connections of a client until it comes without its session, odd: to each machine in turn. Over TLS 1.2
/// machines would soon have them all.
const FORGET_EVERY: usize = 5;

/// Ends when it is dropped.
pub(crate) struct Load {
    began: Instant,
    visits: Arc<Mutex<Vec<Visit>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

struct Visit {
    versions: Versions,
    at: Instant,
    /// The time from the first packet to the end of the handshake.
    handshake: Duration,
    /// True if its session was resumed; or why there was no answer.
    resumed: Result<bool, String>,
}

/// A time under load.
pub(crate) struct Phase {
    pub(crate) connections: usize,
    /// Percent, of TLS 1.2 and of 1.3.
    pub(crate) resumed: [f64; 2],
    pub(crate) p99_ms: f64,
    /// Why.
    pub(crate) failed: Vec<String>,
}

impl Load {
    /// 125 connections a second.
    pub(crate) const USUAL: usize = 2;
    /// 250 connections a second.
    pub(crate) const DOUBLE: usize = 4;

    /// A load of so many threads, each of which makes 62.5 connections a second.
    pub(crate) fn on(cluster: &Cluster, threads: usize) -> Self {
        let machines: Vec<_> =
            cluster.machines.iter().map(|machine| machine.site.address()).collect();
        let (visits, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let threads = (0..threads).map(|_| {
            let (machines, visits) = (machines.clone(), Arc::clone(&visits));
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || come_again(&machines, &visits, &is_over))
        });
        let threads = threads.collect();
        Self { began: Instant::now(), visits, is_over, threads }
    }

    /// The percentage of the connections in this time that were resumed.
    pub(crate) fn resumed(&self, from: Instant, to: Instant) -> f64 {
        let visits = self.visits.lock().expect("no panic");
        let of = || visits.iter().filter(|visit| (from..to).contains(&visit.at));
        let resumed = of().filter(|visit| visit.resumed == Ok(true)).count();
        100.0 * resumed as f64 / of().count().max(1) as f64
    }

    /// The percentage of the connections that were made, of those that were due.
    pub(crate) fn kept_up(&self) -> f64 {
        let due = self.began.elapsed().div_duration_f64(EVERY) * self.threads.len() as f64;
        100.0 * self.visits.lock().expect("no panic").len() as f64 / due
    }

    /// The outcome of all connections since then.
    pub(crate) fn since(&self, from: Instant) -> Phase {
        let visits = self.visits.lock().expect("no panic");
        let visits: Vec<_> = visits.iter().filter(|visit| visit.at >= from).collect();
        let mut times: Vec<_> = visits.iter().map(|visit| visit.handshake).collect();
        times.sort();
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
        let resumed = VERSIONS.map(|versions| {
            let of: Vec<_> = visits.iter().filter(|visit| visit.versions == versions).collect();
            let resumed = of.iter().filter(|visit| visit.resumed == Ok(true)).count();
            100.0 * resumed as f64 / of.len().max(1) as f64
        });
        Phase {
            connections: visits.len(),
            resumed,
            p99_ms: p99.as_secs_f64() * 1_000.0,
            failed: visits.iter().filter_map(|visit| visit.resumed.clone().err()).collect(),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn come_again(machines: &[SocketAddr], visits: &Mutex<Vec<Visit>>, is_over: &AtomicBool) {
    let versions = VERSIONS.into_iter().cycle().take(CLIENTS);
    let mut clients: Vec<_> =
        versions.map(|versions| (versions, Client::new(machines[0], versions))).collect();
    let mut due = Instant::now();
    for turn in 0_usize.. {
        for (versions, client) in &mut clients {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due = due.max(Instant::now() - EVERY) + EVERY;
            client.address = machines[turn % machines.len()];
            if turn.is_multiple_of(FORGET_EVERY) {
                *client.session.lock().expect("no panic") = None;
            }
            let visit = visit(*versions, client);
            visits.lock().expect("no panic").push(visit);
        }
    }
}

fn visit(versions: Versions, client: &mut Client) -> Visit {
    let at = Instant::now();
    let tls = client.shake_hands();
    let handshake = at.elapsed();
    let resumed = tls.and_then(|tls| client.ask(tls)).map_err(|error| error.to_string());
    let is_answered = client.answers.drain(..).all(|answer| !answer.is_empty());
    let resumed = resumed.and_then(|resumed| match is_answered {
        true => Ok(resumed),
        false => Err("no answer to a request".to_owned()),
    });
    Visit { versions, at, handshake, resumed }
}
