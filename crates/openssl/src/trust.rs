//! Whose certificates a server's context believes, as a few bytes.
//!
//! A client that has shown its certificate resumes without showing it again. OpenSSL keeps the session-id
//! contexts apart; but programs give one name to all of theirs (HAProxy, Python), and then a session of a context
//! that asks nobody would be good in one that does. Within one process each context had a cache of its own;
//! where all share one, sessions must be kept apart by what was checked.
//!
//! What a program checks in a callback of its own cannot be seen. OpenSSL does not call it at a resumption either.

use foreign_types::ForeignTypeRef;
use openssl::hash::MessageDigest;
use openssl::sha::Sha256;
use openssl::ssl::SslContextRef;
use openssl::stack::StackRef;
use openssl::x509::X509Name;
use openssl_sys::SSL_CTX;

use crate::ffi;

/// Bytes that two contexts have in common only if they believe the same certificate authorities, and
/// name the same to clients. Where there are none to be seen, nobody else has these bytes: sessions
/// stay with the context.
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn fingerprint(context: *mut SSL_CTX) -> [u8; 32] {
    // SAFETY: the caller vouches for `context`.
    let mut seen = authorities(unsafe { SslContextRef::from_ptr(context) });
    // SAFETY: as above.
    seen.extend(unsafe { named(context) });
    if seen.is_empty() {
        let mut alone = [0; 32];
        // Without random numbers no handshake succeeds.
        let _ = openssl::rand::rand_bytes(&mut alone);
        return alone;
    }
    seen.sort_unstable();
    let mut hash = Sha256::new();
    hash.update(b"rejoin trust");
    seen.iter().for_each(|digest| hash.update(digest));
    hash.finish()
}

/// The digests of what is trusted. What lies in a folder is there only once it was needed.
fn authorities(context: &SslContextRef) -> Vec<[u8; 32]> {
    let trusted = context.cert_store().all_certificates();
    let digests = trusted.iter().filter_map(|found| found.digest(MessageDigest::sha256()).ok());
    digests.filter_map(|digest| <[u8; 32]>::try_from(&*digest).ok()).collect()
}

/// The digests of the names that clients are told.
///
/// # Safety
/// `context` is valid.
unsafe fn named(context: *mut SSL_CTX) -> Vec<[u8; 32]> {
    // SAFETY: the caller vouches for `context`.
    let names = unsafe { ffi::SSL_CTX_get_client_CA_list(context) };
    if names.is_null() {
        return Vec::new();
    }
    // SAFETY: the context's own list, which lives as long as the context.
    let names: &StackRef<X509Name> = unsafe { StackRef::from_ptr(names.cast()) };
    names
        .iter()
        .filter_map(|name| name.to_der().ok())
        .map(|der| openssl::sha::sha256(&der))
        .collect()
}
