//! The choice of ciphers, which OpenSSL does not make again for a session of TLS 1.2: it resumes with the session's
//! cipher, although the server may not have it. Within a program that does no harm; a session that another program made
//! is adopted only if the server would choose its cipher today. (Over TLS 1.3 OpenSSL chooses cipher and group again. A
//! resumption of TLS 1.2 exchanges no key, so no group is chosen.)

use foreign_types::ForeignTypeRef;
use libc::c_int;
use openssl::ssl::SslCipher;
use openssl::stack::StackRef;
use openssl_sys::{SSL, SSL_CIPHER, SSL_SESSION};

use crate::{ffi, past};

/// The security levels (`SSL_CTX_set_security_level(3)`) at which a cipher needs forward secrecy, and the bits that it
/// needs. We ask for an AEAD there, too.
const STRICT_LEVELS: [(c_int, c_int); 3] = [(3, 128), (4, 192), (5, 256)];

/// Returns true if the client of a handshake of TLS 1.2 was authenticated by a key or a password that both sides have
/// (PSK, RFC 4279; SRP, RFC 5054), or if that is not known.
///
/// # Safety
/// `session` is valid.
pub(crate) unsafe fn is_by_key(session: *const SSL_SESSION) -> bool {
    /// `NID_kx_ecdhe_psk`, `NID_kx_dhe_psk`, `NID_kx_rsa_psk`, `NID_kx_psk` and `NID_kx_srp` of `obj_mac.h`.
    const BY_KEY: [c_int; 5] = [1040, 1041, 1042, 1043, 1044];
    // SAFETY: the caller vouches for `session`.
    let cipher = unsafe { ffi::SSL_SESSION_get0_cipher(session) };
    // SAFETY: a cipher of OpenSSL's table.
    cipher.is_null() || BY_KEY.contains(&unsafe { ffi::SSL_CIPHER_get_kx_nid(cipher) })
}

/// Returns true if the connection's server would choose this session's cipher.
///
/// # Safety
/// `ssl` and `session` are valid, and the version is chosen.
pub(crate) unsafe fn is_chosen(ssl: *mut SSL, session: *const SSL_SESSION) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    if unsafe { past::is_single_use(ssl) } {
        return true;
    }
    // SAFETY: the caller vouches for `session`.
    let own = unsafe { ffi::SSL_SESSION_get0_cipher(session) };
    // SAFETY: the caller vouches for `ssl`.
    let listed = unsafe { ffi::SSL_get_ciphers(ssl) };
    if own.is_null() || listed.is_null() {
        return false;
    }
    // SAFETY: the connection's or its context's own list, which lives as long.
    let listed: &StackRef<SslCipher> = unsafe { StackRef::from_ptr(listed.cast()) };
    // SAFETY: the caller vouches for `ssl`.
    let level = unsafe { openssl_sys::SSL_get_security_level(ssl) };
    let needed = STRICT_LEVELS.iter().rfind(|(strict, _)| level >= *strict);
    // SAFETY: a cipher of OpenSSL's table.
    needed.is_none_or(|(_, bits)| unsafe { is_strict(own, *bits) })
        && listed.iter().any(|cipher| std::ptr::eq(cipher.as_ptr(), own))
}

/// # Safety
/// `cipher` is valid.
unsafe fn is_strict(cipher: *const SSL_CIPHER, bits: c_int) -> bool {
    /// `NID_kx_ecdhe` and `NID_kx_dhe` of `obj_mac.h`.
    const FORWARD_SECRET: [c_int; 2] = [1038, 1039];
    // SAFETY: the caller vouches for `cipher`.
    let exchange = unsafe { ffi::SSL_CIPHER_get_kx_nid(cipher) };
    // SAFETY: the caller vouches for `cipher`.
    let has = unsafe { openssl_sys::SSL_CIPHER_get_bits(cipher, std::ptr::null_mut()) };
    // SAFETY: the caller vouches for `cipher`.
    has >= bits
        && FORWARD_SECRET.contains(&exchange)
        && unsafe { ffi::SSL_CIPHER_is_aead(cipher) } == 1
}
