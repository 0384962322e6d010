//! The info callback: it makes a connection's state as its handshake starts, and follows the connection to its end.
//!
//! Nothing here can fail a handshake.

use libc::c_int;
use openssl_sys::{SSL, SSL_CTX};

use crate::attachment::{ATTACHMENTS, Attachment, Own, attachment_of};
use crate::connection::{CONNECTIONS, Connection, State, is_bare, of_ssl};
use crate::guard::guard;
use crate::policy::{self, Circumstances};
use crate::sessions::Cached;
use crate::{board, early, ffi};

/// Adds to a context's attachment, and makes its connections report their handshakes here.
///
/// # Safety
/// `context` is valid and not yet used by another thread.
pub(crate) unsafe fn attach(context: *mut SSL_CTX, add: impl FnOnce(&mut Attachment)) -> bool {
    // SAFETY: the caller vouches for `context`.
    let mut attachment = unsafe { attachment_of(context) }.cloned().unwrap_or_default();
    // SAFETY: the caller vouches for `context`.
    let server_info = unsafe { ffi::SSL_CTX_get_info_callback(context) };
    if let Some(own) = server_info.filter(|callback| !is_ours(*callback)) {
        attachment.server_info = Some(own);
    }
    add(&mut attachment);
    // SAFETY: the context is valid, and our callback calls the server's own, kept above.
    unsafe { ffi::SSL_CTX_set_info_callback(context, Some(info)) };
    // SAFETY: the caller vouches for `context`.
    unsafe { ATTACHMENTS.put(context, attachment) }.is_some()
}

/// Returns the connection's state, and makes it first if there is none. `None` if the context is not attached.
///
/// # Safety
/// `ssl` is valid for `'a`.
pub(crate) unsafe fn of_ssl_or_new<'a>(ssl: *mut SSL) -> Option<&'a Connection> {
    // SAFETY: the caller vouches for `ssl`.
    if let Some(connection) = unsafe { of_ssl(ssl) } {
        return Some(connection);
    }
    // SAFETY: the caller vouches for `ssl`.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    // SAFETY: an SSL always has a context, which outlives this call.
    let Some(found) = (unsafe { attachment_of(context) }) else {
        board::unattached();
        return None;
    };
    let mut attachment = found.clone();
    if let Some(own) = attachment.own.clone() {
        // SAFETY: `ssl` is valid, and has this context.
        unsafe { begins(ssl, context, &own, &mut attachment) };
    }
    // SAFETY: `ssl` is valid.
    let server_info = unsafe { server_info(ssl, context) }.or(attachment.server_info);
    let connection = Connection::new(attachment, server_info);
    // SAFETY: `ssl` is valid, and nobody has its state: it has none, as was seen above.
    let connection = unsafe { CONNECTIONS.put(ssl, connection) }?;
    // SAFETY: `ssl` is valid, and our callback calls the server's own.
    unsafe { ffi::SSL_set_info_callback(ssl, Some(info)) };
    Some(connection)
}

/// Fills in the attachment of a connection that shakes hands as a server.
///
/// # Safety
/// `ssl` is valid, and has this context, whose state is `own`.
unsafe fn begins(ssl: *mut SSL, context: *mut SSL_CTX, own: &Own, attachment: &mut Attachment) {
    // SAFETY: the caller vouches for `ssl`.
    if !unsafe { is_server(ssl) } {
        return board::connects();
    }
    // SAFETY: the caller vouches for `ssl`, a server, and for its context.
    let outcome = unsafe { (own.begin)(ssl, context, own, attachment) };
    // SAFETY: the caller vouches for `ssl`.
    unsafe { board::began(own, outcome, ssl) };
}

