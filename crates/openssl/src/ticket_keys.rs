//! Ticket keys that rotate, and each context's use of them.
//!
//! Keys are derived for a context and the name that the client asks for, once, and then found through one atomic
//! pointer. Every second one handshake checks whether the ring has changed: there is no thread, which a server that
//! forks would not have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use arc_swap::ArcSwap;
use libc::c_int;
use rejoin_tickets::{
    ContextKeys, KeyRing, KeySource, Label, NAME_BYTES, OnceASecond, Opened, Schedule, TicketEvent,
};

use crate::clock::now_s;
use crate::context_name::ContextName;
use crate::guard::guard;
use crate::policy::Policy;
use crate::ticket_cipher::TicketCipher;

/// The ticket keys of any number of `SSL_CTX`: a ring, and what each derives from it.
pub struct TicketKeys {
    source: Option<Box<dyn KeySource>>,
    /// The Unix time when the source is asked again.
    look: OnceASecond,
    turn: ArcSwap<Turn>,
    counts: Counts,
}

/// The choice whether tickets carry their client's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketHistory {
    /// Tickets of TLS 1.3 carry it, in their application data. A ticket of TLS 1.2 is used many times, and cannot
    /// hold the time of its last use.
    /// Callbacks that the server has set by `SSL_CTX_set_session_ticket_cb` are replaced. They cannot be called,
    /// because OpenSSL has no function that returns them.
    Carried,
    /// Tickets do not carry it, and the server's own callbacks for application data stay.
    NotCarried,
}

/// Counts of tickets so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TicketCounters {
    /// Tickets given to clients.
    pub issued: u64,
    /// Tickets presented under a live key.
    pub known: u64,
    /// Known tickets whose key's turn is over.
    pub renewed: u64,
    /// Tickets presented under a key that the ring does not have, or no longer: full handshakes.
    pub unknown: u64,
    /// Tickets given to clients although there was no key: nobody can open them.
    pub keyless: u64,
    /// Known tickets whose client had resumed for too long.
    pub overdue: u64,
}

/// A ring, and the keys derived from it so far.
struct Turn {
    ring: KeyRing,
    derived: RwLock<HashMap<Label, Arc<ContextKeys>>>,
}

/// One context's use of the keys.
#[derive(Debug, Clone)]
pub(crate) struct ContextTickets {
    keys: Arc<TicketKeys>,
    context: ContextName,
}

#[derive(Debug, Default)]
struct Counts {
    issued: AtomicU64,
    known: AtomicU64,
    renewed: AtomicU64,
    unknown: AtomicU64,
    keyless: AtomicU64,
    overdue: AtomicU64,
}

impl TicketKeys {
    /// Returns ticket keys that are those of `ring`, by this machine's Unix time.
    pub fn new(ring: KeyRing) -> Arc<Self> {
        Arc::new(Self::with(None, ring))
    }

    /// Returns ticket keys that are those of `source`. The first handshake of each second that uses a ticket asks it
    /// for another ring.
    pub fn following(source: Box<dyn KeySource>) -> Arc<Self> {
        Arc::new(Self::with(Some(source), KeyRing::new(Schedule::default())))
    }

    fn with(source: Option<Box<dyn KeySource>>, ring: KeyRing) -> Self {
        let turn = ArcSwap::from_pointee(Turn::new(ring));
        Self { source, look: OnceASecond::default(), turn, counts: Counts::default() }
    }

    /// Replaces the keys by those of `ring`, in every attached context. Any thread may call this; handshakes go on
    /// meanwhile.
    pub fn replace(&self, ring: KeyRing) {
        self.turn.store(Arc::new(Turn::new(ring)));
    }

