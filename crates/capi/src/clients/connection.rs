//! One connection of the program, from the first step of its handshake to its end.

use std::ffi::{c_int, c_uchar};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libc::size_t;
use openssl_sys::{EVP_MD, SSL, SSL_SESSION};
use rejoin_client::protocol::Connected;
use rejoin_hop::{Directly, Offer, Taken, debug};
use rejoin_openssl::Extra;

use super::allowed;
use super::ffi::{self, Libssl, TLS1_3_VERSION};
use super::judge::{self, Decision};
use super::shown::Shown;

/// The suite of every hop, TLS_AES_128_GCM_SHA256. Its hash is the one that OpenSSL assumes for a PSK without one.
pub(super) const HOP_SUITE: [c_uchar; 2] = [0x13, 0x01];
/// The length of that suite's hash.
const SHA256_BYTES: c_int = 32;

/// A connection whose ClientHello offers a key.
pub(super) struct Connection {
    offer: Arc<Offer>,
    /// True once libssl has asked for the key.
    is_used: AtomicBool,
    /// The hop while the program is undecided about the server.
    undecided: Mutex<Option<Found>>,
    shown: OnceLock<Shown>,
    end: OnceLock<End>,
}

/// A connection that the manager made, and the manager's description of the server.
struct Found {
    taken: Taken,
    described: Connected,
}

/// The outcome of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The program goes on.
    Stands,
    /// The program must not go on, whichever function it calls, although libssl's own handshake has succeeded.
    Refused,
}

impl Connection {
    /// Returns true if the program goes on.
    pub(super) fn stands(&self) -> bool {
        self.end.get() == Some(&End::Stands)
    }

    /// Refuses the server, because its verification ended in a panic.
    pub(super) fn refuse(&self) {
        let _ = self.end.set(End::Refused);
    }

    fn undecided(&self) -> MutexGuard<'_, Option<Found>> {
        self.undecided.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.offer.withdraw();
    }
}

static CONNECTIONS: Extra<SSL, Arc<Connection>> = Extra::new();

/// Returns the connection of an SSL.
///
/// # Safety
/// `ssl` is valid.
pub(super) unsafe fn of(ssl: *mut SSL) -> Option<Arc<Connection>> {
    // SAFETY: the caller vouches for `ssl`, and the reference is not used after this.
    unsafe { borrowed(ssl) }.map(Arc::clone)
}

/// Returns what the program sees of the server, if the manager made the connection.
///
/// # Safety
/// `ssl` is null or valid, and the result is not used after the SSL has been freed or has begun another connection.
pub(super) unsafe fn shown<'a>(ssl: *mut SSL) -> Option<&'a Shown> {
    if ssl.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for `ssl`, and for the use of the result.
    unsafe { borrowed(ssl) }?.shown.get()
}

