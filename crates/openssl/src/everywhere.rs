//! Attaching to every server context of a process, which knows nothing of us, or to one of them.
//!
//! OpenSSL tells who asks when it makes contexts and connections (`CRYPTO_get_ex_new_index(3)`). A
//! context gets what is ours while it is made, by the thread that makes it, and nothing of it is touched
//! again until a connection begins to shake hands on it as a server: contexts that only connect stay as
//! they are. For us to be told of that, a connection gets our info callback while it is made; ours calls
//! the program's. (It cannot be asked for its context then: from OpenSSL 3.6 on it has none yet.)
//!
//! The program's session-id context is never touched, and OpenSSL compares it with a session's, unless the
//! operator says that programs are of one context ([`Everywhere::named`]). The program's own session callbacks are called after ours.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use foreign_types::ForeignTypeRef;
use libc::{c_int, c_long, c_void};
use openssl::error::ErrorStack;
use openssl::sha::Sha256;
use openssl::ssl::SslCipher;
use openssl::stack::StackRef;
use openssl_sys::{CRYPTO_EX_DATA, SSL, SSL_CTX};
use rejoin_cache::SessionStore;

use crate::TicketHistory;
use crate::callbacks::{self, guard};
use crate::connection;
use crate::context_name::ContextName;
use crate::ffi;
use crate::policy::{self, Learned};
use crate::sessions::{AnySessions, Attachment, Cached, ServerSessions, now_ms};
use crate::tickets::TicketKeys;

/// What every server context of the process gets, or one of them.
#[derive(Debug, Default)]
pub struct Everywhere {
    sessions: Option<Arc<AnySessions>>,
    tickets: Option<(Arc<TicketKeys>, TicketHistory)>,
    stateful: bool,
    resumable_for: Option<Duration>,
    context: Option<ContextName>,
}

impl Everywhere {
    /// Sessions are kept here. Where the program leaves stateless tickets on, that is TLS 1.2 clients
    /// that know no tickets; with `stateful` it is everybody, and no context issues stateless tickets.
    #[must_use]
    pub fn with_sessions<S>(mut self, sessions: &Arc<ServerSessions<S>>, stateful: bool) -> Self
    where
        S: SessionStore + Send + Sync + 'static,
    {
        let sessions: Arc<AnySessions> = Arc::<ServerSessions<S>>::clone(sessions);
        (self.sessions, self.stateful) = (Some(sessions), stateful);
        self
    }

    /// Stateless tickets, where the program leaves them on, are under these keys instead of its own.
    #[must_use]
    pub fn with_tickets(mut self, keys: &Arc<TicketKeys>, history: TicketHistory) -> Self {
        self.tickets = Some((Arc::clone(keys), history));
        self
    }

    /// A client makes a full handshake at least this often, however often its session is renewed:
    /// [`crate::RESUMABLE_FOR`] unless said otherwise. Stateless tickets have to carry history for that
    /// to be known.
    #[must_use]
    pub fn resumable_for(mut self, longest: Duration) -> Self {
        self.resumable_for = Some(longest);
        self
    }

