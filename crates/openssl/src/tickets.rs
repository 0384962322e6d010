//! Tickets that hold the whole session, under keys that rotate.
//!
//! OpenSSL puts the session into the ticket and encrypts it, in the form of RFC 5077, section 4.
//! It asks for the keys by a callback, once for each ticket it makes or opens. The callback reads
//! the context's keys through one atomic pointer: whoever brings a new ring derives the keys on a
//! thread of its own and then swaps the pointer, so that a handshake never waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use libc::{c_int, c_uchar};
use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslOptions};
use openssl_sys::{EVP_CIPHER_CTX, EVP_MAC_CTX, SSL, SSL_CTX};
use rejoin_tickets::{ContextKeys, Error, KeyRing, Label, NAME_BYTES, Opened};
use zeroize::Zeroizing;

use crate::callbacks::guard;
use crate::connection::{self, of_ssl_or_new};
use crate::sessions::raw;
use crate::{ffi, ticket_history};

/// The ticket keys of any number of `SSL_CTX`: a ring, and what each context derives from it.
#[derive(Debug)]
pub struct TicketKeys {
    users: Mutex<Users>,
    counts: Arc<Counts>,
}

/// Whether tickets carry what is known of their client's past visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketHistory {
    /// They do, in the ticket's application data. A TLS 1.2 client then gets a fresh ticket on every
    /// connection, since the old one cannot say when it was last used; over TLS 1.3 it does anyway.
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
}

#[derive(Debug)]
struct Users {
    ring: KeyRing,
    contexts: Vec<Weak<ContextTickets>>,
}

/// One context's keys.
#[derive(Debug)]
pub(crate) struct ContextTickets {
    label: Label,
    keys: ArcSwap<ContextKeys>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    issued: AtomicU64,
    known: AtomicU64,
    renewed: AtomicU64,
    unknown: AtomicU64,
    keyless: AtomicU64,
}

impl TicketKeys {
    /// Tickets under the keys of `ring`, by this machine's Unix time.
    pub fn new(ring: KeyRing) -> Arc<Self> {
        let users = Mutex::new(Users { ring, contexts: Vec::new() });
        Arc::new(Self { users, counts: Arc::default() })
    }

    /// From now on, the keys of `ring`, in every attached context. To be called when the ring has
    /// changed, from any thread but one that shakes hands: it derives all contexts' keys, and may
    /// wait for another that does.
    pub fn replace(&self, ring: KeyRing) {
        let mut users = self.users();
        users.contexts.retain(|context| context.strong_count() > 0);
        for context in users.contexts.iter().filter_map(Weak::upgrade) {
            context.keys.store(Arc::new(ring.for_context(&context.label)));
        }
        users.ring = ring;
    }

    /// Makes a server context issue tickets under these keys, with `id_context` (at most 32 bytes;
    /// nothing stands for `rejoin`) as its session-id context and as the label its keys are derived
    /// for: a ticket made in one context never resumes in another. Takes the place of ticket keys
    /// and of a key callback that the server has set itself. A connection's tickets are those of
    /// the context that it *begins* in, whatever the servername callback switches to.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory or `id_context` is too long.
    pub fn attach(
        &self,
        context: &mut SslContextBuilder,
        id_context: &[u8],
        history: TicketHistory,
    ) -> Result<(), ErrorStack> {
        let id_context = if id_context.is_empty() { b"rejoin" } else { id_context };
        context.set_session_id_context(id_context)?;
        // OpenSSL allows fewer bytes than a label may have.
        let tickets = self.context(id_context).map_err(|_| ErrorStack::get())?;
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

    /// The counts of all contexts so far.
    pub fn counters(&self) -> TicketCounters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { issued, known, renewed, unknown, keyless } = &*self.counts;
        TicketCounters {
            issued: count(issued),
            known: count(known),
            renewed: count(renewed),
            unknown: count(unknown),
            keyless: count(keyless),
        }
    }

    /// The keys that one context derives.
    pub(crate) fn context(&self, label: &[u8]) -> Result<Arc<ContextTickets>, Error> {
        let label = Label::new(label)?;
        let mut users = self.users();
        let keys = ArcSwap::from_pointee(users.ring.for_context(&label));
        let context = Arc::new(ContextTickets { label, keys, counts: Arc::clone(&self.counts) });
        users.contexts.retain(|context| context.strong_count() > 0);
        users.contexts.push(Arc::downgrade(&context));
        Ok(context)
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
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
        let tickets = connection.and_then(|connection| connection.attachment.tickets.as_ref());
        let (Some(tickets), Some(name), Some(iv)) = (tickets, name, iv) else {
            return 0;
        };
        let ticket = Ticket { iv, cipher, mac };
        if encrypt == 1 {
            return tickets.seal(name, ticket);
        }
        // SAFETY: OpenSSL passes a valid SSL.
        let version = unsafe { openssl_sys::SSL_version(ssl) };
        match tickets.open(name, ticket) {
            // A TLS 1.3 client uses a ticket once, and OpenSSL gives it another only when told to.
            Some(Opened::Fresh) if version != openssl_sys::TLS1_3_VERSION => 1,
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
    /// OpenSSL before 3.2 sends a TLS 1.3 client something malformed when it is told to issue no
    /// ticket. So without a key there is one that nobody can open.
    fn seal(&self, name: &mut [u8; NAME_BYTES], ticket: Ticket<'_>) -> c_int {
        let mut throwaway = Zeroizing::new([[0; 32]; 2]);
        let keys = self.keys.load();
        let key = keys.encrypting(now_s());
        let mut random = openssl::rand::rand_bytes(ticket.iv);
        let (cipher_key, mac_key) = match key {
            Some(key) => {
                *name = *key.name();
                (key.cipher_key(), key.mac_key())
            }
            None => {
                random = random.and_then(|()| openssl::rand::rand_bytes(name));
                random =
                    random.and_then(|()| openssl::rand::rand_bytes(throwaway.as_flattened_mut()));
                (&throwaway[0], &throwaway[1])
            }
        };
        if random.is_err() || !ticket.set_keys(cipher_key, mac_key, true) {
            return 0;
        }
        let counter = if key.is_some() { &self.counts.issued } else { &self.counts.keyless };
        counter.fetch_add(1, Ordering::Relaxed);
        1
    }

    fn open(&self, name: &[u8; NAME_BYTES], ticket: Ticket<'_>) -> Option<Opened> {
        let keys = self.keys.load();
        let found = keys.find(now_s(), name);
        let ready =
            found.filter(|(key, _)| ticket.set_keys(key.cipher_key(), key.mac_key(), false));
        let Some((_, opened)) = ready else {
            self.counts.unknown.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.counts.known.fetch_add(1, Ordering::Relaxed);
        self.counts.renewed.fetch_add(u64::from(opened == Opened::Renew), Ordering::Relaxed);
        Some(opened)
    }
}

impl Ticket<'_> {
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
fn now_s() -> u64 {
    unix_time().as_secs()
}

pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
