//! Attaching to every server context of a process that does not know of Rejoin, or to one of them.
//!
//! OpenSSL reports the making of contexts and connections (`CRYPTO_get_ex_new_index(3)`). A context gets its
//! attachment while it is made, by the thread that makes it. It is not touched again until a connection begins to
//! shake hands on it as a server: contexts that only connect stay as they are. To learn of that handshake, a
//! connection gets our info callback while it is made; ours calls the program's. (The connection cannot be asked for
//! its context then: in newer releases of OpenSSL it has none yet.) Contexts of OpenSSL's own [QUIC](quic) are left alone, and
//! so is each object that may be one of QUIC.
//!
//! The program's session-id context is never touched, and OpenSSL compares it with a session's, unless the
//! operator names one context for all programs ([`Everywhere::named`]). The program's own session callbacks are
//! called after ours.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::sha::Sha256;
use openssl::ssl::SslCipher;
use openssl::stack::StackRef;
use openssl_sys::{SSL, SSL_CTX};
use rejoin_store::now_ms;

use crate::attachment::{ATTACHMENTS, Attachment, Filled, Own, OwnCallbacks, attachment_of};
use crate::board::Outcome;
use crate::callbacks::keep_sessions;
use crate::connection::CONNECTIONS;
use crate::context_name::ContextName;
use crate::everywhere::{Everywhere, Hook};
use crate::guard::ex_data_callback;
use crate::sessions::Cached;
use crate::ticket_keys::{TicketHistory, TicketKeys};
use crate::tickets::issue_tickets;
use crate::{board, family, ffi, imports, info, known, policy, quic};

impl Everywhere {
    /// Attaches to all contexts that the process makes from now on. To be called once.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory, or when this was done before.
    pub fn attach(self) -> Result<(), ErrorStack> {
        Self::attach_as(Later::made(self), Box::new(|_| {}))
    }

    /// Attaches like [`Self::attach`], with settings that `make` makes at the first handshake: a program that serves
    /// nobody makes none. The thread of that handshake calls `make`; the handshakes of other threads wait for it, a tenth
    /// of a second at most and in vain only once, and then go without until it returns. If it returns `None`, all go
    /// without until a handshake calls it again: a second later, and then after twice as long each time, up to a minute.
    /// `make` is also called with each context that may serve, until a handshake has called it with success, and here if
    /// the process listens already: to prepare, and what it returns is dropped. `tell` is called once for each thing that is
    /// left alone, whatever the settings.
    ///
    /// # Errors
    /// Those of [`Self::attach`].
    pub fn attach_later(
        make: impl FnMut(Moment) -> Option<Self> + Send + 'static,
        tell: impl Fn(Left) + Send + Sync + 'static,
    ) -> Result<(), ErrorStack> {
        Self::attach_as(Later::by(Box::new(make)), Box::new(tell))
    }

    fn attach_as(what: Later, tell: Tell) -> Result<(), ErrorStack> {
        family::make();
        if PROCESS.set(Process::new(what, tell)).is_err() {
            return Err(ErrorStack::get());
        }
        // Login processes of Dovecot inherit their socket, give up root, enter an empty folder, and then make a context.
        if let Some(process) = PROCESS.get().filter(|_| listens()) {
            process.what.prepare();
        }
        let class = ffi::CRYPTO_EX_INDEX_SSL_CTX;
        let sees_contexts = ffi::new_index(class, None, Some(context_freed), null_mut()) >= 0
            && ATTACHMENTS.register(Some(context_made));
        quic::look_for_earlier();
        let is_told = sees_contexts && CONNECTIONS.register(Some(connection_made));
        if is_told { Ok(()) } else { Err(ErrorStack::get()) }
    }

    /// Attaches to a context that was made before [`Self::attach`] was called. To be called before each connection
    /// is made on it. Does nothing if it was called for this context before, if the context is one of OpenSSL's own QUIC, or
    /// if the process is not attached.
    ///
    /// # Safety
    /// `context` is valid. Until the first call for it no connection was made on it.
    pub unsafe fn include(context: *mut SSL_CTX) {
        if let Some(process) = PROCESS.get() {
            // SAFETY: the caller vouches for `context`.
            unsafe { process.include(context) };
        }
    }

