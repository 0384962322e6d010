//! The session store that rustls sees for one connection: it yields one session at most, and collects those that the
//! server issues.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

use super::seen::{self, Seen};
use super::stored::Secret;

/// The store of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionStore {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    session: Option<Secret>,
    group: Option<NamedGroup>,
    collected: Vec<Secret>,
    issued: usize,
    /// True if issued sessions are collected.
    shares: bool,
}

/// A session that a server issued.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) secret: Secret,
    pub(crate) lifetime_s: u32,
    pub(crate) bytes: u64,
}

impl ConnectionStore {
    /// The tickets collected from one connection, at most; further ones are dropped. Until they are examined, each
    /// may take up to the size of a handshake message, 64 KiB.
    pub(crate) const TICKETS: usize = 64;
    /// The longest session that is stored.
    const LONGEST_BYTES: u64 = 32 * 1024;

    pub(crate) fn new(
        session: Option<Secret>,
        group: Option<NamedGroup>,
        shares: bool,
    ) -> Arc<Self> {
        let inner = Inner { session, group, collected: Vec::new(), issued: 0, shares };
        Arc::new(Self { inner: Mutex::new(inner) })
    }

    /// Stops collecting, and drops what was collected.
    pub(crate) fn stop(&self) {
        self.with(|inner| {
            inner.shares = false;
            inner.collected = Vec::new();
        });
    }

    /// Takes the sessions that the server issued since the last call. They are examined here, because that means
    /// reading all of them, and a handshake should not wait for it.
    pub(crate) fn collected(&self) -> impl Iterator<Item = Collected> {
        let secrets = self.with(|inner| std::mem::take(&mut inner.collected));
        secrets.into_iter().filter_map(|secret| {
            let Seen { lifetime_s, bytes } = seen::of(&secret)?;
            (bytes <= Self::LONGEST_BYTES).then_some(Collected { secret, lifetime_s, bytes })
        })
    }

    /// Returns the key-exchange group that the server chose.
    pub(crate) fn group(&self) -> Option<NamedGroup> {
        self.with(|inner| inner.group)
    }

    /// Returns true if the server issued a session, shared or not.
    pub(crate) fn was_issued(&self) -> bool {
        self.with(|inner| inner.issued > 0)
    }

    fn collect(&self, secret: Secret) {
        self.with(|inner| {
            inner.issued += 1;
            if inner.shares && inner.issued <= Self::TICKETS {
                inner.collected.push(secret);
            }
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientSessionStore for ConnectionStore {
    fn set_kx_hint(&self, _name: ServerName<'static>, group: NamedGroup) {
        self.with(|inner| inner.group = Some(group));
    }

    fn kx_hint(&self, _name: &ServerName<'_>) -> Option<NamedGroup> {
        self.with(|inner| inner.group)
    }

    fn set_tls12_session(&self, _name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.collect(Secret::Tls12(Box::new(value)));
    }

    fn tls12_session(&self, _name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.with(|inner| match inner.session.take() {
            Some(Secret::Tls12(value)) => Some(*value),
            other => {
                inner.session = other;
                None
            }
        })
    }

    fn remove_tls12_session(&self, _name: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.collect(Secret::Tls13(Box::new(value)));
    }

    fn take_tls13_ticket(&self, _name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.with(|inner| match inner.session.take() {
            Some(Secret::Tls13(value)) => Some(*value),
            other => {
                inner.session = other;
                None
            }
        })
    }
}
