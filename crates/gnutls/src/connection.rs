//! One connection of the program, from the beginning of its session to the end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_uchar, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libc::{size_t, ssize_t};
use rejoin_abi::gate::Gated;
use rejoin_hop::{Directly, Offer, STATUS_REQUEST, Taken, debug, guarded, is_manager_there};

use crate::allowed;
use crate::ffi::{
    Credentials, Datum, GNUTLS_CLIENT, GNUTLS_CRD_PSK, GNUTLS_DATAGRAM, GNUTLS_E_CERTIFICATE_ERROR,
    GNUTLS_E_KEY_USAGE_VIOLATION, GNUTLS_E_SUCCESS, GNUTLS_ENABLE_EARLY_DATA, GNUTLS_ENABLE_RAWPK,
    GNUTLS_EXT_ANY, GNUTLS_EXT_FLAG_CLIENT_HELLO, GNUTLS_EXT_FLAG_TLS, GNUTLS_KX_DHE_PSK,
    GNUTLS_KX_ECDHE_PSK, GNUTLS_KX_PSK, GNUTLS_NO_EXTENSIONS, GNUTLS_PSK_KEY_RAW, GNUTLS_TLS1_3,
    Gnutls, Session,
};
use crate::judge::{Judgement, judge};
use crate::settings::Settings;
use crate::shadow::swallow;
use crate::shown::Shown;

/// Extensions that GnuTLS sends to every server, and whose answer it can do without: stapling.
const LEAVES_OUT: [u16; 1] = [STATUS_REQUEST];
/// The number of an extension that is never sent. It is in the range for private use.
const UNSENT_EXTENSION: c_int = 0xfe5a;

/// A client's session.
pub(crate) struct Connection {
    session: usize,
    settings: Mutex<Settings>,
    course: Mutex<Course>,
    shown: OnceLock<Shown>,
}

/// The state of a connection.
enum Course {
    /// The handshake has not begun.
    New,
    /// The ClientHello offers a key.
    Offered(Arc<Offered>),
    /// The hop stands, and the program has not judged the server yet.
    Judging(Taken),
    /// The program must not go on, for this error, although GnuTLS's own handshake has succeeded.
    Refused(c_int),
    /// The rest is between the program and GnuTLS.
    Over,
}

struct Offered {
    offer: Arc<Offer>,
    keys: Keys,
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.offer.withdraw();
    }
}

/// GnuTLS credentials with the key of an offer.
struct Keys {
    gnutls: &'static Gnutls,
    own: Credentials,
}

// SAFETY: nothing changes the credentials after they were made.
unsafe impl Send for Keys {}
// SAFETY: nothing changes the credentials after they were made.
unsafe impl Sync for Keys {}

impl Drop for Keys {
    fn drop(&mut self) {
        // SAFETY: no session has them any more.
        unsafe { (self.gnutls.gnutls_psk_free_client_credentials)(self.own) };
    }
}

/// The connections by the addresses of their sessions.
static CONNECTIONS: Gated<Connections> = Gated::new(Connections::new());

type Connections = BTreeMap<usize, Arc<Connection>>;

/// Records a session that the program made.
pub(crate) fn begun(session: Session, flags: c_uint) {
    let directly = match flags {
        _ if flags & GNUTLS_CLIENT == 0 => return,
        _ if flags & GNUTLS_DATAGRAM != 0 => Some(Directly::Datagrams),
        _ if flags & GNUTLS_NO_EXTENSIONS != 0 => Some(Directly::Extension),
        _ if flags & GNUTLS_ENABLE_EARLY_DATA != 0 => Some(Directly::OwnSession),
        _ if flags & GNUTLS_ENABLE_RAWPK != 0 => Some(Directly::Callback),
        _ => None,
    };
    let connection = Connection {
        session: session as usize,
        settings: Mutex::new(Settings { directly, ..Settings::default() }),
        course: Mutex::new(Course::New),
        shown: OnceLock::new(),
    };
    CONNECTIONS.lock().insert(session as usize, Arc::new(connection));
}

