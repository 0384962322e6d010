//! The ring of ticket keys that the servers of a cluster share.
//!
//! Every server follows the ring in Valkey. The first one to find that the next key is due creates it:
//! a ring is replaced only if its version is still the expected one, so only one of several servers succeeds.
//! Data loss or an outage of Valkey loses no keys:
//!
//! - A ring that cannot be read or decrypted, or is older than the last one seen, changes nothing: the last ring
//!   stays in use. Without Valkey no key is created, so the newest one encrypts until Valkey is back.
//! - A server that finds no ring, or an older one than it has seen, writes its own ring with the next version.
//!   If several servers do, one succeeds, and any server that knows a later version writes again: in the end
//!   the newest ring that any of them knows is in place. No server adds a key until all have read the ring.
//! - A server that has seen a ring and lost it, as its machine restarted, begins a new one only after half a minute in which
//!   nobody put that back.
//! - A server whose clock differs from Valkey's by more than servers' clocks may makes no key: the others would take it for
//!   one of another day, and wipe theirs.
//! - Rings are never merged: a key that is missing in one of two rings may have been revoked. A key can be lost only
//!   if none of the servers that have seen it read the ring within half a minute after it was restored.
//!
//! The highest version seen outlives the process: in the machine's shared memory with the ring itself, and in a file
//! beside the key file ([`RingRecord`]). An older ring, which may hold revoked keys, is refused by the next process, too.
//!
//! While the cluster's key is being replaced ([`ClusterSecret`]), a ring is read under either key and written under the one
//! in use. A server that finds it under the last one writes it again, as the next version. One that does not use the next key
//! yet leaves it as it is, so a ring changes once, and again only after such a server has changed it. Once all use the next
//! key, the ring is under that, and nobody is left who would write it under the last one.
//!
//! A server that is cut off for longer than the schedule's lead encrypts with a key whose turn is over for the others:
//! they refuse its tickets earlier by the difference. It refuses tickets under the others' new keys until it is back,
//! and uses revoked keys until then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rejoin_tickets::{CLOCKS_APART_S, KeyId, KeyRing, SECRET_BYTES, Schedule};
use zeroize::Zeroizing;

use crate::ring_place::{Change, Found, Known, Lease, Replicas, RingPlace, Token};
use crate::ring_record::RingRecord;
use crate::wrapping_key::{KeyName, fill_at_random};
use crate::{ClusterName, ClusterSecret, Error, Link};

/// One server's view of the cluster's ring.
pub struct ClusterKeys {
    name: ClusterName,
    place: Arc<RingPlace>,
    known: Option<Known>,
    /// True if [`Self::follow`] has not returned the current ring yet.
    changed: bool,
    /// True if this server creates keys by the schedule.
    makes_keys: bool,
    /// True if it may create the first one of a new ring.
    may_begin: bool,
    /// A schedule that remains to be applied.
    schedule: Option<Schedule>,
    /// The ring that this machine had before, or took from a copy, and its version, for a Valkey without one or with an
    /// older one.
    last: Option<(u64, KeyRing)>,
    record: Option<RingRecord>,
    /// True until the first ring is known, if it may be older than one seen by earlier processes.
    accepts_older: bool,
    /// True if the ring was accepted although an earlier process had seen a newer one: copies may be newer, too.
    accepted: bool,
    refused: u64,
    /// The most seconds by which the clock may differ from Valkey's.
    most_apart_s: u64,
    /// The seconds by which it is ahead, once Valkey has answered; negative if it is behind.
    clock_ahead_s: Option<i64>,
    /// The time since which Valkey has no ring, although one was seen.
    waits_since: Option<Instant>,
}

impl ClusterKeys {
    /// The shortest lead of a cluster's schedule, in seconds: clocks may differ by two minutes, and
    /// servers have half a minute to read the ring.
    pub const LEAST_LEAD_S: u64 = CLOCKS_APART_S + 30;

    /// The most keys in a ring after [`Self::rotate`]: one place is reserved for the schedule.
    pub const MOST_KEYS_BY_HAND: usize = KeyRing::MOST_KEYS - 1;

