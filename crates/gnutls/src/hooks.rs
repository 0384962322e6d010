//! The functions that are called in place of libgnutls's own, each under the name that it replaces.
//!
//! The program vouches for the arguments of each call, as for libgnutls's own function of that name.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use libc::{size_t, time_t};
use rejoin_abi::{GNUTLS, Hooks, RegisteredOf, interposed, replacements};
use rejoin_hop::{Directly, guarded};

use crate::allowed;
use crate::connection::{self, Connection};
use crate::ffi::{
    AnyCallback, Cache, Credentials, Datum, GNUTLS_E_CHANNEL_BINDING_NOT_AVAILABLE,
    GNUTLS_E_INTERNAL_ERROR, GNUTLS_E_INVALID_REQUEST, GNUTLS_E_SHORT_MEMORY_BUFFER,
    GNUTLS_E_SUCCESS, Gnutls, Session, TypedData, Verify,
};
use crate::priorities::{self, Priorities};
use crate::settings::{Flags, Settings, Verification};
use crate::shown::Shown;
use crate::within::{is_within, within};

interposed!(gnutls => replacements { GNUTLS });

/// The hooks of this library.
pub(crate) static HOOKS: Hooks = Hooks { sending, ..rejoin_hop::hooks(&REPLACEMENTS) };
/// The hooks that every adapter has.
static GENERAL: Hooks = rejoin_hop::hooks(&REPLACEMENTS);

unsafe extern "C" fn sending(
    descriptor: c_int,
    tunnel_port: u16,
    registered_of: RegisteredOf,
    bytes: *const c_void,
    length: size_t,
) -> c_int {
    // SAFETY: the caller passes the arguments that this hook has.
    let is_sent =
        unsafe { (GENERAL.sending)(descriptor, tunnel_port, registered_of, bytes, length) };
    if !bytes.is_null() {
        // SAFETY: the program passes `length` bytes to send, and the pointer is not null.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        guarded(|| connection::sent(bytes));
    }
    is_sent
}

/// Records a call of the program. Does nothing if libgnutls itself makes the call.
fn recording<T>(what: impl FnOnce() -> T) -> Option<T> {
    if is_within() { None } else { guarded(what) }
}

/// Does something with a client's connection, unless libgnutls itself makes the call.
fn with<T>(session: Session, what: impl FnOnce(&Connection) -> T) -> Option<T> {
    recording(|| connection::of(session).map(|connection| what(&connection))).flatten()
}

/// Records what the program sets on a session.
fn note(session: Session, what: impl FnOnce(&mut Settings)) {
    with(session, |connection| what(&mut connection.settings()));
}

/// Returns the connection if the manager made it.
fn standing(session: Session) -> Option<Arc<Connection>> {
    let connection = guarded(|| connection::of(session)).flatten()?;
    connection.shown().is_some().then_some(connection)
}

/// Calls libgnutls's own function, which calls none of the program's.
macro_rules! real {
    ($gnutls:ident.$name:ident($($argument:expr),*)) => {
        // SAFETY: these are the arguments with which the program called the replacement of this function.
        within(|| unsafe { ($gnutls.$name)($($argument),*) })
    };
}

unsafe extern "C" fn gnutls_init(session: *mut Session, flags: c_uint) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    let done = real!(gnutls.gnutls_init(session, flags));
    if done == GNUTLS_E_SUCCESS {
        // SAFETY: libgnutls has written the session there.
        let session = unsafe { session.read() };
        recording(|| connection::begun(session, flags));
    }
    done
}

unsafe extern "C" fn gnutls_deinit(session: Session) {
    let Some(gnutls) = Gnutls::get() else { return };
    let connection = guarded(|| connection::ended(session)).flatten();
    real!(gnutls.gnutls_deinit(session));
    guarded(|| drop(connection));
}