/// Forgets a session that the program is about to free. The result must be dropped after that.
pub(crate) fn ended(session: Session) -> Option<Arc<Connection>> {
    CONNECTIONS.lock().remove(&(session as usize))
}

/// Returns the connection of a client's session.
pub(crate) fn of(session: Session) -> Option<Arc<Connection>> {
    CONNECTIONS.lock().get(&(session as usize)).cloned()
}

thread_local! {
    /// The session whose handshake is under way in this thread, and the credentials with its key.
    static STEPPING: Cell<(Session, Credentials)> = const { Cell::new((null_mut(), null_mut())) };
}

/// A step that is under way in this thread.
struct Step((Session, Credentials));

impl Step {
    fn of(session: Session, keys: &Keys) -> Self {
        Self(STEPPING.replace((session, keys.own)))
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        STEPPING.set(self.0);
    }
}

impl Connection {
    pub(crate) fn session(&self) -> Session {
        self.session as Session
    }

    /// Returns what the program sees of the server, if the manager made the connection.
    pub(crate) fn shown(&self) -> Option<&Shown> {
        self.shown.get()
    }

    pub(crate) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_course(&self) -> Course {
        std::mem::replace(&mut *self.course(), Course::Over)
    }

    /// Makes one step of a handshake.
    ///
    /// # Safety
    /// The session is valid, and in no other thread's use.
    pub(crate) unsafe fn step(&self, gnutls: &'static Gnutls) -> c_int {
        let session = self.session();
        // SAFETY: the caller vouches for the session.
        let real = || unsafe { (gnutls.gnutls_handshake)(session) };
        let course = self.take_course();
        let offered = match course {
            // SAFETY: the caller vouches for the session.
            Course::New => match guarded(|| unsafe { self.begin(gnutls) }).flatten() {
                Some(offered) => offered,
                None => return real(),
            },
            Course::Offered(offered) => offered,
            // SAFETY: the caller vouches for the session, whose handshake is over.
            Course::Judging(taken) => return unsafe { self.judge(gnutls, taken) },
            Course::Refused(error) => {
                *self.course() = Course::Refused(error);
                return error;
            }
            Course::Over => return real(),
        };
        *self.course() = Course::Offered(Arc::clone(&offered));
        let done = {
            let _step = Step::of(session, &offered.keys);
            real()
        };
        // The ClientHello is sent. `extensions_written` sets the credentials again for each further one.
        // SAFETY: the caller vouches for the session, which has the credentials of `offered` or none.
        unsafe { (gnutls.gnutls_credentials_set)(session, GNUTLS_CRD_PSK, null_mut()) };
        match done {
            // SAFETY: the caller vouches for the session, whose handshake has just succeeded.
            GNUTLS_E_SUCCESS => unsafe { self.finish(gnutls, &offered) },
            done => done,
        }
    }

    /// Adds a key to the offers of the program, before the first step.
    ///
    /// # Safety
    /// The same as [`step`](Self::step).
    unsafe fn begin(&self, gnutls: &'static Gnutls) -> Option<Arc<Offered>> {
        let session = self.session();
        // SAFETY: the caller vouches for the session.
        unsafe { allowed::leave_own_keys(gnutls, session, &mut self.settings()) };
        // SAFETY: the caller vouches for the session, and `settings` are its own.
        if let Err(why) = unsafe { allowed::through_the_manager(gnutls, session, &self.settings()) }
        {
            debug::directly(why);
            return None;
        }
        if !is_manager_there() {
            debug::directly(Directly::NoManager);
            return None;
        }
        let offer = Offer::make(&LEAVES_OUT)?;
        let offered = Arc::new(Offered { keys: Keys::of(gnutls, &offer)?, offer });
        let flags = GNUTLS_EXT_FLAG_CLIENT_HELLO | GNUTLS_EXT_FLAG_TLS;
        // SAFETY: the caller vouches for the session; the callbacks have the types that gnutls.h wants.
        let is_registered = unsafe {
            (gnutls.gnutls_session_ext_register)(
                session,
                c"rejoin".as_ptr(),
                UNSENT_EXTENSION,
                GNUTLS_EXT_ANY,
                extension_received,
                extensions_written,
                None,
                None,
                None,
                flags,
            )
        };
        (is_registered == 0).then_some(offered)
    }