    /// The attempts to change the ring. Of two servers that change it at once, one has to try again.
    const MOST_ATTEMPTS: u32 = 20;
    const ATTEMPT_AFTER: Duration = Duration::from_millis(50);
    /// The time for which a machine that has lost its ring waits for one that still has it.
    pub(crate) const WAITS_FOR_RING: Duration = Duration::from_secs(30);
    /// The longest wait for replicas, which say once a second what they have.
    const REPLICATED_WITHIN: Duration = Duration::from_secs(2);

    /// The ring of the cluster of this name, whose servers all have this secret. From the first [`Self::follow`] on the
    /// ring has this schedule; `None` leaves the ring's own.
    ///
    /// # Errors
    /// [`Error::ShortLead`].
    pub fn new(
        name: ClusterName,
        secret: &ClusterSecret,
        schedule: Option<Schedule>,
    ) -> Result<Self, Error> {
        let (lead_s, least_s) = (schedule.unwrap_or_default().lead_s(), Self::LEAST_LEAD_S);
        if lead_s < least_s {
            return Err(Error::ShortLead { lead_s, least_s });
        }
        let place = Arc::new(RingPlace::new(&name, secret));
        Ok(Self {
            name,
            place,
            known: None,
            changed: false,
            makes_keys: true,
            may_begin: true,
            schedule,
            last: None,
            record: None,
            accepts_older: false,
            accepted: false,
            refused: 0,
            most_apart_s: CLOCKS_APART_S,
            clock_ahead_s: None,
            waits_since: None,
        })
    }

    /// Makes keys even if Valkey has another time: for simulations, whose time is not that of a clock.
    #[must_use]
    pub fn trusting_clock(mut self) -> Self {
        // Lua computes with doubles.
        self.most_apart_s = 1 << 50;
        self
    }

    /// Returns the seconds by which this machine's clock is ahead of Valkey's, or behind if that is negative, where it is so
    /// far off that this server makes no key.
    pub fn clock_apart_s(&self) -> Option<i64> {
        self.clock_ahead_s.filter(|ahead_s| ahead_s.unsigned_abs() > self.most_apart_s)
    }

    /// Returns true once the clock was compared with Valkey's and is near it.
    pub(crate) fn trusts_clock(&self) -> bool {
        self.clock_ahead_s.is_some() && self.clock_apart_s().is_none()
    }

    /// Keeps [`Self::follow`] from creating keys: for showing them, and for [`Self::rotate`].
    #[must_use]
    pub fn only_followed(mut self) -> Self {
        self.makes_keys = false;
        self
    }

    /// Sets the ring that the machine had before, and its version. It is written to Valkey if that has none at first
    /// (a key that was revoked in the meantime returns then), or an older one.
    #[must_use]
    pub fn after(mut self, last: Option<(u64, KeyRing)>) -> Self {
        self.last = last;
        self
    }

    /// Refuses rings that are older than the recorded one, and keeps the record.
    #[must_use]
    pub fn recorded_in(mut self, record: RingRecord) -> Self {
        self.record = Some(record);
        self
    }

    /// Accepts the first ring, even if earlier processes have seen a newer one.
    #[must_use]
    pub fn accepting_older(mut self, accepts_older: bool) -> Self {
        self.accepts_older = accepts_older;
        self
    }

    /// Uses the keys of this secret from now on. The ring stays as it is.
    pub fn set_secret(&mut self, secret: &ClusterSecret) {
        self.place = Arc::new(RingPlace::new(&self.name, secret));
        self.record.iter_mut().for_each(|record| record.set_secret(secret));
    }

    /// Returns the name of the key that the ring in Valkey is encrypted under, as it was read last.
    pub fn wrapped_under(&self) -> Option<KeyName> {
        self.known.as_ref().map(|known| known.key)
    }

    /// Returns the reason why the highest version was not recorded, once.
    pub fn take_unrecorded(&mut self) -> Option<Error> {
        self.record.as_mut().and_then(RingRecord::take_trouble)
    }

    /// Reads the ring. Returns it if it changed since the last call. Creates the next key first, if it
    /// is due, and wipes those that have expired. Takes one round trip, unless there is something to
    /// write. Must be called at least twice in half a minute, and should be called every few seconds,
    /// so that revoked keys disappear soon.
    ///
    /// # Errors
    /// [`Error::Unopened`], [`Error::RolledBack`], [`Error::OlderRing`], and those of Valkey. The last ring stays in use.
    pub async fn follow(&mut self, link: &mut Link, now_s: u64) -> Result<Option<KeyRing>, Error> {
        self.look(link, now_s).await?;
        let changed = std::mem::take(&mut self.changed);
        Ok(self.ring().filter(|_| changed).cloned())
    }

