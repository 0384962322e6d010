//! The state of an `SSL` while its connection lives.

use std::cell::Cell;
use std::ptr::null;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foreign_types::{ForeignType, ForeignTypeRef};
use libc::c_long;
use openssl::asn1::Asn1Time;
use openssl::ssl::{SslRef, SslSession, SslSessionRef};
use openssl::stack::StackRef;
use openssl::x509::{X509, X509Ref};
use openssl_sys::{SSL, SSL_SESSION};
use rejoin_cache::{History, SecretBytes, SessionId, SessionStore, Visit};
use rejoin_store::now_ms;
use smallvec::SmallVec;

use crate::attachment::{Attachment, OwnCallbacks};
use crate::clock::{libcrypto_now_s, now_s};
use crate::early::Early;
use crate::extra::Extra;
use crate::policy::{Circumstances, Judged, Policy};
use crate::sessions::Cached;
use crate::{cipher, ffi, imports, past, server_name};

/// A host's name, which needs no memory of its own if it is short.
pub(crate) type Host = SmallVec<[u8; 32]>;

/// A connection of an attached context, from its first callback on.
pub(crate) struct Connection {
    pub(crate) attachment: Attachment,
    /// Locked because a reference to an SSL may be shared by threads in Rust; never contended.
    state: Mutex<State>,
    /// The server's own info callback, which ours replaced.
    pub(crate) server_info: Option<ffi::InfoCallback>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) visit: Visit,
    /// A session was found, and OpenSSL has yet to accept it.
    pub(crate) offered: bool,
    /// The session that this connection has used up, until its handshake is done.
    pub(crate) taken: Option<(SessionId, SecretBytes)>,
    /// The fate of the client's early data so far.
    pub(crate) early: Early,
    /// A ticket brought the client's history. OpenSSL may read two ClientHellos (HelloRetryRequest), which are
    /// one arrival.
    pub(crate) recalled: bool,
    /// The Unix time of the full handshake that the presented session comes from.
    pub(crate) authenticated_s: Option<u64>,
    /// The end of the certificates that the client of the presented session was verified by.
    pub(crate) ends_s: Option<u32>,
    /// The host that the client asked for with a session or a ticket. (Over TLS 1.2 OpenSSL itself returns the session's
    /// host then, which is set only if the server knew the name.)
    pub(crate) host: Option<Host>,
    /// The settings for client certificates when a session or a ticket was looked up, or when the handshake began.
    pub(crate) began: Option<Circumstances>,
    /// The policy that sessions were looked up under.
    pub(crate) expected: Option<Policy>,
    /// The session that OpenSSL was given to resume over TLS 1.3, until the handshake is done. The reference keeps another
    /// session from getting its address.
    given: Option<SslSession>,
    /// A ticket was opened, and its session is not known here: the program's own callback has it.
    pub(crate) opened: bool,
    /// The connection resumes the session that was given, once that is known.
    resumes_given: Option<bool>,
    /// The connection has no certificate when the handshake begins.
    pub(crate) begins_bare: bool,
    /// The connection had none when a session or a ticket was looked up.
    looked_up_bare: bool,
    /// The connection was ended, because its session does not meet what is demanded by now.
    pub(crate) ended: bool,
    /// The handshake is done. (`SSL_is_init_finished` is false again when a fatal alert goes out.)
    pub(crate) established: bool,
    /// The handshake has been counted.
    pub(crate) counted: bool,
}

