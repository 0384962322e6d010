//! Sessions in Valkey, with predictive eviction inside Valkey.
//!
//! Sessions are divided among shards by their hashed ids. A shard is three keys of one slot:
//!
//! ```text
//! rejoin:{NAME.shard}:order   sorted set: hashed id -> the client's expected return time (`score`)
//! rejoin:{NAME.shard}:values  hash: hashed id -> value (`value`)
//! rejoin:{NAME.shard}:counts  hash: current bytes; totals of stored, refused, rejected and evicted sessions
//! rejoin:{NAME.shard}:taken   sorted set: hashed id -> the time at which its session was taken, for 22 seconds
//! ```
//!
//! Each operation is one script or one command, and therefore atomic and one round trip. `put` follows paper
//! 000's Algorithm 1 like a machine's cache with hints alone. Nothing in Valkey expires by
//! itself, and Valkey must not evict (`maxmemory-policy noeviction`): it would evict whole shards.
//!
//! While the cluster's key is being replaced ([`crate::ClusterSecret`]), ids are hashed under two keys. A session is stored
//! under the key in use, and looked up under that and the other one: machines that use either find each other's sessions.
//!
//! It might then be under two names, and be handed out twice. So a machine with two keys is never certain that a session
//! was not handed out before, and a machine with one is certain of a master only once it has known it for long enough
//! *since its keys changed* (`masters`). Early data is accepted once:
//!
//! - Of two machines that are certain, both have one key. If it is the same key, they take from one name, which Valkey hands
//!   out once.
//! - If it is not, one has not begun with the replacement and the other has ended it. All machines had two keys between
//!   these, and the other one waits for longer than early data is accepted. So the first flight that the one accepted is too
//!   old for the other.
//!
//! Not here: deadlines, queues, and the cache in front. Every `now_ms` is an argument, in Unix
//! time. If the machines' clocks differ, sessions become overdue earlier or later by the difference.

mod address;
mod bounds;
mod keys;
mod masters;
mod misses;
mod score;
mod scripts;
mod value;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::{fmt, iter, mem};

use redis::RedisResult;
use rejoin_cache::{ContextTag, History, Refusal, SecretBytes, SessionId};
use rejoin_tickets::{CLOCKS_APART_S, KeyRing};

use crate::{ClusterSecret, Error, Link, Settings};
use address::{Address, Addresses, Member, Shard};
use keys::Keys;
use masters::Masters;
use misses::Miss;
use scripts::Scripts;

pub use bounds::{Bounds, ENTRY_OVERHEAD_BYTES};
pub use misses::Misses;
pub use score::{NEVER_MS, returns_ms};

/// The sessions of a cluster, for any number of concurrent tasks.
pub struct Sessions {
    link: Link,
    addresses: Addresses,
    bounds: Bounds,
    scripts: Scripts,
    keys: RwLock<Arc<Keys>>,
    masters: Masters,
    misses: misses::Counters,
    /// The number of rejected values that the cluster's counter includes already.
    reported: AtomicU64,
    /// True if this machine's clock is not to be trusted.
    doubts_clock: AtomicBool,
    /// The most seconds by which the clock may differ from Valkey's where sessions are removed for their age.
    most_apart_s: u64,
}

/// The answer of `put.lua` where the session was taken.
const PUT_OF_TAKEN: i64 = -2;

/// The thing that Valkey does not do, for [`Error::Refused`].
const TAKES_NONE: &str = "takes no sessions";
const HANDS_OUT_NONE: &str = "hands no sessions out";

/// A session to be stored.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The id under which it will be looked up.
    pub id: &'a SessionId,
    /// The session-id context it was made in.
    pub context: ContextTag,
    /// The serialised session.
    pub value: &'a SecretBytes,
    /// The time of its expiry, in Unix time.
    pub expires_ms: u64,
    /// The past visits of its client.
    pub past: Past,
    /// The time at which its client is expected back, in Unix time: [`returns_ms`] or [`NEVER_MS`].
    pub returns_ms: u64,
}

