//! A survey of arrivals, and of the requests that a cache without eviction would resume.

use crate::births::Births;
use crate::error::Error;
use crate::outcome::{Cell, HitRates};
use crate::progress::Progress;
use crate::request::{Request, Requests, Scope};
use crate::server::{Server, Tls};
use crate::simulation::{Simulation, in_parallel, rates};
use crate::source::Source;
use crate::tally::{Counts, Kind, Tally};

use super::ages::{Ages, Lifetime, lost_percent};

/// The figures of arrivals. They are means over seeds unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// The largest number of clients.
    pub clients: u64,
    /// The number of requests counted.
    pub requests: f64,
    /// The number of them after the first of each client: those that could resume.
    pub returning: f64,
    /// The time between the first and the last of them, in seconds.
    pub counted_s: f64,
    /// The hit rates of a cache that evicts nothing before its lifetime ends.
    pub unlimited: HitRates,
    /// The same if every server resumes the sessions of all, as with tickets whose keys are shared.
    pub shared: HitRates,
    /// The most sessions that such a cache would hold on one server.
    pub most_sessions: u64,
    /// True if any client announces a return.
    pub hints: bool,
    /// True if it is known where runs begin.
    pub runs: bool,
    /// The lifetime of the servers' sessions, or the one that they need if the servers have none.
    pub lifetime: Lifetime,
}

impl Survey {
    /// Reads the arrivals of every seed once. Returns `None` if it was stopped before the end.
    ///
    /// # Errors
    /// Returns the errors of the source.
    pub fn of(
        simulation: &Simulation,
        source: &(impl Source + ?Sized),
        progress: &Progress,
    ) -> Result<Option<Self>, Error> {
        let seeds: Vec<u64> = (1..=u64::from(simulation.seeds)).collect();
        progress.begin(seeds.len());
        let seen = in_parallel(&seeds, simulation.jobs, progress, |seed| {
            Seen::of(simulation, source, *seed, progress)
        })?;
        let seen: Option<Vec<Seen>> = seen.into_iter().collect();
        Ok(seen.filter(|seen| !seen.is_empty()).map(|seen| Self::over(&seen)))
    }

    fn over(seen: &[Seen]) -> Self {
        let mean = |of: &dyn Fn(&Seen) -> f64| seen.iter().map(of).sum::<f64>() / seen.len() as f64;
        let most = |of: &dyn Fn(&Seen) -> u64| seen.iter().map(of).max().unwrap_or(0);
        let counts = |hits: fn(&Seen) -> &Tally| -> Vec<(Counts, Counts)> {
            seen.iter().map(|seen| (seen.requests.total(), hits(seen).total())).collect()
        };
        let unlimited = counts(|seen| &seen.hits);
        let counted_s = mean(&|seen| seen.counted_ms() as f64 / 1_000.0);
        Self {
            clients: most(&|seen| seen.held.len() as u64),
            requests: mean(&|seen| seen.requests.total().all as f64),
            returning: mean(&|seen| seen.requests.total().after_first_of_device as f64),
            counted_s,
            unlimited: rates(&unlimited),
            shared: rates(&counts(|seen| &seen.shared)),
            most_sessions: most(&|seen| seen.issued.iter().copied().max().unwrap_or(0)),
            hints: seen.iter().any(|seen| seen.hints),
            runs: seen.iter().any(|seen| seen.runs),
            lifetime: lifetime(seen, unlimited.iter().map(|(_, hits)| hits.all).sum(), counted_s),
        }
    }

    /// Returns the hit rate of an unlimited cache after the first request of each device, in percent;
    /// 0 if no client returns.
    pub fn returning_percent(&self) -> f64 {
        self.unlimited.hit_after_first_of_device.map_or(0.0, |rate| rate.mean)
    }

    /// Returns the same for tickets, whose keys all servers share.
    pub fn tickets_percent(&self) -> f64 {
        self.shared.hit_after_first_of_device.map_or(0.0, |rate| rate.mean)
    }

    /// Returns the full handshakes that an unlimited cache saves each second, compared with no
    /// resumption at all; `None` if everything happened in one moment.
    pub fn avoided_per_s(&self, cell: &Cell) -> Option<f64> {
        (self.counted_s > 0.0).then(|| (cell.requests - cell.full_handshakes) / self.counted_s)
    }
}

