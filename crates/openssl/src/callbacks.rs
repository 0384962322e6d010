//! The callbacks that OpenSSL makes, in the order of a connection's life.
//!
//! None of them can fail a handshake: what goes wrong here is a session not found or not stored.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foreign_types::ForeignTypeRef;
use libc::{c_int, c_uchar, c_uint};
use openssl::error::ErrorStack;
use openssl::ssl::SslContextBuilder;
use openssl_sys::{SSL, SSL_CTX, SSL_SESSION};
use rejoin_cache::{Hints, Issued, SecretBytes, SessionId};

use crate::connection::{self, Connection, State, of_ssl, of_ssl_or_new};
use crate::policy::{self, Policy};
use crate::sessions::{Cached, now_ms, raw};
use crate::{ffi, session_bytes, ticket_history};

/// Makes the context call what is below.
pub(crate) fn install(context: &mut SslContextBuilder, cached: Cached) -> Result<(), ErrorStack> {
    let context = raw(context);
    // SAFETY: the builder owns the context, and nobody else uses it yet.
    if !unsafe { connection::attach(context, |attachment| attachment.cached = Some(cached)) } {
        return Err(ErrorStack::get());
    }
    // SAFETY: the context is valid.
    if unsafe { keep_sessions(context) } { Ok(()) } else { Err(ErrorStack::get()) }
}

/// Has a context keep its sessions with us, and none itself.
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn keep_sessions(context: *mut SSL_CTX) -> bool {
    use openssl_sys::{SSL_SESS_CACHE_NO_INTERNAL, SSL_SESS_CACHE_SERVER};
    // SAFETY: the caller vouches for `context`.
    let mode = unsafe { ffi::session_cache_mode(context) };
    let mode = mode | SSL_SESS_CACHE_SERVER | SSL_SESS_CACHE_NO_INTERNAL;
    // SAFETY: as above.
    unsafe { openssl_sys::SSL_CTX_set_session_cache_mode(context, mode) };
    // SAFETY: as above; the callbacks live as long as the program.
    unsafe { openssl_sys::SSL_CTX_sess_set_new_cb(context, Some(session_made)) };
    // SAFETY: as above.
    unsafe { openssl_sys::SSL_CTX_sess_set_get_cb(context, Some(session_wanted)) };
    // SAFETY: as above.
    unsafe { ffi::SSL_CTX_set_generate_session_id(context, Some(id_wanted)) == 1 }
}

/// Whether stateless tickets are attached to the context.
pub(crate) fn has_tickets(context: &SslContextBuilder) -> bool {
    // SAFETY: the builder owns the context, and lives as long as what is looked at.
    unsafe { connection::attachment_of(raw(context)) }.is_some_and(|found| found.tickets.is_some())
}

/// Keeps a panic from reaching OpenSSL, which could not unwind.
pub(crate) fn guard<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// A session id is to be made, for `ServerHello` (TLS 1.2) or a ticket (TLS 1.3). OpenSSL fails the
/// handshake if there is none, so whatever goes wrong here leaves at least a random one.
unsafe extern "C" fn id_wanted(ssl: *mut SSL, id: *mut c_uchar, length: *mut c_uint) -> c_int {
    // SAFETY: `length` is OpenSSL's own variable, and says how large its buffer is: 32 bytes.
    let room = unsafe { *length } as usize;
    // SAFETY: the buffer is OpenSSL's own, of that size, and nobody else's during the call.
    let id = unsafe { std::slice::from_raw_parts_mut(id, room) };
    if openssl::rand::rand_bytes(id).is_err() {
        // As OpenSSL does itself without random numbers.
        return 0;
    }
    guard((), || {
        // SAFETY: OpenSSL passes a valid SSL.
        let connection = unsafe { of_ssl_or_new(ssl) };
        let cached = connection.and_then(|connection| connection.attachment.cached.as_ref());
        if let (Some(Cached { sessions, context }), Some(connection), Some(random)) =
            (cached, connection, id.first_chunk())
        {
            // SAFETY: as above.
            // What will be asked of the client is not known yet.
            let label = context.label(&unsafe { connection.host(ssl) }, Policy::ASKS_NOBODY);
            let made = sessions.seal().seal(&label, random);
            let bytes = made.as_bytes();
            if let Some(id) = id.get_mut(..bytes.len()) {
                id.copy_from_slice(bytes);
            }
            // SAFETY: as above.
            unsafe { have_it_told(ssl) };
        }
    });
    1
}

