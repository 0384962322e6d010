//! One connection of the program, from its first step to its end.

use std::ffi::{c_int, c_uchar, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use libc::{c_long, size_t};
use openssl_sys::{CRYPTO_EX_DATA, EVP_MD, SSL, SSL_SESSION};
use rejoin_hop::{Directly, Offer, debug};

use super::ffi::{self, Libssl, TLS1_3_VERSION};
use super::shown::Shown;
use super::{allowed, judge};

/// The suite of every hop: the hash that OpenSSL takes for keys of which it knows nothing else.
const TLS_AES_128_GCM_SHA256: [c_uchar; 2] = [0x13, 0x01];
/// The bytes that the hash of that suite gives.
const SHA256_BYTES: c_int = 32;

/// A connection whose ClientHello offers a key.
pub(super) struct Connection {
    offer: Arc<Offer>,
    shown: OnceLock<Shown>,
    end: OnceLock<End>,
}

/// What a handshake came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The program goes on.
    Stands,
    /// It must not, whatever it calls: libssl's own handshake was without a fault.
    Refused,
}

impl Connection {
    /// Whether nobody has looked at the server yet.
    pub(super) fn is_open(&self) -> bool {
        self.end.get().is_none()
    }

    /// Nobody knows whether the server was verified: then it was not.
    pub(super) fn refuse(&self) {
        let _ = self.end.set(End::Refused);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.offer.withdraw();
    }
}

fn index() -> c_int {
    static INDEX: OnceLock<c_int> = OnceLock::new();
    *INDEX.get_or_init(|| ffi::ssl_index(Some(copied), Some(freed)))
}

/// OpenSSL copies an SSL: the connection is not the copy's.
unsafe extern "C" fn copied(
    _to: *mut CRYPTO_EX_DATA,
    _from: *const CRYPTO_EX_DATA,
    own: *mut *mut c_void,
    _index: c_int,
    _long: c_long,
    _pointer: *mut c_void,
) -> c_int {
    // SAFETY: OpenSSL says where it takes what it puts into the copy.
    unsafe { own.write(null_mut()) };
    1
}

/// OpenSSL frees an SSL.
unsafe extern "C" fn freed(
    _ssl: *mut c_void,
    own: *mut c_void,
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _pointer: *mut c_void,
) {
    if !own.is_null() {
        // SAFETY: `begin` put it there, and nobody takes it after this.
        drop(unsafe { Arc::from_raw(own.cast::<Connection>()) });
    }
}

/// # Safety
/// `ssl` is valid.
pub(super) unsafe fn of(ssl: *mut SSL) -> Option<Arc<Connection>> {
    // SAFETY: the caller vouches for `ssl`.
    let own = unsafe { openssl_sys::SSL_get_ex_data(ssl, index()) }.cast::<Connection>();
    if own.is_null() {
        return None;
    }
    // SAFETY: what is there is from `Arc::into_raw`, and stays while `ssl` does.
    unsafe { Arc::increment_strong_count(own) };
    // SAFETY: the count is this one's.
    Some(unsafe { Arc::from_raw(own) })
}

/// What the program is to see of a connection that stands by the manager.
///
/// # Safety
/// `ssl` is valid, and what this returns is not used when it has been freed or begun anew.
pub(super) unsafe fn shown<'a>(ssl: *mut SSL) -> Option<&'a Shown> {
    if ssl.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for `ssl`.
    let own = unsafe { openssl_sys::SSL_get_ex_data(ssl, index()) }.cast::<Connection>();
    // SAFETY: what is there is from `Arc::into_raw`, and stays while `ssl` does.
    unsafe { own.as_ref() }?.shown.get()
}

/// Puts a connection in place of what was there.
///
/// # Safety
/// `ssl` is valid, and in no other thread's use.
unsafe fn set(ssl: *mut SSL, connection: Option<Arc<Connection>>) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    let old = unsafe { openssl_sys::SSL_get_ex_data(ssl, index()) }.cast::<Connection>();
    let new = connection.map_or(null_mut(), |connection| Arc::into_raw(connection).cast_mut());
    // SAFETY: as above.
    if unsafe { openssl_sys::SSL_set_ex_data(ssl, index(), new.cast()) } != 1 {
        if !new.is_null() {
            // SAFETY: it was taken from an Arc, and nobody else has it.
            drop(unsafe { Arc::from_raw(new) });
        }
        return false;
    }
    if !old.is_null() {
        // SAFETY: it was in the SSL's keeping, and is no more.
        drop(unsafe { Arc::from_raw(old) });
    }
    true
}

/// Before a step of a handshake: at the first, a key is added to what the program offers.
///
/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn begin(libssl: &Libssl, ssl: *mut SSL) -> Option<Arc<Connection>> {
    // SAFETY: the caller vouches for `ssl`, here and below.
    if unsafe { ffi::SSL_in_before(ssl) } == 0 {
        // SAFETY: as above.
        return unsafe { of(ssl) };
    }
    // SAFETY: as above.
    let is_again = unsafe { of(ssl) }.is_some();
    if is_again {
        // SAFETY: as above; the callback is ours.
        unsafe { (libssl.SSL_set_psk_use_session_callback)(ssl, None) };
        // SAFETY: as above.
        unsafe { set(ssl, None) };
    }
    // SAFETY: as above.
    if let Err(why) = unsafe { allowed::through_the_manager(ssl) } {
        debug::directly(why);
        return None;
    }
    let connection = Arc::new(Connection {
        offer: Offer::make(&[])?,
        shown: OnceLock::new(),
        end: OnceLock::new(),
    });
    // SAFETY: as above.
    if !unsafe { set(ssl, Some(Arc::clone(&connection))) } {
        return None;
    }
    // SAFETY: as above.
    unsafe { (libssl.SSL_set_psk_use_session_callback)(ssl, Some(key_wanted)) };
    Some(connection)
}

