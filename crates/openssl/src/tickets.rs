//! Tickets that hold the whole session, under keys that rotate.
//!
//! OpenSSL puts the session into the ticket and encrypts it, in the form of RFC 5077, section 4.
//! It asks for the keys by a callback, once for each ticket it makes or opens. Keys are derived for a
//! context and the name that the client asks for, once, and then found through one atomic pointer.
//! Every few seconds one handshake looks whether the ring is another now: there is no thread, which a
//! server that forks would not have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use libc::{c_int, c_uchar};
use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslOptions};
use openssl_sys::{EVP_CIPHER_CTX, EVP_MAC_CTX, SSL, SSL_CTX};
use rejoin_tickets::{
    ContextKeys, KeyRing, KeySource, Label, NAME_BYTES, Opened, Schedule, TicketEvent,
};
use zeroize::Zeroizing;

use crate::callbacks::guard;
use crate::connection::{self, of_ssl_or_new};
use crate::context_name::ContextName;
use crate::policy::Policy;
use crate::sessions::raw;
use crate::{ffi, ticket_history};

/// The ticket keys of any number of `SSL_CTX`: a ring, and what each derives from it.
pub struct TicketKeys {
    source: Option<Box<dyn KeySource>>,
    /// When the source is asked again, in Unix time.
    next_look_s: AtomicU64,
    turn: ArcSwap<Turn>,
    counts: Counts,
}

/// Whether tickets carry what is known of their client's past visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketHistory {
    /// They do over TLS 1.3, in the ticket's application data. Over TLS 1.2, where a ticket is used many
    /// times, it cannot say when it was last.
    /// Callbacks that the server has set by `SSL_CTX_set_session_ticket_cb` are replaced: OpenSSL
    /// tells nobody what they are, so they cannot be called.
    Carried,
    /// They do not, and the server's own callbacks for application data stay.
    NotCarried,
}

/// What became of tickets so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TicketCounters {
    /// Given to clients.
    pub issued: u64,
    /// Of a key that is alive.
    pub known: u64,
    /// Of those, the ones of a key whose turn is over.
    pub renewed: u64,
    /// Of a key that is not ours, or no longer: a full handshake.
    pub unknown: u64,
    /// Given to clients although there was no key: nobody can open them.
    pub keyless: u64,
    /// Of those that were known, the ones whose client had resumed for too long.
    pub overdue: u64,
}