/// Over TLS 1.2 a client is told its id only if the context that the server has switched to by name keeps
/// sessions, and in Apache and HAProxy none does when their own cache is off.
///
/// # Safety
/// `ssl` is valid.
unsafe fn have_it_told(ssl: *mut SSL) {
    use openssl_sys::{SSL_SESS_CACHE_NO_INTERNAL, SSL_SESS_CACHE_SERVER};
    // SAFETY: the caller vouches for `ssl`.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    // SAFETY: the connection holds it.
    let mode = unsafe { ffi::session_cache_mode(context) };
    if mode & SSL_SESS_CACHE_SERVER == 0 {
        let mode = mode | SSL_SESS_CACHE_SERVER | SSL_SESS_CACHE_NO_INTERNAL;
        // SAFETY: as above.
        unsafe { openssl_sys::SSL_CTX_set_session_cache_mode(context, mode) };
    }
}

/// A client presents a session id. The reference returned is OpenSSL's.
unsafe extern "C" fn session_wanted(
    ssl: *mut SSL,
    id: *const c_uchar,
    length: c_int,
    copy: *mut c_int,
) -> *mut SSL_SESSION {
    guard(std::ptr::null_mut(), || {
        // SAFETY: `copy` is OpenSSL's own variable: 0 says that the reference is given away.
        unsafe { *copy = 0 };
        let length = usize::try_from(length).unwrap_or(0);
        // SAFETY: OpenSSL passes `length` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(id, length) };
        // SAFETY: OpenSSL passes a valid SSL.
        let connection = unsafe { of_ssl_or_new(ssl) };
        let Some(connection) = connection else { return std::ptr::null_mut() };
        let found = SessionId::new(bytes).map_or(std::ptr::null_mut(), |id| {
            // SAFETY: OpenSSL passes a valid SSL.
            let name = unsafe { connection.host_in_hello(ssl) };
            // SAFETY: as above.
            unsafe { fitting(ssl, connection, find(connection, &id, name)) }
        });
        match connection.own().and_then(|own| own.wanted) {
            // SAFETY: the program's own callback, with the arguments meant for it.
            Some(wanted) if found.is_null() => unsafe { wanted(ssl, id, length as c_int, copy) },
            _ => found,
        }
    })
}

/// # Safety
/// `ssl` is valid; `session` is too, or null.
unsafe fn fitting(
    ssl: *mut SSL,
    connection: &Connection,
    session: *mut SSL_SESSION,
) -> *mut SSL_SESSION {
    if session.is_null() {
        return session;
    }
    // SAFETY: the caller vouches for both.
    if unsafe { fits(ssl, session) } {
        // SAFETY: as above.
        unsafe { adopt_context(ssl, connection, session) };
        return session;
    }
    // SAFETY: the reference is ours to drop.
    unsafe { openssl_sys::SSL_SESSION_free(session) };
    std::ptr::null_mut()
}

/// Without a session-id context OpenSSL refuses, by a fatal error, to resume where clients are asked
/// for certificates: then there is no session.
///
/// # Safety
/// Both are valid.
pub(crate) unsafe fn fits(ssl: *mut SSL, session: *mut SSL_SESSION) -> bool {
    let mut length = 0;
    // SAFETY: the session is valid.
    unsafe { ffi::SSL_SESSION_get0_id_context(session, &raw mut length) };
    // SAFETY: the caller vouches for `ssl`.
    let asks = unsafe { openssl_sys::SSL_get_verify_mode(ssl) } & openssl_sys::SSL_VERIFY_PEER != 0;
    length > 0 || !asks
}

fn find(connection: &Connection, id: &SessionId, name: &[u8]) -> *mut SSL_SESSION {
    let Some(Cached { sessions, context }) = &connection.attachment.cached else {
        return std::ptr::null_mut();
    };
    let label = context.label(name, Policy::ASKS_NOBODY);
    if !sessions.seal().recognises(&label, id) {
        sessions.sessions().record_forged();
        return std::ptr::null_mut();
    }
    let Some(policy) = connection.expected_policy(name) else { return std::ptr::null_mut() };
    let asks_nobody = policy == Policy::ASKS_NOBODY;
    let label = if asks_nobody { label } else { context.label(name, policy) };
    let (mut value, context) = (SecretBytes::default(), sessions.tag(&label));
    let mut state = connection.state();
    state.offered = state.visit.look_up(sessions.sessions(), now_ms(), id, context, &mut value);
    if !state.offered {
        return std::ptr::null_mut();
    }
    let Some(value) = sessions.seal().open_value(id, &label, &value) else {
        sessions.sessions().remove(id);
        return std::ptr::null_mut();
    };
    drop(state);
    let Some(session) = sessions.decoder().decode(value) else { return std::ptr::null_mut() };
    // SAFETY: the session is valid, and nobody else has it.
    if !connection.resumes(unsafe { ticket_history::authenticated_s(session.as_ptr()) }) {
        return std::ptr::null_mut();
    }
    // OpenSSL gets the one reference.
    let given = session.as_ptr();
    std::mem::forget(session);
    given
}