    /// Creates a key, whose turn begins after the schedule's lead.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::ClocksApart`], those of [`Self::follow`], and an error if the ring has
    /// [`Self::MOST_KEYS_BY_HAND`].
    pub async fn rotate(&mut self, link: &mut Link, now_s: u64) -> Result<KeyId, Error> {
        let token = Token::new()?;
        for _ in 0..Self::MOST_ATTEMPTS {
            self.look(link, now_s).await?;
            if let Some(ahead_s) = self.clock_apart_s() {
                return Err(Error::ClocksApart { ahead_s });
            }
            if let Some(mut ring) = self.ring().cloned() {
                ring.remove_expired(now_s);
                if ring.list(now_s).count() >= Self::MOST_KEYS_BY_HAND {
                    return Err(
                        rejoin_tickets::Error::RingFull { most: Self::MOST_KEYS_BY_HAND }.into()
                    );
                }
                let id = with_fresh(|fresh| ring.rotate(now_s, fresh))?;
                if self.replace(link, ring, Change::AddKey(&token)).await? {
                    return Ok(id);
                }
            }
            tokio::time::sleep(Self::ATTEMPT_AFTER).await;
        }
        Err(Error::Busy { name: self.name.clone() })
    }

    /// Removes a key; each server drops it when it next follows. Returns true if it was there.
    ///
    /// # Errors
    /// [`Error::Busy`], and those of [`Self::follow`].
    pub async fn revoke(&mut self, link: &mut Link, id: &KeyId, now_s: u64) -> Result<bool, Error> {
        for _ in 0..Self::MOST_ATTEMPTS {
            self.look(link, now_s).await?;
            if let Some(mut ring) = self.ring().cloned() {
                if !ring.retire(id) {
                    return Ok(false);
                }
                if self.replace(link, ring, Change::Other).await? {
                    return Ok(true);
                }
            }
            tokio::time::sleep(Self::ATTEMPT_AFTER).await;
        }
        Err(Error::Busy { name: self.name.clone() })
    }

    /// Waits for two seconds at most until the primary's replicas have the ring as it was written last: a change that none
    /// of them has is lost with the primary, if no agent has read it by then. If it was lost meanwhile, it is put back.
    /// `None`: the user may not ask for replicas (`INFO`).
    ///
    /// Valkey's command `WAIT` would tell the same of one connection alone, and nothing of a change that was made over a
    /// connection before it. The replicas' positions are the primary's, whoever asks.
    ///
    /// # Errors
    /// Those of [`Self::follow`].
    pub async fn replicated(
        &mut self,
        link: &mut Link,
        now_s: u64,
    ) -> Result<Option<Replicas>, Error> {
        let (end, mut most, mut goal) = (Instant::now() + Self::REPLICATED_WITHIN, 0, None);
        loop {
            let told = self.place.replicas(link, goal.as_deref()).await?;
            let Some((reached_by, Replicas { connected, reached })) = told else { return Ok(None) };
            // One that has left since has not said that it has the ring.
            most = most.max(connected);
            if reached >= most || Instant::now() >= end {
                self.look(link, now_s).await?;
                return Ok(Some(Replicas { connected: most, reached }));
            }
            goal = Some(reached_by);
            tokio::time::sleep(Self::ATTEMPT_AFTER).await;
        }
    }

    /// Returns the last ring seen.
    pub fn ring(&self) -> Option<&KeyRing> {
        self.known.as_ref().map(|known| &known.ring)
    }

    /// Returns the number of rings in Valkey that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the place of the ring, which has copies in Valkeys of other sites.
    pub(crate) fn place(&self) -> Arc<RingPlace> {
        Arc::clone(&self.place)
    }

    /// Returns the newest ring that was seen, and its version: in Valkey, in a copy, or by this machine before. `None` if
    /// only its version is known.
    pub(crate) fn newest(&self) -> Option<(u64, &KeyRing)> {
        let seen = self.version();
        let last = self.last.as_ref().filter(|(version, _)| *version == seen);
        self.ring().or_else(|| last.map(|(_, ring)| ring)).map(|ring| (seen, ring))
    }