    /// Returns the counts of all contexts of this process so far.
    pub fn counters(&self) -> TicketCounters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { issued, known, renewed, unknown, keyless, overdue } = &self.counts;
        TicketCounters {
            issued: count(issued),
            known: count(known),
            renewed: count(renewed),
            unknown: count(unknown),
            keyless: count(keyless),
            overdue: count(overdue),
        }
    }

    /// Returns one context's use of the keys.
    pub(crate) fn context(self: &Arc<Self>, context: ContextName) -> ContextTickets {
        ContextTickets { keys: Arc::clone(self), context }
    }

    /// Asks the source for another ring, if no thread has for a second.
    fn look(&self, now_s: u64) {
        let source = self.source.as_ref().filter(|_| self.look.is_due(now_s));
        let Some(source) = source else { return };
        if let Some(ring) = guard(None, || source.newer(now_s)) {
            self.replace(ring);
            guard((), || source.keep());
        }
    }

    fn record(&self, event: TicketEvent) {
        let Counts { issued, known, renewed, unknown, keyless, overdue } = &self.counts;
        let count = match event {
            TicketEvent::Issued => issued,
            TicketEvent::Known => known,
            TicketEvent::Renewed => renewed,
            TicketEvent::Unknown => unknown,
            TicketEvent::Keyless => keyless,
            TicketEvent::Overdue => overdue,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.source.iter().for_each(|source| source.record(event));
    }
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketKeys").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Turn {
    /// The most labels whose keys are kept. Clients choose the names, so keys for more are derived each time.
    const MOST_LABELS: usize = 1_024;

    fn new(ring: KeyRing) -> Self {
        Self { ring, derived: RwLock::default() }
    }

    /// Returns the keys of a label without waiting: while another thread changes the table they are derived again.
    fn keys(&self, label: Label) -> Arc<ContextKeys> {
        let known = self.derived.try_read().ok();
        if let Some(keys) = known.as_ref().and_then(|known| known.get(&label)) {
            return Arc::clone(keys);
        }
        drop(known);
        let keys = Arc::new(self.ring.for_context(&label));
        if let Ok(mut known) = self.derived.try_write()
            && known.len() < Self::MOST_LABELS
        {
            known.insert(label, Arc::clone(&keys));
        }
        keys
    }
}

impl ContextTickets {
    /// Returns the keys for clients that ask for this host. `None` for a name that is longer than DNS allows, which
    /// OpenSSL does not accept.
    fn keys(&self, host: &[u8], policy: Policy, now_s: u64) -> Option<Arc<ContextKeys>> {
        self.keys.look(now_s);
        let label = Label::new(&self.context.label(host, policy)).ok()?;
        Some(self.keys.turn.load().keys(label))
    }

    /// Seals a ticket; without a key, as one that nobody can open. Returns OpenSSL's 1, or 0 if it fails.
    pub(crate) fn seal(
        &self,
        host: &[u8],
        policy: Policy,
        name: &mut [u8; NAME_BYTES],
        mut ticket: TicketCipher<'_>,
    ) -> c_int {
        let keys = self.keys(host, policy, now_s());
        let key = keys.as_ref().and_then(|keys| keys.encrypting(now_s()));
        let sealed = match key {
            Some(key) => ticket.seal(key, name),
            None => ticket.seal_for_nobody(name),
        };
        if !sealed {
            return 0;
        }
        let event = if key.is_some() { TicketEvent::Issued } else { TicketEvent::Keyless };
        self.keys.record(event);
        1
    }

    /// Finds the key of a ticket and prepares to open it. `policy` is `None` where it is not known yet.
    pub(crate) fn open(
        &self,
        host: &[u8],
        policy: Option<Policy>,
        name: &[u8; NAME_BYTES],
        ticket: &TicketCipher<'_>,
    ) -> Option<Opened> {
        let keys = policy.and_then(|policy| self.keys(host, policy, now_s()));
        let found = keys.as_ref().and_then(|keys| keys.find(now_s(), name));
        let Some((_, opened)) = found.filter(|(key, _)| ticket.open(key)) else {
            self.keys.record(TicketEvent::Unknown);
            return None;
        };
        self.keys.record(TicketEvent::Known);
        if opened == Opened::Renew {
            self.keys.record(TicketEvent::Renewed);
        }
        Some(opened)
    }

    pub(crate) fn record(&self, event: TicketEvent) {
        self.keys.record(event);
    }
}