    /// Attaches to this context alone. These settings take precedence over those of [`Self::attach`]. Returns false
    /// for a context that is attached already, which stays as it is.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory.
    ///
    /// # Safety
    /// `context` is valid, and no other thread uses it during the call.
    pub unsafe fn attach_to(self: &Arc<Self>, context: *mut SSL_CTX) -> Result<bool, ErrorStack> {
        // SAFETY: the caller vouches for `context`.
        let attachment = unsafe { attachment_of(context) };
        if attachment.is_some_and(Attachment::is_settled) {
            return Ok(false);
        }
        family::make();
        let own = Own::new(Some(Arc::clone(self)), begin);
        // SAFETY: the caller vouches for `context`.
        match unsafe { info::attach(context, |attachment| attachment.own = Some(own)) } {
            true => Ok(true),
            false => Err(ErrorStack::get()),
        }
    }
}

/// Returns true for a context that can never serve.
///
/// # Safety
/// `context` is valid.
pub unsafe fn only_connects(context: *const SSL_CTX) -> bool {
    // SAFETY: the caller vouches for `context`.
    let method = unsafe { ffi::SSL_CTX_get_ssl_method(context) };
    // SAFETY: no arguments.
    std::ptr::eq(method, unsafe { openssl_sys::TLS_client_method() }) || quic::is_of_clients(method)
}

/// Returns true if one of the process's first descriptors is a socket that listens.
fn listens() -> bool {
    const DESCRIPTORS: libc::c_int = 256;
    (0..DESCRIPTORS).any(|descriptor| {
        let (mut answer, mut bytes) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        let (level, what, into) = (libc::SOL_SOCKET, libc::SO_ACCEPTCONN, &raw mut answer);
        // SAFETY: `into` has room for `bytes` bytes. The call fails for what is no socket.
        let asked =
            unsafe { libc::getsockopt(descriptor, level, what, into.cast(), &raw mut bytes) };
        asked == 0 && answer != 0
    })
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// The settings of all contexts, which may be made later.
struct Later {
    made: OnceLock<Everywhere>,
    /// Locked while they are made.
    by: Mutex<Option<Attempts>>,
    /// True once a thread has waited in vain: the maker takes long, or is not in this process, which was forked then.
    is_given_up: AtomicBool,
}

struct Attempts {
    make: Make,
    /// The earliest time of the next attempt, on the clock of caches, and the wait after it.
    due_ms: u64,
    wait_ms: u64,
}

type Make = Box<dyn FnMut(Moment) -> Option<Everywhere> + Send>;

/// The reason why settings are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A context that may serve was made.
    Context,
    /// A handshake begins.
    Handshake,
}

/// A thing that is left to the program, whatever the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Contexts of servers of OpenSSL's own QUIC.
    Quic,
    /// Other connections of a program that uses OpenSSL's own QUIC: nobody can tell while they are made that they are others.
    BesideQuic,
}

type Tell = Box<dyn Fn(Left) + Send + Sync>;

const FIRST_WAIT_MS: u64 = 1_000;
const LONGEST_WAIT_MS: u64 = 60_000;

impl Later {
    fn made(what: Everywhere) -> Self {
        Self {
            made: OnceLock::from(what),
            by: Mutex::default(),
            is_given_up: AtomicBool::new(false),
        }
    }

    fn by(make: Make) -> Self {
        let attempts = Attempts { make, due_ms: 0, wait_ms: FIRST_WAIT_MS };
        let is_given_up = AtomicBool::new(false);
        Self { made: OnceLock::new(), by: Mutex::new(Some(attempts)), is_given_up }
    }

    /// Lets the settings be prepared, until a handshake has made them.
    fn prepare(&self) {
        if let Ok(mut by) = self.by.try_lock()
            && let Some(Attempts { make, .. }) = by.as_mut()
        {
            make(Moment::Context);
        }
    }

    fn get(&self) -> Option<&Everywhere> {
        self.made.get().or_else(|| self.make())
    }