    /// Takes over a copy that is newer than all rings that were seen, or as new if none of them is there. Valkey's ring of
    /// the same version replaces it, and a ring in Valkey that is older is replaced by it. Returns the ring if it was taken
    /// over.
    pub(crate) fn adopt(&mut self, copy: &Known) -> Option<KeyRing> {
        let seen = self.version();
        let is_newest = copy.version > seen || copy.version == seen && self.newest().is_none();
        if !is_newest || self.accepts_older || self.accepted {
            return None;
        }
        self.record.iter_mut().for_each(|record| record.keep(copy.version, false));
        (self.known, self.last) = (None, Some((copy.version, copy.ring.clone())));
        Some(copy.ring.clone())
    }

    /// Returns true if no ring was seen, and none is given to begin with.
    pub(crate) fn is_to_look_for_copies(&self) -> bool {
        !self.accepts_older && self.newest().is_none()
    }

    /// Lets this server begin a new ring where none is, or keeps it from that: there may be copies of one.
    pub(crate) fn let_begin(&mut self, may_begin: bool) {
        self.may_begin = may_begin;
    }

    /// Returns true if copies are to have this ring even if they are newer: somebody accepted an older one.
    pub(crate) fn is_to_replace_newer(&self) -> bool {
        self.accepted
    }

    /// Notes that the copy has the ring that was accepted.
    pub(crate) fn note_replaced(&mut self) {
        self.accepted = false;
    }

    /// Returns true if no ring is known, although one was seen, and Valkey was not without one for long: whoever has it puts it
    /// back, and a new one would take its place.
    fn waits_for_ring(&self) -> bool {
        let is_over =
            || self.waits_since.is_some_and(|since| since.elapsed() >= Self::WAITS_FOR_RING);
        self.is_lost() && !is_over()
    }

    /// Returns true if Valkey answers and has no ring, and a new one begins only after half a minute in which nobody put the
    /// one back that this machine has seen.
    pub(crate) fn awaits_ring(&self) -> bool {
        self.waits_since.is_some() && self.waits_for_ring()
    }

    fn is_lost(&self) -> bool {
        self.newest().is_none() && self.version() > 0
    }

    /// Notes whether Valkey has no ring, and by how much its clock differs.
    fn note(&mut self, found: Option<&(Found, u64)>, now_s: u64) {
        let is_none = matches!(found, Some((Found::Same { .. } | Found::Nothing, _)));
        let begun = self.waits_since.unwrap_or_else(Instant::now);
        self.waits_since = (is_none && self.is_lost()).then_some(begun);
        if let Some((_, valkeys_s)) = found {
            let seconds = |s: u64| i64::try_from(s).unwrap_or(i64::MAX);
            self.clock_ahead_s = Some(seconds(now_s).saturating_sub(seconds(*valkeys_s)));
        }
    }

    async fn look(&mut self, link: &mut Link, now_s: u64) -> Result<(), Error> {
        let may_begin = self.may_begin && !self.waits_for_ring();
        let may_make = self.makes_keys && (may_begin || self.newest().is_some());
        let due = may_make && self.ring().is_none_or(|ring| ring.due(now_s));
        let token = if due { Some(Token::new()?) } else { None };
        let most_apart_s = self.most_apart_s;
        let lease = token.as_ref().map(|token| Lease { token, now_s, most_apart_s });
        let found = self.place.read(link, self.known.as_ref(), lease).await;
        if let Err(Error::Unopened { .. }) = found {
            self.refused += 1;
        }
        self.note(found.as_ref().ok(), now_s);
        let (found, _) = found?;
        match (found, token) {
            (Found::Same { leased: true }, Some(token)) => {
                self.make_due_key(link, &token, now_s).await?;
            }
            (Found::Same { .. }, _) => {}
            (Found::Nothing, _) => drop(self.put_back(link, None).await?),
            (Found::Other(found), _) => self.take(link, found).await?,
        }
        self.reschedule(link).await?;
        self.rewrap(link).await
    }

    /// Creates the key that is due, and wipes those that have expired. Does nothing if another server has in the meantime.
    async fn make_due_key(
        &mut self,
        link: &mut Link,
        token: &Token,
        now_s: u64,
    ) -> Result<(), Error> {
        let schedule = self.schedule.unwrap_or_default();
        let last = self.ring().cloned().or_else(|| self.last.clone().map(|(_, ring)| ring));
        let mut ring = last.unwrap_or_else(|| KeyRing::new(schedule));
        if ring.due(now_s) {
            with_fresh(|fresh| ring.rotate_due(now_s, fresh))?;
        }
        self.replace(link, ring, Change::AddKey(token)).await.map(|_| ())
    }

