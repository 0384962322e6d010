//! The sessions of one origin in one partition.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rejoin_cache::{History, SessionId};
use rustls::NamedGroup;
use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};

use super::Offered;
use super::addresses::Addresses;
use crate::protocol::{Fingerprint, Host, Label};
use crate::trust::certificates::Chain;
use crate::trust::identity::Identity;
use crate::trust::staple::Stapled;
use crate::upstream::policy::Terms;

/// A partition. Sessions are shared only within one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Partition {
    pub(crate) uid: u32,
    pub(crate) label: Label,
    /// The digest of the client's certificate, whose private key it has proved to have.
    pub(crate) identity: Option<Fingerprint>,
    /// True if the server is told the name: without it, another virtual host may answer.
    pub(crate) is_named: bool,
}

/// The key under which sessions are cached: an origin (host and port) within a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) partition: Partition,
}

impl CacheKey {
    /// Returns the id under which the engine stores this key.
    pub(crate) fn id(&self) -> SessionId {
        let Self { host, port, partition } = self;
        let Partition { uid, label, identity, is_named } = partition;
        let mut name = format!("{port} {uid} {host} ").into_bytes();
        if let Some(identity) = identity {
            name.extend_from_slice(&identity.0);
        }
        // Last, because it is the only part of variable length that may contain any bytes.
        name.push(u8::from(identity.is_some()) | u8::from(!is_named) << 1);
        name.extend_from_slice(label.as_str().as_bytes());
        match SessionId::new(&Fingerprint::of(&name).0) {
            Ok(id) => id,
            Err(_) => unreachable!("a digest has the length of a session id"),
        }
    }

    /// Returns true if sessions may be used for other names: not if a client certificate was presented to this name, or
    /// the server was not told it.
    pub(crate) fn may_cross_names(&self) -> bool {
        self.partition.identity.is_none() && self.partition.is_named
    }

    /// Returns true if the other key differs only in the name.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.port == other.port && self.partition == other.partition && self.host != other.host
    }
}

/// The result of one full handshake, from which its tickets descend.
#[derive(Debug)]
pub(crate) struct Family {
    /// The certificates that were verified.
    pub(crate) chain: Arc<Chain>,
    /// The time of the verification, by [`Clock::now_ms`](crate::Clock::now_ms).
    pub(crate) verified_ms: u64,
    /// The answer to the manager's question for a stapled response.
    pub(crate) stapled: Stapled,
    /// Kept because rustls resumes only while this object exists.
    _identity: Arc<Identity>,
    refused: AtomicBool,
}

impl Family {
    pub(crate) fn new(
        chain: Arc<Chain>,
        verified_ms: u64,
        stapled: Stapled,
        identity: Arc<Identity>,
    ) -> Self {
        let refused = AtomicBool::new(false);
        Self { chain, verified_ms, stapled, _identity: identity, refused }
    }

    /// Notes that a server no longer accepts one of its tickets.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A session's secret, which rustls stores and wipes.
#[derive(Debug)]
pub(crate) enum Secret {
    Tls13(Box<Tls13ClientSessionValue>),
    /// A TLS 1.2 session, which can be resumed any number of times.
    Tls12(Box<Tls12ClientSessionValue>),
}

/// A stored session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) secret: Secret,
    pub(crate) family: Arc<Family>,
    /// The address of the server that issued it.
    pub(crate) address: IpAddr,
    /// The time of its expiry, by [`Clock::now_ms`](crate::Clock::now_ms).
    pub(crate) expires_ms: u64,
    pub(crate) alpn: Option<Vec<u8>>,
    /// The terms of all handshakes that led to it.
    pub(crate) terms: Terms,
    /// The approximate memory that it takes.
    pub(crate) bytes: u64,
}

impl Session {
    fn is_tls12(&self) -> bool {
        matches!(self.secret, Secret::Tls12(_))
    }
}

/// A session taken from the store, to be offered.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) secret: Secret,
    pub(crate) family: Arc<Family>,
    /// The address of the server that issued it.
    pub(crate) address: IpAddr,
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) terms: Terms,
    /// The time of its expiry. A TLS 1.2 session that is issued again does not live longer.
    pub(crate) expires_ms: u64,
    /// The name that it was issued to, if it is a different one.
    pub(crate) session_of: Option<Host>,
}

impl From<Session> for Offer {
    fn from(session: Session) -> Self {
        let Session { secret, family, address, expires_ms, alpn, terms, .. } = session;
        Self { secret, family, address, alpn, terms, expires_ms, session_of: None }
    }
}