/// OpenSSL resumes no session of another session-id context. Where the operator says that programs are of one
/// context, the connection takes the session's, which it has not used for anything yet.
///
/// # Safety
/// `ssl` and `session` are valid.
pub(crate) unsafe fn adopt_context(
    ssl: *mut SSL,
    connection: &Connection,
    session: *const SSL_SESSION,
) {
    if connection.attachment.is_named {
        let mut length = 0;
        // SAFETY: the caller vouches for `session`.
        let start = unsafe { ffi::SSL_SESSION_get0_id_context(session, &raw mut length) };
        // SAFETY: the session's own bytes, as many as it says, and a valid SSL, which copies them.
        unsafe { ffi::SSL_set_session_id_context(ssl, start, length) };
    }
}

/// A handshake made a session. Returns 0, for no reference is kept, or what the program's own
/// callback says.
unsafe extern "C" fn session_made(ssl: *mut SSL, session: *mut SSL_SESSION) -> c_int {
    guard(0, || {
        // SAFETY: OpenSSL passes a valid SSL.
        let Some(connection) = (unsafe { of_ssl_or_new(ssl) }) else {
            return 0;
        };
        // SAFETY: as above, and a valid session.
        if !unsafe { is_in_ticket(ssl, connection) } {
            // SAFETY: as above.
            unsafe { store(connection, ssl, session) };
        }
        match connection.own().and_then(|own| own.made) {
            // SAFETY: the program's own callback, with the arguments meant for it.
            Some(made) => unsafe { made(ssl, session) },
            None => 0,
        }
    })
}

/// Over TLS 1.3 OpenSSL also shows the sessions that are wholly in their ticket.
///
/// # Safety
/// `ssl` is valid.
unsafe fn is_in_ticket(ssl: *mut SSL, connection: &Connection) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    let is_single_use = unsafe { ticket_history::is_single_use(ssl) };
    // SAFETY: as above.
    let options = unsafe { ffi::SSL_get_options(ssl) };
    let is_stateless =
        connection.attachment.tickets.is_some() || connection.attachment.own.is_some();
    is_single_use && is_stateless && options & ffi::SSL_OP_NO_TICKET == 0
}

/// # Safety
/// `ssl` and `session` are valid.
unsafe fn store(connection: &Connection, ssl: *mut SSL, session: *mut SSL_SESSION) {
    let Some(Cached { sessions, context }) = &connection.attachment.cached else { return };
    // SAFETY: the caller vouches for `ssl`.
    let is_single_use = unsafe { ticket_history::is_single_use(ssl) };
    // SAFETY: as above.
    let authenticated_s = unsafe { connection.resumed_since_s(ssl) };
    if let Some(authenticated_s) = authenticated_s.filter(|_| is_single_use) {
        // SAFETY: the caller vouches for `session`, which was just made.
        unsafe { ticket_history::inherit(session, authenticated_s) };
    }
    // SAFETY: the caller vouches for `session`.
    let Some((id, mut value, lifetime_ms)) = (unsafe { serialised(session) }) else { return };
    // SAFETY: the caller vouches for `ssl`.
    let name = unsafe { connection.host(ssl) };
    // SAFETY: as above.
    let label = context.label(&name, unsafe { connection.policy(ssl, &name) });
    let mut state = connection.state();
    state.established = true;
    let visit = &mut state.visit;
    let expires_ms = now_ms().saturating_add(lifetime_ms);
    sessions.seal().seal_value(&id, &label, &mut value);
    let issued = Issued { id, value, expires_ms, context: sessions.tag(&label) };
    match sessions.hints() {
        Hints::Never => visit.issue(sessions.sessions(), now_ms(), &issued),
        Hints::Expected => visit.issue_later(sessions.sessions(), now_ms(), issued),
    }
}

/// A session's id, its bytes, and its lifetime in milliseconds.
///
/// # Safety
/// `session` is valid.
unsafe fn serialised(session: *mut SSL_SESSION) -> Option<(SessionId, SecretBytes, u64)> {
    let mut length = 0;
    // SAFETY: the caller vouches for `session`.
    let id = unsafe { openssl_sys::SSL_SESSION_get_id(session, &raw mut length) };
    // SAFETY: the id has `length` bytes and lives as long as the session.
    let id = SessionId::new(unsafe { std::slice::from_raw_parts(id, length as usize) }).ok()?;
    // SAFETY: the caller vouches for `session`.
    let value = unsafe { session_bytes::serialised(session) }?;
    // SAFETY: the caller vouches for `session`.
    let lifetime_s = unsafe { openssl_sys::SSL_SESSION_get_timeout(session) };
    Some((id, value, u64::try_from(lifetime_s).ok()?.saturating_mul(1_000)))
}

