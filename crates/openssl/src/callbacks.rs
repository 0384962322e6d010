//! The callbacks that OpenSSL makes for sessions, in the order of a connection's life.
//!
//! None of them can fail a handshake: an error here is a session that is not found, or not stored.

use std::sync::Arc;

use foreign_types::ForeignType;
use libc::{c_int, c_uchar, c_uint};
use openssl::error::ErrorStack;
use openssl::ssl::{SslContextBuilder, SslOptions, SslSessionCacheMode};
use openssl_sys::{SSL, SSL_CTX, SSL_SESSION};
use rejoin_cache::{Carried, Hints, Issued, SecretBytes, SessionId, SessionStore};
use rejoin_store::now_ms;

use crate::attachment::attachment_of;
use crate::clock::{now_s, unix_ms};
use crate::connection::{Connection, State};
use crate::context_name::ContextName;
use crate::early;
use crate::guard::guard;
use crate::info::{attach, of_ssl_or_new};
use crate::policy::Policy;
use crate::process::is_off;
use crate::responders::would_end_a_resumed;
use crate::sessions::{AnySessions, Cached, ServerSessions};
use crate::{ffi, past, session_bytes, source};

impl<S: SessionStore + Send + Sync + 'static> ServerSessions<S> {
    /// Makes a server context keep its sessions here, under the session-id context `id_context`
    /// (at most 32 bytes; an empty one stands for `rejoin`). A session made in one context never resumes
    /// in another. TLS 1.3 tickets become stateful, unless [`crate::TicketKeys`] are attached too:
    /// then only TLS 1.2 clients that know no tickets have their sessions here.
    ///
    /// The context is the one that a connection *begins* in: sessions are looked up before the servername
    /// callback runs. Virtual servers that this callback switches to still share no sessions, because a session
    /// resumes only under the name that it was made under (RFC 6066, section 3). Early data is not supported:
    /// OpenSSL then resumes only sessions of its own cache.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory or `id_context` is too long.
    pub fn attach(
        self: &Arc<Self>,
        context: &mut SslContextBuilder,
        id_context: &[u8],
    ) -> Result<(), ErrorStack> {
        let id_context = if id_context.is_empty() { b"rejoin" } else { id_context };
        context.set_session_id_context(id_context)?;
        context
            .set_session_cache_mode(SslSessionCacheMode::SERVER | SslSessionCacheMode::NO_INTERNAL);
        // SAFETY: the builder owns the context, which outlives what is looked at.
        let attachment = unsafe { attachment_of(context.as_ptr()) };
        if attachment.is_none_or(|found| found.tickets.is_none()) {
            context.set_options(SslOptions::NO_TICKET);
        }
        let sessions: Arc<AnySessions> = Arc::<Self>::clone(self);
        let cached = Cached { sessions, context: ContextName::new(id_context) };
        let context = context.as_ptr();
        // SAFETY: the builder owns the context, and nobody else uses it yet.
        let attached = unsafe { attach(context, |attachment| attachment.cached = Some(cached)) };
        // SAFETY: the builder owns the context.
        if attached && unsafe { keep_sessions(context) } { Ok(()) } else { Err(ErrorStack::get()) }
    }
}

/// Makes a context keep its sessions here, and none in OpenSSL's own cache.
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn keep_sessions(context: *mut SSL_CTX) -> bool {
    use openssl_sys::{SSL_SESS_CACHE_NO_INTERNAL, SSL_SESS_CACHE_SERVER};
    // SAFETY: the caller vouches for `context`.
    let mode = unsafe { ffi::session_cache_mode(context) };
    let mode = mode | SSL_SESS_CACHE_SERVER | SSL_SESS_CACHE_NO_INTERNAL;
    // SAFETY: the caller vouches for `context`; the call sets a number.
    unsafe { openssl_sys::SSL_CTX_set_session_cache_mode(context, mode) };
    // SAFETY: the caller vouches for `context`; the callback lives as long as the program.
    unsafe { openssl_sys::SSL_CTX_sess_set_new_cb(context, Some(session_made)) };
    // SAFETY: the caller vouches for `context`; the callback lives as long as the program.
    unsafe { openssl_sys::SSL_CTX_sess_set_get_cb(context, Some(session_wanted)) };
    // SAFETY: the caller vouches for `context`; the callback lives as long as the program.
    unsafe { ffi::SSL_CTX_set_generate_session_id(context, Some(id_wanted)) == 1 }
}