impl Connection {
    pub(crate) fn new(attachment: Attachment, server_info: Option<ffi::InfoCallback>) -> Self {
        Self { attachment, state: Mutex::default(), server_info }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the program's own callbacks, where all contexts of a process are attached.
    pub(crate) fn own(&self) -> Option<OwnCallbacks> {
        self.attachment.own.as_ref()?.callbacks()
    }

    /// Returns true if a session may still be resumed whose full handshake was at this time, and whose client's certificates
    /// end then, and notes both for the sessions that follow. A time in the future, by a clock that stepped back, is allowed.
    pub(crate) fn resumes(&self, authenticated_s: u64, ends_s: Option<u32>) -> bool {
        let age_s = now_s().saturating_sub(authenticated_s);
        let has_ended = ends_s.is_some_and(|ends_s| i64::from(ends_s) <= libcrypto_now_s());
        let may = age_s <= self.attachment.resumable_for.as_secs() && !has_ended;
        let mut state = self.state();
        state.authenticated_s = may.then_some(authenticated_s);
        state.ends_s = ends_s.filter(|_| may);
        may
    }

    /// Returns the time from which on one of the certificates is over that this connection's client was verified by, in this
    /// handshake or in the one that the session comes from.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn ends_s(&self, ssl: *mut SSL) -> Option<u32> {
        // SAFETY: the caller vouches for `ssl`; the call only reads a flag.
        let is_resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        let before = self.state().ends_s.filter(|_| is_resumed);
        // A client of TLS 1.3 may show a certificate after it has resumed.
        // SAFETY: the caller vouches for `ssl`.
        let now = unsafe { verified_until_s(ssl) };
        before.into_iter().chain(now).min()
    }

    /// Lets a session that is being made live no longer than its client's certificates. (Over TLS 1.3 the sessions that
    /// follow it begin anew, and carry that end.)
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's; the session is its own, and nobody else uses it.
    pub(crate) unsafe fn shortens(&self, ssl: *mut SSL, session: *mut SSL_SESSION) {
        // SAFETY: the caller vouches for `ssl`.
        let Some(ends_s) = (unsafe { self.ends_s(ssl) }) else { return };
        // SAFETY: the caller vouches for `session`; the call only reads a number.
        let made_s = unsafe { openssl_sys::SSL_SESSION_get_time(session) };
        // SAFETY: the caller vouches for `session`; the call only reads a number.
        let lifetime_s = unsafe { openssl_sys::SSL_SESSION_get_timeout(session) };
        let left_s = c_long::from(ends_s).saturating_sub(made_s).max(0);
        if left_s < lifetime_s {
            // SAFETY: the caller vouches for `session`.
            unsafe { ffi::SSL_SESSION_set_timeout(session, left_s) };
        }
    }