/// libssl makes a ClientHello.
unsafe extern "C" fn key_wanted(
    ssl: *mut SSL,
    hash: *const EVP_MD,
    identity: *mut *const c_uchar,
    identity_bytes: *mut size_t,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    let answer = |(text, length, made)| {
        // SAFETY: libssl says where the answer belongs.
        unsafe { identity.write(text) };
        // SAFETY: as above.
        unsafe { identity_bytes.write(length) };
        // SAFETY: as above; it takes the session over.
        unsafe { session.write(made) };
    };
    answer((std::ptr::null(), 0, null_mut()));
    // A server that wanted another ClientHello has chosen a suite, and a key of another hash is a fault.
    // SAFETY: libssl's own, or none.
    let is_other = !hash.is_null() && unsafe { openssl_sys::EVP_MD_get_size(hash) } != SHA256_BYTES;
    // SAFETY: libssl calls for an SSL that is valid.
    let Some(connection) = (unsafe { of(ssl) }).filter(|_| !is_other) else { return 1 };
    // SAFETY: as above.
    let Some(made) = (unsafe { synthetic(ssl, connection.offer.key()) }) else { return 1 };
    let text = connection.offer.identity();
    // The connection is the SSL's, and so is the text while that is.
    answer((text.as_ptr(), text.len(), made));
    1
}

/// A session that is nothing but a key.
///
/// # Safety
/// `ssl` is valid.
unsafe fn synthetic(ssl: *mut SSL, key: &[u8; 32]) -> Option<*mut SSL_SESSION> {
    // SAFETY: the caller vouches for `ssl`, and two bytes are there.
    let cipher = unsafe { ffi::SSL_CIPHER_find(ssl, TLS_AES_128_GCM_SHA256.as_ptr()) };
    // SAFETY: no arguments.
    let session = unsafe { ffi::SSL_SESSION_new() };
    if session.is_null() {
        return None;
    }
    // SAFETY: the session was made above, and the key is as long as is said.
    let mut is_made =
        unsafe { ffi::SSL_SESSION_set1_master_key(session, key.as_ptr(), key.len()) } == 1;
    // SAFETY: as above; the cipher is libssl's own.
    is_made &= !cipher.is_null() && unsafe { ffi::SSL_SESSION_set_cipher(session, cipher) } == 1;
    // SAFETY: as above.
    is_made &= unsafe { ffi::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) } == 1;
    // libssl resumes nothing of another session-id context, and has just made a session of this SSL's.
    let mut length = 0;
    // SAFETY: the caller vouches for `ssl`.
    let new = unsafe { openssl_sys::SSL_get_session(ssl) };
    is_made &= !new.is_null();
    if is_made {
        // SAFETY: it is there, and the answer's length belongs into `length`.
        let context = unsafe { ffi::SSL_SESSION_get0_id_context(new, &raw mut length) };
        // SAFETY: so long it is.
        is_made &= unsafe { ffi::SSL_SESSION_set1_id_context(session, context, length) } == 1;
    }
    if !is_made {
        // SAFETY: it is nobody else's.
        unsafe { openssl_sys::SSL_SESSION_free(session) };
        return None;
    }
    Some(session)
}

/// After a handshake that succeeded. Returns whether it still has when the server's certificates have been
/// seen.
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
    let stands = unsafe { look(libssl, ssl, connection) };
    let _ = connection.end.set(if stands { End::Stands } else { End::Refused });
    if !stands {
        // Nothing more is said: that it was all, to who is gone, would be a signal.
        // SAFETY: as above.
        unsafe { ffi::SSL_set_shutdown(ssl, ffi::SSL_SENT_SHUTDOWN) };
    }
    stands
}

/// Whether the program goes on with the server that the manager found.
///
/// # Safety
/// As [`finish`].
unsafe fn look(libssl: &Libssl, ssl: *mut SSL, connection: &Connection) -> bool {
    let Some(taken) = connection.offer.taken() else { return true };
    // SAFETY: the caller vouches for `ssl`.
    if unsafe { (libssl.SSL_session_reused)(ssl) } == 0 {
        // The server itself answered, by the manager's passing on.
        debug::directly(Directly::ManagerFailed);
        return true;
    }
    let described = taken.described();
    // SAFETY: as above.
    let seen = described.and_then(|found| Some((unsafe { Shown::of(ssl, &found) }?, found)));
    let Some((seen, found)) = seen else {
        judge::say(ffi::SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE);
        return false;
    };
    // SAFETY: as above.
    let judgement = unsafe { judge::judge(ssl, &seen) };
    debug::stands(&found, judgement.is_verified);
    let seen = Shown { verified: judgement.chain, ..seen };
    let is_first = connection.shown.set(seen).is_ok();
    if !judgement.is_believed || !is_first {
        judge::say(ffi::SSL_R_CERTIFICATE_VERIFY_FAILED);
        return false;
    }
    let hears = if judgement.is_verified { taken.verified() } else { taken.accept() };
    if !hears {
        judge::say(ffi::SSL_R_UNEXPECTED_EOF_WHILE_READING);
    }
    hears
}