impl Offer {
    pub(crate) fn offered(&self) -> Offered {
        Offered {
            family: Arc::clone(&self.family),
            address: self.address,
            session_of: self.session_of.clone(),
            alpn: self.alpn.clone(),
            terms: self.terms,
        }
    }
}

/// A filter for an origin's sessions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) families: &'a [Arc<Family>],
    /// The address to which the session is offered.
    pub(super) address: IpAddr,
    pub(super) accepts: Terms,
}

/// A chain that a program refused when its session was resumed at an address.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    chain: Fingerprint,
    address: IpAddr,
    /// True if a full handshake has shown that this address has others now.
    is_confirmed: bool,
}

impl Doubt {
    /// Returns true if a session with these certificates must not be offered: nowhere, until it is known what the address
    /// has now, and not to that address if it has others. Another address may still have them.
    fn is_against(&self, chain: Fingerprint, to: Option<IpAddr>) -> bool {
        self.chain == chain && (!self.is_confirmed || to == Some(self.address))
    }
}

/// The sessions of one cache key.
#[derive(Debug)]
pub(crate) struct StoredSessions {
    /// The newest last.
    sessions: VecDeque<Session>,
    pub(super) addresses: Addresses,
    /// The group that the server chose last, and the terms that it was offered then.
    pub(super) group: Option<(NamedGroup, Terms)>,
    /// The time of the last full handshake whose stapled response does not stand for another one. What was stapled before
    /// does not, either.
    pub(super) outdated_ms: Option<u64>,
    /// The certificates that programs refused, until a full handshake has shown what the server has now.
    doubts: Vec<Doubt>,
    pub(super) history: History,
    /// The time of the last query.
    pub(super) seen_ms: u64,
    /// The size that the engine was told.
    pub(super) units: u64,
    name_bytes: u64,
}

impl StoredSessions {
    /// The addresses with sessions, at most.
    const ADDRESSES: usize = 16;
    /// The doubts remembered, at most. The sessions of an older one are dropped.
    const DOUBTS: usize = 16;

    pub(super) fn new(name: &CacheKey, seen_ms: u64) -> Self {
        let text = name.host.as_str().len() + name.partition.label.as_str().len();
        let name_bytes = (2 * text + size_of::<CacheKey>() + size_of::<Self>()) as u64;
        Self {
            sessions: VecDeque::new(),
            addresses: Addresses::default(),
            group: None,
            outdated_ms: None,
            doubts: Vec::new(),
            history: History::default(),
            seen_ms,
            units: 0,
            name_bytes,
        }
    }

    /// Stores a session. Keeps at most `most` TLS 1.3 sessions and one TLS 1.2 session of each address.
    pub(super) fn keep(&mut self, session: Session, most: usize) {
        if session.family.is_refused() {
            return;
        }
        let (address, is_tls12) = (session.address, session.is_tls12());
        let is_alike = |of: &Session| of.address == address && of.is_tls12() == is_tls12;
        let most = if is_tls12 { 1 } else { most };
        while self.sessions.iter().filter(|of| is_alike(of)).count() >= most {
            let oldest = self.sessions.iter().position(is_alike);
            oldest.and_then(|at| self.sessions.remove(at));
        }
        self.sessions.push_back(session);
        while self.sessions.iter().map(|of| of.address).collect::<HashSet<_>>().len()
            > Self::ADDRESSES
        {
            self.sessions.pop_front();
        }
    }

    /// Takes the session that the server is most likely to accept, the newest if there are several. A TLS 1.3 session
    /// is removed.
    pub(super) fn take(&mut self, choice: &Choice<'_>) -> Option<Offer> {
        let worth = |(at, session): (usize, &Session)| {
            let of = |family: &Arc<Family>| Arc::ptr_eq(family, &session.family);
            let may = self.may_offer(session, choice.accepts, Some(choice.address))
                && choice.families.iter().any(of);
            let reason = self.addresses.reason(session.address, choice.address);
            reason.filter(|_| may).map(|reason| (reason, !session.is_tls12(), at))
        };
        let (_, _, at) = self.sessions.iter().enumerate().filter_map(worth).max()?;
        let session = match &self.sessions[at].secret {
            Secret::Tls12(value) => Secret::Tls12(value.clone()),
            Secret::Tls13(_) => return self.sessions.remove(at).map(Offer::from),
        };
        let Session { family, address, expires_ms, alpn, terms, .. } = &self.sessions[at];
        Some(Offer {
            secret: session,
            family: Arc::clone(family),
            address: *address,
            alpn: alpn.clone(),
            terms: *terms,
            expires_ms: *expires_ms,
            session_of: None,
        })
    }