    /// Returns the host that the client asks for, while OpenSSL reads its ClientHello.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn host_in_hello<'a>(&self, ssl: *mut SSL) -> &'a [u8] {
        // SAFETY: the caller vouches for `ssl`.
        let host = unsafe { server_name::in_hello(ssl) };
        self.state().host = Some(Host::from_slice(host));
        host
    }

    /// Returns the policy that this connection will end up with, or `None` if that is not known yet, or if it is not known
    /// that the host serves clients that have no key: then nothing resumes.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn expected_policy(&self, ssl: *mut SSL, host: &[u8]) -> Option<Policy> {
        let Some(judged) = Judged::by(&self.attachment, host) else {
            self.state().expected = Some(Policy::ASKS_NOBODY);
            return Some(Policy::ASKS_NOBODY);
        };
        // SAFETY: the caller vouches for `ssl`.
        let is_bare = unsafe { is_bare(ssl) };
        self.state().looked_up_bare = is_bare;
        // A program without a callback for keys lets nobody in by them.
        let serves = !is_bare || !imports::sets_key_callback() || judged.serves_without_keys();
        // SAFETY: the caller vouches for `ssl`.
        let now = unsafe { Circumstances::seen(ssl) };
        // SAFETY: the caller vouches for `ssl`.
        let expected = serves.then(|| unsafe { judged.expected(ssl, now.as_ref()) }).flatten();
        let mut state = self.state();
        // A ClientHello callback may have changed something since the handshake began.
        (state.began, state.expected) = (now.or(state.began), expected);
        drop(state);
        expected
    }

    /// Learns from a full handshake that this host serves clients that have no key, where its certificate does not show
    /// that when sessions are looked up.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's; its handshake is done.
    pub(crate) unsafe fn learn_from_full_handshake(&self, ssl: *mut SSL) {
        let State { begins_bare, looked_up_bare, .. } = *self.state();
        if !(begins_bare || looked_up_bare) || !imports::sets_key_callback() {
            return;
        }
        // SAFETY: the caller vouches for `ssl`; the call only reads a flag.
        let is_resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        // SAFETY: the caller vouches for `ssl`; a connection that is done has a session.
        let session = unsafe { openssl_sys::SSL_get_session(ssl) };
        // SAFETY: the caller vouches for `ssl`, and the session is its own.
        if is_resumed || session.is_null() || unsafe { self.is_by_key(ssl, session) } {
            return;
        }
        // SAFETY: the caller vouches for `ssl`.
        if let Some(host) = unsafe { self.host(ssl) } {
            Judged::by(&self.attachment, &host).iter().for_each(Judged::learn_without_keys);
        }
    }

    /// Notes the session that OpenSSL gets to resume.
    ///
    /// # Safety
    /// `session` is valid.
    pub(crate) unsafe fn gives(&self, session: *mut SSL_SESSION) {
        // SAFETY: the caller vouches for `session`.
        let session = unsafe { SslSessionRef::from_ptr(session) }.to_owned();
        let mut state = self.state();
        (state.given, state.opened, state.resumes_given) = (Some(session), false, None);
    }

    /// Looks whether OpenSSL resumes the session that it was given. A client of TLS 1.3 may offer several keys: sessions,
    /// and others that the program knows (external PSKs). To be called until the server's Finished is made: sessions that
    /// are issued after it take the place of the one that was resumed.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn look_at_resumed(&self, ssl: *mut SSL) {
        let mut state = self.state();
        let Some(given) = &state.given else { return };
        // SAFETY: the caller vouches for `ssl`; the call only reads a flag.
        let is_resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        // SAFETY: the caller vouches for `ssl`; the reference is borrowed.
        let is_given = unsafe { openssl_sys::SSL_get_session(ssl) } == given.as_ptr();
        state.resumes_given = Some(is_resumed && is_given);
    }

    /// Lets go of the session that OpenSSL was given.
    pub(crate) fn gives_no_more(&self) {
        self.state().given = None;
    }

    /// Returns true if a key or a password that the program knows authenticated the client in this handshake, instead of
    /// certificates or a session of ours. OpenSSL does not look at that key again when a session is resumed, and a server
    /// may have taken it from the client by then: such a session belongs in no other process. A session that the
    /// program's own callback found counts as such a key, because it may come from one.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's; `session` is the one that it makes.
    pub(crate) unsafe fn is_by_key(&self, ssl: *mut SSL, session: *const SSL_SESSION) -> bool {
        // SAFETY: the caller vouches for `ssl`.
        if !unsafe { past::is_single_use(ssl) } {
            // SAFETY: the caller vouches for `session`.
            return unsafe { cipher::is_by_key(session) };
        }
        // SAFETY: the caller vouches for `ssl`; the call only reads a flag.
        let is_resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        let state = self.state();
        let is_given = || state.given.is_some() || state.opened;
        let is_given = state.resumes_given.unwrap_or_else(is_given);
        is_resumed && !is_given
    }

    /// Returns the policy of this connection, once the server has the host.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn policy(&self, ssl: *mut SSL, host: &[u8]) -> Policy {
        let State { began, expected, .. } = *self.state();
        let judged = Judged::by(&self.attachment, host);
        // SAFETY: the caller vouches for `ssl`.
        judged.map_or(Policy::ASKS_NOBODY, |judged| unsafe { judged.asked(ssl, began, expected) })
    }

    /// Learns that the policy of connections to this one's host is not known before the servername callback.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn policy_varies(&self, ssl: *mut SSL) {
        // SAFETY: the caller vouches for `ssl`.
        let host = unsafe { self.host(ssl) };
        let judged = host.as_ref().and_then(|host| Judged::by(&self.attachment, host));
        if let (Some(judged), Some(began)) = (judged, self.state().began) {
            judged.varies(&began);
        }
    }

    /// Returns the host that the client asked for. `None` over TLS 1.3 if it asked for one host, and for another after a
    /// HelloRetryRequest, which OpenSSL does not compare: nothing may be learned or issued for either.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn host(&self, ssl: *mut SSL) -> Option<Host> {
        let noted = self.state().host.clone();
        // SAFETY: the caller vouches for `ssl`.
        if unsafe { past::is_single_use(ssl) } {
            // It is that of the last ClientHello, as the program sees it.
            // SAFETY: `ssl` is valid, and the name is copied at once.
            let asked = Host::from_slice(unsafe { server_name::of_connection(ssl) });
            let is_same = noted.is_none_or(|noted| noted.eq_ignore_ascii_case(&asked));
            return is_same.then_some(asked);
        }
        if noted.is_some() {
            return noted;
        }
        // A session of TLS 1.2 gets its id while the ClientHello is read, before OpenSSL has the name.
        // SAFETY: the caller vouches for `ssl`; without a ClientHello there is no extension.
        let in_hello = unsafe { server_name::in_hello(ssl) };
        if !in_hello.is_empty() {
            return Some(Host::from_slice(in_hello));
        }
        // SAFETY: `ssl` is valid, and the name is copied at once.
        Some(Host::from_slice(unsafe { server_name::of_connection(ssl) }))
    }

    /// Returns the Unix time of the earlier full handshake that this connection's session comes from, or `None` if
    /// this handshake is a full one.
    ///
    /// # Safety
    /// `ssl` is valid, and this connection's.
    pub(crate) unsafe fn resumed_since_s(&self, ssl: *mut SSL) -> Option<u64> {
        // SAFETY: the caller vouches for `ssl`.
        let is_resumed = unsafe { openssl_sys::SSL_session_reused(ssl) } == 1;
        self.state().authenticated_s.filter(|_| is_resumed)
    }

    /// Stores the session that still waits for a hint, if there is one.
    fn finish(&self) {
        self.with_cache(|visit, cache| visit.finish(cache, now_ms()));
    }

    /// Does nothing if the context has tickets only.
    fn with_cache(&self, work: impl FnOnce(&mut Visit, &(dyn SessionStore + Send + Sync))) {
        if let Some(Cached { sessions, .. }) = &self.attachment.cached {
            work(&mut self.state().visit, sessions.sessions());
        }
    }

    /// Gives the connection the session-id context of the session that it is about to resume, where the operator
    /// named one context for all programs. OpenSSL resumes no session of another session-id context, and the
    /// connection has not used its own for anything yet. Returns false for a session that must not be resumed here.
    ///
    /// # Safety
    /// `ssl` and `session` are valid.
    pub(crate) unsafe fn adopts(&self, ssl: *mut SSL, session: *mut SSL_SESSION) -> bool {
        // SAFETY: the caller vouches for both.
        if !unsafe { fits(ssl, session) } {
            return false;
        }
        if !self.attachment.is_named {
            return true;
        }
        // SAFETY: the caller vouches for both.
        if !unsafe { cipher::is_chosen(ssl, session) } {
            return false;
        }
        let mut length = 0;
        // SAFETY: the caller vouches for `session`.
        let start = unsafe { ffi::SSL_SESSION_get0_id_context(session, &raw mut length) };
        // SAFETY: the session's own bytes, as many as it says, and a valid SSL, which copies them.
        unsafe { ffi::SSL_set_session_id_context(ssl, start, length) };
        true
    }
}