    #[cold]
    fn make(&self) -> Option<&Everywhere> {
        let Ok(mut by) = self.by.try_lock() else { return self.wait() };
        let Attempts { make, due_ms, wait_ms } = by.as_mut()?;
        let now_ms = now_ms();
        if now_ms < *due_ms {
            return None;
        }
        (*due_ms, *wait_ms) = (now_ms + *wait_ms, (2 * *wait_ms).min(LONGEST_WAIT_MS));
        let what = make(Moment::Handshake)?;
        *by = None;
        // The holder of the lock is alone here, so this does not wait.
        Some(self.made.get_or_init(|| what))
    }
}

impl Later {
    /// Waits a moment for another thread that makes the settings, so that the first clients of a server resume, too. The
    /// process does so in vain only once.
    fn wait(&self) -> Option<&Everywhere> {
        const STEP: Duration = Duration::from_millis(1);
        const STEPS: usize = 100;
        if !self.is_given_up.load(Ordering::Relaxed) {
            for _ in 0..STEPS {
                if self.made.get().is_some() || self.by.try_lock().is_ok() {
                    return self.made.get();
                }
                std::thread::sleep(STEP);
            }
            self.is_given_up.store(true, Ordering::Relaxed);
        }
        None
    }
}

struct Process {
    what: Later,
    tell: Tell,
    /// True for what was told, by the number of [`Left`].
    is_told: [AtomicBool; 2],
    /// True once a context was made that may serve, and whose connections were to get the info callback while they are made.
    counts_on_connections: AtomicBool,
    /// The addresses of contexts that have not been checked for asking clients for certificates.
    unseen: Mutex<Vec<usize>>,
    /// True if `unseen` is not empty, so that the lock is taken only then.
    is_any_unseen: AtomicBool,
    /// The included contexts, each at the place that its address gives; only the others need the lock. A freed
    /// context whose address another gets does no harm, because that one was seen being made.
    included: [AtomicUsize; PLACES],
}

/// The number of places for included contexts.
const PLACES: usize = 256;

impl Process {
    fn new(what: Later, tell: Tell) -> Self {
        let included = [const { AtomicUsize::new(0) }; PLACES];
        let (unseen, is_any_unseen) = (Mutex::default(), AtomicBool::new(false));
        let (is_told, counts_on_connections) = (Default::default(), AtomicBool::new(false));
        Self { what, tell, is_told, counts_on_connections, unseen, is_any_unseen, included }
    }

    /// Tells once that something is left alone.
    fn leave(&self, what: Left) {
        if !self.is_told[what as usize].swap(true, Ordering::Relaxed) {
            (self.tell)(what);
        }
    }

    /// # Safety
    /// `context` is valid.
    unsafe fn leave_quic(&self, context: *const SSL_CTX) {
        // SAFETY: the caller vouches for `context`.
        if !unsafe { only_connects(context) } {
            self.leave(Left::Quic);
        }
    }

    /// # Safety
    /// The contract of [`Everywhere::include`].
    unsafe fn include(&self, context: *mut SSL_CTX) {
        let address = context as usize;
        // Allocated memory begins at multiples of 16 bytes.
        let Some(place) = self.included.get(address / 16 % PLACES) else { return };
        if place.load(Ordering::Acquire) == address {
            return;
        }
        // SAFETY: the caller vouches for `context`.
        if unsafe { quic::is_quic(context) } {
            // SAFETY: the caller vouches for `context`.
            return unsafe { self.leave_quic(context) };
        }
        let mut unseen = self.unseen();
        // SAFETY: the caller vouches for `context`, and this thread has the lock for attaching to it.
        let attachment = unsafe { attachment_of(context) };
        if attachment.is_none_or(|found| found.own.is_none()) {
            // SAFETY: the caller vouches for `context`.
            let own = unsafe { Own::of_earlier(context, begin) };
            // SAFETY: the context is valid, this thread has the lock, and no connection was made on it.
            unsafe { info::attach(context, |attachment| attachment.own = Some(own)) };
            unseen.push(address);
            self.is_any_unseen.store(true, Ordering::Release);
        }
        place.store(address, Ordering::Release);
        drop(unseen);
        // SAFETY: the caller vouches for `context`.
        if !unsafe { only_connects(context) } {
            self.what.prepare();
        }
    }