/// Returns true if the program must not go on, although libssl's own handshake has succeeded.
///
/// # Safety
/// `ssl` is null or valid.
pub(super) unsafe fn is_refused(ssl: *mut SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`, and the reference is not used after this.
    let connection = if ssl.is_null() { None } else { unsafe { borrowed(ssl) } };
    connection.is_some_and(|connection| connection.end.get() == Some(&End::Refused))
}

/// Returns the connection of an SSL, without a reference of its own.
///
/// # Safety
/// The same as [`shown`], and `ssl` is not null.
unsafe fn borrowed<'a>(ssl: *mut SSL) -> Option<&'a Arc<Connection>> {
    // SAFETY: the caller vouches for `ssl`, which holds the connection until it is freed or begins another.
    unsafe { CONNECTIONS.get(ssl) }
}

/// Prepares a step of a handshake. At the first step it adds a key to the offers of the program.
///
/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn begin(libssl: &Libssl, ssl: *mut SSL) -> Option<()> {
    // SAFETY: the caller vouches for `ssl`.
    if unsafe { ffi::SSL_in_before(ssl) } == 0 {
        return None;
    }
    // SAFETY: the caller vouches for `ssl`, and the reference is not used after this.
    let before = unsafe { borrowed(ssl) };
    // One whose key has been used belongs to an earlier connection of the SSL.
    if before.is_some() {
        // SAFETY: the caller vouches for `ssl`, whose callback is the one that this function set.
        unsafe { (libssl.SSL_set_psk_use_session_callback)(ssl, None) };
        // SAFETY: the caller vouches for `ssl`, and nobody has the connection: the reference is used no more.
        drop(unsafe { CONNECTIONS.take(ssl) });
    }
    // SAFETY: the caller vouches for `ssl`.
    if let Err(why) = unsafe { allowed::through_the_manager(ssl) } {
        debug::directly(why);
        return None;
    }
    let connection = Arc::new(Connection {
        offer: Offer::make(&[])?,
        is_used: AtomicBool::new(false),
        undecided: Mutex::default(),
        shown: OnceLock::new(),
        end: OnceLock::new(),
    });
    // SAFETY: the caller vouches for `ssl`, which has no connection any more.
    unsafe { CONNECTIONS.put(ssl, connection) }?;
    // SAFETY: the caller vouches for `ssl`; the callback has the type that libssl calls.
    unsafe { (libssl.SSL_set_psk_use_session_callback)(ssl, Some(key_wanted)) };
    Some(())
}

/// Returns the session with the connection's key to libssl, which is making a ClientHello.
unsafe extern "C" fn key_wanted(
    ssl: *mut SSL,
    hash: *const EVP_MD,
    identity: *mut *const c_uchar,
    identity_bytes: *mut size_t,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    let answer = |(text, length, made)| {
        // SAFETY: libssl passes a variable that holds the identity.
        unsafe { identity.write(text) };
        // SAFETY: libssl passes a variable that holds the length.
        unsafe { identity_bytes.write(length) };
        // SAFETY: libssl passes a variable that holds the session, and takes the session over.
        unsafe { session.write(made) };
    };
    answer((std::ptr::null(), 0, null_mut()));
    // A server that asked for a second ClientHello has chosen a suite, and libssl fails on a key with another hash.
    // SAFETY: the hash is libssl's, and not null.
    let is_other = !hash.is_null() && unsafe { openssl_sys::EVP_MD_get_size(hash) } != SHA256_BYTES;
    // SAFETY: libssl calls with an SSL that is valid.
    let Some(connection) = (unsafe { of(ssl) }) else { return 1 };
    connection.is_used.store(true, Ordering::Relaxed);
    if is_other {
        return 1;
    }
    // SAFETY: libssl calls with an SSL that is valid.
    let Some(made) = (unsafe { synthetic(ssl, connection.offer.key()) }) else { return 1 };
    let text = connection.offer.identity();
    // The SSL holds the connection, and so the text.
    answer((text.as_ptr(), text.len(), made));
    1
}

/// Makes a session that has nothing but a key.
///
/// # Safety
/// `ssl` is valid.
unsafe fn synthetic(ssl: *mut SSL, key: &[u8; 32]) -> Option<*mut SSL_SESSION> {
    // SAFETY: the caller vouches for `ssl`, and a suite's number has two bytes.
    let cipher = unsafe { ffi::SSL_CIPHER_find(ssl, HOP_SUITE.as_ptr()) };
    // SAFETY: the function takes no arguments.
    let session = unsafe { ffi::SSL_SESSION_new() };
    if session.is_null() {
        return None;
    }
    // SAFETY: the session was made above, and the key has `key.len()` bytes.
    let mut is_made =
        unsafe { ffi::SSL_SESSION_set1_master_key(session, key.as_ptr(), key.len()) } == 1;
    // SAFETY: the session was made above; the cipher is static.
    is_made &= !cipher.is_null() && unsafe { ffi::SSL_SESSION_set_cipher(session, cipher) } == 1;
    // SAFETY: the session was made above.
    is_made &= unsafe { ffi::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) } == 1;
    // libssl resumes only sessions of the same session-id context. The new session of this SSL has that context.
    let mut length = 0;
    // SAFETY: the caller vouches for `ssl`.
    let new = unsafe { openssl_sys::SSL_get_session(ssl) };
    is_made &= !new.is_null();
    if is_made {
        // SAFETY: the session is not null; `length` has room for the length.
        let context = unsafe { ffi::SSL_SESSION_get0_id_context(new, &raw mut length) };
        // SAFETY: `context` has `length` bytes, as libssl has answered.
        is_made &= unsafe { ffi::SSL_SESSION_set1_id_context(session, context, length) } == 1;
    }
    if !is_made {
        // SAFETY: the session belongs to this function.
        unsafe { openssl_sys::SSL_SESSION_free(session) };
        return None;
    }
    Some(session)
}

/// Judges the server after a handshake that succeeded. Returns false if the program must not go on, or not yet.
///
/// # Safety
/// `ssl` is valid, in no other thread's use, and its handshake is over.
pub(super) unsafe fn finish(libssl: &Libssl, ssl: *mut SSL, connection: &Arc<Connection>) -> bool {
    if let Some(end) = connection.end.get() {
        if *end == End::Refused {
            judge::say(ffi::SSL_R_CERTIFICATE_VERIFY_FAILED);
        }
        return *end == End::Stands;
    }
    // SAFETY: the caller vouches for `ssl`.
    let Some(end) = (unsafe { look(libssl, ssl, connection) }) else { return false };
    let _ = connection.end.set(end);
    if !connection.stands() {
        // No close_notify: writing to a socket that the manager has closed would raise a signal.
        // SAFETY: the caller vouches for `ssl`.
        unsafe { ffi::SSL_set_shutdown(ssl, ffi::SSL_SENT_SHUTDOWN) };
    }
    connection.stands()
}

/// Returns the outcome, or `None` while the program is undecided about the server that the manager found.
///
/// # Safety
/// The same as [`finish`].
unsafe fn look(libssl: &Libssl, ssl: *mut SSL, connection: &Connection) -> Option<End> {
    let undecided = connection.undecided().take();
    let found = match undecided {
        Some(found) => found,
        // SAFETY: the caller vouches for `ssl`.
        None => match unsafe { found(libssl, ssl, connection) } {
            Ok(found) => found,
            Err(end) => return Some(end),
        },
    };
    // The program's functions see the server, too.
    let shown = connection.shown.get()?;
    // SAFETY: the caller vouches for `ssl`, whose handshake is over.
    let judgement = unsafe { judge::judge(libssl, ssl, shown) };
    if judgement.decision == Decision::Undecided {
        *connection.undecided() = Some(found);
        return None;
    }
    let Found { taken, described } = found;
    debug::stands(&described, judgement.is_verified);
    let is_believed = judgement.decision == Decision::Believed;
    shown.judged(is_believed, judgement.chain);
    // A call of the program's own function may have found nobody to judge meanwhile.
    if !is_believed || connection.end.get().is_some() {
        judge::say(ffi::SSL_R_CERTIFICATE_VERIFY_FAILED);
        return Some(End::Refused);
    }
    let hears = if judgement.is_verified { taken.verified() } else { taken.accept() };
    if !hears {
        judge::say(ffi::SSL_R_UNEXPECTED_EOF_WHILE_READING);
        return Some(End::Refused);
    }
    Some(End::Stands)
}

/// Returns the connection that the manager made, or the outcome if there is nothing to judge.
///
/// # Safety
/// The same as [`finish`].
unsafe fn found(libssl: &Libssl, ssl: *mut SSL, connection: &Connection) -> Result<Found, End> {
    let taken = connection.offer.taken();
    // SAFETY: the caller vouches for `ssl`.
    if unsafe { (libssl.SSL_session_reused)(ssl) } == 0 {
        // The server itself answered, and libssl has had it judged. The manager took no part, or forwarded.
        if taken.is_some() {
            debug::directly(Directly::ManagerFailed);
        }
        return Err(End::Stands);
    }
    // If the hop was lost on the way, nobody says who the server is.
    let described = taken.and_then(|taken| Some((taken.described()?, taken)));
    let found = described.and_then(|(described, taken)| {
        // SAFETY: the caller vouches for `ssl`.
        connection.shown.set(unsafe { Shown::of(ssl, &described) }?).ok()?;
        Some(Found { taken, described })
    });
    found.ok_or_else(|| {
        judge::say(ffi::SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE);
        // SAFETY: the caller vouches for `ssl`.
        unsafe { ffi::SSL_set_verify_result(ssl, ffi::X509_V_ERR_UNSPECIFIED) };
        End::Refused
    })
}
