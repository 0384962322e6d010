//! The callbacks that OpenSSL makes, in the order of a connection's life.
//!
//! None of them can fail a handshake: what goes wrong here is a session not found or not stored.

use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_int, c_uchar, c_uint};
use openssl::error::ErrorStack;
use openssl::ssl::SslContextBuilder;
use openssl_sys::{SSL, SSL_SESSION};
use rejoin_cache::{Hints, Issued, SecretBytes, SessionId};

use crate::connection::{self, Connection, State, of_ssl, of_ssl_or_new};
use crate::ffi;
use crate::sessions::{Attachment, now_ms, raw};

/// Makes the context call what is below.
pub(crate) fn install(
    context: &mut SslContextBuilder,
    attachment: Attachment,
) -> Result<(), ErrorStack> {
    let context = raw(context);
    // SAFETY: the builder owns the context, and nobody else uses it yet.
    if !unsafe { connection::store_attachment(context, attachment) } {
        return Err(ErrorStack::get());
    }
    // SAFETY: the context is valid, and the callback lives as long as the program.
    unsafe { openssl_sys::SSL_CTX_sess_set_new_cb(context, Some(session_made)) };
    // SAFETY: as above.
    unsafe { openssl_sys::SSL_CTX_sess_set_get_cb(context, Some(session_wanted)) };
    // SAFETY: as above; it calls the server's own, which the attachment has kept.
    unsafe { ffi::SSL_CTX_set_info_callback(context, Some(info)) };
    // SAFETY: as above.
    let set = unsafe { ffi::SSL_CTX_set_generate_session_id(context, Some(id_wanted)) };
    if set == 1 { Ok(()) } else { Err(ErrorStack::get()) }
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
        if let (Some(connection), Some(random)) = (connection, id.first_chunk()) {
            let made = connection.attachment.sessions.seal().seal(random);
            let bytes = made.as_bytes();
            if let Some(id) = id.get_mut(..bytes.len()) {
                id.copy_from_slice(bytes);
            }
        }
    });
    1
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
        match (connection, SessionId::new(bytes)) {
            (Some(connection), Ok(id)) => find(connection, &id),
            _ => std::ptr::null_mut(),
        }
    })
}

fn find(connection: &Connection, id: &SessionId) -> *mut SSL_SESSION {
    let Attachment { sessions, context, .. } = &connection.attachment;
    if !sessions.seal().recognises(id) {
        sessions.cache().record_forged();
        return std::ptr::null_mut();
    }
    let mut value = SecretBytes::default();
    let mut state = connection.state();
    state.offered = state.visit.look_up(sessions.cache(), now_ms(), id, *context, &mut value);
    if !state.offered {
        return std::ptr::null_mut();
    }
    let mut start = value.as_ptr();
    let length = value.len() as libc::c_long;
    // SAFETY: `start` points at `length` bytes.
    let session =
        unsafe { openssl_sys::d2i_SSL_SESSION(std::ptr::null_mut(), &raw mut start, length) };
    if session.is_null() {
        // OpenSSL's complaint must not be taken for the application's next call's.
        drop(ErrorStack::get());
    }
    session
}

/// A handshake made a session. Returns 0: no reference is kept.
unsafe extern "C" fn session_made(ssl: *mut SSL, session: *mut SSL_SESSION) -> c_int {
    guard(0, || {
        // SAFETY: OpenSSL passes a valid SSL.
        let connection = unsafe { of_ssl_or_new(ssl) };
        // SAFETY: OpenSSL passes a valid session.
        let issued = connection.and_then(|c| Some((unsafe { serialised(session) }?, c)));
        if let Some(((id, value, lifetime_ms), connection)) = issued {
            let Attachment { sessions, context, .. } = &connection.attachment;
            let mut state = connection.state();
            state.established = true;
            let visit = &mut state.visit;
            let expires_ms = now_ms().saturating_add(lifetime_ms);
            let issued = Issued { id, value, expires_ms, context: *context };
            match sessions.hints() {
                Hints::Never => visit.issue(sessions.cache(), now_ms(), &issued),
                Hints::Expected => visit.issue_later(sessions.cache(), now_ms(), issued),
            }
        }
        0
    })
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
    // SAFETY: without a buffer it only measures.
    let size = unsafe { openssl_sys::i2d_SSL_SESSION(session, std::ptr::null_mut()) };
    let mut value = SecretBytes::default();
    let mut start = value.resize(usize::try_from(size).ok().filter(|size| *size > 0)?).as_mut_ptr();
    // SAFETY: the buffer has the size just measured.
    if unsafe { openssl_sys::i2d_SSL_SESSION(session, &raw mut start) } != size {
        return None;
    }
    // SAFETY: the caller vouches for `session`.
    let lifetime_s = unsafe { openssl_sys::SSL_SESSION_get_timeout(session) };
    Some((id, value, u64::try_from(lifetime_s).ok()?.saturating_mul(1_000)))
}

/// Something happened on a connection: a fatal alert forgets its sessions.
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
    guard((), || {
        let sessions = &connection.attachment.sessions;
        let mut state = connection.state();
        if what & ffi::SSL_CB_HANDSHAKE_DONE != 0 {
            state.established = true;
            // SAFETY: `ssl` is valid.
            let resumed = unsafe { openssl_sys::SSL_session_reused(ssl.cast_mut()) } == 1;
            if std::mem::take(&mut state.offered) && !resumed {
                sessions.record_rejected();
            }
        }
        let fatal = what & ffi::SSL_CB_ALERT != 0 && value >> 8 == ffi::SSL3_AL_FATAL;
        if fatal && state.established {
            state.visit.forget(sessions.cache());
        }
    });
    if let Some(server_info) = server_info {
        // SAFETY: the server's own callback, with the arguments meant for it.
        unsafe { server_info(ssl, what, value) };
    }
}

/// The connection's state is made before the client has said anything: the server may yet switch
/// contexts by the name the client asks for, but keeps calling the callbacks of this one. An SSL
/// that is used again after `SSL_clear` begins anew.
///
/// # Safety
/// `ssl` is valid.
unsafe fn handshake_starts(ssl: *mut SSL) {
    // SAFETY: the caller vouches for `ssl`.
    let Some(connection) = (unsafe { of_ssl_or_new(ssl) }) else {
        return;
    };
    // SAFETY: without a buffer it only measures: zero before the first handshake is done, and not
    // in a renegotiation.
    let first = unsafe { openssl_sys::SSL_get_finished(ssl, std::ptr::null_mut(), 0) } == 0;
    let mut state = connection.state();
    if first && state.established {
        state.visit.finish(connection.attachment.sessions.cache(), now_ms());
        *state = State::default();
    }
}