    /// Shows the server's certificates to the program, after a handshake that succeeded, and has the program judge
    /// them.
    ///
    /// # Safety
    /// The same as [`step`](Self::step).
    unsafe fn finish(&self, gnutls: &'static Gnutls, offered: &Offered) -> c_int {
        *self.course() = Course::Over;
        let (taken, asks) = (offered.offer.taken(), offered.offer.asks());
        // SAFETY: the caller vouches for the session.
        if !unsafe { self.is_by_key(gnutls) } {
            // The server itself answered, and GnuTLS has had it judged. The manager took no part, or forwarded.
            if taken.is_some() {
                debug::directly(Directly::ManagerFailed);
            }
            return GNUTLS_E_SUCCESS;
        }
        let shown = guarded(|| {
            // If the hop was lost on the way, nobody says who the server is.
            let (found, settings) = (taken.as_ref()?.described()?, self.settings());
            // SAFETY: the caller vouches for the session.
            unsafe { Shown::of(gnutls, self.session(), &settings, (found, asks)) }
        });
        let is_shown = shown.flatten().is_some_and(|shown| self.shown.set(shown).is_ok());
        let Some(taken) = taken.filter(|_| is_shown) else {
            // SAFETY: the caller vouches for the session.
            return unsafe { self.end(gnutls, GNUTLS_E_CERTIFICATE_ERROR) };
        };
        // SAFETY: the caller vouches for the session, whose handshake is over.
        unsafe { self.judge(gnutls, taken) }
    }

    /// Returns true if the handshake used a key.
    ///
    /// # Safety
    /// The same as [`step`](Self::step).
    unsafe fn is_by_key(&self, gnutls: &Gnutls) -> bool {
        let session = self.session();
        // SAFETY: the caller vouches for the session.
        let exchange = unsafe { (gnutls.gnutls_kx_get)(session) };
        // SAFETY: the caller vouches for the session.
        let version = unsafe { (gnutls.gnutls_protocol_get_version)(session) };
        let by_key = [GNUTLS_KX_PSK, GNUTLS_KX_DHE_PSK, GNUTLS_KX_ECDHE_PSK];
        version == GNUTLS_TLS1_3 && by_key.contains(&exchange)
    }

    /// Has the program judge the server, and tells the manager.
    ///
    /// # Safety
    /// The same as [`step`](Self::step).
    unsafe fn judge(&self, gnutls: &Gnutls, taken: Taken) -> c_int {
        let Some(shown) = self.shown() else {
            // SAFETY: the caller vouches for the session.
            return unsafe { self.end(gnutls, GNUTLS_E_CERTIFICATE_ERROR) };
        };
        // Should the program's function never return, nobody has judged the server.
        *self.course() = Course::Refused(GNUTLS_E_CERTIFICATE_ERROR);
        let (verification, is_lenient) = {
            let settings = self.settings();
            (settings.verification, settings.is_lenient())
        };
        // SAFETY: the caller vouches for the session; the verification's pointers are those that the program set on it.
        let judge = || unsafe { judge(gnutls, self.session(), shown, verification) };
        let judgement = match shown.shadow.may_sign || is_lenient {
            true => guarded(judge),
            false => Some(Judgement::Refused(GNUTLS_E_KEY_USAGE_VIOLATION)),
        };
        match judgement.unwrap_or(Judgement::Refused(GNUTLS_E_CERTIFICATE_ERROR)) {
            Judgement::Believed { passed } => shown.believed(taken, passed),
            Judgement::Later => shown.awaits(taken),
            Judgement::Again(again) => {
                *self.course() = Course::Judging(taken);
                return again;
            }
            Judgement::Refused(error) => {
                shown.refused(taken);
                // SAFETY: the caller vouches for the session.
                return unsafe { self.end(gnutls, error) };
            }
        }
        *self.course() = Course::Over;
        GNUTLS_E_SUCCESS
    }