/// A session that was found.
#[derive(Debug)]
pub struct Found {
    /// The session-id context it was made in: it must not be used in another.
    pub context: ContextTag,
    /// The serialised session.
    pub value: SecretBytes,
    /// The time of its expiry, in Unix time.
    pub expires_ms: u64,
    /// The past visits of its client. Anyone who can write to Valkey can change them.
    pub past: Past,
    /// True if it came from another site ([`Sessions::put_moved`]).
    pub is_moved: bool,
    /// The circumstances in which it was taken, if it was.
    pub taken: Option<Taken>,
}

/// The circumstances in which a session was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// True if it was certainly not taken before, whatever writes Valkey lost.
    pub is_certain: bool,
    /// The time, in microseconds of Valkey's clock.
    at_us: u64,
    /// The hashed id that it was under.
    member: Member,
    is_moved: bool,
}

/// The past visits of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Past {
    /// The last gaps between them.
    pub history: History,
    /// The last visit, in Unix time.
    pub seen_ms: u64,
}

/// The outcome of storing a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The session is stored.
    Stored {
        /// The number of sessions evicted for it.
        evicted: u32,
    },
    /// The session is not stored. An older one of the same id is removed, unless the new one was too large.
    Refused(Refusal),
    /// The session is not stored, because it was taken just now.
    Taken,
}

/// The contents and totals of one shard, or of all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Sessions held.
    pub sessions: u64,
    /// Their values, and [`ENTRY_OVERHEAD_BYTES`] for each.
    pub bytes: u64,
    /// Sessions stored.
    pub stored: u64,
    /// Sessions evicted because their clients were overdue.
    pub overdue: u64,
    /// Sessions evicted because their clients would have returned last.
    pub latest: u64,
    /// Sessions removed by [`Sessions::evict`] because they had expired.
    pub expired: u64,
    /// Sessions not stored because all others return sooner.
    pub refused: u64,
    /// Values that were altered or moved to another id, as reported by the machines
    /// ([`Sessions::report_rejected`]).
    pub rejected: u64,
}

impl Sessions {
    /// The most shards.
    pub const MOST_SHARDS: u16 = 1_024;

