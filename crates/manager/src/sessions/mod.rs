//! The sessions that programs share.
//!
//! A [`CacheKey`] names one origin (host and port) in one partition (user, label, client certificate). The
//! sessions stored under it come only from the manager's own handshakes with that origin.
//! Tickets that descend from one full handshake are a *family*: every resumption rests on what was verified
//! in that handshake.
//!
//! An origin may have several addresses. An address is offered sessions that it issued itself, sessions that it is
//! known to accept, and some as a trial ([`addresses`]).
//!
//! When memory is full, the cache that servers use ([`rejoin_cache`]) chooses the origins to drop, for each user
//! separately. It has one entry for each cache key, as long as the sessions under that key, and keeps those whose
//! programs return soonest. It holds no secrets.

mod across;
mod addresses;
mod connection;
mod covers;
mod seen;
mod stored;
mod table;
mod users;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustls::NamedGroup;

pub(crate) use across::Trials;
pub(crate) use connection::{Collected, ConnectionStore};
pub(crate) use stored::{CacheKey, Family, Offer, Partition, Secret, Session};

use crate::protocol::{Host, Why};
use crate::settings::{AcrossNames, Settings};
use crate::trust::certificates::Chain;
use crate::upstream::policy::Terms;
use stored::{Choice, StoredSessions};
use table::{LATE, UNIT_BYTES};
use users::Users;

/// The sessions of all users.
pub(crate) struct Sessions {
    inner: Mutex<Inner>,
    settings: RwLock<Arc<Settings>>,
}

struct Inner {
    users: Users,
    trials: Trials,
}

/// A connection's query for a session.
#[derive(Clone, Copy)]
pub(crate) struct SessionQuery<'a> {
    pub(crate) cache_key: &'a CacheKey,
    /// The server's address.
    pub(crate) address: IpAddr,
    pub(crate) accepts: Terms,
    /// True if a session of another name may be used.
    pub(crate) may_cross_names: bool,
    /// True if the program asks for a stapled response: then only sessions whose response still stands are usable.
    pub(crate) asks_for_staple: bool,
    /// Returns true if the program's trust accepts the family's certificates for the origin's name now.
    pub(crate) stands: &'a dyn Fn(&Family) -> bool,
    pub(crate) unix_s: u64,
}

impl Sessions {
    pub(crate) fn new(settings: Arc<Settings>, key: [u8; 16]) -> Self {
        let units = settings.session_bytes / UNIT_BYTES;
        // Sessions that are gone from an engine and not yet from here count, too.
        let users = Users::new(units - units / LATE as u64, key);
        let inner = Inner { users, trials: Trials::default() };
        Self { inner: Mutex::new(inner), settings: RwLock::new(settings) }
    }

    /// Uses these settings from now on, but for the memory of all sessions.
    pub(crate) fn set(&self, settings: Arc<Settings>) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if there is a session that may be usable, also for a program that asks for a stapled response.
    pub(crate) fn may_have(
        &self,
        cache_key: &CacheKey,
        accepts: Terms,
        asks_for_staple: bool,
    ) -> bool {
        let at = asks_for_staple.then(|| {
            let clock = &self.settings().clock;
            (clock.now_ms(), clock.unix_s())
        });
        self.lock().users.get_mut(cache_key).is_some_and(|kept| kept.has_any(accepts, at))
    }

    /// Takes one session for this connection, or returns why there is none. A TLS 1.3 ticket is removed from the
    /// store; the offer names its family.
    pub(crate) fn take(&self, wish: &SessionQuery<'_>) -> Result<Offer, Why> {
        let now_ms = self.settings().clock.now_ms();
        let uid = wish.cache_key.partition.uid;
        let found = {
            let mut inner = self.lock();
            inner.users.table_mut(uid).and_then(|table| table.arrive(wish.cache_key, now_ms))
        };
        let own = match found {
            Some(families) => self.take_at(wish, wish.cache_key, families, now_ms, 1),
            None => Err(Why::NoSession),
        };
        own.or_else(|why| self.take_across(wish, now_ms).ok_or(why))
    }