/// Returns true for a connection without a certificate. Clients that have no key get in nowhere there over TLS 1.3, unless
/// the program finds one during the handshake.
///
/// # Safety
/// `ssl` is valid.
pub(crate) unsafe fn is_bare(ssl: *const SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    unsafe { openssl_sys::SSL_get_certificate(ssl) }.is_null()
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Returns false for a session that OpenSSL would refuse by a fatal error: one without a session-id context, where
/// clients are asked for certificates. Returns false, too, for one whose client certificate has expired since, which
/// OpenSSL would refuse in the full handshake that another process of the server makes.
///
/// # Safety
/// Both are valid.
unsafe fn fits(ssl: *mut SSL, session: *mut SSL_SESSION) -> bool {
    let mut length = 0;
    // SAFETY: the session is valid.
    unsafe { ffi::SSL_SESSION_get0_id_context(session, &raw mut length) };
    // SAFETY: the caller vouches for `ssl`.
    let asks = unsafe { openssl_sys::SSL_get_verify_mode(ssl) } & openssl_sys::SSL_VERIFY_PEER != 0;
    // SAFETY: the caller vouches for `session`.
    (length > 0 || !asks) && !unsafe { has_expired(session) }
}

/// Returns the time from which on one of the certificates is over that the client was verified by in this handshake, its
/// authorities' included. `None` if it was not verified, or if none ends before 2106.
///
/// # Safety
/// `ssl` is valid.
unsafe fn verified_until_s(ssl: *mut SSL) -> Option<u32> {
    // SAFETY: the caller vouches for `ssl`; the call only reads a number.
    let is_verified =
        unsafe { openssl_sys::SSL_get_verify_result(ssl) } == c_long::from(openssl_sys::X509_V_OK);
    // SAFETY: the caller vouches for `ssl`; null if the client has shown nothing.
    let chain = unsafe { openssl_sys::SSL_get0_verified_chain(ssl) };
    if !is_verified || chain.is_null() {
        return None;
    }
    // SAFETY: the connection's own list, which lives longer than this call.
    let chain: &StackRef<X509> = unsafe { StackRef::from_ptr(chain) };
    let epoch = Asn1Time::from_unix(0).ok()?;
    let end_s = |certificate: &X509Ref| {
        let span = epoch.diff(certificate.not_after()).ok()?;
        u32::try_from(i64::from(span.days) * 86_400 + i64::from(span.secs)).ok()
    };
    chain.iter().filter_map(end_s).min()
}

/// Returns true if the client's certificate in a session has expired.
///
/// # Safety
/// The session is valid.
unsafe fn has_expired(session: *mut SSL_SESSION) -> bool {
    // SAFETY: the caller vouches for `session`.
    let certificate = unsafe { ffi::SSL_SESSION_get0_peer(session) };
    if certificate.is_null() {
        return false;
    }
    // SAFETY: the session holds the certificate.
    let end = unsafe { ffi::X509_get0_notAfter(certificate) };
    // SAFETY: the certificate's own time. -1 is a time in the past.
    unsafe { ffi::X509_cmp_current_time(end) < 0 }
}

/// Tells the cache that this connection's client returns in `interval_ms`. Stores the session that waited for the
/// hint.
pub fn hint(ssl: &SslRef, interval_ms: u64) {
    if let Some(connection) = existing(ssl) {
        connection.with_cache(|visit, cache| visit.hint(cache, now_ms(), interval_ms));
    }
}

/// Tells the cache that the application has no hint for this connection's client. Without this call a session that
/// waits for a hint is stored when the connection ends.
pub fn no_hint(ssl: &SslRef) {
    if let Some(connection) = existing(ssl) {
        connection.finish();
    }
}

/// Returns the known history of this connection's client, this visit included. `None` before the handshake, and if
/// nothing is attached to the context that the connection began in.
pub fn history(ssl: &SslRef) -> Option<History> {
    existing(ssl).map(|connection| connection.state().visit.history())
}

fn existing(ssl: &SslRef) -> Option<&Connection> {
    // SAFETY: the reference keeps the SSL alive.
    unsafe { of_ssl(ssl.as_ptr()) }
}

/// Returns the connection's state, if a callback has made it.
///
/// # Safety
/// `ssl` is valid for `'a`.
pub(crate) unsafe fn of_ssl<'a>(ssl: *const SSL) -> Option<&'a Connection> {
    let gone = CONNECTIONS.gone();
    let (last, then, known) = LAST.get();
    if last == ssl && then == gone {
        // SAFETY: the connection's state is there since, because none has gone.
        return unsafe { known.as_ref() };
    }
    // SAFETY: the caller vouches for `ssl`.
    let found = unsafe { CONNECTIONS.get(ssl) }?;
    LAST.set((ssl, gone, found));
    Some(found)
}

/// The states of connections.
pub(crate) static CONNECTIONS: Extra<SSL, Connection> = Extra::new();

thread_local! {
    /// The connection that was looked up last in this thread, and how many had gone by then. A handshake has a dozen events
    /// in a row.
    static LAST: Cell<(*const SSL, usize, *const Connection)> = const { Cell::new((null(), 0, null())) };
}