    fn unseen(&self) -> MutexGuard<'_, Vec<usize>> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks which contexts ask clients for certificates. A context that is still being set up is checked when a
    /// connection begins or ends up in it.
    fn look_at_contexts(&self) {
        if !self.is_any_unseen.swap(false, Ordering::AcqRel) {
            return;
        }
        for context in self.unseen().drain(..) {
            let context = context as *const SSL_CTX;
            // SAFETY: the context is not freed: freeing takes it from the list, under the lock that is held here.
            // The call reads a pointer.
            if !unsafe { only_connects(context) } {
                // SAFETY: the context is not freed, and the call reads a number.
                policy::note(unsafe { openssl_sys::SSL_CTX_get_verify_mode(context) });
            }
        }
    }
}

/// Fills in the attachment of a connection, by the settings of its context or of the whole process. Returns what came of
/// it.
///
/// # Safety
/// `ssl` is valid, and shakes hands as a server on this context.
unsafe fn begin(
    ssl: *mut SSL,
    context: *mut SSL_CTX,
    own: &Own,
    attachment: &mut Attachment,
) -> Outcome {
    let of_all = || PROCESS.get()?.what.get();
    let Some(what) = own.what.as_deref().or_else(of_all) else { return Outcome::NoCache };
    let Everywhere { sessions, tickets, stateful, resumable_for, context: named, .. } = what;
    // SAFETY: the caller vouches for `ssl`.
    let early = unsafe { early_data(ssl) };
    // Such a program may refuse a client whose ticket or session does not bring what it has put into it, or let one in that it
    // would refuse. One that attached the context itself was told that its callback is replaced.
    let Filled { tickets: fills_tickets, sessions: fills_sessions } =
        *own.fills.get_or_init(|| {
            let fills = own.what.is_none().then(Filled::seen).unwrap_or_default();
            what.when_filled.iter().filter(|_| fills.is_any()).for_each(|Hook(tell)| tell());
            fills
        });
    let sessions = sessions.as_ref().filter(|_| !fills_sessions);
    let accepts_early_once = what.accepts_early_once && early != Early::No && !fills_tickets;
    if early == Early::Counted && !accepts_early_once {
        return Outcome::EarlyData;
    }
    let stateful = (*stateful || accepts_early_once) && !fills_tickets;
    // SAFETY: the caller vouches for both.
    if !stateful && unsafe { is_off(ssl, context, own) } {
        what.when_off.iter().for_each(|Hook(tell)| tell());
        return Outcome::Off;
    }
    own.set.get_or_init(|| {
        // SAFETY: the caller vouches for `ssl`.
        let keeps = fills_tickets || unsafe { keeps_tickets(ssl, own, what) };
        let ours = tickets.as_ref().filter(|_| !keeps);
        // SAFETY: the caller vouches for `context`.
        unsafe { install(context, sessions.is_some(), ours) }
    });
    // SAFETY: the caller vouches for `context`; the call reads a number.
    let of_context = unsafe { ffi::SSL_CTX_get_options(context) };
    // An SSL that is used again has what was set below.
    // SAFETY: the caller vouches for `ssl`; the call reads a number.
    let options = if stateful { of_context } else { unsafe { ffi::SSL_get_options(ssl) } };
    attachment.is_stateful = stateful;
    attachment.accepts_early_once = accepts_early_once;
    // The context's options were copied when the connection was made.
    // SAFETY: the caller vouches for `ssl`.
    unsafe { attachment.set_options(ssl) };
    PROCESS.get().into_iter().for_each(Process::look_at_contexts);
    let late = if known::demands_late() { openssl_sys::SSL_VERIFY_PEER } else { 0 };
    // SAFETY: the caller vouches for `ssl`.
    policy::note(unsafe { openssl_sys::SSL_get_verify_mode(ssl) } | late);
    // SAFETY: the caller vouches for `context`.
    let name = named.as_ref().unwrap_or_else(|| own.name.get_or_init(|| unsafe { name(context) }));
    attachment.cached =
        sessions.map(|sessions| Cached { sessions: Arc::clone(sessions), context: name.clone() });
    attachment.is_named = named.is_some();
    attachment.is_single_use = what.is_single_use || accepts_early_once;
    attachment.is_vouched = what.is_vouched && named.is_some();
    attachment.issues_tickets = options & ffi::SSL_OP_NO_TICKET == 0;
    attachment.tickets = tickets.as_ref().map(|(keys, _)| keys.context(name.clone()));
    attachment.resumable_for = resumable_for.unwrap_or(attachment.resumable_for);
    Outcome::Attached
}