    /// Takes a session of this origin from a family whose certificates are accepted, if the origin has at least `least`
    /// sessions.
    fn take_at(
        &self,
        wish: &SessionQuery<'_>,
        cache_key: &CacheKey,
        families: Vec<Arc<Family>>,
        now_ms: u64,
        least: usize,
    ) -> Result<Offer, Why> {
        let outdated_ms = match wish.asks_for_staple {
            true => self.lock().users.get_mut(cache_key).and_then(|kept| kept.outdated_ms),
            false => None,
        };
        let is_outdated =
            |family: &Family| outdated_ms.is_some_and(|outdated| family.verified_ms <= outdated);
        let young =
            |family: &Arc<Family>| self.is_young(family, now_ms, wish) && !is_outdated(family);
        let (young, old): (Vec<_>, Vec<_>) = families.into_iter().partition(young);
        // Verified without the lock: it takes as long as a signature or two.
        let (standing, fallen): (Vec<_>, Vec<_>) =
            young.into_iter().partition(|family| (wish.stands)(family));
        let mut inner = self.lock();
        let Some(kept) = inner.users.get_mut(cache_key) else { return Err(Why::NoSession) };
        kept.drop_old(now_ms);
        let is_own = cache_key == wish.cache_key;
        let accepts = if is_own { wish.accepts } else { wish.accepts.of_tls13() };
        let choice = Choice { families: &standing, address: wish.address, accepts };
        let taken = (kept.tickets() >= least).then(|| kept.take(&choice)).flatten();
        let (has_tls12, is_empty) = (kept.has_tls12(), kept.tickets() == 0);
        inner.users.resize(cache_key, now_ms);
        taken.ok_or_else(|| match () {
            () if !fallen.is_empty() => Why::NotTrusted,
            () if !old.is_empty() => Why::TooOld,
            () if has_tls12 && !wish.accepts.have_tls12() => Why::Version,
            () if is_empty => Why::AllUsed,
            () => Why::NoSession,
        })
    }

    /// Takes a session of another name that this server may accept, if the settings allow it.
    fn take_across(&self, wish: &SessionQuery<'_>, now_ms: u64) -> Option<Offer> {
        let may = wish.may_cross_names && wish.cache_key.may_cross_names();
        if !may || self.settings().across_names == AcrossNames::Never {
            return None;
        }
        let candidates = self.lock().candidates(wish.cache_key, &self.settings());
        let take = |(cache_key, families): (CacheKey, _)| {
            // A trial never takes the last ticket of a name.
            let offer = self.take_at(wish, &cache_key, families, now_ms, 2).ok()?;
            Some(Offer { session_of: Some(cache_key.host), ..offer })
        };
        candidates.into_iter().find_map(take)
    }

    /// Returns true if the family's certificates were verified recently enough and have not expired, and if what was
    /// stapled with them still stands for a program that asks for it.
    fn is_young(&self, family: &Family, now_ms: u64, wish: &SessionQuery<'_>) -> bool {
        let age_ms = now_ms.saturating_sub(family.verified_ms);
        age_ms <= self.settings().verified_within_s * 1_000
            && wish.unix_s <= family.chain.not_after_s
            && (!wish.asks_for_staple || family.stapled.stands(age_ms, wish.unix_s))
    }

    /// Stores a session that a server issued to a handshake of the manager's own.
    pub(crate) fn keep(&self, cache_key: &CacheKey, session: Session) {
        let now_ms = self.settings().clock.now_ms();
        let mut inner = self.lock();
        let Some(table) = inner.users.made(cache_key.partition.uid, now_ms) else { return };
        table.keep(cache_key, session, self.settings().tickets, now_ms);
        inner.users.resize(cache_key, now_ms);
    }

    /// Notes that an offered session was answered by a full handshake. Drops its family, unless the session came from
    /// another name or another address: that says nothing about the family, and is remembered for the two names
    /// or the two addresses.
    pub(crate) fn refused(&self, cache_key: &CacheKey, address: IpAddr, offer: &Offered) {
        let mut inner = self.lock();
        if let Some(from) = &offer.session_of {
            inner.trials.record(from, cache_key, &offer.family, false);
            return;
        }
        let is_of_family = match inner.users.get_mut(cache_key) {
            Some(kept) => kept.addresses.refused(offer.address, address),
            None => offer.address == address,
        };
        if !is_of_family {
            return;
        }
        offer.family.refuse();
        if let Some(kept) = inner.users.get_mut(cache_key) {
            kept.drop_refused();
        }
        inner.users.resize(cache_key, self.settings().clock.now_ms());
    }

    /// Notes that a program refused the certificates of a connection that resumed a session at this address. No session
    /// with these certificates is offered before a full handshake with this address.
    pub(crate) fn doubted(&self, cache_key: &CacheKey, address: IpAddr, offer: &Offered) {
        let mut inner = self.lock();
        if let Some(kept) = inner.users.get_mut(cache_key) {
            kept.doubt(offer.family.chain.sha256, address);
        }
        inner.users.resize(cache_key, self.settings().clock.now_ms());
    }

    /// Notes that a program refused a server after a full handshake. Its family is dropped.
    pub(crate) fn rejected(&self, cache_key: &CacheKey, family: &Family) {
        family.refuse();
        let mut inner = self.lock();
        if let Some(kept) = inner.users.get_mut(cache_key) {
            kept.drop_refused();
        }
        inner.users.resize(cache_key, self.settings().clock.now_ms());
    }