/// Makes a session id, for `ServerHello` (TLS 1.2) or a ticket (TLS 1.3). OpenSSL fails the handshake if there is
/// none, so an error here leaves at least a random one.
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
            // SAFETY: `ssl` is valid, and this connection's.
            let Some(host) = (unsafe { connection.host(ssl) }) else { return };
            // The connection's policy is not known yet.
            let label = context.label(&host, Policy::ASKS_NOBODY);
            // SAFETY: OpenSSL passes a valid SSL.
            let is_single_use = unsafe { past::is_single_use(ssl) };
            let history = connection.state().visit.history();
            // An id of TLS 1.2 lives on while its client comes again, so it cannot say when that was last.
            let carried = is_single_use.then(|| Carried { history, made_ms: unix_ms() });
            let made = sessions.seal().seal(&label, random, carried);
            let bytes = made.as_bytes();
            if let Some(id) = id.get_mut(..bytes.len()) {
                id.copy_from_slice(bytes);
            }
            // SAFETY: OpenSSL passes a valid SSL.
            if !unsafe { ended_where_it_is_off(ssl, connection) } {
                // SAFETY: OpenSSL passes a valid SSL.
                unsafe { have_it_told(ssl) };
            }
        }
    });
    1
}

/// Makes OpenSSL send the id to a TLS 1.2 client. It does so only if the context that the server switched to by name
/// keeps sessions, and in Apache and HAProxy none does when their own cache is off.
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
        // SAFETY: the connection holds the context; the call sets a number.
        unsafe { openssl_sys::SSL_CTX_set_session_cache_mode(context, mode) };
    }
}

/// Returns true if the server switched by name to a context where resumption is off, which stays so.
///
/// # Safety
/// `ssl` is valid, and this connection's.
unsafe fn ended_where_it_is_off(ssl: *mut SSL, connection: &Connection) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    // SAFETY: the connection holds it, and nothing is attached to a context in use.
    let own = unsafe { attachment_of(context) }.and_then(|found| found.own.as_ref());
    // SAFETY: the caller vouches for `ssl`, which holds its context.
    !connection.attachment.is_stateful
        && own.is_some_and(|own| unsafe { is_off(ssl, context, own) })
}

/// Looks up the session id that a client presents. The returned reference belongs to OpenSSL.
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
            // SAFETY: OpenSSL passes a valid SSL, which is this connection's.
            let found = unsafe { find(ssl, connection, &id, name) };
            // SAFETY: OpenSSL passes a valid SSL; `find` gives a session of ours, or null.
            unsafe { fitting(ssl, connection, found) }
        });
        if found.is_null() {
            early::not_found(connection);
        }
        // The program's own cache gives a session more than once.
        // SAFETY: OpenSSL passes a valid SSL.
        let asks_program = found.is_null() && !unsafe { takes(ssl, connection) };
        match connection.own().and_then(|own| own.wanted) {
            // SAFETY: the program's own callback, with the arguments meant for it.
            Some(wanted) if asks_program => unsafe { wanted(ssl, id, length as c_int, copy) },
            _ => found,
        }
    })
}

/// Returns the session if OpenSSL can resume it on this connection, or null.
///
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
    if unsafe { connection.adopts(ssl, session) } {
        // SAFETY: the caller vouches for `session`.
        unsafe { connection.gives(session) };
        return session;
    }
    // SAFETY: the reference is ours to drop.
    unsafe { openssl_sys::SSL_SESSION_free(session) };
    std::ptr::null_mut()
}

/// Returns true if the connection's sessions are taken from the cache, and each resumes once.
///
/// # Safety
/// `ssl` is valid, and this connection's.
unsafe fn takes(ssl: *mut SSL, connection: &Connection) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    connection.attachment.is_single_use && unsafe { past::is_single_use(ssl) }
}