/// The program's way with early data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Early {
    /// It accepts none.
    No,
    /// It accepts any, and looks after copies itself (nginx, HAProxy).
    Any,
    /// OpenSSL uses its own cache to accept none twice in a process, and would resume nothing without it.
    Counted,
}

/// # Safety
/// `ssl` is valid.
unsafe fn early_data(ssl: *mut SSL) -> Early {
    // SAFETY: the caller vouches for `ssl`; the call reads a number.
    if unsafe { ffi::SSL_get_options(ssl) } & ffi::SSL_OP_NO_ANTI_REPLAY != 0 {
        return Early::Any;
    }
    // SAFETY: the caller vouches for `ssl`.
    if unsafe { ffi::SSL_get_max_early_data(ssl) } > 0 { Early::Counted } else { Early::No }
}

/// Returns true where the program's own tickets stay, because ours would resume in fewer processes: it asks for certificates
/// whose checks are not known, nobody vouches for it, and other processes have its ticket keys: they get them although none is
/// forked from another, or they may have inherited the context before Rejoin came, and know nothing of what this one learns.
///
/// # Safety
/// `ssl` is valid.
unsafe fn keeps_tickets(ssl: *mut SSL, own: &Own, what: &Everywhere) -> bool {
    // SAFETY: the caller vouches for `ssl`; the call reads a number.
    let mode = unsafe { openssl_sys::SSL_get_verify_mode(ssl) };
    // SAFETY: the caller vouches for `ssl`; the callback is not called.
    let callback = unsafe { ffi::SSL_get_verify_callback(ssl) };
    let callback = callback.map_or(0, |callback| callback as usize);
    let shares = || {
        known::shares_ticket_keys(callback)
            || own.is_earlier && !known::hashes_its_checks(callback) && is_forked()
    };
    let is_vouched = what.is_vouched && what.context.is_some();
    own.what.is_none() && mode & openssl_sys::SSL_VERIFY_PEER != 0 && !is_vouched && shares()
}

/// Returns true if the process was forked, and has not called exec since, or if Linux does not tell.
fn is_forked() -> bool {
    /// `PF_FORKNOEXEC` of Linux, in the flags of proc_pid_stat(5).
    const FORKED: u64 = 0x40;
    let flags = || -> Option<u64> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is a name in brackets, which may hold any character.
        let (_, behind_name) = stat.rsplit_once(')')?;
        behind_name.split_ascii_whitespace().nth(6)?.parse().ok()
    };
    flags().is_none_or(|flags| flags & FORKED != 0)
}

/// Returns true if the program itself switched resumption off: it neither keeps the context's sessions nor issues
/// tickets. False for a context that it attached itself.
///
/// # Safety
/// `ssl` and `context` are valid, and `own` is the context's.
pub(crate) unsafe fn is_off(ssl: *mut SSL, context: *mut SSL_CTX, own: &Own) -> bool {
    let is_caching = own.is_caching.get_or_init(|| {
        // SAFETY: the caller vouches for `context`; the call reads a number.
        let mode = unsafe { ffi::session_cache_mode(context) };
        mode & openssl_sys::SSL_SESS_CACHE_SERVER != 0
    });
    // SAFETY: the caller vouches for `ssl`; the call reads a number.
    let options = unsafe { ffi::SSL_get_options(ssl) };
    own.what.is_none() && !is_caching && options & ffi::SSL_OP_NO_TICKET != 0
}

