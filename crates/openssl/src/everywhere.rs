//! Attaching to every server context of a process, which knows nothing of us, or to one of them.
//!
//! OpenSSL tells who asks when it makes contexts and connections (`CRYPTO_get_ex_new_index(3)`). A
//! context is remembered when it is made; the first connection made afterwards finds it set up by the
//! program, and then its info callback becomes ours, which calls the program's. Everything else waits
//! until a connection begins to shake hands as a server: contexts that only connect stay as they are.
//! (A connection cannot be asked for its context when it is made: from OpenSSL 3.6 on it has none
//! yet.)
//!
//! The program's session-id context is never touched, and OpenSSL compares it with a session's. The
//! program's own session callbacks are called after ours.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use libc::{c_int, c_long, c_void};
use openssl::error::ErrorStack;
use openssl_sys::{CRYPTO_EX_DATA, SSL, SSL_CTX, SSL_SESSION};
use rejoin_cache::SessionStore;

use crate::TicketHistory;
use crate::callbacks::{self, guard};
use crate::connection;
use crate::context_name::ContextName;
use crate::ffi;
use crate::sessions::{AnySessions, Attachment, Cached, ServerSessions};
use crate::tickets::TicketKeys;
use crate::trust::{self, Trust};

/// What every server context of the process gets, or one of them.
#[derive(Debug, Default)]
pub struct Everywhere {
    sessions: Option<Arc<AnySessions>>,
    tickets: Option<(Arc<TicketKeys>, TicketHistory)>,
    stateful: bool,
    resumable_for: Option<Duration>,
}

/// Where sessions and tickets belong, beside names, of contexts that ask clients for no certificates.
/// OpenSSL compares session-id contexts.
const ID_CONTEXT: &[u8] = b"rejoin";

/// And of those that ask, whose own session-id context says what they check.
const ASKING_ID_CONTEXT: &[u8] = b"rejoin asks";

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

    /// Attaches, from now on and once for the process: to be called before it makes contexts.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory, or when this was done before.
    pub fn attach(self) -> Result<(), ErrorStack> {
        if PROCESS.set(Process::new(self)).is_err() {
            return Err(ErrorStack::get());
        }
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
        if attachment.is_some_and(|found| found.own.is_some() || found.cached.is_some()) {
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

static PROCESS: OnceLock<Process> = OnceLock::new();

struct Process {
    what: Everywhere,
    /// Contexts without our info callback, by address.
    made: Mutex<Vec<usize>>,
    /// Whether there is one, or one is being set up: all others need no lock.
    is_any_made: AtomicBool,
    /// Contexts that were included, each where its address says: all others need the lock. One that
    /// is freed and whose address another gets does no harm, for that one was seen being made.
    included: [AtomicUsize; PLACES],
}

/// What one context gets, what the program had set on it, and whether ours was; and whom it trusts.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// `None`: what all get.
    what: Option<Arc<Everywhere>>,
    set: OnceLock<OwnCallbacks>,
    trust: OnceLock<Trust>,
    /// Whether the program makes its session-id context by a hash: known after a full handshake.
    is_hash: AtomicBool,
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

    /// A session was made.
    ///
    /// # Safety
    /// `session` is valid.
    pub(crate) unsafe fn learn(&self, session: *const SSL_SESSION) {
        if matches!(self.trust.get(), Some(Trust::Alone(_))) {
            // SAFETY: the caller vouches for `session`.
            self.is_hash.store(unsafe { trust::is_hash(session) }, Ordering::Relaxed);
        }
    }

    fn what(&self) -> Option<&Everywhere> {
        self.what.as_deref().or_else(|| Some(&PROCESS.get()?.what))
    }
}

/// Of contexts that were included.
const PLACES: usize = 256;

impl Process {
    fn new(what: Everywhere) -> Self {
        let included = [const { AtomicUsize::new(0) }; PLACES];
        Self { what, made: Mutex::default(), is_any_made: AtomicBool::new(false), included }
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
        let mut made = self.made();
        // SAFETY: the caller vouches for `context`; whoever attaches to it has the lock.
        let attachment = unsafe { connection::attachment_of(context) };
        if attachment.is_none_or(|found| found.own.is_none()) && !made.contains(&address) {
            made.push(address);
            self.is_any_made.store(true, Ordering::Release);
        }
        place.store(address, Ordering::Release);
    }

    fn made(&self) -> MutexGuard<'_, Vec<usize>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
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
    let Some(Everywhere { sessions, tickets, stateful, resumable_for }) = own.what() else {
        return;
    };
    own.set.get_or_init(|| {
        // SAFETY: the caller vouches for `context`.
        unsafe { install(context, sessions.is_some(), tickets.as_ref()) }
    });
    if *stateful {
        // What the context says was copied when the connection was made.
        // SAFETY: the caller vouches for `ssl`.
        unsafe { ffi::SSL_set_options(ssl, ffi::SSL_OP_NO_TICKET) };
    }
    // SAFETY: the caller vouches for both.
    let name = unsafe { name(ssl, context, own) };
    attachment.cached = sessions
        .as_ref()
        .map(|sessions| Cached { sessions: Arc::clone(sessions), context: name.clone() });
    attachment.is_stateful = *stateful;
    attachment.tickets = tickets.as_ref().map(|(keys, _)| keys.context(name));
    attachment.resumable_for = resumable_for.unwrap_or(attachment.resumable_for);
}

/// Contexts that ask for certificates share sessions only with those that believe the same.
///
/// # Safety
/// `ssl` and `context` are valid.
unsafe fn name(ssl: *mut SSL, context: *mut SSL_CTX, own: &Own) -> ContextName {
    // SAFETY: the caller vouches for `ssl`.
    let asks = unsafe { openssl_sys::SSL_get_verify_mode(ssl) } & openssl_sys::SSL_VERIFY_PEER != 0;
    if !asks {
        return ContextName::new(ID_CONTEXT);
    }
    // SAFETY: the caller vouches for `context`.
    match own.trust.get_or_init(|| unsafe { trust::of(context) }) {
        Trust::Alone(_) if own.is_hash.load(Ordering::Relaxed) => {
            ContextName::new(ASKING_ID_CONTEXT)
        }
        Trust::Seen(bytes) | Trust::Alone(bytes) => ContextName::new(bytes.to_vec()),
    }
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
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _argument: *mut c_void,
) {
    guard((), || {
        if let Some(process) = PROCESS.get() {
            let mut made = process.made();
            made.push(context as usize);
            process.is_any_made.store(true, Ordering::Release);
        }
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
            process.made().retain(|made| *made != context as usize);
        }
    });
}

/// The contexts that were made before this connection are set up by now.
unsafe extern "C" fn connection_made(
    _ssl: *mut c_void,
    _pointer: *mut c_void,
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _argument: *mut c_void,
) {
    guard((), || {
        let Some(process) = PROCESS.get() else { return };
        if !process.is_any_made.load(Ordering::Acquire) {
            return;
        }
        let mut made = process.made();
        for context in made.drain(..) {
            let context = context as *mut SSL_CTX;
            // SAFETY: it was made and not yet freed, or it would have been taken from the list; and
            // whoever makes a connection on it has to pass here first.
            unsafe {
                connection::attach(context, |attachment| {
                    attachment.own.get_or_insert_default();
                })
            };
        }
        // Last: whoever finds it set waits for the lock, and so for what was done above.
        process.is_any_made.store(false, Ordering::Release);
    });
}
