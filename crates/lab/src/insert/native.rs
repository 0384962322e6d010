//! Caches of this process, each full.

use std::sync::Arc;
use std::time::Duration;

use openssl::ssl::{Ssl, SslSession, SslStream};
use rejoin_cache::{
    Cache, Capacity, ContextTag, NewSession, Policy, Prediction, SessionId, Settings,
};
use rejoin_openssl::FilledCache;
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

use super::failed;
use crate::Error;
use crate::over_memory::{self, Pipe, cpu_time, shake_hands};
use rejoin_serve::{Identity, KeyType, Versions};

/// The implementation of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contender {
    Predictive,
    /// By hints alone: Algorithm 1.
    Hints,
    Lru,
    OpenSsl,
    Rustls,
}

pub(super) const CONTENDERS: [Contender; 5] = [
    Contender::Predictive,
    Contender::Hints,
    Contender::Lru,
    Contender::OpenSsl,
    Contender::Rustls,
];

/// A serialised session without a client certificate takes 129 to 163 bytes.
const VALUE_BYTES: usize = 152;
/// Between two sessions, on the cache's clock.
const GAP_MS: u64 = 10;
/// When a client says that it is back: long before its session would have to go from a cache of more than 1,200.
const BACK_IN_MS: u64 = 10_000;
/// When the first session comes, on our caches' clock.
const START_MS: u64 = 1_000_000;
/// When the first session comes to OpenSSL, in Unix time.
const START_S: i64 = 1_800_000_000;
/// OpenSSL knows no session without an end: in 68 years.
const NO_END_S: i64 = i32::MAX as i64;

/// A cache that is full.
pub(super) struct Filled {
    entries: u32,
    lifetime_s: u32,
    /// Sessions that came so far.
    came: u64,
    /// Before it was full.
    came_before: u64,
    /// The number of these that it stored.
    stored: u64,
    /// Before it was full.
    stored_before: u64,
    cache: AnyCache,
}

enum AnyCache {
    /// And what it is called.
    Ours(&'static str, Box<Cache>),
    OpenSsl(FilledCache),
    Rustls(Arc<ServerSessionMemoryCache>),
}

impl Filled {
    pub(super) fn new(
        contender: Contender,
        (entries, lifetime_s): (u32, u32),
    ) -> Result<Self, Error> {
        let ours = |name, policy, prediction| -> Result<AnyCache, Error> {
            let capacity = Capacity::Sessions(u64::from(entries));
            let block_bytes = VALUE_BYTES as u32;
            let settings = Settings { policy, prediction, block_bytes, ..Settings::new(capacity) };
            Ok(AnyCache::Ours(name, Box::new(Cache::new(&settings, [0; 16], START_MS)?)))
        };
        let (predictive, both) = (Policy::Predictive, Prediction::Both);
        let cache = match contender {
            Contender::Predictive => ours("Rejoin, predictive", predictive, both)?,
            Contender::Hints => ours("Rejoin, by hints alone", predictive, Prediction::Hint)?,
            Contender::Lru => ours("Rejoin, lru", Policy::Lru, both)?,
            Contender::OpenSsl => {
                let (identity, versions) = (Identity::made(KeyType::P256)?, Versions::Tls12);
                let context = over_memory::server(versions, &identity)?;
                let session = session(&identity, versions)?;
                AnyCache::OpenSsl(FilledCache::new(context, session, entries as i32))
            }
            Contender::Rustls => AnyCache::Rustls(ServerSessionMemoryCache::new(entries as usize)),
        };
        let (came, came_before, stored, stored_before) = (0, 0, 0, 0);
        let mut filled =
            Self { entries, lifetime_s, came, came_before, stored, stored_before, cache };
        for _ in 0..to_fill(entries).div_ceil(PART as u64) {
            filled.round(PART)?;
        }
        (filled.came_before, filled.stored_before) = (filled.came, filled.stored);
        Ok(filled)
    }

    pub(super) fn name(&self) -> String {
        match &self.cache {
            AnyCache::Ours(name, _) => (*name).to_owned(),
            AnyCache::OpenSsl(_) => {
                let version = openssl::version::version();
                version.split(' ').take(2).collect::<Vec<_>>().join(" ")
            }
            AnyCache::Rustls(_) => "rustls, ServerSessionMemoryCache".to_owned(),
        }
    }

