//! The player of a pass for one policy at one capacity.

use std::num::NonZeroU32;

use crate::births::Births;
use crate::bound::Bound;
use crate::error::Error;
use crate::request::Request;
use crate::server::{KeyedBy, Server, Tls};
use crate::store::{Offered, Shipped, Store, Yardstick};
use crate::subject::Subject;
use crate::tally::Tally;

/// Consecutive requests, with their future if it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk<'a> {
    pub(crate) requests: &'a [Request],
    /// The number of requests before.
    pub(crate) position: u64,
    /// See [`crate::future::Future::gaps_from`]; empty if it is not needed.
    pub(crate) gaps: &'a [u32],
}

impl Chunk<'_> {
    /// Returns each request with the position of the next request for its session.
    #[inline]
    fn iter(&self) -> impl Iterator<Item = (&Request, u64)> {
        let next = |at: usize| match self.gaps.get(at) {
            None | Some(0) => u64::MAX,
            Some(gap) => self.position + at as u64 + u64::from(*gap),
        };
        self.requests.iter().enumerate().map(move |(at, request)| (request, next(at)))
    }
}

/// A player of requests, which counts hits.
pub(crate) trait Player: Send {
    fn play(&mut self, chunk: &Chunk<'_>);

    /// Ends after the last chunk.
    fn finish(&mut self) {}

    fn hits(&self) -> &Tally;
}

/// Makes the player of a policy.
pub(crate) fn player(
    subject: Subject,
    capacity: NonZeroU32,
    server: &Server,
    seed: u64,
    groups: usize,
) -> Result<Box<dyn Player>, Error> {
    let servers = u64::from(server.servers.max(1));
    match subject {
        Subject::Bound(knows, places) => {
            Ok(Box::new(Bound::new(knows, places, capacity, server, groups)))
        }
        Subject::Yardstick(name) => {
            let seeds = (0..servers).map(|number| seed * servers + number);
            let store = |seed| Yardstick::new(name, capacity, server, seed);
            Ok(assemble(seeds.map(store).collect(), subject, server, groups))
        }
        _ => {
            let stores = (0..servers).map(|_| Shipped::new(subject, capacity, server));
            Ok(assemble(stores.collect::<Result<_, _>>()?, subject, server, groups))
        }
    }
}

fn assemble<S: Store + 'static>(
    mut stores: Vec<S>,
    subject: Subject,
    server: &Server,
    groups: usize,
) -> Box<dyn Player> {
    let hits = Tally::new(groups);
    // An optimum stores the newest ticket only, as if there were one session that goes on.
    let tls = if subject.needs_future() { Tls::V1_2 } else { server.tls };
    let by_client = server.keyed_by == KeyedBy::Client || subject.needs_future();
    let by_client = by_client && Server { tls, ..server.clone() }.can_key_by_client();
    let births = Births::new(server);
    match stores.pop() {
        Some(store) if by_client => Box::new(ByClient { store, births, hits }),
        store => {
            stores.extend(store);
            let (full, resumed) = match tls {
                Tls::V1_2 => (1, 0),
                Tls::V1_3 { full, resumed, .. } => (full, resumed),
            };
            let (full, resumed) = (u32::from(full), u32::from(resumed));
            let sessions_kept = server.sessions_kept;
            let held = Vec::new();
            Box::new(BySession { stores, held, births, full, resumed, sessions_kept, hits })
        }
    }
}

/// A player in which every client always has the same key.
struct ByClient<S> {
    store: S,
    births: Births,
    hits: Tally,
}

impl<S: Store> Player for ByClient<S> {
    fn play(&mut self, chunk: &Chunk<'_>) {
        for (request, next) in chunk.iter() {
            let key = u64::from(request.client);
            let expired = self.births.is_expired(request.client, request.now_ms);
            let hit = self.store.resume(request, next, Some(Offered { key, expired }));
            self.births.record(request.client, request.now_ms, hit);
            if hit {
                self.store.renew(request);
            } else {
                self.store.issue(request, next, key..=key);
            }
            self.hits.add(request.kind, hit);
        }
    }

    fn hits(&self) -> &Tally {
        &self.hits
    }
}

/// A player in which every session has its own key, and each client holds its last session.
struct BySession<S> {
    stores: Vec<S>,
    /// The number of sessions that each client was given; it holds the last.
    held: Vec<u32>,
    births: Births,
    /// The number of sessions that a full handshake makes.
    full: u32,
    /// The number of sessions that a resumption makes.
    resumed: u32,
    sessions_kept: bool,
    hits: Tally,
}

impl<S: Store> Player for BySession<S> {
    fn play(&mut self, chunk: &Chunk<'_>) {
        for (request, next) in chunk.iter() {
            let client = request.client as usize;
            if client >= self.held.len() {
                self.held.resize(client + 1, 0);
            }
            let held = &mut self.held[client];
            let session = |number: u32| u64::from(request.client) << 32 | u64::from(number);
            let store = &mut self.stores[usize::from(request.server)];
            let offers = *held > 0 && (self.sessions_kept || !request.first_of_run);
            let expired = self.births.is_expired(request.client, request.now_ms);
            let offered = offers.then(|| Offered { key: session(*held), expired });
            let hit = store.resume(request, next, offered);
            self.births.record(request.client, request.now_ms, hit);
            let issued = if hit { self.resumed } else { self.full };
            if issued > 0 {
                let first = *held + 1;
                *held += issued;
                store.issue(request, next, session(first)..=session(*held));
            } else if hit {
                store.renew(request);
            }
            self.hits.add(request.kind, hit);
        }
    }

    fn hits(&self) -> &Tally {
        &self.hits
    }
}
