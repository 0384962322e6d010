//! What is kept on an `SSL` while its connection lives.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use foreign_types::ForeignTypeRef;
use libc::{c_int, c_long, c_void};
use openssl::ssl::SslRef;
use openssl_sys::{CRYPTO_EX_DATA, SSL, SSL_CTX};
use rejoin_cache::{History, SessionStore, Visit};

use crate::everywhere::{self, OwnCallbacks};
use crate::policy::Policy;
use crate::sessions::{Attachment, Cached, now_ms};
use crate::tickets::now_s;
use crate::{ffi, server_name, ticket_history};

/// A connection of an attached context, from its first callback on.
pub(crate) struct Connection {
    pub(crate) attachment: Attachment,
    /// Locked because a reference to an SSL may be shared by threads in Rust; never contended.
    state: Mutex<State>,
    /// The server's own callback, which ours took the place of.
    pub(crate) server_info: Option<ffi::InfoCallback>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) visit: Visit,
    /// Whether a session was found and OpenSSL has yet to accept it.
    pub(crate) offered: bool,
    /// Whether a ticket brought the client's history. A ClientHello may be read twice
    /// (HelloRetryRequest): that is one arrival.
    pub(crate) recalled: bool,
    /// When the client made the full handshake that the session which it presents comes from, in Unix
    /// time.
    pub(crate) authenticated_s: Option<u64>,
    /// The host that the client asked for with a session or a ticket. (OpenSSL itself then answers with the
    /// session's, which is there only if the server knew the name.)
    pub(crate) host: Option<Box<[u8]>>,
    /// Whether the handshake is done. (`SSL_is_init_finished` is false again by the time that a
    /// fatal alert goes out.)
    pub(crate) established: bool,
    /// Whether the handshake is among those that are counted.
    pub(crate) counted: bool,
}

impl Connection {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program's own callbacks, where all contexts of a process are attached.
    pub(crate) fn own(&self) -> Option<OwnCallbacks> {
        self.attachment.own.as_ref()?.callbacks()
    }

    /// Whether a session may be resumed that comes from a full handshake at this time, and if so,
    /// notes it for those that come from it. (A clock may have stepped back: then it may.)
    pub(crate) fn resumes(&self, authenticated_s: u64) -> bool {
        let may =
            now_s().saturating_sub(authenticated_s) <= self.attachment.resumable_for.as_secs();
        self.state().authenticated_s = may.then_some(authenticated_s);
        may
    }

    /// The host that the client asks for, while its ClientHello is read.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn host_in_hello<'a>(&self, ssl: *mut SSL) -> &'a [u8] {
        // SAFETY: the caller vouches for `ssl`.
        let host = unsafe { server_name::in_hello(ssl) };
        self.state().host = Some(host.into());
        host
    }

    /// What clients will have to show on this connection, and `None` if that is not known yet.
    pub(crate) fn expected_policy(&self, host: &[u8]) -> Option<Policy> {
        let learned = self.attachment.own.as_ref().map(|own| &own.learned);
        learned.map_or(Some(Policy::ASKS_NOBODY), |learned| learned.expected(host))
    }

    /// What clients have to show on this connection, once the server has the host.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn policy(&self, ssl: *mut SSL, host: &[u8]) -> Policy {
        let learned = self.attachment.own.as_ref().map(|own| &own.learned);
        // SAFETY: the caller vouches for `ssl`.
        learned.map_or(Policy::ASKS_NOBODY, |learned| unsafe {
            learned.asked(ssl, host, self.attachment.is_named)
        })
    }

    /// The host that the client asked for.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn host(&self, ssl: *mut SSL) -> Box<[u8]> {
        if let Some(noted) = self.state().host.clone() {
            return noted;
        }
        // SAFETY: the caller vouches for `ssl`.
        let is_single_use = unsafe { ticket_history::is_single_use(ssl) };
        // A session of TLS 1.2 gets its id while the ClientHello is read, before OpenSSL has the name.
        // SAFETY: as above.
        let in_hello = if is_single_use { &[] } else { unsafe { server_name::in_hello(ssl) } };
        if !in_hello.is_empty() {
            return in_hello.into();
        }
        // SAFETY: as above.
        unsafe { server_name::of_connection(ssl) }.into()
    }

    /// When the client made the full handshake that this connection's session comes from, in Unix
    /// time, if it was not this one.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn resumed_since_s(&self, ssl: *mut SSL) -> Option<u64> {
        // SAFETY: the caller vouches for `ssl`.
        let is_resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        self.state().authenticated_s.filter(|_| is_resumed)
    }

    /// Stores the session that still waits for a hint.
    pub(crate) fn finish(&self) {
        self.with_cache(|visit, cache| visit.finish(cache, now_ms()));
    }

    /// Nothing, if the context has tickets only.
    fn with_cache(&self, work: impl FnOnce(&mut Visit, &(dyn SessionStore + Send + Sync))) {
        if let Some(Cached { sessions, .. }) = &self.attachment.cached {
            work(&mut self.state().visit, sessions.sessions());
        }
    }
}