/// Returns the lifetime that the servers have, or the one that sessions need. `resumed` is the number of requests that an
/// unlimited cache resumes, `counted_s` the length of the arrivals.
fn lifetime(seen: &[Seen], resumed: u64, counted_s: f64) -> Lifetime {
    let server = &seen[0].server;
    let Some(seconds) = server.lifetime_s else {
        let mut ages = Ages::new(server);
        seen.iter().for_each(|seen| ages.add(&seen.ages));
        return ages.lifetime(resumed, counted_s);
    };
    let lost = seen.iter().map(|seen| seen.lost).sum();
    let renewed = Births::new(server).renewed;
    Lifetime { seconds, lost_percent: lost_percent(lost, resumed + lost), renewed }
}

/// The survey of one seed.
struct Seen {
    server: Server,
    /// The server that has each client's session.
    held: Vec<u16>,
    /// The number of sessions that each server would hold.
    issued: Vec<u64>,
    requests: Tally,
    hits: Tally,
    /// The hits if every server resumes the sessions of all.
    shared: Tally,
    ages: Ages,
    births: Births,
    births_shared: Births,
    /// The requests counted that found their session too old.
    lost: u64,
    hints: bool,
    runs: bool,
    first_counted_ms: Option<u64>,
    last_ms: u64,
}

impl Seen {
    fn of(
        simulation: &Simulation,
        source: &(impl Source + ?Sized),
        seed: u64,
        progress: &Progress,
    ) -> Result<Option<Self>, Error> {
        let Simulation { server, warm_up_ms, end_ms, .. } = simulation;
        let scope =
            Scope { warm_up_ms: *warm_up_ms, end_ms: end_ms.unwrap_or(u64::MAX), groups: 1 };
        let mut requests = Requests::open(source, seed, server, scope)?;
        let mut seen = Self {
            server: server.clone(),
            held: Vec::new(),
            issued: vec![0; usize::from(server.servers.max(1))],
            requests: Tally::new(1),
            hits: Tally::new(1),
            shared: Tally::new(1),
            ages: Ages::new(server),
            births: Births::new(server),
            births_shared: Births::new(server),
            lost: 0,
            hints: false,
            runs: false,
            first_counted_ms: None,
            last_ms: 0,
        };
        let mut pass = progress.pass(1);
        while requests.advance()? {
            if progress.stopped() {
                return Ok(None);
            }
            requests.chunk().iter().for_each(|request| seen.record(request));
            let (time_ms, events) = requests.reached();
            pass.set(source.part_over(time_ms, events));
        }
        pass.set(1.0);
        seen.requests = requests.into_counts();
        Ok(Some(seen))
    }

    fn record(&mut self, request: &Request) {
        let (client, server, now_ms) = (request.client as usize, request.server, request.now_ms);
        let known = self.held.get(client).copied();
        let offers = known.is_some() && (self.server.sessions_kept || !request.first_of_run);
        let is_there = offers && known == Some(server);
        let expired = self.births.is_expired(request.client, now_ms);
        let resumes = is_there && !expired;
        self.births.record(request.client, now_ms, resumes);
        let resumes_shared = offers && !self.births_shared.is_expired(request.client, now_ms);
        self.births_shared.record(request.client, now_ms, resumes_shared);
        match self.held.get_mut(client) {
            Some(held) => *held = server,
            // Clients are numbered in the order in which they come.
            None => self.held.push(server),
        }
        self.issued[usize::from(server)] += self.made(resumes);
        let counted = request.kind != Kind::UNCOUNTED;
        if self.server.lifetime_s.is_none() {
            self.ages.record(request.client, now_ms, resumes, counted);
        }
        self.lost += u64::from(counted && is_there && expired);
        self.hits.add(request.kind, resumes);
        self.shared.add(request.kind, resumes_shared);
        self.hints |= request.returns_in_ms.is_some();
        self.runs |= request.first_of_run && known.is_some();
        self.last_ms = now_ms;
        if counted {
            self.first_counted_ms.get_or_insert(now_ms);
        }
    }