    /// Takes over the ring that was found, if it is newer than all that were seen. The first one may also be the newest
    /// of them.
    async fn take(&mut self, link: &mut Link, found: Known) -> Result<(), Error> {
        let (seen, is_first) = (self.version(), self.known.is_none());
        if found.version > seen || is_first && found.version == seen {
            self.know(found);
            return Ok(());
        }
        self.refused += 1;
        let is_replaced = self.put_back(link, Some(&found)).await?;
        let (key, found) = (self.place.valkey_key().to_owned(), found.version);
        Err(match is_replaced {
            true => Error::RolledBack { key, found, seen },
            false => Error::OlderRing { key, found, seen },
        })
    }

    /// Replaces the ring that was found by the newest one seen. If another server does so first, the next call of
    /// [`Self::follow`] shows it. Returns false if this machine no longer has the newest ring.
    async fn put_back(&mut self, link: &mut Link, found: Option<&Known>) -> Result<bool, Error> {
        let Some((seen, ring)) = self.newest() else { return Ok(false) };
        let next = (seen + 1, ring.clone());
        let there = self.place.replace(link, found, next, Change::PutBack).await?;
        there.into_iter().for_each(|there| self.know(there));
        Ok(true)
    }

    fn know(&mut self, known: Known) {
        let lower = std::mem::take(&mut self.accepts_older);
        self.accepted |= lower;
        self.record.iter_mut().for_each(|record| record.keep(known.version, lower));
        // The one before is wiped, with the keys that this one has no more.
        (self.known, self.last, self.changed) = (Some(known), None, true);
    }

    /// Applies the given schedule, once.
    async fn reschedule(&mut self, link: &mut Link) -> Result<(), Error> {
        let (Some(schedule), Some(ring)) = (self.schedule, self.ring()) else { return Ok(()) };
        let mut ring = ring.clone();
        let differs = *ring.schedule() != schedule;
        ring.reschedule(schedule);
        if !differs || self.replace(link, ring, Change::Other).await? {
            self.schedule = None;
        }
        Ok(())
    }

    /// Puts the ring under the key in use, if it is under the last one. If another server does so first, the next call of
    /// [`Self::follow`] shows it.
    async fn rewrap(&mut self, link: &mut Link) -> Result<(), Error> {
        let outdated = self.known.as_ref().filter(|known| self.place.is_outdated(known));
        let Some(ring) = outdated.filter(|_| self.makes_keys).map(|known| known.ring.clone())
        else {
            return Ok(());
        };
        self.replace(link, ring, Change::Other).await.map(|_| ())
    }

    /// Replaces the known ring by this one. Returns false if another ring is there.
    async fn replace(
        &mut self,
        link: &mut Link,
        ring: KeyRing,
        change: Change<'_>,
    ) -> Result<bool, Error> {
        let next = (self.version() + 1, ring);
        let there = self.place.replace(link, self.known.as_ref(), next, change).await?;
        let replaced = there.is_some();
        there.into_iter().for_each(|there| self.know(there));
        Ok(replaced)
    }

    /// Returns the highest version seen, by this process or an earlier one.
    pub fn version(&self) -> u64 {
        let earlier = [
            self.last.as_ref().map_or(0, |(version, _)| *version),
            self.record.as_ref().map_or(0, RingRecord::seen),
        ];
        let [page, file] = if self.accepts_older { [0, 0] } else { earlier };
        self.known.as_ref().map_or_else(|| page.max(file), |known| known.version)
    }
}

/// Lends random bytes for a key. Bytes that are returned would stay behind on the stack.
fn with_fresh<T>(
    make: impl FnOnce(&mut [u8; SECRET_BYTES]) -> Result<T, rejoin_tickets::Error>,
) -> Result<T, Error> {
    let mut fresh = Zeroizing::new([0; SECRET_BYTES]);
    fill_at_random(&mut *fresh)?;
    Ok(make(&mut fresh)?)
}

impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterKeys").field("name", &self.name).finish_non_exhaustive()
    }
}