/// The application says that this connection's client comes back in `interval_ms`. A session
/// that waited for it is stored now.
pub fn hint(ssl: &SslRef, interval_ms: u64) {
    if let Some(connection) = existing(ssl) {
        connection.with_cache(|visit, cache| visit.hint(cache, now_ms(), interval_ms));
    }
}

/// The application has nothing to say about this connection's client. Without this call a session
/// that waits for a hint is stored when the connection ends.
pub fn no_hint(ssl: &SslRef) {
    if let Some(connection) = existing(ssl) {
        connection.finish();
    }
}

/// What is known of the past visits of this connection's client, this one included. `None` before
/// the handshake, and when nothing is attached to the context it began in.
pub fn history(ssl: &SslRef) -> Option<History> {
    existing(ssl).map(|connection| connection.state().visit.history())
}

fn existing(ssl: &SslRef) -> Option<&Connection> {
    // SAFETY: the reference keeps the SSL alive.
    unsafe { of_ssl(ssl.as_ptr()) }
}

/// The connection's state, if a callback has made it.
///
/// # Safety
/// `ssl` is valid for `'a`.
pub(crate) unsafe fn of_ssl<'a>(ssl: *const SSL) -> Option<&'a Connection> {
    // SAFETY: the caller vouches for `ssl`.
    let state = unsafe { openssl_sys::SSL_get_ex_data(ssl, ssl_index()) };
    // SAFETY: only `of_ssl_or_new` stores under this index, and what it stores lives as long as
    // the SSL.
    unsafe { state.cast::<Connection>().as_ref() }
}

/// The connection's state, made now if need be. `None` when the context is not attached.
///
/// # Safety
/// As [`of_ssl`].
pub(crate) unsafe fn of_ssl_or_new<'a>(ssl: *mut SSL) -> Option<&'a Connection> {
    // SAFETY: the caller vouches for `ssl`.
    if let Some(connection) = unsafe { of_ssl(ssl) } {
        return Some(connection);
    }
    // SAFETY: as above.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    // SAFETY: an SSL always has a context, which outlives this call.
    let mut attachment = unsafe { attachment_of(context) }?.clone();
    // SAFETY: `ssl` is valid.
    let is_server = unsafe { ffi::SSL_is_server(ssl) } == 1;
    if let Some(own) = attachment.own.as_ref().filter(|_| is_server) {
        // SAFETY: `ssl` is valid, and has this context.
        unsafe { everywhere::begin(ssl, context, &Arc::clone(own), &mut attachment) };
    }
    // SAFETY: `ssl` is valid.
    let server_info = unsafe { server_info(ssl, context) }.or(attachment.server_info);
    let connection = Connection { attachment, state: Mutex::default(), server_info };
    let state = Box::into_raw(Box::new(connection));
    // SAFETY: the index is ours; on success OpenSSL hands `state` to `free_connection`.
    if unsafe { openssl_sys::SSL_set_ex_data(ssl, ssl_index(), state.cast()) } != 1 {
        // SAFETY: OpenSSL did not take it.
        drop(unsafe { Box::from_raw(state) });
        return None;
    }
    // SAFETY: `ssl` is valid, and our callback calls the server's own.
    unsafe { ffi::SSL_set_info_callback(ssl, Some(crate::callbacks::info)) };
    // SAFETY: just stored; it lives as long as the SSL.
    unsafe { state.as_ref() }
}

/// Begins anew with an SSL that is used again (`SSL_clear(3)`): whatever was known of its client, and
/// of what it is attached to, was another's.
///
/// # Safety
/// `ssl` is valid, and nobody has its state.
pub(crate) unsafe fn renew(ssl: *mut SSL) {
    // SAFETY: the caller vouches for `ssl`.
    let old = unsafe { openssl_sys::SSL_get_ex_data(ssl, ssl_index()) }.cast::<Connection>();
    if old.is_null() {
        return;
    }
    // SAFETY: the index is ours.
    if unsafe { openssl_sys::SSL_set_ex_data(ssl, ssl_index(), std::ptr::null_mut()) } != 1 {
        return;
    }
    // SAFETY: stored by `of_ssl_or_new`, and reachable no more.
    let old = unsafe { Box::from_raw(old) };
    old.finish();
    // What ours took the place of is found again.
    // SAFETY: the caller vouches for `ssl`.
    unsafe { ffi::SSL_set_info_callback(ssl, old.server_info.or(Some(crate::callbacks::info))) };
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
    std::ptr::fn_addr_eq(callback, crate::callbacks::info as ffi::InfoCallback)
}