/// Sets the priorities with keys in a client's session. Returns true if they are set.
///
/// # Safety
/// `session` is valid, and in no other thread's use.
unsafe fn set_with_keys(gnutls: &Gnutls, session: Session, priorities: Priorities) -> bool {
    with(session, |connection| {
        // SAFETY: the caller vouches for `session`.
        let takes_keys = unsafe { priorities.set_with_keys(gnutls, session) };
        let mut settings = connection.settings();
        settings.priorities = Some(priorities);
        settings.takes_keys = takes_keys;
        takes_keys
    })
    .unwrap_or(false)
}

unsafe extern "C" fn gnutls_priority_set_direct(
    session: Session,
    text: *const c_char,
    wrong: *mut *const c_char,
) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    if !text.is_null() {
        // SAFETY: the program's text is not null, and ends with a zero byte.
        let said = Priorities::Text(unsafe { CStr::from_ptr(text) }.to_owned());
        // SAFETY: the session is the program's, which uses it in this thread.
        if unsafe { set_with_keys(gnutls, session, said) } {
            return GNUTLS_E_SUCCESS;
        }
    }
    without_keys(session);
    real!(gnutls.gnutls_priority_set_direct(session, text, wrong))
}

/// Records that the program sets priorities that take no keys.
fn without_keys(session: Session) {
    note(session, |settings| settings.takes_keys = false);
}

unsafe extern "C" fn gnutls_set_default_priority(session: Session) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    // SAFETY: the session is the program's, which uses it in this thread.
    if unsafe { set_with_keys(gnutls, session, Priorities::Default(None, 0)) } {
        return GNUTLS_E_SUCCESS;
    }
    without_keys(session);
    real!(gnutls.gnutls_set_default_priority(session))
}

unsafe extern "C" fn gnutls_set_default_priority_append(
    session: Session,
    text: *const c_char,
    wrong: *mut *const c_char,
    flags: c_uint,
) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    if !text.is_null() {
        // SAFETY: the program's text is not null, and ends with a zero byte.
        let more = unsafe { CStr::from_ptr(text) }.to_owned();
        // SAFETY: the session is the program's, which uses it in this thread.
        if unsafe { set_with_keys(gnutls, session, Priorities::Default(Some(more), flags)) } {
            return GNUTLS_E_SUCCESS;
        }
    }
    without_keys(session);
    real!(gnutls.gnutls_set_default_priority_append(session, text, wrong, flags))
}

unsafe extern "C" fn gnutls_priority_init(
    cache: *mut Cache,
    text: *const c_char,
    wrong: *mut *const c_char,
) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    let done = real!(gnutls.gnutls_priority_init(cache, text, wrong));
    // SAFETY: the arguments are those of the call that libgnutls has just answered.
    unsafe { made(done, cache, text, 0) }
}

unsafe extern "C" fn gnutls_priority_init2(
    cache: *mut Cache,
    text: *const c_char,
    wrong: *mut *const c_char,
    flags: c_uint,
) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    let done = real!(gnutls.gnutls_priority_init2(cache, text, wrong, flags));
    // SAFETY: the arguments are those of the call that libgnutls has just answered.
    unsafe { made(done, cache, text, flags) }
}

/// Records the program's cache if libgnutls has made it. Returns libgnutls's answer.
///
/// # Safety
/// `text` is null, or ends with a zero byte; on success a cache is at `cache`.
unsafe fn made(done: c_int, cache: *mut Cache, text: *const c_char, flags: c_uint) -> c_int {
    if done == GNUTLS_E_SUCCESS {
        // SAFETY: the caller vouches for the text.
        let priorities = unsafe { Priorities::of_cache(text, flags) };
        // SAFETY: the caller vouches for the cache.
        let cache = unsafe { cache.read() };
        recording(|| priorities::made(cache, priorities));
    }
    done
}

unsafe extern "C" fn gnutls_priority_deinit(cache: Cache) {
    let Some(gnutls) = Gnutls::get() else { return };
    recording(|| priorities::freed(gnutls, cache));
    real!(gnutls.gnutls_priority_deinit(cache));
}

