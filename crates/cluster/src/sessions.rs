//! Sessions in Valkey, with predictive eviction inside it.
//!
//! They are divided among shards by their hashed ids. A shard is three keys of one slot:
//!
//! ```text
//! rejoin:{NAME.shard}:order   sorted set: hashed id -> when its client is expected back (`score`)
//! rejoin:{NAME.shard}:values  hash: hashed id -> value (`value`)
//! rejoin:{NAME.shard}:counts  hash: bytes now; stored, refused, rejected, and those that had to go, ever
//! ```
//!
//! Each operation is one script, or one command, and so one round trip and atomic. `put` follows paper
//! 000's Algorithm 1 as the cache of a machine does where hints alone count. Nothing in Valkey expires by
//! itself, nor may Valkey evict (`maxmemory-policy noeviction`): it would take whole shards.
//!
//! What is not here: deadlines, queues, and the cache in front. Every `now_ms` is an argument, in Unix
//! time; clocks of machines may differ, which moves what is overdue by as much.

mod address;
mod bounds;
mod keys;
mod misses;
mod score;
mod scripts;
mod value;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::{fmt, mem};

use rejoin_cache::{ContextTag, History, Refusal, SecretBytes, SessionId};
use rejoin_tickets::KeyRing;

use crate::{Error, Link, Settings, WrappingKey};
use address::{Address, Addresses, Shard};
use keys::Keys;
use misses::Miss;
use scripts::Scripts;

pub use bounds::{Bounds, ENTRY_OVERHEAD_BYTES};
pub use misses::Misses;
pub use score::{NEVER_MS, returns_ms};

/// The sessions of a cluster. Used by any number of tasks at once.
pub struct Sessions {
    link: Link,
    addresses: Addresses,
    bounds: Bounds,
    scripts: Scripts,
    keys: RwLock<Arc<Keys>>,
    misses: misses::Counters,
    /// Of what was found and rejected, what the cluster's count has.
    reported: AtomicU64,
}

/// A session to be stored.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Under what it will be looked up.
    pub id: &'a SessionId,
    /// The session-id context it was made in.
    pub context: ContextTag,
    /// The serialised session.
    pub value: &'a SecretBytes,
    /// When its lifetime is over, in Unix time.
    pub expires_ms: u64,
    /// What is known of its client.
    pub past: Past,
    /// When its client is expected back, in Unix time: [`returns_ms`] or [`NEVER_MS`].
    pub returns_ms: u64,
}

/// A session that was found.
#[derive(Debug)]
pub struct Found {
    /// The session-id context it was made in: it must not be used in another.
    pub context: ContextTag,
    /// The serialised session.
    pub value: SecretBytes,
    /// When its lifetime is over, in Unix time.
    pub expires_ms: u64,
    /// What is known of its client. Whoever can write to Valkey can change it.
    pub past: Past,
}

/// What is known of a client's visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Past {
    /// The last gaps between them.
    pub history: History,
    /// The last one, in Unix time.
    pub seen_ms: u64,
}

/// What became of a session to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Stored {
        /// How many others had to go.
        evicted: u32,
    },
    /// It is not; nor is an older one of the same id, unless it was too large.
    Refused(Refusal),
}

/// What a shard, or all of them, hold and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Sessions held.
    pub sessions: u64,
    /// Their values, and [`ENTRY_OVERHEAD_BYTES`] for each.
    pub bytes: u64,
    /// Sessions stored.
    pub stored: u64,
    /// Evicted since their clients were overdue.
    pub overdue: u64,
    /// Evicted since their clients would have returned last.
    pub latest: u64,
    /// Removed by [`Sessions::evict`] since they were over.
    pub expired: u64,
    /// Not stored since all others return sooner.
    pub refused: u64,
    /// Found, and not as they were sealed or under another id, as far as machines told it
    /// ([`Sessions::report_rejected`]).
    pub rejected: u64,
}

impl Sessions {
    /// The most shards.
    pub const MOST_SHARDS: u16 = 1_024;

    /// The sessions of the cluster `name`; all its machines give the same bounds and the same hash key.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for bounds that are.
    pub fn new(
        link: Link,
        name: &str,
        hash_key: &[u8; 32],
        bounds: Bounds,
        ring: &KeyRing,
    ) -> Result<Self, Error> {
        bounds.check()?;
        Ok(Self {
            link,
            addresses: Addresses::new(name, hash_key, bounds.shards),
            bounds,
            scripts: Scripts::new(),
            keys: RwLock::new(Arc::new(Keys::new(ring))),
            misses: misses::Counters::default(),
            reported: AtomicU64::new(0),
        })
    }