    /// Ends the connection for the program, and returns the error, which stays: no data goes over it, and no signal is
    /// raised.
    ///
    /// # Safety
    /// The same as [`step`](Self::step).
    unsafe fn end(&self, gnutls: &Gnutls, error: c_int) -> c_int {
        *self.course() = Course::Refused(error);
        let session = self.session();
        // SAFETY: the caller vouches for the session; the function has the type that gnutls.h wants.
        unsafe { (gnutls.gnutls_transport_set_pull_function)(session, end_of_file) };
        // SAFETY: the caller vouches for the session; the function has the type that gnutls.h wants.
        unsafe { (gnutls.gnutls_transport_set_push_function)(session, broken) };
        // After data that could not be sent, libgnutls takes no other data. Alerts it does.
        // SAFETY: the caller vouches for the session, and there is one byte.
        unsafe { (gnutls.gnutls_record_send)(session, (&raw const NOTHING).cast(), 1) };
        // SAFETY: the caller vouches for the session.
        unsafe { (gnutls.gnutls_transport_set_push_function)(session, swallow) };
        error
    }
}

/// The byte that is never sent.
static NOTHING: u8 = 0;

unsafe extern "C" fn broken(
    _pointer: *mut c_void,
    _bytes: *const c_void,
    _length: size_t,
) -> ssize_t {
    // SAFETY: the function takes no arguments.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address is that of this thread's `errno`.
    unsafe { errno.write(libc::EPIPE) };
    -1
}

unsafe extern "C" fn end_of_file(
    _pointer: *mut c_void,
    _bytes: *mut c_void,
    _room: size_t,
) -> ssize_t {
    0
}

impl Keys {
    fn of(gnutls: &'static Gnutls, offer: &Offer) -> Option<Self> {
        let identity = CString::new(offer.identity()).ok()?;
        let key = Datum::of(offer.key())?;
        let mut own = null_mut();
        // SAFETY: `own` has room for the credentials.
        if unsafe { (gnutls.gnutls_psk_allocate_client_credentials)(&raw mut own) } != 0 {
            return None;
        }
        let keys = Self { gnutls, own };
        let (identity, key, raw) = (identity.as_ptr(), &raw const key, GNUTLS_PSK_KEY_RAW);
        // SAFETY: the credentials were made above; libgnutls copies the identity and the key.
        let set = unsafe { (gnutls.gnutls_psk_set_client_credentials)(own, identity, key, raw) };
        (set == 0).then_some(keys)
    }
}

/// Sets the credentials while libgnutls writes the extensions of a ClientHello. The suites are written already, without
/// those of TLS 1.2 that need a key. The PSK extension comes last, and finds the credentials.
unsafe extern "C" fn extensions_written(session: Session, _buffer: *mut c_void) -> c_int {
    let (stepping, keys) = STEPPING.get();
    if stepping == session
        && let Some(gnutls) = Gnutls::get()
    {
        // SAFETY: libgnutls calls for a session that is valid, and the step has the credentials.
        unsafe { (gnutls.gnutls_credentials_set)(session, GNUTLS_CRD_PSK, keys) };
    }
    0
}

unsafe extern "C" fn extension_received(
    _session: Session,
    _bytes: *const c_uchar,
    _length: size_t,
) -> c_int {
    0
}

/// Removes the credentials again if the bytes that this thread sends are a ClientHello. The same step may send a second
/// one, which must list the same suites.
pub(crate) fn sent(bytes: &[u8]) {
    let (session, keys) = STEPPING.get();
    let is_hello = matches!(bytes, [22, 3, _, _, _, 1, ..]);
    if is_hello
        && !keys.is_null()
        && let Some(gnutls) = Gnutls::get()
    {
        // SAFETY: the session is valid, for its handshake is under way in this thread.
        unsafe { (gnutls.gnutls_credentials_set)(session, GNUTLS_CRD_PSK, null_mut()) };
    }
}
