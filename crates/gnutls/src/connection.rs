//! One connection of the program, from its session's beginning to its end.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uchar, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use libc::{size_t, ssize_t};
use rejoin_hop::{Directly, Offer, RECORD_SIZE_LIMIT, STATUS_REQUEST, Taken, debug, guarded};

use crate::allowed;
use crate::ffi::{
    AnyCallback, Credentials, Datum, GNUTLS_CLIENT, GNUTLS_CRD_PSK, GNUTLS_DATAGRAM,
    GNUTLS_E_CERTIFICATE_ERROR, GNUTLS_E_KEY_USAGE_VIOLATION, GNUTLS_E_SUCCESS,
    GNUTLS_ENABLE_EARLY_DATA, GNUTLS_ENABLE_RAWPK, GNUTLS_EXT_ANY, GNUTLS_EXT_FLAG_CLIENT_HELLO,
    GNUTLS_EXT_FLAG_TLS, GNUTLS_KX_DHE_PSK, GNUTLS_KX_ECDHE_PSK, GNUTLS_KX_PSK,
    GNUTLS_NO_EXTENSIONS, GNUTLS_PSK_KEY_RAW, GNUTLS_TLS1_3, Gnutls, Session,
};
use crate::judge::{Flags, Judgement, Own, judge};
use crate::priorities::Priorities;
use crate::shadow::swallow;
use crate::shown::Shown;

/// GnuTLS asks every server to staple and to send smaller records if it likes, and does without.
const LEAVES_OUT: [u16; 2] = [STATUS_REQUEST, RECORD_SIZE_LIMIT];
/// An extension that is never sent, for private use.
const UNSENT_EXTENSION: c_int = 0xfe5a;

/// What the program set on a session.
pub(crate) struct Wishes {
    pub(crate) priorities: Option<Priorities>,
    /// The session's priorities take keys.
    pub(crate) takes_keys: bool,
    pub(crate) verifies: Own,
    pub(crate) flags: Vec<Flags>,
    pub(crate) output: AnyCallback,
    /// A server's key may be used for what its certificate does not say.
    pub(crate) is_lenient: bool,
    /// Something of which the manager knows nothing.
    pub(crate) directly: Option<Directly>,
}

impl Wishes {
    fn is_lenient(&self) -> bool {
        self.is_lenient || self.priorities.as_ref().is_some_and(Priorities::are_lenient)
    }
}

/// A client's session.
pub(crate) struct Connection {
    session: usize,
    wishes: Mutex<Wishes>,
    course: Mutex<Course>,
    shown: OnceLock<Shown>,
}