/// Something happened on a connection: a fatal alert forgets its sessions, and so does the program.
///
/// Only once the handshake is done: before, an alert is not authenticated, and whoever saw a
/// session id could have it forgotten. A connection that ends without `close_notify` says nothing
/// about its session.
pub(crate) unsafe extern "C" fn info(ssl: *const SSL, what: c_int, value: c_int) {
    if what & ffi::SSL_CB_HANDSHAKE_START != 0 {
        // SAFETY: OpenSSL passes a valid SSL.
        guard((), || unsafe { handshake_starts(ssl.cast_mut()) });
    }
    // SAFETY: OpenSSL passes a valid SSL.
    let Some(connection) = (unsafe { of_ssl(ssl) }) else {
        return;
    };
    let server_info = connection.server_info;
    // SAFETY: `ssl` is valid.
    guard((), || unsafe { happened(ssl.cast_mut(), connection, what, value) });
    if let Some(server_info) = server_info {
        // SAFETY: the server's own callback, with the arguments meant for it.
        unsafe { server_info(ssl, what, value) };
    }
}

/// Most of what happens is of no interest, and there are dozens of it in a handshake.
///
/// # Safety
/// `ssl` is valid.
unsafe fn happened(ssl: *mut SSL, connection: &Connection, what: c_int, value: c_int) {
    // SAFETY: the caller vouches for `ssl`.
    unsafe { keep_stateful(ssl, connection) };
    let cached = connection.attachment.cached.as_ref();
    if what & ffi::SSL_CB_HANDSHAKE_DONE != 0 {
        // SAFETY: as above.
        let resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        // SAFETY: as above.
        unsafe { learn(ssl, connection) };
        done(cached, &mut connection.state(), resumed);
    }
    if what & ffi::SSL_CB_ALERT == 0 {
        return;
    }
    let is_over = value >> 8 == ffi::SSL3_AL_FATAL
        // SAFETY: as above.
        || (what & ffi::SSL_CB_WRITE != 0 && unsafe { is_removed(ssl) });
    let Some(Cached { sessions, .. }) = cached.filter(|_| is_over) else { return };
    let mut state = connection.state();
    if state.established {
        state.visit.forget(sessions.sessions());
    }
}

/// Whether the program removed the connection's session (`SSL_CTX_remove_session`): nginx does with that of a
/// client that it refuses. OpenSSL marks it so; at the end of a connection that ends without
/// `close_notify`, too, but then no alert is written.
///
/// # Safety
/// `ssl` is valid.
unsafe fn is_removed(ssl: *const SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    let session = unsafe { openssl_sys::SSL_get_session(ssl) };
    // SAFETY: the connection's own.
    !session.is_null() && unsafe { ffi::SSL_SESSION_is_resumable(session) } == 0
}

/// What clients have to show under this host is known for the next.
///
/// # Safety
/// `ssl` is valid.
unsafe fn learn(ssl: *mut SSL, connection: &Connection) {
    // SAFETY: the caller vouches for `ssl`.
    policy::note(unsafe { openssl_sys::SSL_get_verify_mode(ssl) });
    if policy::is_anybody_asked() {
        // SAFETY: as above.
        let host = unsafe { connection.host(ssl) };
        // SAFETY: as above.
        unsafe { connection.policy(ssl, &host) };
    }
}

/// A renegotiation is not counted again.
fn done(cached: Option<&Cached>, state: &mut State, resumed: bool) {
    let rejected = std::mem::take(&mut state.offered) && !resumed;
    let counted = std::mem::replace(&mut state.counted, true);
    state.established = true;
    let Some(Cached { sessions, .. }) = cached else { return };
    if rejected {
        sessions.sessions().record_rejected();
    }
    if !counted {
        sessions.sessions().record_handshake(resumed);
    }
}

/// A server that switches contexts by name may give the connection the options of the new one, as nginx
/// does.
///
/// # Safety
/// `ssl` is valid.
unsafe fn keep_stateful(ssl: *mut SSL, connection: &Connection) {
    if connection.attachment.is_stateful {
        // SAFETY: the caller vouches for `ssl`.
        unsafe { ffi::SSL_set_options(ssl, ffi::SSL_OP_NO_TICKET) };
    }
}

/// The connection's state is made before the client has said anything: the server may yet switch
/// contexts by the name the client asks for, but keeps calling the callbacks of this one. An SSL
/// that is used again after `SSL_clear` begins anew.
///
/// # Safety
/// `ssl` is valid.
unsafe fn handshake_starts(ssl: *mut SSL) {
    // SAFETY: without a buffer it only measures: zero before the first handshake is done, and not
    // in a renegotiation.
    let first = unsafe { openssl_sys::SSL_get_finished(ssl, std::ptr::null_mut(), 0) } == 0;
    if first {
        // SAFETY: the caller vouches for `ssl`.
        unsafe { connection::renew(ssl) };
    }
    // SAFETY: as above.
    let _made = unsafe { of_ssl_or_new(ssl) };
}
