//! The requests of a pass: events with the data that are the same for every policy.

use std::num::NonZeroU32;

use rejoin_trace::{Event, group_of, member_of};

use crate::clients::Clients;
use crate::error::Error;
use crate::policy::nodes::hash;
use crate::server::{Balancer, Server};
use crate::source::{Pass, Source};
use crate::tally::{Kind, Tally};

/// The number of requests that each cell plays at once: few enough to stay in a processor's cache.
const CHUNK: usize = 4_096;
/// The time from which the shipped cache, whose seconds have 32 bits, would take every session for
/// expired.
const END_OF_TIME_MS: u64 = u32::MAX as u64 * 1_000;

/// The request of a client that connects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) now_ms: u64,
    pub(crate) returns_in_ms: Option<u32>,
    pub(crate) client: u32,
    /// The source that the client comes from: zero if nobody asks.
    pub(crate) source: u64,
    /// The server that it reaches.
    pub(crate) server: u16,
    /// The kind as which it is counted.
    pub(crate) kind: Kind,
    pub(crate) first_of_run: bool,
}

/// The range of requests that a pass plays and counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope {
    /// The time before which requests are played but not counted.
    pub(crate) warm_up_ms: u64,
    /// The time from which requests are not played.
    pub(crate) end_ms: u64,
    /// The number of groups that are counted apart, at least one.
    pub(crate) groups: usize,
}

/// A reader of the requests of a pass, chunk by chunk.
pub(crate) struct Requests<'a> {
    pass: Box<dyn Pass + 'a>,
    /// The events read last.
    events: Vec<Event>,
    clients: Clients,
    scope: Scope,
    balancing: Balancing,
    /// By group, where sources have shares.
    sources: Option<&'a [Option<NonZeroU32>]>,
    chunk: Vec<Request>,
    /// How many there were before the chunk.
    position: u64,
    counts: Tally,
}

impl<'a> Requests<'a> {
    pub(crate) fn open(
        source: &'a (impl Source + ?Sized),
        seed: u64,
        server: &'a Server,
        scope: Scope,
    ) -> Result<Self, Error> {
        Ok(Self {
            pass: source.open(seed)?,
            events: Vec::with_capacity(CHUNK),
            clients: Clients::default(),
            scope,
            balancing: Balancing { servers: server.servers.max(1), by: server.balancer, seed },
            sources: server.fairness.as_ref().map(|shares| &shares.sources[..]),
            chunk: Vec::with_capacity(CHUNK),
            position: 0,
            counts: Tally::new(scope.groups),
        })
    }

    /// Reads the next chunk; returns false if there is none.
    pub(crate) fn advance(&mut self) -> Result<bool, Error> {
        self.position += self.chunk.len() as u64;
        self.chunk.clear();
        self.events.clear();
        self.pass.read(&mut self.events, CHUNK)?;
        for at in 0..self.events.len() {
            let event = self.events[at];
            if event.time_ms >= self.scope.end_ms {
                break;
            }
            let request = self.request(&event)?;
            self.counts.add(request.kind, true);
            self.chunk.push(request);
        }
        Ok(!self.chunk.is_empty())
    }

    pub(crate) fn chunk(&self) -> &[Request] {
        &self.chunk
    }

    /// How many there were before the chunk.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns when the chunk ends, and the number of requests until then.
    pub(crate) fn reached(&self) -> (u64, u64) {
        let time_ms = self.chunk.last().map_or(0, |request| request.now_ms);
        (time_ms, self.position + self.chunk.len() as u64)
    }

    /// Returns the number of requests of each kind.
    pub(crate) fn into_counts(self) -> Tally {
        self.counts
    }

    fn request(&mut self, event: &Event) -> Result<Request, Error> {
        let &Event { time_ms, client, first_of_run, returns_in_ms } = event;
        let at = self.position + self.chunk.len() as u64;
        if time_ms >= END_OF_TIME_MS {
            return Err(Error::TooLate { event: at + 1, time_ms });
        }
        let (number, first_of_device) = self.clients.number(client)?;
        let group = group_of(client).min(self.scope.groups - 1);
        let kind = if time_ms < self.scope.warm_up_ms {
            Kind::UNCOUNTED
        } else {
            Kind::new(group, first_of_device, first_of_run)
        };
        let server = self.balancing.server(client, at);
        let (now_ms, source) = (time_ms, self.source(client));
        Ok(Request { now_ms, returns_in_ms, client: number, source, server, kind, first_of_run })
    }

    fn source(&self, client: u64) -> u64 {
        let Some(sources) = self.sources else { return 0 };
        match sources.get(group_of(client)).copied().flatten() {
            Some(sources) => {
                let member = member_of(client);
                client - member + member % u64::from(sources.get())
            }
            None => client,
        }
    }
}

#[derive(Debug)]
struct Balancing {
    servers: u16,
    by: Balancer,
    seed: u64,
}

impl Balancing {
    fn server(&self, client: u64, position: u64) -> u16 {
        if self.servers == 1 {
            return 0;
        }
        let servers = u64::from(self.servers);
        let any = |draw: u64| ((u128::from(draw) * u128::from(servers)) >> 64) as u16;
        match self.by {
            Balancer::RoundRobin => (position % servers) as u16,
            // SplitMix64, as its finaliser is `hash`.
            Balancer::Random => {
                const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
                any(hash(hash(self.seed).wrapping_add(position.wrapping_add(1).wrapping_mul(STEP))))
            }
            Balancer::Client => any(hash(client.wrapping_add(1))),
        }
    }
}