/// How far it is.
enum Course {
    New,
    /// Its ClientHello offers a key.
    Offered(Arc<Offered>),
    /// The hop stands, and the program has not judged yet.
    Judging(Taken),
    /// What becomes of it is between the program and GnuTLS.
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

/// Credentials with a key.
struct Keys {
    gnutls: &'static Gnutls,
    own: Credentials,
}

// SAFETY: they are not changed after they were made.
unsafe impl Send for Keys {}
// SAFETY: as above.
unsafe impl Sync for Keys {}

impl Drop for Keys {
    fn drop(&mut self) {
        // SAFETY: no session has them any more.
        unsafe { (self.gnutls.gnutls_psk_free_client_credentials)(self.own) };
    }
}

/// By their sessions' addresses.
static CONNECTIONS: LazyLock<Mutex<HashMap<usize, Arc<Connection>>>> =
    LazyLock::new(Mutex::default);

fn connections() -> MutexGuard<'static, HashMap<usize, Arc<Connection>>> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program made a session.
pub(crate) fn begun(session: Session, flags: c_uint) {
    let directly = match flags {
        _ if flags & GNUTLS_CLIENT == 0 => return,
        _ if flags & GNUTLS_DATAGRAM != 0 => Some(Directly::Datagrams),
        _ if flags & GNUTLS_NO_EXTENSIONS != 0 => Some(Directly::Extension),
        _ if flags & GNUTLS_ENABLE_EARLY_DATA != 0 => Some(Directly::OwnSession),
        _ if flags & GNUTLS_ENABLE_RAWPK != 0 => Some(Directly::Callback),
        _ => None,
    };
    let (verifies, flags, is_lenient) = (Own::Nothing, Vec::new(), false);
    let wishes = Wishes {
        priorities: None,
        takes_keys: false,
        verifies,
        flags,
        output: None,
        is_lenient,
        directly,
    };
    let connection = Connection {
        session: session as usize,
        wishes: Mutex::new(wishes),
        course: Mutex::new(Course::New),
        shown: OnceLock::new(),
    };
    connections().insert(session as usize, Arc::new(connection));
}

/// The program frees a session. What this returns is to be dropped after that.
pub(crate) fn ended(session: Session) -> Option<Arc<Connection>> {
    connections().remove(&(session as usize))
}

/// The connection of a client's session.
pub(crate) fn of(session: Session) -> Option<Arc<Connection>> {
    connections().get(&(session as usize)).cloned()
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

    /// What the program is to see, if the connection stands by the manager.
    pub(crate) fn shown(&self) -> Option<&Shown> {
        self.shown.get()
    }

    pub(crate) fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_course(&self) -> Course {
        std::mem::replace(&mut *self.course(), Course::Over)
    }

    /// One step of a handshake.
    ///
    /// # Safety
    /// The session is valid, and in no other thread's use.
    pub(crate) unsafe fn step(&self, gnutls: &'static Gnutls) -> c_int {
        let session = self.session();
        // SAFETY: the caller vouches for the session, here and below.
        let real = || unsafe { (gnutls.gnutls_handshake)(session) };
        let course = self.take_course();
        let offered = match course {
            // SAFETY: as above.
            Course::New => match guarded(|| unsafe { self.begin(gnutls) }).flatten() {
                Some(offered) => offered,
                None => return real(),
            },
            Course::Offered(offered) => offered,
            // SAFETY: as above.
            Course::Judging(taken) => return unsafe { self.judge(gnutls, taken) },
            Course::Over => return real(),
        };
        *self.course() = Course::Offered(Arc::clone(&offered));
        let done = {
            let _step = Step::of(session, &offered.keys);
            real()
        };
        // The ClientHello is out. The credentials are put back before each is written.
        // SAFETY: as above.
        unsafe { (gnutls.gnutls_credentials_set)(session, GNUTLS_CRD_PSK, null_mut()) };
        match done {
            // SAFETY: as above.
            GNUTLS_E_SUCCESS => unsafe { self.finish(gnutls, &offered) },
            done => done,
        }
    }

    /// Before the first step: a key is added to what the program offers.
    ///
    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn begin(&self, gnutls: &'static Gnutls) -> Option<Arc<Offered>> {
        let session = self.session();
        // SAFETY: the caller vouches for the session, here and below.
        unsafe { allowed::leave_own_keys(gnutls, session, &mut self.wishes()) };
        // SAFETY: as above.
        if let Err(why) = unsafe { allowed::through_the_manager(gnutls, session, &self.wishes()) } {
            debug::directly(why);
            return None;
        }
        let offer = Offer::make(&LEAVES_OUT)?;
        let offered = Arc::new(Offered { keys: Keys::of(gnutls, &offer)?, offer });
        let flags = GNUTLS_EXT_FLAG_CLIENT_HELLO | GNUTLS_EXT_FLAG_TLS;
        // SAFETY: as above; the callbacks have the types that gnutls.h wants.
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

    /// After a handshake that succeeded: the program sees the server's certificates, and judges.
    ///
    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn finish(&self, gnutls: &'static Gnutls, offered: &Offered) -> c_int {
        *self.course() = Course::Over;
        let Some(taken) = offered.offer.taken() else { return GNUTLS_E_SUCCESS };
        // SAFETY: the caller vouches for the session, here and below.
        if !unsafe { self.is_by_key(gnutls) } {
            // The server itself answered, by the manager's passing on.
            debug::directly(Directly::ManagerFailed);
            return GNUTLS_E_SUCCESS;
        }
        let shown = guarded(|| {
            let (found, wishes) = (taken.described()?, self.wishes());
            // SAFETY: as above.
            unsafe { Shown::of(gnutls, self.session(), &wishes, found) }
        });
        let is_shown = shown.flatten().is_some_and(|shown| self.shown.set(shown).is_ok());
        if !is_shown {
            // SAFETY: as above.
            unsafe { self.end(gnutls) };
            drop(taken);
            return GNUTLS_E_CERTIFICATE_ERROR;
        }
        // SAFETY: as above.
        unsafe { self.judge(gnutls, taken) }
    }

    /// Whether both sides agreed on a key.
    ///
    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn is_by_key(&self, gnutls: &Gnutls) -> bool {
        let session = self.session();
        // SAFETY: the caller vouches for the session, here and below.
        let exchange = unsafe { (gnutls.gnutls_kx_get)(session) };
        // SAFETY: as above.
        let version = unsafe { (gnutls.gnutls_protocol_get_version)(session) };
        let by_key = [GNUTLS_KX_PSK, GNUTLS_KX_DHE_PSK, GNUTLS_KX_ECDHE_PSK];
        version == GNUTLS_TLS1_3 && by_key.contains(&exchange)
    }

    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn judge(&self, gnutls: &Gnutls, taken: Taken) -> c_int {
        let Some(shown) = self.shown() else { return GNUTLS_E_CERTIFICATE_ERROR };
        let (own, is_lenient) = {
            let wishes = self.wishes();
            (wishes.verifies, wishes.is_lenient())
        };
        // SAFETY: the caller vouches for the session.
        let judge = || unsafe { judge(gnutls, self, shown, own) };
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
                // SAFETY: as above.
                unsafe { self.end(gnutls) };
                shown.refused(taken);
                return error;
            }
        }
        GNUTLS_E_SUCCESS
    }