impl Filled {
    /// Looks where the program may keep data of its own. One that keeps some with sessions gets its own tickets, too: it knows
    /// what they bring back.
    fn seen() -> Self {
        static HAS_INDEX: OnceLock<bool> = OnceLock::new();
        let class = ffi::CRYPTO_EX_INDEX_SSL_SESSION;
        let sessions = *HAS_INDEX.get_or_init(|| ffi::is_any_index_there(class));
        Self { tickets: sessions || imports::sets_ticket_callback(), sessions }
    }

    fn is_any(self) -> bool {
        self.tickets || self.sessions
    }
}

/// Names a context by its ciphers and its security level, which rules some of them out. Contexts that offer the same ciphers
/// share sessions, because OpenSSL resumes with the session's cipher, regardless of which one the context would have chosen.
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
    // SAFETY: the caller vouches for `context`; the call reads a number.
    let level = unsafe { ffi::SSL_CTX_get_security_level(context) };
    hash.update(&level.to_le_bytes());
    ContextName::new(&hash.finish()[..16])
}

/// Installs our callbacks on a context, and returns those that they replace.
///
/// # Safety
/// `context` is valid. Other threads may read the callbacks meanwhile.
unsafe fn install(
    context: *mut SSL_CTX,
    with_sessions: bool,
    tickets: Option<&(Arc<TicketKeys>, TicketHistory)>,
) -> OwnCallbacks {
    // SAFETY: the caller vouches for `context`.
    let made = unsafe { ffi::SSL_CTX_sess_get_new_cb(context) };
    // SAFETY: the caller vouches for `context`.
    let wanted = unsafe { ffi::SSL_CTX_sess_get_get_cb(context) };
    if with_sessions {
        // SAFETY: the caller vouches for `context`.
        unsafe { keep_sessions(context) };
    }
    if let Some((_, history)) = tickets {
        // SAFETY: the caller vouches for `context`.
        unsafe { issue_tickets(context, *history) };
    }
    OwnCallbacks { made, wanted }
}

ex_data_callback! {
    fn context_made(context, _value, _data) {
        let Some(process) = PROCESS.get() else { return };
        // SAFETY: OpenSSL sets the method of a context first.
        if unsafe { quic::is_quic(context.cast()) } {
            // SAFETY: the same.
            return unsafe { process.leave_quic(context.cast()) };
        }
        let attachment = Attachment { own: Some(Own::new(None, begin)), ..Attachment::default() };
        // SAFETY: a context that is being made, by this thread. Its extra data exists, as OpenSSL calls this for it.
        unsafe { ATTACHMENTS.put(context.cast(), attachment) };
        process.unseen().push(context as usize);
        process.is_any_unseen.store(true, Ordering::Release);
        // SAFETY: OpenSSL sets the method of a context first.
        if !unsafe { only_connects(context.cast()) } {
            process.counts_on_connections.store(true, Ordering::Relaxed);
            if quic::may_be() {
                // Its connections get no callback of their own. This one stays if the program sets none on the context.
                // SAFETY: a context that is being made, by this thread; nothing sets its callback later but the program.
                unsafe { ffi::SSL_CTX_set_info_callback(context.cast(), Some(info::info)) };
            }
            process.what.prepare();
        }
    }
}

ex_data_callback! {
    fn context_freed(context, _value, _data) {
        if let Some(process) = PROCESS.get() {
            process.unseen().retain(|unseen| *unseen != context as usize);
        }
    }
}

ex_data_callback! {
    fn connection_made(ssl, _value, _data) {
        if quic::may_be() {
            let process = PROCESS.get();
            let others = process.filter(|all| all.counts_on_connections.load(Ordering::Relaxed));
            return others.into_iter().for_each(|process| {
                board::connection_made();
                process.leave(Left::BesideQuic);
            });
        }
        board::connection_made();
        // SAFETY: a connection that is being made, by this thread; its own callback comes later.
        unsafe { ffi::SSL_set_info_callback(ssl.cast(), Some(info::info)) };
    }
}
