//! The ring of ticket keys that the servers of a cluster have in common.
//!
//! Every server follows the ring in Valkey, and whoever first finds that the next key is due makes it:
//! versions are compared before one is replaced, so that of several only one does. Nothing is lost with
//! what Valkey loses, or while it is away:
//!
//! - What cannot be read, does not open or is older than what was seen changes nothing: the last ring
//!   goes on. No key is made without Valkey, so the newest one's turn lasts until it is back.
//! - Whoever finds none, or an older one than it has seen, puts its own there with the version after that
//!   of its own. Of several who do, one does, and whoever knows a later version than that does it
//!   again: the newest ring that any of them knows is there in the end. Until all have looked, nobody
//!   adds a key.
//! - Rings are never merged: a key that one of two does not have may have been revoked. What is lost is
//!   a key that only servers have seen which did not look for half a minute after the ring was put back.
//!
//! A server that is cut off for longer than the schedule's lead seals with a key whose turn is over for the others:
//! they refuse the tickets so much earlier. It refuses the others' new ones until it is back, and
//! revoked keys are its until then.

use std::time::Duration;

use rejoin_tickets::{CLOCKS_APART_S, KeyId, KeyRing, SECRET_BYTES, Schedule};
use zeroize::Zeroizing;

use crate::ring_place::{Change, Found, Known, RingPlace, Token};
use crate::wrapping_key::{WrappingKey, fill_at_random};
use crate::{ClusterName, Error, Link};

/// One server's view of the cluster's ring.
pub struct ClusterKeys {
    name: ClusterName,
    place: RingPlace,
    known: Option<Known>,
    /// Whether [`Self::follow`] has yet to tell of it.
    changed: bool,
    /// Whether it makes keys by the schedule: whoever only looks does not.
    makes_keys: bool,
    /// To be applied yet.
    schedule: Option<Schedule>,
    /// What this machine had before: it is put into Valkey where that has none.
    last: Option<KeyRing>,
    refused: u64,
}

impl ClusterKeys {
    /// The shortest lead of a cluster's schedule, in seconds: clocks may be two minutes apart, and
    /// servers have half a minute to look.
    pub const LEAST_LEAD_S: u64 = CLOCKS_APART_S + 30;

    /// Keys in a ring at most after [`Self::rotate`]: one place is left to the schedule.
    pub const MOST_KEYS_BY_HAND: usize = KeyRing::MOST_KEYS - 1;

    /// Of two who change the ring, one does it again.
    const MOST_ATTEMPTS: u32 = 20;
    const ATTEMPT_AFTER: Duration = Duration::from_millis(50);

    /// The cluster of this name, whose servers all have this key. Its keys change by `schedule` from
    /// the first [`Self::follow`] on, or by the one that they have.
    ///
    /// # Errors
    /// [`Error::ShortLead`].
    pub fn new(
        name: ClusterName,
        key: &WrappingKey,
        schedule: Option<Schedule>,
    ) -> Result<Self, Error> {
        let (lead_s, least_s) = (schedule.unwrap_or_default().lead_s(), Self::LEAST_LEAD_S);
        if lead_s < least_s {
            return Err(Error::ShortLead { lead_s, least_s });
        }
        let place = RingPlace::new(&name, key);
        let (known, last, makes_keys) = (None, None, true);
        Ok(Self { name, place, known, changed: false, makes_keys, schedule, last, refused: 0 })
    }

    /// [`Self::follow`] is to make no key: for a look at them, and [`Self::rotate`].
    #[must_use]
    pub fn only_followed(mut self) -> Self {
        self.makes_keys = false;
        self
    }

    /// Where Valkey has no ring at first, it gets this one, which the machine had before. (A key that was
    /// revoked meanwhile is back then.)
    #[must_use]
    pub fn after(mut self, last: Option<KeyRing>) -> Self {
        self.last = last;
        self
    }

    /// The ring, if it is another than at the last call, or there was none. Makes the next key first, if that
    /// is due. One round trip, unless something is to be written. To be called at least twice in
    /// half a minute; every few seconds, that a revoked key is soon gone.
    ///
    /// # Errors
    /// [`Error::Unopened`], [`Error::RolledBack`], and Valkey's. The last ring goes on.
    pub async fn follow(&mut self, link: &mut Link, now_s: u64) -> Result<Option<KeyRing>, Error> {
        self.look(link, now_s).await?;
        let changed = std::mem::take(&mut self.changed);
        Ok(self.ring().filter(|_| changed).cloned())
    }