/// # Safety
/// `ssl` is valid, and this connection's.
unsafe fn find(
    ssl: *mut SSL,
    connection: &Connection,
    id: &SessionId,
    name: &[u8],
) -> *mut SSL_SESSION {
    let Some(Cached { sessions, context }) = &connection.attachment.cached else {
        return std::ptr::null_mut();
    };
    let label = context.label(name, Policy::ASKS_NOBODY);
    if !sessions.seal().recognises(&label, id) {
        sessions.sessions().record_forged();
        return std::ptr::null_mut();
    }
    // SAFETY: the caller vouches for `ssl`.
    let policy = unsafe { connection.expected_policy(ssl, name) };
    let Some(policy) = policy else { return std::ptr::null_mut() };
    let of_id = label;
    let of_policy = (policy != Policy::ASKS_NOBODY).then(|| context.label(name, policy));
    let label = of_policy.as_ref().unwrap_or(&of_id);
    // SAFETY: the caller vouches for `ssl`.
    let is_used_up = unsafe { takes(ssl, connection) };
    let (mut value, context) = (SecretBytes::default(), sessions.tag(label));
    let mut state = connection.state();
    let State { visit, taken, .. } = &mut *state;
    let cache = sessions.sessions();
    let is_found = if is_used_up {
        // The second ClientHello after a HelloRetryRequest presents what this connection has taken.
        match taken.take_if(|(of, _)| of == id) {
            Some((_, again)) => {
                value = again;
                true
            }
            None => visit.take(cache, now_ms(), id, context, &mut value),
        }
    } else {
        visit.look_up(cache, now_ms(), id, context, &mut value)
    };
    if !is_found && let Some((history, away_ms)) = sessions.seal().carried(&of_id, id, unix_ms()) {
        visit.recall_missed(history, away_ms);
    }
    state.offered = is_found;
    drop(state);
    if !is_found {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller vouches for `ssl`.
    unsafe { early::found(ssl, connection) };
    let Some(opened) = sessions.seal().open_value(id, label, &value) else {
        sessions.sessions().remove(id);
        return std::ptr::null_mut();
    };
    let Some(session) = sessions.decoder().decode(opened) else { return std::ptr::null_mut() };
    connection.state().taken = is_used_up.then_some((*id, value));
    // SAFETY: the session is valid, and nobody else has it.
    let ends_s = unsafe { past::ends_s(session.as_ptr()) };
    // SAFETY: the session is valid, and nobody else has it.
    if !connection.resumes(unsafe { past::authenticated_s(session.as_ptr()) }, ends_s) {
        return std::ptr::null_mut();
    }
    // OpenSSL gets the one reference.
    let given = session.as_ptr();
    std::mem::forget(session);
    given
}

/// Stores the session that a handshake made. Returns 0, because no reference is kept, or the result of the program's
/// own callback.
unsafe extern "C" fn session_made(ssl: *mut SSL, session: *mut SSL_SESSION) -> c_int {
    guard(0, || {
        // SAFETY: OpenSSL passes a valid SSL.
        let Some(connection) = (unsafe { of_ssl_or_new(ssl) }) else {
            return 0;
        };
        // SAFETY: OpenSSL passes a valid SSL.
        if !unsafe { is_in_ticket(ssl, connection) } {
            // SAFETY: OpenSSL passes a valid SSL and the session that it just made.
            unsafe { store(connection, ssl, session) };
        }
        match connection.own().and_then(|own| own.made) {
            // SAFETY: the program's own callback, with the arguments meant for it.
            Some(made) => unsafe { made(ssl, session) },
            None => 0,
        }
    })
}

/// Returns true for a session that is wholly in its ticket. Over TLS 1.3 OpenSSL calls back for these, too.
///
/// # Safety
/// `ssl` is valid.
unsafe fn is_in_ticket(ssl: *mut SSL, connection: &Connection) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    let is_single_use = unsafe { past::is_single_use(ssl) };
    // SAFETY: the caller vouches for `ssl`; the call only reads a number.
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
    if unsafe { ended_where_it_is_off(ssl, connection) } {
        return;
    }
    // SAFETY: the caller vouches for both.
    if unsafe { connection.is_by_key(ssl, session) } {
        return;
    }
    // SAFETY: the caller vouches for `ssl`.
    if unsafe { would_end_a_resumed(ssl) } {
        return;
    }
    // SAFETY: the caller vouches for `ssl`.
    let is_single_use = unsafe { past::is_single_use(ssl) };
    // SAFETY: `ssl` is valid, and this connection's.
    let authenticated_s = unsafe { connection.resumed_since_s(ssl) };
    // SAFETY: `ssl` is valid, and this connection's.
    let ends_s = unsafe { connection.ends_s(ssl) };
    if is_single_use && (authenticated_s.is_some() || ends_s.is_some()) {
        let authenticated_s = authenticated_s.unwrap_or_else(now_s);
        // SAFETY: the caller vouches for `session`, which was just made.
        unsafe { past::inherit(session, authenticated_s, ends_s) };
    }
    // SAFETY: the caller vouches for both; the session was just made.
    unsafe { connection.shortens(ssl, session) };
    // SAFETY: the caller vouches for `session`.
    let Some((id, mut value, lifetime_ms)) = (unsafe { serialised(session) }) else { return };
    // SAFETY: the caller vouches for `ssl`.
    let Some(name) = (unsafe { connection.host(ssl) }) else { return };
    // SAFETY: `ssl` is valid, and this connection's.
    let label = context.label(&name, unsafe { connection.policy(ssl, &name) });
    // SAFETY: the caller vouches for both.
    let source = unsafe { source::source(ssl, session, connection, sessions) };
    let mut state = connection.state();
    state.established = true;
    let visit = &mut state.visit;
    visit.comes_from(source);
    let expires_ms = now_ms().saturating_add(lifetime_ms);
    sessions.seal().seal_value(&id, &label, &mut value);
    let issued = Issued { id, value, expires_ms, context: sessions.tag(&label) };
    match sessions.hints() {
        Hints::Never => visit.issue(sessions.sessions(), now_ms(), &issued),
        Hints::Expected => visit.issue_later(sessions.sessions(), now_ms(), issued),
    }
}

/// Returns a session's id, its bytes, and its lifetime in milliseconds.
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
