//! One server in one partition, and its sessions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rejoin_cache::{History, SessionId};
use rustls::NamedGroup;
use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};

use super::Offered;
use crate::certificates::Chain;
use crate::identity::Identity;
use crate::protocol::{Fingerprint, Host, Label};

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
pub(crate) struct PlaceName {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) partition: Partition,
}

impl PlaceName {
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
    /// By the clock of ages.
    pub(crate) expires_ms: u64,
    pub(crate) alpn: Option<Vec<u8>>,
    /// About what it takes.
    pub(crate) bytes: u64,
}

/// A session that was handed out.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) secret: Secret,
    pub(crate) family: Arc<Family>,
    pub(crate) alpn: Option<Vec<u8>>,
    /// When it ends at the latest: a session of TLS 1.2 that comes back does not live longer.
    pub(crate) expires_ms: u64,
    /// Whose it was, if another name's.
    pub(crate) session_of: Option<Host>,
}

impl Offer {
    pub(crate) fn offered(&self) -> Offered {
        Offered {
            family: Arc::clone(&self.family),
            session_of: self.session_of.clone(),
            alpn: self.alpn.clone(),
        }
    }
}

/// The sessions of one place.
#[derive(Debug)]
pub(crate) struct Place {
    /// The newest last.
    tls13: VecDeque<Session>,
    tls12: Option<Session>,
    pub(super) group: Option<NamedGroup>,
    pub(super) history: History,
    /// As the engine knows it.
    pub(super) units: u64,
    name_bytes: u64,
}

impl Place {
    pub(super) fn new(name: &PlaceName) -> Self {
        let text = name.host.as_str().len() + name.partition.label.as_str().len();
        let name_bytes = (2 * text + size_of::<PlaceName>() + size_of::<Self>()) as u64;
        Self {
            tls13: VecDeque::new(),
            tls12: None,
            group: None,
            history: History::default(),
            units: 0,
            name_bytes,
        }
    }

    pub(super) fn keep(&mut self, session: Session, most: usize) {
        if session.family.is_refused() {
            return;
        }
        match session.secret {
            Secret::Tls12(_) => self.tls12 = Some(session),
            Secret::Tls13(_) => {
                while self.tls13.len() >= most {
                    self.tls13.pop_front();
                }
                self.tls13.push_back(session);
            }
        }
    }

    /// The newest session of one of these families. Of TLS 1.3 it is gone from here.
    pub(super) fn take(
        &mut self,
        families: &[Arc<Family>],
        tls13_only: bool,
        across_names: bool,
    ) -> Option<Offer> {
        let may = |session: &Session| {
            let of = |family: &Arc<Family>| Arc::ptr_eq(family, &session.family);
            !session.family.is_refused() && families.iter().any(of)
        };
        let newest = self.tls13.iter().rposition(may);
        if let Some(session) = newest.and_then(|at| self.tls13.remove(at)) {
            let Session { secret, family, expires_ms, alpn, .. } = session;
            return Some(Offer { secret, family, alpn, expires_ms, session_of: None });
        }
        if tls13_only || across_names {
            return None;
        }
        let session = self.tls12.as_ref().filter(|session| may(session))?;
        let Secret::Tls12(value) = &session.secret else { return None };
        Some(Offer {
            secret: Secret::Tls12(value.clone()),
            family: Arc::clone(&session.family),
            alpn: session.alpn.clone(),
            expires_ms: session.expires_ms,
            session_of: None,
        })
    }

    pub(super) fn drop_old(&mut self, now_ms: u64) {
        let stays = |session: &Session| now_ms < session.expires_ms && !session.family.is_refused();
        self.tls13.retain(stays);
        self.tls12 = self.tls12.take().filter(stays);
    }

    pub(super) fn drop_refused(&mut self) {
        self.tls13.retain(|session| !session.family.is_refused());
        self.tls12 = self.tls12.take().filter(|session| !session.family.is_refused());
    }

    /// The families that have sessions here, each once.
    pub(super) fn families(&self) -> Vec<Arc<Family>> {
        let mut families: Vec<Arc<Family>> = Vec::new();
        for Session { family, .. } in self.tls13.iter().chain(&self.tls12) {
            if !families.iter().any(|known| Arc::ptr_eq(known, family)) {
                families.push(Arc::clone(family));
            }
        }
        families
    }

    pub(super) fn tickets(&self) -> usize {
        self.tls13.len() + usize::from(self.tls12.is_some())
    }

    pub(super) fn has_tls12(&self) -> bool {
        self.tls12.is_some()
    }

    pub(super) fn bytes(&self) -> u64 {
        let sessions = self.tls13.iter().chain(&self.tls12);
        self.name_bytes + sessions.map(|session| session.bytes).sum::<u64>()
    }
}