unsafe extern "C" fn gnutls_priority_set(session: Session, cache: Cache) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    let set = |connection: &Connection| {
        let (cache, said) = priorities::with_keys(gnutls, cache)?;
        // SAFETY: the session is the program's; the cache is ours, and lives as long as the program's.
        let is_set = unsafe { (gnutls.gnutls_priority_set)(session, cache) } == 0;
        let mut settings = connection.settings();
        settings.priorities = Some(said);
        settings.takes_keys = is_set;
        is_set.then_some(())
    };
    if with(session, set).flatten().is_some() {
        return GNUTLS_E_SUCCESS;
    }
    without_keys(session);
    real!(gnutls.gnutls_priority_set(session, cache))
}

/// Replaces a function without a result: records the call, and then makes it.
macro_rules! recorded {
    ($name:ident($($argument:ident: $type:ty),*) $record:expr) => {
        unsafe extern "C" fn $name($($argument: $type),*) {
            $record;
            if let Some(gnutls) = Gnutls::get() {
                real!(gnutls.$name($($argument),*));
            }
        }
    };
}

recorded!(gnutls_session_set_verify_cert(session: Session, name: *const c_char, flags: c_uint) {
    note(session, |settings| {
        settings.verification = Verification::Name(name);
        settings.flags.push(Flags::One(flags));
    });
});
recorded!(gnutls_session_set_verify_cert2(session: Session, data: *mut TypedData, count: c_uint, flags: c_uint) {
    note(session, |settings| {
        settings.verification = Verification::Data(data, count);
        settings.flags.push(Flags::Two(flags));
    });
});
recorded!(gnutls_session_set_verify_function(session: Session, function: Option<Verify>) {
    let verification = function.map_or(Verification::Unset, Verification::Function);
    note(session, |settings| settings.verification = verification);
});
recorded!(gnutls_session_set_verify_output_function(session: Session, output: AnyCallback) {
    note(session, |settings| settings.output = output);
});
recorded!(gnutls_certificate_set_verify_function(credentials: Credentials, function: Option<Verify>) {
    recording(|| allowed::note(credentials, |set| set.verify = function));
});
recorded!(gnutls_certificate_set_retrieve_function(credentials: Credentials, function: AnyCallback) {
    retrieves(credentials, function);
});
recorded!(gnutls_certificate_set_retrieve_function2(credentials: Credentials, function: AnyCallback) {
    retrieves(credentials, function);
});
recorded!(gnutls_certificate_set_retrieve_function3(credentials: Credentials, function: AnyCallback) {
    retrieves(credentials, function);
});
recorded!(gnutls_certificate_free_credentials(credentials: Credentials) {
    recording(|| allowed::forget(credentials));
});
recorded!(gnutls_session_set_keylog_function(session: Session, function: AnyCallback) {
    note(session, |settings| {
        settings.directly = function.map(|_| Directly::KeyLog).or(settings.directly);
    });
});
recorded!(gnutls_session_enable_compatibility_mode(session: Session) {
    note(session, |settings| settings.is_compatible = true);
});

/// Records that a callback may return a certificate of the program.
fn retrieves(credentials: Credentials, function: AnyCallback) {
    let may_have_certificate = function.is_some();
    recording(|| allowed::note(credentials, |set| set.may_have_certificate = may_have_certificate));
}

/// The data of a session that cannot be resumed. libgnutls returns them, and ignores them when they are set.
const NO_SESSION: [u8; 4] = [0; 4];

unsafe extern "C" fn gnutls_session_set_data(
    session: Session,
    data: *const c_void,
    length: size_t,
) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    let done = real!(gnutls.gnutls_session_set_data(session, data, length));
    if done == GNUTLS_E_SUCCESS && length > NO_SESSION.len() {
        note(session, |settings| settings.directly = Some(Directly::OwnSession));
    }
    done
}