    /// All contexts are one, of this name (at most 255 bytes): a session of any of them resumes in any other,
    /// in other programs of this name, too, whatever ciphers they offer and whatever their session-id contexts
    /// are. Hosts, and what is asked of clients, are still kept apart.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.context = Some(ContextName::new(name.as_bytes()));
        self
    }

    /// Attaches, from now on and once for the process: to be called before it makes contexts.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory, or when this was done before.
    pub fn attach(self) -> Result<(), ErrorStack> {
        Self::attach_as(Later::made(self))
    }

    /// As [`Self::attach`], with what `make` makes when a client comes for the first time: a program that
    /// serves nobody makes nothing. The thread that shakes hands then calls it. Until it is done, handshakes of
    /// other threads pass by; and all do if it makes `None`, until one calls it again: a second later, and
    /// then after twice as long each time, up to a minute.
    ///
    /// # Errors
    /// As there.
    pub fn attach_later(
        make: impl FnMut() -> Option<Self> + Send + 'static,
    ) -> Result<(), ErrorStack> {
        Self::attach_as(Later::by(Box::new(make)))
    }

    fn attach_as(what: Later) -> Result<(), ErrorStack> {
        if PROCESS.set(Process::new(what)).is_err() {
            return Err(ErrorStack::get());
        }
        connection::register();
        let contexts = ffi::context_index(Some(context_made), Some(context_freed));
        let connections = ffi::ssl_index(Some(connection_made), None);
        if contexts >= 0 && connections >= 0 { Ok(()) } else { Err(ErrorStack::get()) }
    }

    /// Attaches to a context that was made before [`Self::attach`] was called, which could not see
    /// it: to be called before each connection is made on it. Nothing happens when it was called for
    /// this context before, or nothing is attached to the process.
    ///
    /// # Safety
    /// `context` is valid. Until the first call for it no connection was made on it.
    pub unsafe fn include(context: *mut SSL_CTX) {
        if let Some(process) = PROCESS.get() {
            // SAFETY: the caller vouches for `context`.
            unsafe { process.include(context) };
        }
    }

    /// Attaches to this context alone, as [`Self::attach`] does to all; it goes before what is
    /// attached to all. Returns whether it was done: a context that is attached already stays as it
    /// is.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory.
    ///
    /// # Safety
    /// `context` is valid, and no other thread uses it during the call.
    pub unsafe fn attach_to(self: &Arc<Self>, context: *mut SSL_CTX) -> Result<bool, ErrorStack> {
        // SAFETY: the caller vouches for `context`.
        let attachment = unsafe { connection::attachment_of(context) };
        if attachment.is_some_and(Attachment::is_settled) {
            return Ok(false);
        }
        let own = Arc::new(Own { what: Some(Arc::clone(self)), ..Own::default() });
        // SAFETY: the caller vouches for `context`.
        match unsafe { connection::attach(context, |attachment| attachment.own = Some(own)) } {
            true => Ok(true),
            false => Err(ErrorStack::get()),
        }
    }
}

