//! Ticket keys that rotate, and each context's tickets under them.
//!
//! The first handshake of each second asks the source for another ring. There is no thread but a short one when the
//! ring has changed, which lets the source write its file.

use std::sync::{Arc, PoisonError, RwLock};

use rejoin_store::{Error, SharedKeys, Store, Tiered, fill_at_random};
use rejoin_tickets::{
    KeyRing, KeySource, Label, NONCE_BYTES, OnceASecond, Opened, Schedule, TicketEvent,
    TicketSealer,
};
use rustls::HandshakeKind;
use rustls::server::{ProducesTickets, StoresServerSessions};
use zeroize::Zeroizing;

use crate::Context;
use crate::checked_sessions::CheckedSessions;
use crate::clock::now_s;
use crate::connection;
use crate::server_sessions::AnyStore;

/// The ticket keys of any number of `ServerConfig`, which follow a ring as it rotates.
pub struct TicketKeys {
    source: Arc<dyn KeySource>,
    /// The store where handshakes are counted.
    store: Option<Arc<AnyStore>>,
    /// The Unix time when the source is asked again.
    look: OnceASecond,
    turn: RwLock<Turn>,
}

/// A ring, and a number that no other ring has here.
#[derive(Clone)]
struct Turn {
    number: u64,
    ring: Arc<KeyRing>,
}

impl TicketKeys {
    /// Returns ticket keys that are those of `source`. Nobody else may ask it for newer ones.
    pub fn following(source: Arc<dyn KeySource>) -> Arc<Self> {
        Self::with(source, None)
    }

    /// Returns the ticket keys of a store, which all processes that have it share, or all machines of its cluster.
    /// From now on they change by `schedule`, or else by the schedule that they have. Handshakes and tickets are counted
    /// in the store.
    ///
    /// # Errors
    /// Those of [`SharedKeys::open`].
    pub fn shared(store: &Arc<Store>, schedule: Option<Schedule>) -> Result<Arc<Self>, Error> {
        // Without a file there is nothing to complain of.
        let keys = SharedKeys::open(Arc::clone(store), schedule, None, now_s(), |_| {})?;
        let store: Arc<AnyStore> = Arc::new(Tiered::new(Arc::clone(store)));
        Ok(Self::with(Arc::new(keys), Some(store)))
    }

    fn with(source: Arc<dyn KeySource>, store: Option<Arc<AnyStore>>) -> Arc<Self> {
        let turn = Turn { number: 0, ring: Arc::new(KeyRing::new(Schedule::default())) };
        let keys = Self { source, store, look: OnceASecond::default(), turn: RwLock::new(turn) };
        keys.look(now_s());
        Arc::new(keys)
    }

    /// Returns the tickets of one context.
    pub fn ticketer(self: &Arc<Self>, context: Context) -> Arc<Ticketer> {
        let (keys, label) = (Arc::clone(self), context.label());
        Arc::new(Ticketer { keys, context, label, sealer: RwLock::new(None) })
    }

