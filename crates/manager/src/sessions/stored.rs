//! One server in one partition, and its sessions.

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

/// Sessions are shared within one of these only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Partition {
    pub(crate) uid: u32,
    pub(crate) label: Label,
    /// Of the client's own certificate, whose key it has shown.
    pub(crate) identity: Option<Fingerprint>,
}

/// A server in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) partition: Partition,
}

impl CacheKey {
    /// Under what the engine knows it.
    pub(crate) fn id(&self) -> SessionId {
        let Self { host, port, partition: Partition { uid, label, identity } } = self;
        let mut name = format!("{port} {uid} {host} ").into_bytes();
        if let Some(identity) = identity {
            name.extend_from_slice(&identity.0);
        }
        // Last: of all that has no fixed length it is the only one that may contain anything.
        name.push(u8::from(identity.is_some()));
        name.extend_from_slice(label.as_str().as_bytes());
        match SessionId::new(&Fingerprint::of(&name).0) {
            Ok(id) => id,
            Err(_) => unreachable!("a digest has the length of a session id"),
        }
    }

    /// Sessions with a client's certificate stay with the name that it was shown to.
    pub(crate) fn may_cross_names(&self) -> bool {
        self.partition.identity.is_none()
    }

    /// Whether the other is the same but for the name.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.port == other.port && self.partition == other.partition && self.host != other.host
    }
}

/// What one full handshake established.
#[derive(Debug)]
pub(crate) struct Family {
    /// The certificates that were verified.
    pub(crate) chain: Arc<Chain>,
    /// When, by the clock of ages.
    pub(crate) verified_ms: u64,
    /// rustls resumes only while this object exists.
    _identity: Arc<Identity>,
    refused: AtomicBool,
}

impl Family {
    pub(crate) fn new(chain: Arc<Chain>, verified_ms: u64, identity: Arc<Identity>) -> Self {
        Self { chain, verified_ms, _identity: identity, refused: AtomicBool::new(false) }
    }

    /// A server did not know one of its tickets any more.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A secret that rustls keeps, and wipes.
#[derive(Debug)]
pub(crate) enum Secret {
    Tls13(Box<Tls13ClientSessionValue>),
    /// Resumed as often as it is wanted: no ticket of TLS 1.2 is used up.
    Tls12(Box<Tls12ClientSessionValue>),
}

/// A session, and what is known of it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) secret: Secret,
    pub(crate) family: Arc<Family>,
    /// The server's, which issued it.
    pub(crate) address: IpAddr,
    /// By the clock of ages.
    pub(crate) expires_ms: u64,
    pub(crate) alpn: Option<Vec<u8>>,
    /// About what it takes.
    pub(crate) bytes: u64,
}

impl Session {
    fn is_tls12(&self) -> bool {
        matches!(self.secret, Secret::Tls12(_))
    }
}

/// A session that was handed out.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) secret: Secret,
    pub(crate) family: Arc<Family>,
    /// The server's, which issued it.
    pub(crate) address: IpAddr,
    pub(crate) alpn: Option<Vec<u8>>,
    /// When it ends at the latest: a session of TLS 1.2 that comes back does not live longer.
    pub(crate) expires_ms: u64,
    /// Whose it was, if another name's.
    pub(crate) session_of: Option<Host>,
}

impl From<Session> for Offer {
    fn from(session: Session) -> Self {
        let Session { secret, family, address, expires_ms, alpn, .. } = session;
        Self { secret, family, address, alpn, expires_ms, session_of: None }
    }
}

impl Offer {
    pub(crate) fn offered(&self) -> Offered {
        Offered {
            family: Arc::clone(&self.family),
            address: self.address,
            session_of: self.session_of.clone(),
            alpn: self.alpn.clone(),
        }
    }
}

/// Which of a place's sessions will do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) families: &'a [Arc<Family>],
    /// Where it is to be offered.
    pub(super) address: IpAddr,
    pub(super) tls13_only: bool,
}

/// The sessions of one place.
#[derive(Debug)]
pub(crate) struct StoredSessions {
    /// The newest last.
    sessions: VecDeque<Session>,
    pub(super) addresses: Addresses,
    pub(super) group: Option<NamedGroup>,
    pub(super) history: History,
    /// When a program came for it last.
    pub(super) seen_ms: u64,
    /// As the engine knows it.
    pub(super) units: u64,
    name_bytes: u64,
}

impl StoredSessions {
    /// Addresses of which there are sessions.
    const ADDRESSES: usize = 16;

    pub(super) fn new(name: &CacheKey, seen_ms: u64) -> Self {
        let text = name.host.as_str().len() + name.partition.label.as_str().len();
        let name_bytes = (2 * text + size_of::<CacheKey>() + size_of::<Self>()) as u64;
        Self {
            sessions: VecDeque::new(),
            addresses: Addresses::default(),
            group: None,
            history: History::default(),
            seen_ms,
            units: 0,
            name_bytes,
        }
    }

    /// `most` are kept of an address, and one of TLS 1.2.
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

    /// The session most likely to be taken, and the newest of these. Of TLS 1.3 it is gone from
    /// here.
    pub(super) fn take(&mut self, choice: &Choice<'_>) -> Option<Offer> {
        let worth = |(at, session): (usize, &Session)| {
            let of = |family: &Arc<Family>| Arc::ptr_eq(family, &session.family);
            let may = !session.family.is_refused()
                && choice.families.iter().any(of)
                && !(choice.tls13_only && session.is_tls12());
            let reason = self.addresses.reason(session.address, choice.address);
            reason.filter(|_| may).map(|reason| (reason, !session.is_tls12(), at))
        };
        let (_, _, at) = self.sessions.iter().enumerate().filter_map(worth).max()?;
        let session = match &self.sessions[at].secret {
            Secret::Tls12(value) => Secret::Tls12(value.clone()),
            Secret::Tls13(_) => return self.sessions.remove(at).map(Offer::from),
        };
        let Session { family, address, expires_ms, alpn, .. } = &self.sessions[at];
        Some(Offer {
            secret: session,
            family: Arc::clone(family),
            address: *address,
            alpn: alpn.clone(),
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

    /// What is offered of TLS 1.3 is gone from here already.
    pub(super) fn drop_tls12(&mut self, offer: &Offered) {
        let is_it = |of: &Session| {
            of.is_tls12() && of.address == offer.address && Arc::ptr_eq(&of.family, &offer.family)
        };
        self.sessions.retain(|session| !is_it(session));
    }

    /// The families that have sessions here, each once.
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

    pub(super) fn has_any(&self, tls13_only: bool) -> bool {
        self.sessions.iter().any(|session| !(tls13_only && session.is_tls12()))
    }

    pub(super) fn has_tls12(&self) -> bool {
        self.sessions.iter().any(Session::is_tls12)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.name_bytes + self.sessions.iter().map(|session| session.bytes).sum::<u64>()
    }
}