    /// Whatever the program still says goes nowhere, without a signal.
    ///
    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn end(&self, gnutls: &Gnutls) {
        // SAFETY: the caller vouches for the session, here and below.
        unsafe { (gnutls.gnutls_transport_set_push_function)(self.session(), swallow) };
        // SAFETY: as above.
        unsafe { (gnutls.gnutls_transport_set_pull_function)(self.session(), end_of_file) };
    }
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
        // SAFETY: they belong there.
        if unsafe { (gnutls.gnutls_psk_allocate_client_credentials)(&raw mut own) } != 0 {
            return None;
        }
        let keys = Self { gnutls, own };
        let (identity, key, raw) = (identity.as_ptr(), &raw const key, GNUTLS_PSK_KEY_RAW);
        // SAFETY: they were made above, and both are copied.
        let set = unsafe { (gnutls.gnutls_psk_set_client_credentials)(own, identity, key, raw) };
        (set == 0).then_some(keys)
    }
}

/// libgnutls writes the extensions of a ClientHello: the suites are written, and those of TLS 1.2 that need a
/// key are not among them. The key's own extension comes last, and finds the credentials.
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

/// Bytes were sent in this thread. Behind a ClientHello there may be a second one in the same step, which must
/// list the same suites.
pub(crate) fn sent(bytes: &[u8]) {
    let (session, keys) = STEPPING.get();
    let is_hello = matches!(bytes, [22, 3, _, _, _, 1, ..]);
    if is_hello
        && !keys.is_null()
        && let Some(gnutls) = Gnutls::get()
    {
        // SAFETY: its handshake is under way in this thread.
        unsafe { (gnutls.gnutls_credentials_set)(session, GNUTLS_CRD_PSK, null_mut()) };
    }
}