    /// As [`Self::new`], as a cluster's settings say.
    ///
    /// # Errors
    /// As there.
    pub fn of_cluster(
        link: Link,
        settings: &Settings,
        key: &WrappingKey,
        ring: &KeyRing,
    ) -> Result<Self, Error> {
        let hash_key = key.derive(b"hashed session ids");
        Self::new(link, settings.name.as_str(), &hash_key, settings.bounds(), ring)
    }

    /// From now on, values are sealed and opened with these keys, of a newer ring: what the last one had
    /// besides is over. For one task.
    pub fn set_ring(&self, ring: &KeyRing) {
        let keys = Arc::new(self.keys().followed_by(ring));
        // The lock is held for the exchange only.
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        drop(mem::replace(&mut *current, keys));
    }

    /// Stores a session; one of the same id is replaced.
    ///
    /// # Errors
    /// [`Error::NoKey`]; Valkey's, also when it is full.
    pub async fn put(&self, now_ms: u64, entry: &Entry<'_>) -> Result<Put, Error> {
        if entry.expires_ms <= now_ms {
            return Ok(Put::Refused(Refusal::Expired));
        }
        let length = value::sealed_bytes(entry.value.len());
        if length.is_none_or(|length| !self.bounds.can_hold(length)) {
            return Ok(Put::Refused(Refusal::TooLarge));
        }
        let value = value::seal(&self.keys(), now_ms, entry)?;
        let Address { shard, member } = self.addresses.of(entry.id);
        let mut put = self.scripts.put.prepare_invoke();
        put.key(&shard.order).key(&shard.values).key(&shard.counts).arg(&member).arg(value);
        put.arg(score::score(entry.returns_ms, entry.expires_ms));
        put.arg(self.overdue_before(now_ms)).arg(self.bounds.sessions_of_shard());
        put.arg(self.bounds.bytes_of_shard()).arg(ENTRY_OVERHEAD_BYTES);
        let evicted: i64 = put.invoke_async(&mut self.link.clone()).await?;
        let evicted = u32::try_from(evicted);
        Ok(evicted.map_or(Put::Refused(Refusal::ReturnsLater), |evicted| Put::Stored { evicted }))
    }

    /// Looks a session up, and leaves it where it is.
    ///
    /// # Errors
    /// Valkey's. What cannot be opened is a miss, and counted ([`Self::misses`]). It is removed if nobody
    /// else can open it either: it was altered, or its key is over. A key that is not known may be newer than
    /// this machine's ring.
    pub async fn get(&self, now_ms: u64, id: &SessionId) -> Result<Option<Found>, Error> {
        let Address { shard, member } = self.addresses.of(id);
        let mut get = redis::cmd("HGET");
        get.arg(&shard.values).arg(&member);
        let value: Option<Vec<u8>> = get.query_async(&mut self.link.clone()).await?;
        let found = self.open(&self.keys(), now_ms, id, value.as_deref());
        // What is over may not be by another's clock.
        if let Err(Miss::KeyOver | Miss::Altered) = found {
            let mut discard = self.scripts.discard.prepare_invoke();
            discard.key(&shard.order).key(&shard.values).key(&shard.counts);
            discard.arg(&member).arg(value).arg(ENTRY_OVERHEAD_BYTES);
            let _: bool = discard.invoke_async(&mut self.link.clone()).await?;
        }
        Ok(found.ok())
    }

    /// As [`Self::get`], and the session is gone afterwards: no machine gets it twice. Under a key that is not
    /// known it stays.
    ///
    /// # Errors
    /// As [`Self::get`]; whether it is gone is not known then.
    pub async fn take(&self, now_ms: u64, id: &SessionId) -> Result<Option<Found>, Error> {
        let Address { shard, member } = self.addresses.of(id);
        let mut take = self.scripts.take.prepare_invoke();
        take.key(&shard.order).key(&shard.values).key(&shard.counts);
        take.arg(&member).arg(ENTRY_OVERHEAD_BYTES);
        let keys = self.keys();
        for name in keys.known() {
            take.arg(name);
        }
        let value: Option<Vec<u8>> = take.invoke_async(&mut self.link.clone()).await?;
        Ok(self.open(&keys, now_ms, id, value.as_deref()).ok())
    }

    /// The client of a session was seen: when it is expected next, and what is known of it now.
    /// `expires_ms` is the session's. Whether it is there.
    ///
    /// # Errors
    /// Valkey's.
    pub async fn expect(
        &self,
        id: &SessionId,
        past: Past,
        returns_ms: u64,
        expires_ms: u64,
    ) -> Result<bool, Error> {
        let Address { shard, member } = self.addresses.of(id);
        let mut expect = self.scripts.expect.prepare_invoke();
        expect.key(&shard.order).key(&shard.values).arg(&member);
        expect.arg(score::score(returns_ms, expires_ms)).arg(&past.to_bytes());
        Ok(expect.invoke_async(&mut self.link.clone()).await?)
    }