    fn made(&self, resumes: bool) -> u64 {
        match self.server.tls {
            Tls::V1_2 => u64::from(!resumes),
            Tls::V1_3 { full, .. } if !resumes => u64::from(full),
            Tls::V1_3 { resumed, used_once, .. } => {
                u64::from(resumed).saturating_sub(u64::from(used_once))
            }
        }
    }

    fn counted_ms(&self) -> u64 {
        self.last_ms.saturating_sub(self.first_counted_ms.unwrap_or(self.last_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use rejoin_trace::Event;

    use super::*;
    use crate::Plan;
    use crate::policy::PolicyName;
    use crate::server::Balancer;
    use crate::subject::Subject;

    fn event(time_s: u64, client: u64, first_of_run: bool) -> Event {
        Event { time_ms: time_s * 1_000, client, first_of_run, returns_in_ms: None }
    }

    fn survey(server: Server, events: &[Event]) -> Survey {
        let simulation = Simulation { server, seeds: 1, ..Simulation::of(&Plan::default()) };
        let survey = Survey::of(&simulation, events, &Progress::default());
        survey.expect("events in memory").expect("an end")
    }

    #[test]
    fn what_is_seen_is_counted() {
        let events = [event(0, 7, true), event(10, 8, true), event(20, 7, false)];
        let found = survey(Server::default(), &events);
        assert_eq!((found.clients, found.most_sessions, found.requests), (2, 2, 3.0));
        assert_eq!(found.returning, 1.0);
        assert_eq!((found.counted_s, found.returning_percent()), (20.0, 100.0));
        assert!(!found.hints && !found.runs);
        let again = [&events[..], &[event(30, 8, true)]].concat();
        assert!(survey(Server::default(), &again).runs);
        let lost = survey(Server { sessions_kept: false, ..Server::default() }, &again);
        assert_eq!((lost.returning_percent(), lost.most_sessions), (50.0, 3));
    }

    /// Compares the survey with a simulation whose cache never fills up, for every kind of server.
    #[test]
    fn unlimited_is_what_a_simulation_of_it_gives() {
        let plan = "duration_s = 2000\n[[group]]\nkind = \"devices\"\ndevices = 200\n\
                    running_s = 120\nwaiting_s = 400\nintervals = \"60:2,15:1\"";
        let plan = Plan::parse(plan).expect("a plan");
        let mixture = plan.mixture.as_ref().expect("a group");
        let source = crate::Drawn { mixture, end_ms: 2_000_000 };
        let tls_1_3 = |full, resumed, used_once| Tls::V1_3 { full, resumed, used_once };
        for tls in [Tls::V1_2, tls_1_3(2, 1, false), tls_1_3(2, 1, true), tls_1_3(1, 0, false)] {
            let kinds = [(1, true), (3, true), (1, false), (3, false)];
            let lifetimes = [None, Some(60), Some(200)];
            let kinds =
                kinds.into_iter().flat_map(|kind| lifetimes.map(|lifetime| (kind, lifetime)));
            for ((servers, sessions_kept), lifetime_s) in kinds {
                let balancer = Balancer::Random;
                let planned = plan.server.clone();
                let server =
                    Server { tls, servers, sessions_kept, lifetime_s, balancer, ..planned };
                let simulation = Simulation {
                    server,
                    seeds: 3,
                    warm_up_ms: 500_000,
                    policies: vec![Subject::Yardstick(PolicyName::Fifo)],
                    capacities: vec![u32::MAX.try_into().expect("not zero")],
                    ..Simulation::of(&plan)
                };
                let progress = Progress::default();
                let found = Survey::of(&simulation, &source, &progress).expect("no error");
                let found = found.expect("an end");
                let cell = simulation.run(&source, &progress).expect("no error").cells.remove(0);
                assert_eq!(found.unlimited, cell.rates, "{:?}", simulation.server);
                assert_eq!(found.requests, cell.requests);
                let most = found.most_sessions.try_into().expect("few");
                let capacities = vec![NonZeroU32::new(most).expect("some")];
                let enough = Simulation { capacities, ..simulation };
                let cell = enough.run(&source, &progress).expect("no error").cells.remove(0);
                assert_eq!(found.unlimited, cell.rates, "{:?} with {most}", enough.server);
            }
        }
    }
}