unsafe extern "C" fn gnutls_handshake(session: Session) -> c_int {
    let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
    match guarded(|| connection::of(session)).flatten() {
        // SAFETY: the session is the program's, which uses it in this thread.
        Some(connection) => unsafe { connection.step(gnutls) },
        // Not `real!`: it calls functions of the program.
        // SAFETY: the program's own call, with its argument.
        None => unsafe { (gnutls.gnutls_handshake)(session) },
    }
}

/// Replaces a function that is called for the shadow, if there is one.
macro_rules! by_shadow {
    ($name:ident, ($($argument:ident: $type:ty),*) -> $of:ty, $without:expr) => {
        unsafe extern "C" fn $name(session: Session, $($argument: $type),*) -> $of {
            let Some(gnutls) = Gnutls::get() else { return $without };
            let connection = standing(session);
            let shown = connection.as_deref().and_then(Connection::shown);
            let session = shown.map_or(session, |shown| shown.shadow.session);
            // SAFETY: the arguments are the program's; a shadow is a valid session, too.
            unsafe { (gnutls.$name)(session, $($argument),*) }
        }
    };
}

by_shadow!(gnutls_certificate_get_peers, (count: *mut c_uint) -> *const Datum, null());
by_shadow!(gnutls_certificate_type_get, () -> c_int, 0);
by_shadow!(gnutls_certificate_type_get2, (whose: c_int) -> c_int, 0);
by_shadow!(gnutls_certificate_expiration_time_peers, () -> time_t, -1);
by_shadow!(gnutls_certificate_activation_time_peers, () -> time_t, -1);
by_shadow!(gnutls_auth_get_type, () -> c_int, 0);
by_shadow!(gnutls_auth_server_get_type, () -> c_int, 0);
by_shadow!(gnutls_auth_client_get_type, () -> c_int, 0);
by_shadow!(gnutls_ocsp_status_request_get, (answer: *mut Datum) -> c_int, GNUTLS_E_INTERNAL_ERROR);
by_shadow!(gnutls_ocsp_status_request_get2, (at: c_uint, answer: *mut Datum) -> c_int, GNUTLS_E_INTERNAL_ERROR);
by_shadow!(gnutls_ocsp_status_request_is_checked, (flags: c_uint) -> c_uint, 0);

/// Replaces a function that verifies the certificates: the shadow is asked, and its answer recorded.
macro_rules! verifying {
    ($name:ident, ($($argument:ident: $type:ty),*)) => {
        unsafe extern "C" fn $name(
            session: Session,
            $($argument: $type,)*
            status: *mut c_uint,
        ) -> c_int {
            let Some(gnutls) = Gnutls::get() else { return GNUTLS_E_INTERNAL_ERROR };
            let connection = standing(session);
            let shown = connection.as_deref().and_then(Connection::shown);
            let session = shown.map_or(session, |shown| shown.shadow.session);
            // SAFETY: the arguments are the program's; a shadow is a valid session, too.
            let done = unsafe { (gnutls.$name)(session, $($argument,)* status) };
            if let Some(shown) = shown {
                // SAFETY: libgnutls has written the status of a verification that succeeded.
                let passed = done == 0 && unsafe { status.read() } == 0;
                guarded(|| shown.verified(passed));
            }
            done
        }
    };
}

verifying!(gnutls_certificate_verify_peers, (data: *mut TypedData, count: c_uint));
verifying!(gnutls_certificate_verify_peers2, ());
verifying!(gnutls_certificate_verify_peers3, (name: *const c_char));

/// Replaces a function that is answered by what the manager reported.
macro_rules! reported {
    ($name:ident, ($($argument:ident: $type:ty),*) -> $of:ty, $without:expr, $shown:expr) => {
        unsafe extern "C" fn $name(session: Session, $($argument: $type),*) -> $of {
            let Some(gnutls) = Gnutls::get() else { return $without };
            let connection = standing(session);
            match connection.as_deref().and_then(Connection::shown) {
                None => real!(gnutls.$name(session $(, $argument)*)),
                Some(shown) => {
                    let answer: fn(&Gnutls, &Shown, $($type),*) -> $of = $shown;
                    guarded(|| answer(gnutls, shown, $($argument),*)).unwrap_or($without)
                }
            }
        }
    };
}