/// What is attached to a context already.
///
/// # Safety
/// `context` is valid for `'a`, during which nothing is attached to it.
pub(crate) unsafe fn attachment_of<'a>(context: *const SSL_CTX) -> Option<&'a Attachment> {
    // SAFETY: the caller vouches for `context`.
    let attachment = unsafe { openssl_sys::SSL_CTX_get_ex_data(context, context_index()) };
    // SAFETY: only `attach` stores under this index; the context owns it.
    unsafe { attachment.cast::<Attachment>().as_ref() }
}

/// Adds to a context's attachment, and has its connections tell us of their handshakes.
///
/// # Safety
/// `context` is valid and not yet used by another thread.
pub(crate) unsafe fn attach(context: *mut SSL_CTX, add: impl FnOnce(&mut Attachment)) -> bool {
    let index = context_index();
    // SAFETY: the caller vouches for `context`.
    let mut attachment = unsafe { attachment_of(context) }.cloned().unwrap_or_default();
    // SAFETY: the caller vouches for `context`.
    let server_info = unsafe { ffi::SSL_CTX_get_info_callback(context) };
    if let Some(own) = server_info.filter(|callback| !is_ours(*callback)) {
        attachment.server_info = Some(own);
    }
    add(&mut attachment);
    // SAFETY: the context is valid, and our callback calls the server's own, kept above.
    unsafe { ffi::SSL_CTX_set_info_callback(context, Some(crate::callbacks::info)) };
    // SAFETY: the caller vouches for `context`.
    let old = unsafe { openssl_sys::SSL_CTX_get_ex_data(context, index) };
    let new = Box::into_raw(Box::new(attachment));
    // SAFETY: the index is ours; OpenSSL hands the box to `free_attachment`.
    let stored = unsafe { openssl_sys::SSL_CTX_set_ex_data(context, index, new.cast()) } == 1;
    let unwanted = if stored { old.cast() } else { new };
    if !unwanted.is_null() {
        // SAFETY: made by `Box::into_raw` above, and no longer reachable through the context.
        drop(unsafe { Box::from_raw(unwanted) });
    }
    stored
}

/// Attaches to a context that is being made, of which there are but these data. For all connections to
/// be attached in time, see [`crate::Everywhere`].
///
/// # Safety
/// `data` are those of a context, and nobody else's yet.
pub(crate) unsafe fn attach_while_made(data: *mut CRYPTO_EX_DATA) {
    let attachment = Attachment { own: Some(Arc::default()), ..Attachment::default() };
    let attachment = Box::into_raw(Box::new(attachment));
    // SAFETY: the index is ours; OpenSSL hands the box to `free_attachment`.
    if unsafe { ffi::CRYPTO_set_ex_data(data, context_index(), attachment.cast()) } != 1 {
        // SAFETY: OpenSSL did not take it.
        drop(unsafe { Box::from_raw(attachment) });
    }
}

/// Has OpenSSL know of what is kept, before contexts are made.
pub(crate) fn register() {
    let _ = (context_index(), ssl_index());
}

fn context_index() -> c_int {
    static INDEX: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the callback fits the index's type; OpenSSL copies nothing else.
    *INDEX.get_or_init(|| unsafe {
        openssl_sys::SSL_CTX_get_ex_new_index(
            0,
            std::ptr::null_mut(),
            None,
            None,
            Some(free_attachment),
        )
    })
}

fn ssl_index() -> c_int {
    static INDEX: OnceLock<c_int> = OnceLock::new();
    // SAFETY: as above.
    *INDEX.get_or_init(|| unsafe {
        openssl_sys::SSL_get_ex_new_index(
            0,
            std::ptr::null_mut(),
            None,
            Some(dup_connection),
            Some(free_connection),
        )
    })
}

unsafe extern "C" fn free_attachment(
    _parent: *mut c_void,
    attachment: *mut c_void,
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _pointer: *mut c_void,
) {
    if !attachment.is_null() {
        // SAFETY: stored by `attach`, freed once, by OpenSSL.
        drop(unsafe { Box::from_raw(attachment.cast::<Attachment>()) });
    }
}

/// A duplicated SSL begins without state: two must not own one.
unsafe extern "C" fn dup_connection(
    _to: *mut CRYPTO_EX_DATA,
    _from: *const CRYPTO_EX_DATA,
    data: *mut *mut c_void,
    _index: c_int,
    _long: c_long,
    _pointer: *mut c_void,
) -> c_int {
    // SAFETY: OpenSSL passes the place of the copied pointer.
    unsafe { *data = std::ptr::null_mut() };
    1
}

unsafe extern "C" fn free_connection(
    _parent: *mut c_void,
    connection: *mut c_void,
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _pointer: *mut c_void,
) {
    if connection.is_null() {
        return;
    }
    // SAFETY: stored by `of_ssl_or_new`, freed once, by OpenSSL.
    let connection = unsafe { Box::from_raw(connection.cast::<Connection>()) };
    crate::callbacks::guard((), || {
        connection.finish();
    });
}