    /// The sessions of the cluster `name`. All its machines must use the same bounds and the same hash key.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if a bound is out of range.
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
            masters: Masters::default(),
            doubts_clock: AtomicBool::new(false),
            // Whoever brings no settings may have a time of its own.
            most_apart_s: 1 << 50,
            misses: misses::Counters::default(),
            reported: AtomicU64::new(0),
        })
    }

    /// The sessions of the cluster of these settings.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn of_cluster(
        link: Link,
        settings: &Settings,
        secret: &ClusterSecret,
        ring: &KeyRing,
    ) -> Result<Self, Error> {
        let bounds = settings.bounds();
        let mut sessions = Self::new(link, settings.name.as_str(), &[0; 32], bounds, ring)?;
        sessions.most_apart_s = CLOCKS_APART_S;
        // Until it was compared with Valkey's.
        sessions.set_doubts_clock(true);
        sessions.set_secret(secret);
        Ok(sessions)
    }

    /// Hashes ids under the keys of this secret from now on.
    pub fn set_secret(&self, secret: &ClusterSecret) {
        let mut keys = secret.keys().map(|key| key.derive(b"hashed session ids"));
        let (first, second) = (keys.next().expect("one at least"), keys.next());
        self.addresses.set_hash_keys(&first, second.as_deref());
        self.doubt();
    }

    /// Counts all masters as new, so that no session is certain for eighteen seconds. An agent that did not reach Valkey
    /// for a while, or stood still, has turned first flights away, and copies of them may come.
    pub(crate) fn doubt(&self) {
        self.masters.forget();
    }

    /// Uses the keys of a newer ring from now on. Keys that only the last ring had count as gone.
    /// Must be called from one task only.
    pub fn set_ring(&self, ring: &KeyRing) {
        let keys = Arc::new(self.keys().followed_by(ring));
        // The lock is held only for the exchange.
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        drop(mem::replace(&mut *current, keys));
    }

    /// Stores a session. Replaces one of the same id. One that was taken is not stored again: a put may come late, or twice.
    ///
    /// # Errors
    /// [`Error::NoKey`], and those of Valkey, including a full memory.
    pub async fn put(&self, now_ms: u64, entry: &Entry<'_>) -> Result<Put, Error> {
        self.put_after(now_ms, entry, None, false).await
    }

    /// Stores a session of another site. When it is taken, it is never certain that it was not taken before: the Valkey of
    /// that site may have handed it out twice. It stays marked so wherever it is stored again.
    ///
    /// # Errors
    /// Those of [`Self::put`].
    pub async fn put_moved(&self, now_ms: u64, entry: &Entry<'_>) -> Result<Put, Error> {
        self.put_after(now_ms, entry, None, true).await
    }

    /// Puts a session back that was taken and not used.
    ///
    /// # Errors
    /// Those of [`Self::put`].
    pub async fn put_back(
        &self,
        now_ms: u64,
        entry: &Entry<'_>,
        taken: &Taken,
    ) -> Result<Put, Error> {
        self.put_after(now_ms, entry, Some(taken), taken.is_moved).await
    }

    async fn put_after(
        &self,
        now_ms: u64,
        entry: &Entry<'_>,
        taken: Option<&Taken>,
        is_moved: bool,
    ) -> Result<Put, Error> {
        if entry.expires_ms <= now_ms {
            return Ok(Put::Refused(Refusal::Expired));
        }
        let length = value::sealed_bytes(entry.value.len());
        if length.is_none_or(|length| !self.bounds.can_hold(length)) {
            return Ok(Put::Refused(Refusal::TooLarge));
        }
        let value = value::seal(&self.keys(), now_ms, entry, is_moved)?;
        let Address { shard, member } = match taken {
            Some(taken) => self.addresses.at(taken.member),
            None => self.addresses.of(entry.id),
        };
        let mut put = self.scripts.put.prepare_invoke();
        put.key(&shard.order).key(&shard.values).key(&shard.counts).key(&shard.taken);
        put.arg(&member).arg(value);
        put.arg(score::score(entry.returns_ms, entry.expires_ms));
        put.arg(self.overdue_before(now_ms)).arg(self.bounds.sessions_of_shard());
        put.arg(self.bounds.bytes_of_shard()).arg(ENTRY_OVERHEAD_BYTES);
        put.arg(taken.map_or_else(String::new, |taken| taken.at_us.to_string()));
        let evicted: i64 =
            self.noted(TAKES_NONE, put.invoke_async(&mut self.link.clone()).await)?;
        Ok(match u32::try_from(evicted) {
            Ok(evicted) => Put::Stored { evicted },
            Err(_) if evicted == PUT_OF_TAKEN => Put::Taken,
            Err(_) => Put::Refused(Refusal::ReturnsLater),
        })
    }

    /// Looks up a session, and leaves it in place.
    ///
    /// A value that cannot be opened is a miss, and counted ([`Self::misses`]). It is removed if no other machine can
    /// open it either: it was altered, or its key is gone. A value under an unknown key stays, because the key may be
    /// newer than this machine's ring.
    ///
    /// # Errors
    /// Those of Valkey.
    pub async fn get(&self, now_ms: u64, id: &SessionId) -> Result<Option<Found>, Error> {
        let (first, second) = self.addresses.all_of(id);
        for address in iter::once(first).chain(second) {
            let mut get = redis::cmd("HGET");
            get.arg(&address.shard.values).arg(&address.member);
            let value: Option<Vec<u8>> =
                self.noted(HANDS_OUT_NONE, get.query_async(&mut self.link.clone()).await)?;
            if let Some(value) = value {
                let found = self.open(&self.keys(), now_ms, id, &value);
                // An expired session stays: it may not have expired by another machine's clock.
                let is_over = || matches!(found, Err(Miss::KeyOver)) && !self.doubts_clock();
                if matches!(found, Err(Miss::Altered)) || is_over() {
                    self.discard(&address, &value).await?;
                }
                return Ok(found.ok());
            }
        }
        self.misses.count(Miss::Absent);
        Ok(None)
    }

    /// Removes a value that no machine can open.
    async fn discard(&self, address: &Address<'_>, value: &[u8]) -> Result<(), Error> {
        let Address { shard, member } = address;
        let mut discard = self.scripts.discard.prepare_invoke();
        discard.key(&shard.order).key(&shard.values).key(&shard.counts);
        discard.arg(member).arg(value).arg(ENTRY_OVERHEAD_BYTES);
        let _: bool = discard.invoke_async(&mut self.link.clone()).await?;
        Ok(())
    }

    /// Looks up a session and removes it, so that no machine gets it twice. A value under an unknown key stays.
    ///
    /// # Errors
    /// Those of [`Self::get`]. The session may or may not have been removed then.
    pub async fn take(&self, now_ms: u64, id: &SessionId) -> Result<Option<Found>, Error> {
        let (first, second) = self.addresses.all_of(id);
        let has_one_name = second.is_none();
        let keys = self.keys();
        for Address { shard, member } in iter::once(first).chain(second) {
            let mut take = self.scripts.take.prepare_invoke();
            take.key(&shard.order).key(&shard.values).key(&shard.counts).key(&shard.taken);
            take.arg(&member).arg(ENTRY_OVERHEAD_BYTES).arg(Masters::MARKS_STAY.as_micros() as u64);
            take.arg(value::TOO_LONG);
            for name in keys.known() {
                take.arg(name);
            }
            let took: Option<(Vec<u8>, String, u64)> =
                self.noted(HANDS_OUT_NONE, take.invoke_async(&mut self.link.clone()).await)?;
            if let Some((value, master, at_us)) = took {
                // A master that may have been replaced elsewhere is not known, either.
                let is_certain = has_one_name
                    && self.link.is_sole()
                    && self.masters.is_certain(&master, now_ms, at_us / 1_000);
                let found = self.open(&keys, now_ms, id, &value).ok();
                return Ok(found.map(|found| {
                    let is_moved = found.is_moved;
                    let is_certain = is_certain && !is_moved;
                    Found { taken: Some(Taken { is_certain, at_us, member, is_moved }), ..found }
                }));
            }
        }
        self.misses.count(Miss::Absent);
        Ok(None)
    }

    /// Notes an error for the operator.
    fn noted<T>(&self, what: &'static str, answer: RedisResult<T>) -> Result<T, Error> {
        Ok(answer.inspect_err(|error| self.link.note_refusal(what, error))?)
    }

    /// Updates a session after a visit of its client: the past visits, and the next expected one.
    /// `expires_ms` is the session's expiry. Returns true if the session is there.
    ///
    /// # Errors
    /// Those of Valkey.
    pub async fn expect(
        &self,
        id: &SessionId,
        past: Past,
        returns_ms: u64,
        expires_ms: u64,
    ) -> Result<bool, Error> {
        let (first, second) = self.addresses.all_of(id);
        for Address { shard, member } in iter::once(first).chain(second) {
            let mut expect = self.scripts.expect.prepare_invoke();
            expect.key(&shard.order).key(&shard.values).arg(&member);
            expect.arg(score::score(returns_ms, expires_ms)).arg(&past.to_bytes());
            if expect.invoke_async(&mut self.link.clone()).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes a session, under both names if it has two. Returns true if it was there.
    ///
    /// # Errors
    /// Those of Valkey.
    pub async fn remove(&self, id: &SessionId) -> Result<bool, Error> {
        let (first, second) = self.addresses.all_of(id);
        let mut was_there = false;
        for Address { shard, member } in iter::once(first).chain(second) {
            let mut remove = self.scripts.remove.prepare_invoke();
            remove.key(&shard.order).key(&shard.values).key(&shard.counts);
            remove.arg(&member).arg(ENTRY_OVERHEAD_BYTES);
            was_there |= remove.invoke_async::<bool>(&mut self.link.clone()).await?;
        }
        Ok(was_there)
    }

    /// Removes up to `most` sessions of a shard that have expired, or have been overdue for this long. Returns the
    /// number removed: none if this machine's clock differs from Valkey's by more than clocks may. The shard may be one of a time with more shards.
    ///
    /// # Errors
    /// Those of Valkey, and [`Error::OutOfRange`].
    pub async fn evict(
        &self,
        now_ms: u64,
        overdue_for_ms: u64,
        shard: u16,
        most: u32,
    ) -> Result<u32, Error> {
        bounds::in_range("shard", shard.into(), 0, u64::from(Self::MOST_SHARDS) - 1)?;
        let shard = self.addresses.any_shard(shard);
        let mut evict = self.scripts.evict.prepare_invoke();
        evict.key(&shard.order).key(&shard.values).key(&shard.counts);
        let overdue_before = self.overdue_before(now_ms.saturating_sub(overdue_for_ms));
        evict.arg(overdue_before).arg(score::expired_from(now_ms));
        evict.arg(most).arg(ENTRY_OVERHEAD_BYTES).arg(now_ms / 1_000).arg(self.most_apart_s);
        let (evicted, master): (u32, String) = evict.invoke_async(&mut self.link.clone()).await?;
        if self.link.is_sole() {
            self.masters.note(&master);
        }
        Ok(evicted)
    }

    /// Returns the counts of a shard.
    ///
    /// # Errors
    /// Those of Valkey.
    pub async fn counts(&self, shard: u16) -> Result<Counts, Error> {
        let shard = self.shard(shard)?;
        let mut link = self.link.clone();
        let sessions = redis::cmd("ZCARD").arg(&shard.order).query_async(&mut link).await?;
        let mut counts = redis::cmd("HMGET");
        counts
            .arg(&shard.counts)
            .arg(&["bytes", "stored", "overdue", "latest", "expired", "refused", "rejected"]);
        // Whoever writes to Valkey, or an eviction by Valkey itself, can make them anything.
        let counts: [Option<Vec<u8>>; 7] = counts.query_async(&mut link).await?;
        let [bytes, stored, overdue, latest, expired, refused, rejected] =
            counts.map(|count| count.map_or(0, |text| number(&text)));
        Ok(Counts { sessions, bytes, stored, overdue, latest, expired, refused, rejected })
    }

    /// Returns the counts of all shards, in two round trips for each.
    ///
    /// # Errors
    /// Those of Valkey.
    pub async fn total(&self) -> Result<Counts, Error> {
        let mut total = Counts::default();
        for shard in 0..self.bounds.shards {
            total += self.counts(shard).await?;
        }
        Ok(total)
    }

    /// Returns this machine's misses, by kind.
    pub fn misses(&self) -> Misses {
        self.misses.read()
    }

    /// Adds the values that this machine rejected since the last call to the cluster's counter in the first
    /// shard. Must be called from one task only.
    ///
    /// # Errors
    /// Those of Valkey. The next call reports the rest then.
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

    /// Removes no session for the age of its key as long as this machine's clock is not to be trusted.
    pub(crate) fn set_doubts_clock(&self, doubts: bool) {
        self.doubts_clock.store(doubts, Relaxed);
    }

    fn doubts_clock(&self) -> bool {
        self.doubts_clock.load(Relaxed)
    }

    /// Returns the bounds.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    fn open(&self, keys: &Keys, now_ms: u64, id: &SessionId, value: &[u8]) -> Result<Found, Miss> {
        value::open(keys, now_ms, id, value).inspect_err(|miss| self.misses.count(*miss))
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

/// Returns a count; zero if it is none, or below zero.
fn number(text: &[u8]) -> u64 {
    str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let counts = [
            (&mut self.sessions, other.sessions),
            (&mut self.bytes, other.bytes),
            (&mut self.stored, other.stored),
            (&mut self.overdue, other.overdue),
            (&mut self.latest, other.latest),
            (&mut self.expired, other.expired),
            (&mut self.refused, other.refused),
            (&mut self.rejected, other.rejected),
        ];
        counts.into_iter().for_each(|(count, more)| *count = count.saturating_add(more));
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