    /// Notes the certificates that a full handshake with this address has shown.
    pub(crate) fn settle(&self, cache_key: &CacheKey, chain: &Chain, address: IpAddr) {
        let mut inner = self.lock();
        if let Some(kept) = inner.users.get_mut(cache_key) {
            kept.settle(chain.sha256, address);
        }
        inner.users.resize(cache_key, self.settings().clock.now_ms());
    }

    /// Notes that a full handshake has shown a stapled response that does not stand for another one. No program that asks
    /// for a response resumes an older session.
    pub(crate) fn outdated(&self, cache_key: &CacheKey, now_ms: u64) {
        if let Some(kept) = self.lock().users.get_mut(cache_key) {
            kept.outdated_ms = Some(now_ms);
        }
    }

    /// Notes that a connection broke after a session was offered. That says nothing about its family, because the
    /// network may be the cause. The session itself is not offered again.
    pub(crate) fn broken(&self, cache_key: &CacheKey, address: IpAddr, offer: &Offered) {
        let mut inner = self.lock();
        if let Some(from) = &offer.session_of {
            inner.trials.record(from, cache_key, &offer.family, false);
        } else if let Some(kept) = inner.users.get_mut(cache_key) {
            kept.addresses.refused(offer.address, address);
        }
        drop(inner);
        self.given_up(cache_key, offer);
    }

    /// Notes that the program gave up before the server answered an offered session. The session itself is not offered
    /// again, because the server may never answer it.
    pub(crate) fn given_up(&self, cache_key: &CacheKey, offer: &Offered) {
        let mut inner = self.lock();
        if offer.session_of.is_some() {
            return;
        }
        if let Some(kept) = inner.users.get_mut(cache_key) {
            kept.drop_tls12(offer);
            inner.users.resize(cache_key, self.settings().clock.now_ms());
        }
    }

    /// Notes that an offered session was resumed.
    pub(crate) fn resumed(&self, cache_key: &CacheKey, address: IpAddr, offer: &Offered) {
        let mut inner = self.lock();
        if let Some(from) = &offer.session_of {
            inner.trials.record(from, cache_key, &offer.family, true);
        } else if let Some(kept) = inner.users.get_mut(cache_key) {
            kept.addresses.resumed(offer.address, address);
        }
    }

    /// Returns the key-exchange group that this server chose last, if it was offered the same.
    pub(crate) fn group(&self, cache_key: &CacheKey, offered: Terms) -> Option<NamedGroup> {
        let inner = self.lock();
        let (group, then) = inner.users.table(cache_key.partition.uid)?.get(cache_key)?.group?;
        (then == offered).then_some(group)
    }

    pub(crate) fn set_group(&self, cache_key: &CacheKey, group: NamedGroup, offered: Terms) {
        if let Some(kept) = self.lock().users.get_mut(cache_key) {
            kept.group = Some((group, offered));
        }
    }

    /// Returns the number of sessions, and their bytes.
    pub(crate) fn count(&self) -> (u64, u64) {
        let inner = self.lock();
        let of = |(sessions, bytes), (_, stored): (&CacheKey, &StoredSessions)| {
            (sessions + stored.tickets() as u64, bytes + stored.bytes())
        };
        inner.users.all().fold((0, 0), of)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The facts about a session that was offered, without its secret.
#[derive(Debug, Clone)]
pub(crate) struct Offered {
    pub(crate) family: Arc<Family>,
    /// The address of the server that issued it.
    pub(crate) address: IpAddr,
    pub(crate) session_of: Option<Host>,
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) terms: Terms,
}

impl Inner {
    /// Returns origins of other names whose certificates may cover this one, and their families: first those that
    /// worked before, then untried ones, and one origin for each certificate chain.
    fn candidates(&self, cache_key: &CacheKey, settings: &Settings) -> Vec<Candidate> {
        let Some(own) = self.users.table(cache_key.partition.uid) else { return Vec::new() };
        let (mut known, mut new) = (Vec::new(), Vec::new());
        for (name, kept) in own.beside(cache_key).filter(|(_, kept)| kept.tickets() >= 2) {
            let listed = settings.lists_together(&name.host, &cache_key.host);
            if settings.across_names == AcrossNames::Listed && !listed {
                continue;
            }
            for family in kept.families() {
                match self.trials.outcome(&name.host, cache_key, &family) {
                    _ if !family.chain.may_cover(&cache_key.host) => {}
                    Some(true) => known.push((name, family)),
                    Some(false) => {}
                    None => new.push((name, family)),
                }
            }
        }
        let mut chains = HashSet::new();
        known.extend(new);
        known.retain(|(_, family)| chains.insert(family.chain.sha256));
        let candidate = |(name, family): (&CacheKey, _)| (name.clone(), vec![family]);
        known.into_iter().take(Trials::AT_ONCE).map(candidate).collect()
    }
}

/// An origin of another name, and its families that may be usable.
type Candidate = (CacheKey, Vec<Arc<Family>>);

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}