/// A ring, and what was derived from it so far.
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
    /// Tickets under the keys of `ring`, by this machine's Unix time.
    pub fn new(ring: KeyRing) -> Arc<Self> {
        Arc::new(Self::with(None, ring))
    }

    /// Tickets under the keys that `source` has, which is asked for another ring once a second, by
    /// the first handshake with a ticket in it.
    pub fn following(source: Box<dyn KeySource>) -> Arc<Self> {
        Arc::new(Self::with(Some(source), KeyRing::new(Schedule::default())))
    }

    fn with(source: Option<Box<dyn KeySource>>, ring: KeyRing) -> Self {
        let turn = ArcSwap::from_pointee(Turn::new(ring));
        Self { source, next_look_s: AtomicU64::new(0), turn, counts: Counts::default() }
    }

    /// From now on, the keys of `ring`, in every attached context. From any thread; handshakes go on
    /// meanwhile.
    pub fn replace(&self, ring: KeyRing) {
        self.turn.store(Arc::new(Turn::new(ring)));
    }

    /// Makes a server context issue tickets under these keys, with `id_context` (at most 32 bytes;
    /// nothing stands for `rejoin`) as its session-id context. Its keys are derived for that and for
    /// the name that the client asks for: a ticket never resumes in another context, or under another
    /// name. Takes the place of ticket keys and of a key callback that the server has set itself. A
    /// connection's tickets are those of the context that it *begins* in, whatever the servername
    /// callback switches to.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory or `id_context` is too long.
    pub fn attach(
        self: &Arc<Self>,
        context: &mut SslContextBuilder,
        id_context: &[u8],
        history: TicketHistory,
    ) -> Result<(), ErrorStack> {
        let id_context = if id_context.is_empty() { b"rejoin" } else { id_context };
        context.set_session_id_context(id_context)?;
        let tickets = self.context(ContextName::new(id_context));
        context.clear_options(SslOptions::NO_TICKET);
        let context = raw(context);
        // SAFETY: the builder owns the context, and nobody else uses it yet.
        if !unsafe { connection::attach(context, |attachment| attachment.tickets = Some(tickets)) }
        {
            return Err(ErrorStack::get());
        }
        // SAFETY: the builder owns the context.
        unsafe { issue_tickets(context, history) };
        Ok(())
    }

    /// The counts of all contexts of this process so far.
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

    /// One context's use of them.
    pub(crate) fn context(self: &Arc<Self>, context: ContextName) -> ContextTickets {
        ContextTickets { keys: Arc::clone(self), context }
    }

    /// Asks the source for another ring, if nobody else has for a second.
    fn look(&self, now_s: u64) {
        const LOOK_EVERY_S: u64 = 1;
        let next_s = self.next_look_s.load(Ordering::Relaxed);
        let then_s = now_s.saturating_add(LOOK_EVERY_S);
        // Later than that it is only for a clock that stepped back.
        if next_s > now_s && next_s <= then_s {
            return;
        }
        let mine =
            self.next_look_s.compare_exchange(next_s, then_s, Ordering::Relaxed, Ordering::Relaxed);
        if let Some(source) = self.source.as_ref().filter(|_| mine.is_ok()) {
            guard(None, || source.newer(now_s)).into_iter().for_each(|ring| self.replace(ring));
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
    /// Labels whose keys are kept. Clients name the names: what is beyond is derived each time.
    const MOST_LABELS: usize = 1_024;

    fn new(ring: KeyRing) -> Self {
        Self { ring, derived: RwLock::default() }
    }

    /// Waits for nobody: keys that others look at or add to are derived once more.
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

/// Has a context issue tickets under our keys.
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn issue_tickets(context: *mut SSL_CTX, history: TicketHistory) {
    // SAFETY: the caller vouches for `context`, and the callback lives as long as the program.
    unsafe { ffi::SSL_CTX_set_tlsext_ticket_key_evp_cb(context, Some(keys_wanted)) };
    if history == TicketHistory::Carried {
        // SAFETY: the caller vouches for `context`.
        unsafe { ticket_history::install(context) };
    }
}

/// OpenSSL makes or opens a ticket: the answer is 1, 2 for one that is to be renewed, and 0 for
/// one of another's key. A negative one would fail the handshake.
unsafe extern "C" fn keys_wanted(
    ssl: *mut SSL,
    name: *mut c_uchar,
    iv: *mut c_uchar,
    cipher: *mut EVP_CIPHER_CTX,
    mac: *mut EVP_MAC_CTX,
    encrypt: c_int,
) -> c_int {
    guard(0, || {
        // SAFETY: OpenSSL passes a valid SSL.
        let connection = unsafe { of_ssl_or_new(ssl) };
        // SAFETY: OpenSSL's own variable, of 16 bytes, and nobody else's during the call.
        let name = unsafe { name.cast::<[u8; NAME_BYTES]>().as_mut() };
        // SAFETY: as above; `EVP_MAX_IV_LENGTH` is 16.
        let iv = unsafe { iv.cast::<[u8; IV_BYTES]>().as_mut() };
        let (Some(connection), Some(name), Some(iv)) = (connection, name, iv) else { return 0 };
        let mut ticket = Ticket { iv, cipher, mac };
        let Some(tickets) = &connection.attachment.tickets else {
            // The handshake began before the keys were there.
            return if encrypt == 1 { c_int::from(ticket.is_sealed_for_nobody(name)) } else { 0 };
        };
        if encrypt == 1 {
            // SAFETY: OpenSSL passes a valid SSL.
            let host = unsafe { connection.host(ssl) };
            // SAFETY: as above.
            let policy = unsafe { connection.policy(ssl, &host) };
            return tickets.seal(&host, policy, name, ticket);
        }
        // SAFETY: as above, and it reads a ClientHello.
        let host = unsafe { connection.host_in_hello(ssl) };
        // SAFETY: as above.
        let is_single_use = unsafe { ticket_history::is_single_use(ssl) };
        match tickets.open(host, connection.expected_policy(host), name, ticket) {
            // OpenSSL gives the client another only when told to.
            Some(Opened::Fresh) if !is_single_use => 1,
            Some(_) => 2,
            None => 0,
        }
    })
}

const IV_BYTES: usize = 16;

/// What OpenSSL encrypts or decrypts a ticket with: valid, and its own.
struct Ticket<'t> {
    iv: &'t mut [u8; IV_BYTES],
    cipher: *mut EVP_CIPHER_CTX,
    mac: *mut EVP_MAC_CTX,
}

impl ContextTickets {
    /// The keys for clients that ask for this host. None for a name that is longer than DNS allows,
    /// which OpenSSL does not accept.
    fn keys(&self, host: &[u8], policy: Policy, now_s: u64) -> Option<Arc<ContextKeys>> {
        self.keys.look(now_s);
        let label = Label::new(&self.context.label(host, policy)).ok()?;
        Some(self.keys.turn.load().keys(label))
    }

    /// Without a key it is a ticket that nobody can open.
    fn seal(
        &self,
        host: &[u8],
        policy: Policy,
        name: &mut [u8; NAME_BYTES],
        mut ticket: Ticket<'_>,
    ) -> c_int {
        let keys = self.keys(host, policy, now_s());
        let key = keys.as_ref().and_then(|keys| keys.encrypting(now_s()));
        let sealed = match key {
            Some(key) => {
                *name = *key.name();
                openssl::rand::rand_bytes(ticket.iv).is_ok()
                    && ticket.set_keys(key.cipher_key(), key.mac_key(), true)
            }
            None => ticket.is_sealed_for_nobody(name),
        };
        if !sealed {
            return 0;
        }
        let event = if key.is_some() { TicketEvent::Issued } else { TicketEvent::Keyless };
        self.keys.record(event);
        1
    }

    /// `policy` is `None` where it is not known yet.
    fn open(
        &self,
        host: &[u8],
        policy: Option<Policy>,
        name: &[u8; NAME_BYTES],
        ticket: Ticket<'_>,
    ) -> Option<Opened> {
        let keys = policy.and_then(|policy| self.keys(host, policy, now_s()));
        let found = keys.as_ref().and_then(|keys| keys.find(now_s(), name));
        let ready =
            found.filter(|(key, _)| ticket.set_keys(key.cipher_key(), key.mac_key(), false));
        let Some((_, opened)) = ready else {
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

impl Ticket<'_> {
    /// With keys that are thrown away. Some releases of OpenSSL 3 send a TLS 1.3 client something malformed when they
    /// are told to issue no ticket.
    fn is_sealed_for_nobody(&mut self, name: &mut [u8; NAME_BYTES]) -> bool {
        let mut throwaway = Zeroizing::new([[0; 32]; 2]);
        let random = openssl::rand::rand_bytes(self.iv)
            .and_then(|()| openssl::rand::rand_bytes(name))
            .and_then(|()| openssl::rand::rand_bytes(throwaway.as_flattened_mut()));
        random.is_ok() && self.set_keys(&throwaway[0], &throwaway[1], true)
    }

    /// AES-256-CBC and HMAC-SHA-256.
    fn set_keys(&self, cipher_key: &[u8; 32], mac_key: &[u8; 32], encrypt: bool) -> bool {
        // SAFETY: a constant of OpenSSL's.
        let aes = unsafe { openssl_sys::EVP_aes_256_cbc() };
        let (engine, key, iv) = (std::ptr::null_mut(), cipher_key.as_ptr(), self.iv.as_ptr());
        let direction = c_int::from(encrypt);
        // SAFETY: the cipher wants a key of 32 bytes and an IV of 16.
        let set =
            unsafe { openssl_sys::EVP_CipherInit_ex(self.cipher, aes, engine, key, iv, direction) };
        // SAFETY: both are texts that live as long as the program, and nothing writes to them.
        let digest = unsafe {
            ffi::OSSL_PARAM_construct_utf8_string(
                c"digest".as_ptr(),
                c"SHA256".as_ptr().cast_mut(),
                0,
            )
        };
        // SAFETY: it only makes a value.
        let parameters = [digest, unsafe { openssl_sys::OSSL_PARAM_construct_end() }];
        let (key, length) = (mac_key.as_ptr(), mac_key.len());
        set == 1
            // SAFETY: the key has that length, and the parameters end as they must.
            && unsafe { openssl_sys::EVP_MAC_init(self.mac, key, length, parameters.as_ptr()) } == 1
    }
}

/// Seconds of Unix time, the clock that servers have in common.
pub(crate) fn now_s() -> u64 {
    unix_time().as_secs()
}

pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