    /// The mean of so many insertions, in nanoseconds of CPU time. Sessions are made before.
    pub(super) fn round(&mut self, insertions: usize) -> Result<f64, Error> {
        let all = self.came..self.came + insertions as u64;
        self.came = all.end;
        let (spent, stored) = match &self.cache {
            AnyCache::Ours(_, cache) => {
                let id = |n| SessionId::new(&id(n)).map_err(failed);
                let sessions = all.map(|n| Ok((id(n)?, START_MS + n * GAP_MS)));
                let sessions = sessions.collect::<Result<Vec<_>, Error>>()?;
                let value = [7; VALUE_BYTES];
                timed(sessions, |(id, now_ms)| store(cache, id, now_ms, self.lifetime_s, &value))
            }
            AnyCache::OpenSsl(cache) => {
                let lifetime_s = match i64::from(self.lifetime_s) {
                    0 => NO_END_S,
                    lifetime_s => lifetime_s,
                };
                let made_s = |n: u64| START_S + (n * GAP_MS / 1_000) as i64;
                let sessions = all.map(|n| cache.copy(&id(n), made_s(n), lifetime_s));
                let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
                // The cache has references of its own, and what becomes of ours is not counted.
                timed(&sessions, |session| cache.insert(session))
            }
            AnyCache::Rustls(cache) => {
                let sessions: Vec<_> =
                    all.map(|n| (id(n).to_vec(), vec![7; VALUE_BYTES])).collect();
                timed(sessions, |(id, value)| cache.put(id, value))
            }
        };
        self.stored += stored;
        Ok(spent.as_secs_f64() * 1e9 / insertions as f64)
    }

    /// That it is full, and has taken what came last or said why not: or else something else was measured.
    /// Returns how many of a hundred it took since it was full.
    pub(super) fn stored_percent(&self) -> Result<f64, Error> {
        let is_full = match &self.cache {
            AnyCache::Ours(_, cache) => {
                let counters = cache.counters();
                let refused = counters.refused_returns_later;
                // Shards do not fill evenly.
                let is_full = counters.sessions * 100 >= u64::from(self.entries) * 95;
                let answered = counters.stored == self.stored && self.stored + refused == self.came;
                answered && is_full
            }
            AnyCache::OpenSsl(cache) => {
                // It makes room before it counts: one less stays.
                let missing = u64::from(self.entries).checked_sub(cache.sessions());
                matches!(missing, Some(0 | 1))
            }
            AnyCache::Rustls(cache) => cache.get(&id(self.came - 1)).is_some(),
        };
        if !is_full {
            return Err(failed(format!("{} does not keep {} sessions", self.name(), self.entries)));
        }
        let (came, stored) = (self.came - self.came_before, self.stored - self.stored_before);
        Ok(100.0 * stored as f64 / came.max(1) as f64)
    }
}

/// The CPU time of it, and how many were stored.
fn timed<S>(
    sessions: impl IntoIterator<Item = S>,
    mut store: impl FnMut(S) -> bool,
) -> (Duration, u64) {
    let began = cpu_time();
    let stored = sessions.into_iter().map(|session| u64::from(store(session))).sum();
    (cpu_time() - began, stored)
}

/// Sessions made at a time to fill a cache.
const PART: usize = 10_000;

/// Random to look at, and another for each number: a bijection of the first eight bytes (the finaliser of SplitMix64).
fn id(number: u64) -> [u8; 32] {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let mut id = [0; 32];
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = mixed.to_le_bytes()[at % 8] ^ (at / 8) as u8;
    }
    id
}

/// How many sessions come until a cache is full: half of it again, for our shards do not fill evenly.
fn to_fill(entries: u32) -> u64 {
    u64::from(entries) * 3 / 2
}

/// Returns true if the first session of all is still alive when so many have come since the cache was full.
pub(super) fn outlives(lifetime_s: u32, entries: u32, more: u64) -> bool {
    let came = to_fill(entries).next_multiple_of(PART as u64) + more;
    lifetime_s == 0 || u64::from(lifetime_s) * 1_000 > came * GAP_MS
}

/// Returns true if it was stored.
fn store(cache: &Cache, id: SessionId, now_ms: u64, lifetime_s: u32, value: &[u8]) -> bool {
    let expires_ms = match u64::from(lifetime_s) {
        0 => u64::MAX,
        lifetime_s => now_ms + lifetime_s * 1_000,
    };
    let new = NewSession::new(id, value, expires_ms, ContextTag(1));
    let new = NewSession { hint_ms: Some(BACK_IN_MS), ..new };
    // A refusal is the policy's word, and is counted by the cache.
    cache.insert(now_ms, &new).is_ok()
}

/// A server's own, of a real handshake.
fn session(identity: &Identity, versions: Versions) -> Result<SslSession, Error> {
    let (ours, theirs) = Pipe::pair();
    let server = over_memory::server(versions, identity)?.build();
    let mut server = SslStream::new(Ssl::new(&server)?, ours)?;
    let client = over_memory::client(versions)?;
    let mut client = SslStream::new(client.connection(None)?, theirs)?;
    let is_through = shake_hands(|| client.connect(), || server.accept())?;
    let session = server.ssl().session().filter(|_| is_through);
    session.map(ToOwned::to_owned).ok_or_else(|| over_memory::failed("no session"))
}