reported!(gnutls_protocol_get_version, () -> c_int, 0, |_, shown| shown.version);
reported!(gnutls_kx_get, () -> c_int, 0, |_, shown| shown.exchange);
reported!(gnutls_cipher_get, () -> c_int, 0, |_, shown| shown.cipher);
reported!(gnutls_mac_get, () -> c_int, 0, |_, shown| shown.mac);
reported!(gnutls_session_get_verify_cert_status, () -> c_uint, c_uint::MAX, |_, shown| shown.status());
reported!(gnutls_session_get_desc, () -> *mut c_char, null_mut(), |gnutls, shown| shown.description(gnutls));
// A program may ignore the certificates of a session that was resumed, so none is reported as resumed.
reported!(gnutls_session_is_resumed, () -> c_int, 0, |_, _| 0);
// In TLS 1.3 a hop answers both as the server would. The manager takes no server of TLS 1.2 without secure renegotiation.
reported!(gnutls_session_ext_master_secret_status, () -> c_uint, 0, |_, shown| shown.has_extended_master_secret().into());
reported!(gnutls_safe_renegotiation_status, () -> c_uint, 0, |_, _| 1);
reported!(gnutls_session_channel_binding, (kind: c_int, into: *mut Datum) -> c_int, GNUTLS_E_INTERNAL_ERROR, |_, _, _, _| GNUTLS_E_CHANNEL_BINDING_NOT_AVAILABLE);
reported!(gnutls_session_get_data, (into: *mut c_void, room: *mut size_t) -> c_int, GNUTLS_E_INTERNAL_ERROR, |_, _, into, room| {
    // SAFETY: the program's pointer to the room at `into`.
    let had = unsafe { room.replace(NO_SESSION.len()) };
    if had < NO_SESSION.len() {
        return GNUTLS_E_SHORT_MEMORY_BUFFER;
    }
    if !into.is_null() {
        // SAFETY: the program has room for at least four bytes there.
        unsafe { into.cast::<[u8; 4]>().write(NO_SESSION) };
    }
    GNUTLS_E_SUCCESS
});
reported!(gnutls_session_get_data2, (into: *mut Datum) -> c_int, GNUTLS_E_INTERNAL_ERROR, |gnutls, _, into| {
    let data = gnutls.allocate(NO_SESSION.len());
    if into.is_null() || data.is_null() {
        return GNUTLS_E_INVALID_REQUEST;
    }
    // SAFETY: four bytes were allocated there.
    unsafe { data.cast::<[u8; 4]>().write(NO_SESSION) };
    // SAFETY: the program's pointer is not null, and points to a datum.
    unsafe { into.write(Datum { data, size: NO_SESSION.len() as c_uint }) };
    GNUTLS_E_SUCCESS
});
// The program cannot derive the keying material that it would share with the server.
reported!(gnutls_prf, (a: size_t, b: *const c_char, c: c_int, d: size_t, e: *const c_char, f: size_t, g: *mut c_char) -> c_int, GNUTLS_E_INTERNAL_ERROR, |_, _, _, _, _, _, _, _, _| GNUTLS_E_INVALID_REQUEST);
reported!(gnutls_prf_raw, (a: size_t, b: *const c_char, c: size_t, d: *const c_char, e: size_t, f: *mut c_char) -> c_int, GNUTLS_E_INTERNAL_ERROR, |_, _, _, _, _, _, _, _| GNUTLS_E_INVALID_REQUEST);
reported!(gnutls_prf_rfc5705, (a: size_t, b: *const c_char, c: size_t, d: *const c_char, e: size_t, f: *mut c_char) -> c_int, GNUTLS_E_INTERNAL_ERROR, |_, _, _, _, _, _, _, _| GNUTLS_E_INVALID_REQUEST);