/// # Safety
/// `ssl` is valid.
unsafe fn is_server(ssl: *const SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`; the call reads a flag.
    unsafe { ffi::SSL_is_server(ssl) == 1 }
}

/// Begins anew with an SSL that is used again (`SSL_clear(3)`): its state was that of another client.
///
/// # Safety
/// `ssl` is valid, and nobody has its state.
unsafe fn renew(ssl: *mut SSL) {
    // SAFETY: the caller vouches for `ssl` and for its state.
    let Some(old) = (unsafe { CONNECTIONS.take(ssl) }) else { return };
    // `of_ssl_or_new` finds the server's own callback again, and keeps it.
    // SAFETY: the caller vouches for `ssl`.
    unsafe { ffi::SSL_set_info_callback(ssl, old.server_info.or(Some(info))) };
}

/// # Safety
/// `ssl` and `context` are valid.
unsafe fn server_info(ssl: *const SSL, context: *mut SSL_CTX) -> Option<ffi::InfoCallback> {
    // SAFETY: the caller vouches for `ssl`.
    let own = unsafe { ffi::SSL_get_info_callback(ssl) }.filter(|callback| !is_ours(*callback));
    // SAFETY: the caller vouches for `context`.
    let own = own.or_else(|| unsafe { ffi::SSL_CTX_get_info_callback(context) });
    own.filter(|callback| !is_ours(*callback))
}

fn is_ours(callback: ffi::InfoCallback) -> bool {
    std::ptr::fn_addr_eq(callback, info as ffi::InfoCallback)
}

/// Follows the events of a connection. A fatal alert forgets the connection's sessions, and so does a program that
/// removes its session.
///
/// This holds only once the handshake is done: an earlier alert is not authenticated, and anybody who saw a session
/// id could have its session forgotten. A connection that ends without `close_notify` says nothing about its session.
pub(crate) unsafe extern "C" fn info(ssl: *const SSL, what: c_int, value: c_int) {
    let starts = what & ffi::SSL_CB_HANDSHAKE_START != 0;
    // SAFETY: OpenSSL passes a valid SSL.
    let started = || guard(None, || unsafe { handshake_starts(ssl.cast_mut()) });
    // SAFETY: OpenSSL passes a valid SSL.
    let known = || unsafe { of_ssl(ssl) };
    let server_info = match starts.then(started).flatten().or_else(known) {
        Some(connection) => {
            // SAFETY: `ssl` is valid.
            guard((), || unsafe { happened(ssl.cast_mut(), connection, what, value) });
            connection.server_info
        }
        None => {
            // SAFETY: `ssl` is valid.
            let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
            // SAFETY: `ssl` is valid, and holds its context.
            unsafe { server_info(ssl, context) }
        }
    };
    if let Some(server_info) = server_info {
        // SAFETY: the server's own callback, with the arguments meant for it.
        unsafe { server_info(ssl, what, value) };
    }
}

/// Makes the connection's state before the client's first message: the server may switch contexts later, by the name
/// that the client asks for, but keeps calling the callbacks of this one. An SSL that is used again after
/// `SSL_clear` begins anew, and a handshake that went on after early data does not.
///
/// # Safety
/// `ssl` is valid for `'a`.
unsafe fn handshake_starts<'a>(ssl: *mut SSL) -> Option<&'a Connection> {
    // SAFETY: the caller vouches for `ssl`; the call reads a number.
    if unsafe { ffi::SSL_get_state(ssl) } == ffi::TLS_ST_EARLY_DATA {
        // SAFETY: the caller vouches for `ssl`.
        return unsafe { of_ssl_or_new(ssl) };
    }
    // SAFETY: the caller vouches for `ssl`.
    if !unsafe { has_finished(ssl) } {
        // SAFETY: the caller vouches for `ssl`.
        unsafe { renew(ssl) };
    }
    // SAFETY: the caller vouches for `ssl`.
    let connection = unsafe { of_ssl_or_new(ssl) }?;
    // SAFETY: the caller vouches for `ssl`.
    connection.state().began = Some(unsafe { Circumstances::of(ssl) });
    // SAFETY: the caller vouches for `ssl`.
    connection.state().begins_bare = unsafe { is_bare(ssl) };
    Some(connection)
}

/// Returns true once this side has made a Finished message, in this handshake or an earlier one.
///
/// A program that reads early data calls OpenSSL twice for a handshake: until the early data may come, and to the end.
/// OpenSSL says then, too, that a handshake is done, and later that it starts. No Finished is made by then if the client
/// has to send another ClientHello (HelloRetryRequest).
///
/// # Safety
/// `ssl` is valid.
unsafe fn has_finished(ssl: *const SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`; without a buffer the call only measures.
    unsafe { openssl_sys::SSL_get_finished(ssl, std::ptr::null_mut(), 0) > 0 }
}

/// Handles one event. Most of the dozens in a handshake are of no interest.
///
/// # Safety
/// `ssl` is valid.
unsafe fn happened(ssl: *mut SSL, connection: &Connection, what: c_int, value: c_int) {
    // SAFETY: the caller vouches for `ssl`.
    unsafe { connection.attachment.set_options(ssl) };
    // SAFETY: the caller vouches for `ssl`.
    unsafe { early::go_on(ssl, connection) };
    if what & ffi::SSL_CB_LOOP != 0 {
        // SAFETY: the caller vouches for `ssl`.
        unsafe { end_if_demanded_since(ssl, connection) };
        // SAFETY: the caller vouches for `ssl`.
        if !unsafe { has_finished(ssl) } {
            // SAFETY: the caller vouches for `ssl`.
            unsafe { connection.look_at_resumed(ssl) };
        }
    }
    let cached = connection.attachment.cached.as_ref();
    // SAFETY: the caller vouches for `ssl`.
    if what & ffi::SSL_CB_HANDSHAKE_DONE != 0 && unsafe { has_finished(ssl) } {
        // SAFETY: the caller vouches for `ssl`; the call only reads a flag.
        let resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        // SAFETY: the caller vouches for `ssl`.
        unsafe { learn(ssl, connection) };
        // SAFETY: the caller vouches for `ssl`.
        unsafe { connection.learn_from_full_handshake(ssl) };
        connection.gives_no_more();
        // SAFETY: the caller vouches for `ssl`.
        let served = connection.attachment.own.as_deref().filter(|_| unsafe { is_server(ssl) });
        // SAFETY: the caller vouches for `ssl`.
        unsafe { early::done(ssl, connection) };
        done(cached, served, &mut connection.state(), resumed);
    }
    if what & ffi::SSL_CB_ALERT == 0 {
        return;
    }
    let is_over = value >> 8 == ffi::SSL3_AL_FATAL
        // SAFETY: the caller vouches for `ssl`.
        || (what & ffi::SSL_CB_WRITE != 0 && unsafe { is_removed(ssl) });
    let Some(Cached { sessions, .. }) = cached.filter(|_| is_over) else { return };
    let mut state = connection.state();
    if state.established {
        state.visit.forget(sessions.sessions());
    }
}

/// Ends a connection that resumes a session without a certificate, where the servername callback has demanded one of
/// this connection after the session was found: OpenSSL takes no session back then. Without Rejoin it would refuse the
/// client in a full handshake, unless the session is the process's own, or the client has a certificate. No answer has
/// left yet. The next handshakes to this host are full, so that this happens once.
///
/// # Safety
/// `ssl` is valid.
unsafe fn end_if_demanded_since(ssl: *mut SSL, connection: &Connection) {
    // SAFETY: the caller vouches for `ssl`.
    if !policy::demands(unsafe { openssl_sys::SSL_get_verify_mode(ssl) }) {
        return;
    }
    // Without a host, no session of ours was looked up: it may be another key that both have (PSK).
    let is_new = |state: &State| {
        let demanded = state.began.is_none_or(|began| began.demands());
        !demanded && !state.established && !state.ended && state.host.is_some()
    };
    // SAFETY: the caller vouches for `ssl`; the call only reads a flag.
    if !is_new(&connection.state()) || unsafe { openssl_sys::SSL_session_reused(ssl) } == 0 {
        return;
    }
    // SAFETY: the caller vouches for `ssl`; a resumed connection has a session.
    let session = unsafe { openssl_sys::SSL_get_session(ssl) };
    // SAFETY: the connection's own.
    if !session.is_null() && unsafe { ffi::SSL_SESSION_get0_peer(session) }.is_null() {
        policy::note(openssl_sys::SSL_VERIFY_PEER);
        // SAFETY: `ssl` is valid, and this connection's.
        unsafe { connection.policy_varies(ssl) };
        connection.state().ended = true;
        // SAFETY: the caller vouches for `ssl`.
        unsafe { end(ssl) };
    }
}

/// Makes all that the connection writes from now on fail, without a signal, whatever it writes to. A program may hold
/// its output by a pointer of its own, so that stays, as long as the process lives.
///
/// # Safety
/// `ssl` is valid.
unsafe fn end(ssl: *mut SSL) {
    /// `BIO_NOCLOSE` of `bio.h`.
    const LEFT_OPEN: c_int = 0;
    // SAFETY: the caller vouches for `ssl`.
    let output = unsafe { openssl_sys::SSL_get_wbio(ssl) };
    // SAFETY: no socket has this number, and it is not closed.
    let nowhere = unsafe { ffi::BIO_new_socket(-1, LEFT_OPEN) };
    if !output.is_null() && !nowhere.is_null() {
        // SAFETY: the connection's own.
        unsafe { ffi::BIO_up_ref(output) };
        // SAFETY: the caller vouches for `ssl`, which gets the new one, and drops its reference to the other.
        unsafe { ffi::SSL_set0_wbio(ssl, nowhere) };
    }
}

/// Returns true if the program removed the connection's session (`SSL_CTX_remove_session`), as nginx does when it
/// refuses a client. OpenSSL marks such a session. It also marks that of a connection that ends without
/// `close_notify`, but then writes no alert.
///
/// # Safety
/// `ssl` is valid.
unsafe fn is_removed(ssl: *const SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    let session = unsafe { openssl_sys::SSL_get_session(ssl) };
    // SAFETY: the connection's own.
    !session.is_null() && unsafe { ffi::SSL_SESSION_is_resumable(session) } == 0
}

/// Remembers the policy of this host for the next connection.
///
/// # Safety
/// `ssl` is valid.
unsafe fn learn(ssl: *mut SSL, connection: &Connection) {
    // SAFETY: the caller vouches for `ssl`.
    policy::note(unsafe { openssl_sys::SSL_get_verify_mode(ssl) });
    if policy::is_anybody_asked() {
        // SAFETY: `ssl` is valid, and this connection's.
        let Some(host) = (unsafe { connection.host(ssl) }) else { return };
        // SAFETY: `ssl` is valid, and this connection's.
        unsafe { connection.policy(ssl, &host) };
    }
}

/// Counts a handshake that is done, and no renegotiation.
fn done(cached: Option<&Cached>, served: Option<&Own>, state: &mut State, resumed: bool) {
    let rejected = std::mem::take(&mut state.offered) && !resumed;
    let counted = std::mem::replace(&mut state.counted, true);
    state.established = true;
    state.taken = None;
    if let Some(own) = served.filter(|_| !counted) {
        board::done(own, resumed);
    }
    let Some(Cached { sessions, .. }) = cached else { return };
    if rejected {
        sessions.sessions().record_rejected();
    }
    if !counted {
        sessions.sessions().record_handshake(resumed);
    }
}