    /// Forgets a session. Whether it was there.
    ///
    /// # Errors
    /// Valkey's.
    pub async fn remove(&self, id: &SessionId) -> Result<bool, Error> {
        let Address { shard, member } = self.addresses.of(id);
        let mut remove = self.scripts.remove.prepare_invoke();
        remove.key(&shard.order).key(&shard.values).key(&shard.counts);
        remove.arg(&member).arg(ENTRY_OVERHEAD_BYTES);
        Ok(remove.invoke_async(&mut self.link.clone()).await?)
    }

    /// Removes up to `most` sessions of a shard that are over, or overdue for so long, and returns how many
    /// there were.
    ///
    /// # Errors
    /// Valkey's.
    pub async fn evict(
        &self,
        now_ms: u64,
        overdue_for_ms: u64,
        shard: u16,
        most: u32,
    ) -> Result<u32, Error> {
        let shard = self.shard(shard)?;
        let mut evict = self.scripts.evict.prepare_invoke();
        evict.key(&shard.order).key(&shard.values).key(&shard.counts);
        let overdue_before = self.overdue_before(now_ms.saturating_sub(overdue_for_ms));
        evict.arg(overdue_before).arg(score::expired_from(now_ms));
        evict.arg(most).arg(ENTRY_OVERHEAD_BYTES);
        Ok(evict.invoke_async(&mut self.link.clone()).await?)
    }

    /// What a shard holds and did.
    ///
    /// # Errors
    /// Valkey's.
    pub async fn counts(&self, shard: u16) -> Result<Counts, Error> {
        let shard = self.shard(shard)?;
        let mut link = self.link.clone();
        let sessions = redis::cmd("ZCARD").arg(&shard.order).query_async(&mut link).await?;
        let mut counts = redis::cmd("HMGET");
        counts
            .arg(&shard.counts)
            .arg(&["bytes", "stored", "overdue", "latest", "expired", "refused", "rejected"]);
        let counts: [Option<u64>; 7] = counts.query_async(&mut link).await?;
        let [bytes, stored, overdue, latest, expired, refused, rejected] =
            counts.map(Option::unwrap_or_default);
        Ok(Counts { sessions, bytes, stored, overdue, latest, expired, refused, rejected })
    }

    /// What all shards hold and did: two round trips for each.
    ///
    /// # Errors
    /// Valkey's.
    pub async fn total(&self) -> Result<Counts, Error> {
        let mut total = Counts::default();
        for shard in 0..self.bounds.shards {
            total += self.counts(shard).await?;
        }
        Ok(total)
    }

    /// What this machine looked up in vain, by kind.
    pub fn misses(&self) -> Misses {
        self.misses.read()
    }

    /// Adds what this machine rejected since the last time to the cluster's count, which the first
    /// shard keeps. For one task.
    ///
    /// # Errors
    /// Valkey's; what was rejected is told the next time, then.
    pub async fn report_rejected(&self) -> Result<(), Error> {
        let Misses { altered, malformed, .. } = self.misses();
        let new = altered + malformed - self.reported.load(Relaxed);
        if new > 0 {
            let mut add = redis::cmd("HINCRBY");
            add.arg(&self.shard(0)?.counts).arg("rejected").arg(new);
            let _: u64 = add.query_async(&mut self.link.clone()).await?;
            self.reported.fetch_add(new, Relaxed);
        }
        Ok(())
    }

    /// Its bounds.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    fn open(
        &self,
        keys: &Keys,
        now_ms: u64,
        id: &SessionId,
        value: Option<&[u8]>,
    ) -> Result<Found, Miss> {
        let value = value.ok_or(Miss::Absent);
        let opened = value.and_then(|value| value::open(keys, now_ms, id, value));
        opened.inspect_err(|miss| self.misses.count(*miss))
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn shard(&self, number: u16) -> Result<&Shard, Error> {
        let last = self.bounds.shards - 1;
        let out =
            Error::OutOfRange { name: "shard", value: number.into(), least: 0, most: last.into() };
        self.addresses.shard(number).ok_or(out)
    }

    fn overdue_before(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.bounds.grace_ms)
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.bytes += other.bytes;
        self.stored += other.stored;
        self.overdue += other.overdue;
        self.latest += other.latest;
        self.expired += other.expired;
        self.refused += other.refused;
        self.rejected += other.rejected;
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("link", &self.link)
            .field("bounds", &self.bounds)
            .field("misses", &self.misses())
            .finish_non_exhaustive()
    }
}