    /// Returns the ring of this second.
    fn turn(&self, now_s: u64) -> Turn {
        self.look(now_s);
        self.turn.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the source for another ring, if no thread has for a second.
    fn look(&self, now_s: u64) {
        if self.look.is_due(now_s)
            && let Some(ring) = self.source.newer(now_s)
        {
            self.replace(ring);
            self.keep();
        }
    }

    fn replace(&self, ring: KeyRing) {
        let mut turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        *turn = Turn { number: turn.number + 1, ring: Arc::new(ring) };
    }

    /// Lets the source write the ring to its file. A server's thread does not wait for the disk.
    fn keep(&self) {
        let source = Arc::clone(&self.source);
        let thread = std::thread::Builder::new().name("rejoin-keys".to_owned());
        if thread.spawn(move || source.keep()).is_err() {
            self.source.keep();
        }
    }
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

/// The stateless tickets of one context, under keys that rotate. All configurations with an equal context resume each
/// other's tickets, wherever the ring is the same.
pub struct Ticketer {
    keys: Arc<TicketKeys>,
    context: Context,
    label: Label,
    /// The keys that were derived last, with the number of their turn.
    sealer: RwLock<Option<(u64, Arc<TicketSealer>)>>,
}

impl Ticketer {
    /// Counts a handshake in the store of the keys, if they have one. The acceptor of the feature `tokio` does so for
    /// every connection.
    pub fn record(&self, kind: HandshakeKind) {
        let is_resumed = kind == HandshakeKind::Resumed;
        self.keys.store.iter().for_each(|store| store.record_handshake(is_resumed));
    }

    /// Returns a store whose sessions begin and resume where the context's tickets do. Give it the store of the
    /// configuration, which stays for clients of TLS 1.2 that take no tickets: rustls does not check again what a session's
    /// client has shown. The acceptor of the feature `tokio` does so by itself.
    #[must_use]
    pub fn checked(&self, store: Arc<dyn StoresServerSessions>) -> Arc<dyn StoresServerSessions> {
        Arc::new(CheckedSessions { store, context: self.context.clone() })
    }

    fn sealer(&self, now_s: u64) -> Arc<TicketSealer> {
        let Turn { number, ring } = self.keys.turn(now_s);
        let known = self.sealer.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, sealer)) = known.filter(|(of, _)| *of == number) {
            return sealer;
        }
        let sealer = Arc::new(ring.sealer(&self.label));
        let mut known = self.sealer.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some((number, Arc::clone(&sealer)));
        sealer
    }

    fn seal(&self, now_s: u64, session: &[u8]) -> Option<Vec<u8>> {
        let authenticated_s =
            connection::current().and_then(|of| of.with(|state| state.authenticated_s));
        let authenticated_s = authenticated_s.unwrap_or(now_s) as u32;
        let mut value = Zeroizing::new(Vec::with_capacity(session.len() + 4));
        value.extend_from_slice(&authenticated_s.to_le_bytes());
        value.extend_from_slice(session);
        let mut nonce = [0; NONCE_BYTES];
        fill_at_random(&mut nonce).ok()?;
        self.sealer(now_s).seal(now_s, &value, nonce)
    }

    fn open(&self, now_s: u64, ticket: &[u8]) -> Result<Zeroizing<Vec<u8>>, TicketEvent> {
        let opened = self.sealer(now_s).open(now_s, ticket);
        let (mut value, opened) = opened.ok_or(TicketEvent::Unknown)?;
        let authenticated_s = value.first_chunk().ok_or(TicketEvent::Unknown)?;
        let authenticated_s = u32::from_le_bytes(*authenticated_s).into();
        value.drain(..size_of::<u32>());
        if !self.context.resumes(&value, now_s) {
            return Err(TicketEvent::Unknown);
        }
        self.record_event(TicketEvent::Known);
        if self.context.is_overdue(authenticated_s, now_s) {
            return Err(TicketEvent::Overdue);
        }
        if opened == Opened::Renew {
            self.record_event(TicketEvent::Renewed);
        }
        if let Some(connection) = connection::current() {
            connection.with(|state| state.authenticated_s = Some(authenticated_s));
        }
        Ok(value)
    }

    fn record_event(&self, event: TicketEvent) {
        self.keys.source.record(event);
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    /// Returns the lifetime of the ring's schedule, in seconds.
    fn lifetime(&self) -> u32 {
        self.keys.turn(now_s()).ring.schedule().ticket_lifetime_s() as u32
    }

    /// Seals a session. `None` if there is no key, or if the client has shown a certificate and the context does not ask
    /// for one.
    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        if !self.context.allows(session) {
            return None;
        }
        let ticket = self.seal(now_s(), session);
        let event = if ticket.is_some() { TicketEvent::Issued } else { TicketEvent::Keyless };
        self.record_event(event);
        ticket
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        match self.open(now_s(), ticket) {
            // rustls asks for a Vec, and owns the secret from here on.
            Ok(mut session) => Some(std::mem::take(&mut *session)),
            Err(event) => {
                self.record_event(event);
                None
            }
        }
    }
}

impl std::fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticketer").field("context", &self.context).finish_non_exhaustive()
    }
}