    /// Makes a key, whose turn begins after the schedule's lead.
    ///
    /// # Errors
    /// [`Error::Busy`], those of [`Self::follow`], and a ring that has [`Self::MOST_KEYS_BY_HAND`].
    pub async fn rotate(&mut self, link: &mut Link, now_s: u64) -> Result<KeyId, Error> {
        let token = Token::new()?;
        for _ in 0..Self::MOST_ATTEMPTS {
            self.look(link, now_s).await?;
            if let Some(mut ring) = self.ring().cloned() {
                ring.remove_expired(now_s);
                if ring.list(now_s).count() >= Self::MOST_KEYS_BY_HAND {
                    return Err(
                        rejoin_tickets::Error::RingFull { most: Self::MOST_KEYS_BY_HAND }.into()
                    );
                }
                let id = rotate(&mut ring, now_s)?;
                if self.replace(link, ring, Change::AddKey(&token)).await? {
                    return Ok(id);
                }
            }
            tokio::time::sleep(Self::ATTEMPT_AFTER).await;
        }
        Err(Error::Busy { name: self.name.clone() })
    }

    /// Takes a key away, from each server when it next follows. Whether it was there.
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

    /// The last one seen.
    pub fn ring(&self) -> Option<&KeyRing> {
        self.known.as_ref().map(|known| &known.ring)
    }

    /// How often something in the ring's place was not taken for it.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    async fn look(&mut self, link: &mut Link, now_s: u64) -> Result<(), Error> {
        let due = self.makes_keys && self.ring().is_none_or(|ring| ring.due(now_s));
        let token = if due { Some(Token::new()?) } else { None };
        let found = self.place.read(link, self.known.as_ref(), token.as_ref()).await;
        if let Err(Error::Unopened { .. }) = found {
            self.refused += 1;
        }
        match (found?, token) {
            (Found::Same { leased: true }, Some(token)) => {
                self.make_due_key(link, &token, now_s).await?;
            }
            (Found::Same { .. }, _) => {}
            (Found::Nothing, _) => self.put_back(link, None).await?,
            (Found::Other(found), _) => self.take(link, found).await?,
        }
        self.reschedule(link).await
    }

    /// Another server may have done it by now: then there is nothing to do.
    async fn make_due_key(
        &mut self,
        link: &mut Link,
        token: &Token,
        now_s: u64,
    ) -> Result<(), Error> {
        let schedule = self.schedule.unwrap_or_default();
        let last = self.ring().cloned().or_else(|| self.last.take());
        let mut ring = last.unwrap_or_else(|| KeyRing::new(schedule));
        if ring.due(now_s) {
            rotate(&mut ring, now_s)?;
        }
        self.replace(link, ring, Change::AddKey(token)).await.map(|_| ())
    }

    /// Takes what was found over, if it is newer.
    async fn take(&mut self, link: &mut Link, found: Known) -> Result<(), Error> {
        let seen = self.version();
        if found.version > seen {
            (self.known, self.changed) = (Some(found), true);
            return Ok(());
        }
        self.refused += 1;
        self.put_back(link, Some(&found)).await?;
        let key = self.place.valkey_key().to_owned();
        Err(Error::RolledBack { key, found: found.version, seen })
    }

    /// Puts the last ring seen in the place of what was found. That somebody else does is seen when
    /// it is next followed.
    async fn put_back(&mut self, link: &mut Link, found: Option<&Known>) -> Result<(), Error> {
        let Some(known) = &self.known else { return Ok(()) };
        let next = (known.version + 1, known.ring.clone());
        let there = self.place.replace(link, found, next, Change::PutBack).await?;
        if there.is_some() {
            self.known = there;
        }
        Ok(())
    }

    /// Applies the schedule that was given, once.
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

    /// Whether the ring that is known was still there, and this one is in its place now.
    async fn replace(
        &mut self,
        link: &mut Link,
        ring: KeyRing,
        change: Change<'_>,
    ) -> Result<bool, Error> {
        let next = (self.version() + 1, ring);
        let there = self.place.replace(link, self.known.as_ref(), next, change).await?;
        let replaced = there.is_some();
        if replaced {
            (self.known, self.changed) = (there, true);
        }
        Ok(replaced)
    }

    fn version(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.version)
    }
}

fn rotate(ring: &mut KeyRing, now_s: u64) -> Result<KeyId, Error> {
    let mut fresh = Zeroizing::new([0; SECRET_BYTES]);
    fill_at_random(&mut *fresh)?;
    Ok(ring.rotate(now_s, &mut fresh)?)
}

impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterKeys").field("name", &self.name).finish_non_exhaustive()
    }
}
