//! A server's sessions: the shipped cache as it is, or a yardstick.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use rejoin_cache::{
    Cache, Capacity, ContextTag, Fairness, HeapMemory, History, Issued, SecretBytes, SessionId,
    Settings, SourceBy, Visit,
};

use crate::error::Error;
use crate::policy::{Access, Policy, PolicyName};
use crate::request::Request;
use crate::server::{Server, Tls};
use crate::subject::Subject;

/// A server's use of sessions during one connection: [`Self::resume`], and then [`Self::renew`] or
/// [`Self::issue`]. `next` is the position of the next request for the session.
pub(crate) trait Store: Send {
    /// Looks up the session that a connecting client offers, if any. Returns true if it was found, and has not expired.
    fn resume(&mut self, request: &Request, next: u64, offered: Option<Offered>) -> bool;

    /// Keeps the resumed session as it is.
    fn renew(&mut self, request: &Request);

    /// Stores the sessions that the handshake made, the newest last.
    fn issue(&mut self, request: &Request, next: u64, sessions: RangeInclusive<u64>);
}

/// A session that a client offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offered {
    pub(crate) key: u64,
    /// True if it has expired. The shipped cache finds that out by itself.
    pub(crate) expired: bool,
}

/// The cache that Rejoin ships.
pub(crate) struct Shipped {
    cache: Cache<RefCell<HeapMemory>>,
    visit: Visit,
    /// The sessions to be issued: only their ids change.
    issued: Vec<Issued>,
    value: SecretBytes,
    hints: bool,
    used_once: bool,
    lifetime_ms: Option<u64>,
    /// The histories that clients carry, by client, each with the time when it was written; `None` if
    /// they carry none.
    carried: Option<Vec<Option<(History, u64)>>>,
}

impl Shipped {
    pub(crate) fn new(
        subject: Subject,
        capacity: NonZeroU32,
        server: &Server,
    ) -> Result<Self, Error> {
        /// The sessions per shard: few enough for the limit of a shard.
        const MOST_IN_A_SHARD: u32 = 1 << 23;
        let (policy, prediction) = subject.shipped().expect("a shipped policy");
        let mut settings = Settings {
            policy,
            prediction,
            grace_ms: server.grace_ms,
            block_bytes: 8,
            shards: Some(capacity.get().div_ceil(MOST_IN_A_SHARD)),
            fairness: server
                .fairness
                .as_ref()
                .map(|shares| Fairness { by: SourceBy::Address, percent: shares.percent }),
            ..Settings::new(Capacity::Sessions(u64::from(capacity.get())))
        };
        settings.ghosts_percent = match subject {
            // It learns nothing from them.
            Subject::Lru => 0,
            _ => server.ghosts_percent.unwrap_or(settings.ghosts_percent),
        };
        let most_issued = match server.tls {
            Tls::V1_2 => 1,
            Tls::V1_3 { full, resumed, .. } => full.max(resumed),
        };
        let capacity = capacity.get();
        let made = Cache::unshared(&settings, [0; 16], 0);
        Ok(Self {
            cache: made.map_err(|cause| Error::Cache { policy: subject, capacity, cause })?,
            visit: Visit::default(),
            issued: (0..most_issued).map(|_| session()).collect(),
            value: SecretBytes::default(),
            hints: !matches!(subject, Subject::Learned | Subject::Lru),
            used_once: used_once(server),
            lifetime_ms: server.lifetime_ms(),
            carried: server.history_carried.then(Vec::new),
        })
    }

    /// Makes the visit know the history that the client brings.
    fn recall(&mut self, request: &Request) {
        let carried = self.carried.as_ref().and_then(|all| *all.get(request.client as usize)?);
        if let Some((history, seen_ms)) = carried {
            self.visit.recall(history, Some(request.now_ms - seen_ms));
        }
    }

    /// Gives the client its history to carry.
    fn give(&mut self, request: &Request) {
        if let Some(all) = &mut self.carried {
            let client = request.client as usize;
            if client >= all.len() {
                all.resize(client + 1, None);
            }
            all[client] = Some((self.visit.history(), request.now_ms));
        }
    }

    fn hint_ms(&self, request: &Request) -> Option<u64> {
        request.returns_in_ms.filter(|_| self.hints).map(u64::from)
    }
}

impl Store for Shipped {
    #[inline]
    fn resume(&mut self, request: &Request, _: u64, offered: Option<Offered>) -> bool {
        self.visit.restart();
        let Self { cache, visit, value, used_once, .. } = self;
        if cache.fairness().is_some() {
            visit.comes_from(cache.source(&request.source.to_le_bytes()));
        }
        let (now_ms, context) = (request.now_ms, ContextTag(0));
        let offered = offered.map(|Offered { key, .. }| id(key));
        let found = offered.is_some_and(|id| match used_once {
            true => visit.take(cache, now_ms, &id, context, value),
            false => visit.look_up(cache, now_ms, &id, context, value),
        });
        if !found && offered.is_some() {
            self.recall(request);
        }
        found
    }

    #[inline]
    fn renew(&mut self, request: &Request) {
        self.give(request);
        if let Some(ms) = self.hint_ms(request) {
            self.visit.hint(&self.cache, request.now_ms, ms);
        }
    }

    #[inline]
    fn issue(&mut self, request: &Request, _: u64, sessions: RangeInclusive<u64>) {
        self.give(request);
        let hint_ms = self.hint_ms(request);
        let expires_ms = self.lifetime_ms.map_or(u64::MAX, |ms| request.now_ms + ms);
        let mut count = 0;
        for (issued, session) in self.issued.iter_mut().zip(sessions) {
            (issued.id, issued.expires_ms) = (id(session), expires_ms);
            count += 1;
        }
        let issued = &self.issued[..count];
        self.visit.issue_all(&self.cache, request.now_ms, issued, hint_ms);
    }
}

fn id(session: u64) -> SessionId {
    SessionId::new(&session.to_le_bytes()).expect("eight bytes")
}

/// Makes a session without a value, which no policy reads.
fn session() -> Issued {
    let value = SecretBytes::default();
    Issued { id: id(0), value, expires_ms: u64::MAX, context: ContextTag(0) }
}

/// A yardstick.
pub(crate) struct Yardstick {
    policy: Box<dyn Policy + Send>,
    used_once: bool,
}

impl Yardstick {
    pub(crate) fn new(name: PolicyName, capacity: NonZeroU32, server: &Server, seed: u64) -> Self {
        let policy = name.build(capacity, seed, server.grace_ms);
        // The only session of an optimum goes on as the client's next ticket.
        Self { policy, used_once: used_once(server) && !name.needs_future() }
    }
}

impl Store for Yardstick {
    #[inline]
    fn resume(&mut self, request: &Request, next: u64, offered: Option<Offered>) -> bool {
        let Self { policy, used_once } = self;
        offered.is_some_and(|Offered { key, expired }| {
            if expired {
                policy.remove(key);
                return false;
            }
            policy.access(&access(request, next, key)) && (!*used_once || policy.remove(key))
        })
    }

    #[inline]
    fn renew(&mut self, _: &Request) {}

    #[inline]
    fn issue(&mut self, request: &Request, next: u64, sessions: RangeInclusive<u64>) {
        sessions.for_each(|key| self.policy.store(&access(request, next, key)));
    }
}

fn used_once(server: &Server) -> bool {
    matches!(server.tls, Tls::V1_3 { used_once: true, .. })
}

#[inline]
fn access(request: &Request, next: u64, key: u64) -> Access {
    Access { key, now_ms: request.now_ms, next, returns_in_ms: request.returns_in_ms }
}