/// Whether a context can never serve.
///
/// # Safety
/// `context` is valid.
pub unsafe fn only_connects(context: *const SSL_CTX) -> bool {
    // SAFETY: the caller vouches for `context`.
    let method = unsafe { ffi::SSL_CTX_get_ssl_method(context) };
    // SAFETY: no arguments.
    std::ptr::eq(method, unsafe { openssl_sys::TLS_client_method() })
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// What all contexts get, once it is made.
struct Later {
    made: OnceLock<Everywhere>,
    /// Locked by whoever makes it; whoever comes meanwhile, or forks from there, has nothing.
    by: Mutex<Option<Attempts>>,
}

struct Attempts {
    make: Make,
    /// When the next one may be, on the clock of caches, and how long after the last.
    due_ms: u64,
    wait_ms: u64,
}

type Make = Box<dyn FnMut() -> Option<Everywhere> + Send>;

const FIRST_WAIT_MS: u64 = 1_000;
const LONGEST_WAIT_MS: u64 = 60_000;

impl Later {
    fn made(what: Everywhere) -> Self {
        Self { made: OnceLock::from(what), by: Mutex::default() }
    }

    fn by(make: Make) -> Self {
        let attempts = Attempts { make, due_ms: 0, wait_ms: FIRST_WAIT_MS };
        Self { made: OnceLock::new(), by: Mutex::new(Some(attempts)) }
    }

    fn get(&self) -> Option<&Everywhere> {
        self.made.get().or_else(|| self.make())
    }

    #[cold]
    fn make(&self) -> Option<&Everywhere> {
        let mut by = self.by.try_lock().ok()?;
        let Attempts { make, due_ms, wait_ms } = by.as_mut()?;
        let now_ms = now_ms();
        if now_ms < *due_ms {
            return None;
        }
        (*due_ms, *wait_ms) = (now_ms + *wait_ms, (2 * *wait_ms).min(LONGEST_WAIT_MS));
        let what = make()?;
        *by = None;
        // Whoever has the lock is alone here: there is nothing to wait for.
        Some(self.made.get_or_init(|| what))
    }
}

struct Process {
    what: Later,
    /// Contexts of which it is not known whether they ask for certificates, by address.
    unseen: Mutex<Vec<usize>>,
    /// Whether there is one: all others need no lock.
    is_any_unseen: AtomicBool,
    /// Contexts that were included, each where its address says: all others need the lock. One that
    /// is freed and whose address another gets does no harm, for that one was seen being made.
    included: [AtomicUsize; PLACES],
}

/// What one context gets, what the program had set on it, and whether ours was; and what it asks.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// `None`: what all get.
    what: Option<Arc<Everywhere>>,
    set: OnceLock<OwnCallbacks>,
    name: OnceLock<ContextName>,
    pub(crate) learned: Learned,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnCallbacks {
    pub(crate) made: Option<ffi::SessionMade>,
    pub(crate) wanted: Option<ffi::SessionWanted>,
}

impl Own {
    pub(crate) fn callbacks(&self) -> Option<OwnCallbacks> {
        self.set.get().copied()
    }

    /// Whether it is attached by itself, or has begun with what all get.
    pub(crate) fn is_settled(&self) -> bool {
        self.what.is_some() || self.set.get().is_some()
    }

    fn what(&self) -> Option<&Everywhere> {
        self.what.as_deref().or_else(|| PROCESS.get()?.what.get())
    }
}

/// Of contexts that were included.
const PLACES: usize = 256;

impl Process {
    fn new(what: Later) -> Self {
        let included = [const { AtomicUsize::new(0) }; PLACES];
        Self { what, unseen: Mutex::default(), is_any_unseen: AtomicBool::new(false), included }
    }

    /// # Safety
    /// As [`Everywhere::include`].
    unsafe fn include(&self, context: *mut SSL_CTX) {
        let address = context as usize;
        // Allocated memory begins at multiples of 16 bytes.
        let Some(place) = self.included.get(address / 16 % PLACES) else { return };
        if place.load(Ordering::Acquire) == address {
            return;
        }
        let mut unseen = self.unseen();
        // SAFETY: the caller vouches for `context`; whoever attaches to it has the lock.
        let attachment = unsafe { connection::attachment_of(context) };
        if attachment.is_none_or(|found| found.own.is_none()) {
            // SAFETY: as above, and no connection was made on it.
            unsafe {
                connection::attach(context, |attachment| attachment.own = Some(Arc::default()))
            };
            unseen.push(address);
            self.is_any_unseen.store(true, Ordering::Release);
        }
        place.store(address, Ordering::Release);
    }

    fn unseen(&self) -> MutexGuard<'_, Vec<usize>> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks which contexts ask for certificates. One that is still being set up is seen when a
    /// connection of its own begins, or ends up in it.
    fn look_at_contexts(&self) {
        if !self.is_any_unseen.swap(false, Ordering::AcqRel) {
            return;
        }
        for context in self.unseen().drain(..) {
            let context = context as *const SSL_CTX;
            // SAFETY: it was made and is not freed, or it would have been taken from the list, for which
            // whoever frees it needs the lock. A pointer is read.
            if !unsafe { only_connects(context) } {
                // SAFETY: as above, and a number.
                policy::note(unsafe { openssl_sys::SSL_CTX_get_verify_mode(context) });
            }
        }
    }
}

/// Fills in what connections to this context have to do with, which is one of all.
///
/// # Safety
/// `ssl` is valid, and shakes hands as a server on this context.
pub(crate) unsafe fn begin(
    ssl: *mut SSL,
    context: *mut SSL_CTX,
    own: &Own,
    attachment: &mut Attachment,
) {
    let Some(what) = own.what() else { return };
    let Everywhere { sessions, tickets, stateful, resumable_for, context: named } = what;
    // SAFETY: the caller vouches for `ssl`.
    if unsafe { keeps_count_itself(ssl) } {
        return;
    }
    own.set.get_or_init(|| {
        // SAFETY: the caller vouches for `context`.
        unsafe { install(context, sessions.is_some(), tickets.as_ref()) }
    });
    if *stateful {
        // What the context says was copied when the connection was made.
        // SAFETY: the caller vouches for `ssl`.
        unsafe { ffi::SSL_set_options(ssl, ffi::SSL_OP_NO_TICKET) };
    }
    PROCESS.get().into_iter().for_each(Process::look_at_contexts);
    // SAFETY: the caller vouches for `ssl`.
    policy::note(unsafe { openssl_sys::SSL_get_verify_mode(ssl) });
    // SAFETY: the caller vouches for `context`.
    let name = named.as_ref().unwrap_or_else(|| own.name.get_or_init(|| unsafe { name(context) }));
    attachment.cached = sessions
        .as_ref()
        .map(|sessions| Cached { sessions: Arc::clone(sessions), context: name.clone() });
    attachment.is_stateful = *stateful;
    attachment.is_named = named.is_some();
    attachment.tickets = tickets.as_ref().map(|(keys, _)| keys.context(name.clone()));
    attachment.resumable_for = resumable_for.unwrap_or(attachment.resumable_for);
}

/// Where early data is accepted, OpenSSL makes sure that none is accepted twice by its own cache: without
/// that it would resume nothing.
///
/// # Safety
/// `ssl` is valid.
unsafe fn keeps_count_itself(ssl: *mut SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    let most = unsafe { ffi::SSL_get_max_early_data(ssl) };
    // SAFETY: as above.
    most > 0 && unsafe { ffi::SSL_get_options(ssl) } & ffi::SSL_OP_NO_ANTI_REPLAY == 0
}

/// Contexts share sessions with those that offer the same ciphers: OpenSSL resumes with the session's own,
/// whatever the context it resumes in would have chosen.
///
/// # Safety
/// `context` is valid.
unsafe fn name(context: *mut SSL_CTX) -> ContextName {
    let mut hash = Sha256::new();
    // SAFETY: the caller vouches for `context`.
    let ciphers = unsafe { ffi::SSL_CTX_get_ciphers(context) };
    if !ciphers.is_null() {
        // SAFETY: the context's own list.
        let ciphers: &StackRef<SslCipher> = unsafe { StackRef::from_ptr(ciphers.cast()) };
        ciphers.iter().for_each(|cipher| hash.update(cipher.name().as_bytes()));
    }
    ContextName::new(&hash.finish()[..16])
}

/// # Safety
/// `context` is valid. Another thread may read what is set here, as a whole.
unsafe fn install(
    context: *mut SSL_CTX,
    with_sessions: bool,
    tickets: Option<&(Arc<TicketKeys>, TicketHistory)>,
) -> OwnCallbacks {
    // SAFETY: the caller vouches for `context`.
    let made = unsafe { ffi::SSL_CTX_sess_get_new_cb(context) };
    // SAFETY: as above.
    let wanted = unsafe { ffi::SSL_CTX_sess_get_get_cb(context) };
    if with_sessions {
        // SAFETY: as above.
        unsafe { callbacks::keep_sessions(context) };
    }
    if let Some((_, history)) = tickets {
        // SAFETY: as above.
        unsafe { crate::tickets::issue_tickets(context, *history) };
    }
    OwnCallbacks { made, wanted }
}

unsafe extern "C" fn context_made(
    context: *mut c_void,
    _pointer: *mut c_void,
    data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _argument: *mut c_void,
) {
    guard((), || {
        let Some(process) = PROCESS.get() else { return };
        // SAFETY: the context's data, which nobody else has yet.
        unsafe { connection::attach_while_made(data) };
        process.unseen().push(context as usize);
        process.is_any_unseen.store(true, Ordering::Release);
    });
}

unsafe extern "C" fn context_freed(
    context: *mut c_void,
    _pointer: *mut c_void,
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _argument: *mut c_void,
) {
    guard((), || {
        if let Some(process) = PROCESS.get() {
            process.unseen().retain(|unseen| *unseen != context as usize);
        }
    });
}

unsafe extern "C" fn connection_made(
    ssl: *mut c_void,
    _pointer: *mut c_void,
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _argument: *mut c_void,
) {
    guard((), || {
        // SAFETY: a connection that is being made, by this thread; its own callback comes later.
        unsafe { ffi::SSL_set_info_callback(ssl.cast(), Some(callbacks::info)) };
    });
}