    pub(super) fn drop_old(&mut self, now_ms: u64) {
        self.sessions.retain(|session| now_ms < session.expires_ms);
        self.drop_refused();
    }

    pub(super) fn drop_refused(&mut self) {
        self.sessions.retain(|session| !session.family.is_refused());
    }

    /// Removes a TLS 1.2 session that was offered. TLS 1.3 sessions were removed when they were taken.
    pub(super) fn drop_tls12(&mut self, offer: &Offered) {
        let is_it = |of: &Session| {
            of.is_tls12() && of.address == offer.address && Arc::ptr_eq(&of.family, &offer.family)
        };
        self.sessions.retain(|session| !is_it(session));
    }

    /// Returns the families of the sessions, each once.
    pub(super) fn families(&self) -> Vec<Arc<Family>> {
        let mut families: Vec<Arc<Family>> = Vec::new();
        for Session { family, .. } in &self.sessions {
            if !families.iter().any(|known| Arc::ptr_eq(known, family)) {
                families.push(Arc::clone(family));
            }
        }
        families
    }

    pub(super) fn tickets(&self) -> usize {
        self.sessions.len()
    }

    /// Returns true if a session may be offered; with times, to a program that asks for a stapled response at that time
    /// of the manager's clock and of the day.
    pub(super) fn has_any(&self, accepts: Terms, asks_at: Option<(u64, u64)>) -> bool {
        let stands = |family: &Family| {
            asks_at.is_none_or(|(now_ms, unix_s)| {
                let is_outdated = self.outdated_ms.is_some_and(|ms| family.verified_ms <= ms);
                let age_ms = now_ms.saturating_sub(family.verified_ms);
                !is_outdated && family.stapled.stands(age_ms, unix_s)
            })
        };
        let mut sessions = self.sessions.iter();
        sessions.any(|of| self.may_offer(of, accepts, None) && stands(&of.family))
    }

    /// Returns true if a session may be offered to this address, or to one that is not known yet.
    fn may_offer(&self, session: &Session, accepts: Terms, to: Option<IpAddr>) -> bool {
        let chain = session.family.chain.sha256;
        let is_doubted = self.doubts.iter().any(|doubt| doubt.is_against(chain, to));
        accepts.cover(session.terms) && !session.family.is_refused() && !is_doubted
    }

    /// Notes that a program refused these certificates when a session was resumed at this address. The server may have
    /// others now.
    pub(super) fn doubt(&mut self, chain: Fingerprint, address: IpAddr) {
        self.doubts.retain(|doubt| (doubt.chain, doubt.address) != (chain, address));
        self.doubts.push(Doubt { chain, address, is_confirmed: false });
        if self.doubts.len() > Self::DOUBTS {
            let Doubt { chain, .. } = self.doubts.remove(0);
            self.sessions.retain(|session| session.family.chain.sha256 != chain);
        }
    }

    /// Notes the certificates that a full handshake with this address has shown. What was doubted there is good again if
    /// it is the same; otherwise its sessions are dropped.
    pub(super) fn settle(&mut self, shown: Fingerprint, address: IpAddr) {
        self.doubts.retain(|doubt| (doubt.chain, doubt.address) != (shown, address));
        for doubt in self.doubts.iter_mut().filter(|doubt| doubt.address == address) {
            doubt.is_confirmed = true;
            self.sessions.retain(|session| session.family.chain.sha256 != doubt.chain);
        }
    }

    pub(super) fn has_tls12(&self) -> bool {
        self.sessions.iter().any(Session::is_tls12)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.name_bytes + self.sessions.iter().map(|session| session.bytes).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_against_all_addresses_until_it_is_known_what_that_one_has() {
        let [chain, other] = [1, 2].map(|number| Fingerprint([number; 32]));
        let [address, elsewhere] = [1, 2].map(|number| IpAddr::V4(number.into()));
        let doubt = |is_confirmed| Doubt { chain, address, is_confirmed };
        for to in [None, Some(address), Some(elsewhere)] {
            assert!(doubt(false).is_against(chain, to) && !doubt(false).is_against(other, to));
            assert_eq!(doubt(true).is_against(chain, to), to == Some(address));
        }
    }
}
