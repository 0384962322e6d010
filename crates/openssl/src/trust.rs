//! Whose certificates a server's context believes, as a few bytes.
//!
//! A client that has shown its certificate resumes without showing it again. OpenSSL keeps the session-id
//! contexts apart; but programs give one name to all of theirs (HAProxy, Python), and then a session of a context
//! that asks nobody would be good in one that does. Within one process each context had a cache of its own;
//! where all share one, sessions must be kept apart by what was checked.
//!
//! What a program checks in a callback of its own cannot be seen. OpenSSL does not call it at a resumption either.
//! Where no authorities can be seen, a program that makes its session-id contexts by a hash (nginx) is believed to have
//! put into it what it checks; of all others each context is alone.

use foreign_types::ForeignTypeRef;
use openssl::hash::MessageDigest;
use openssl::sha::Sha256;
use openssl::ssl::SslContextRef;
use openssl::stack::StackRef;
use openssl::x509::X509Name;
use openssl_sys::{SSL_CTX, SSL_SESSION};

use crate::ffi;

/// Whom a context that asks for certificates believes.
#[derive(Debug)]
pub(crate) enum Trust {
    /// Bytes that two contexts have in common only if they believe the same certificate authorities,
    /// and name the same to clients.
    Seen([u8; 32]),
    /// None can be seen. Nobody else has these bytes.
    Alone([u8; 32]),
}

/// # Safety
/// `context` is valid.
pub(crate) unsafe fn of(context: *mut SSL_CTX) -> Trust {
    // SAFETY: the caller vouches for `context`.
    let mut seen = authorities(unsafe { SslContextRef::from_ptr(context) });
    // SAFETY: as above.
    seen.extend(unsafe { named(context) });
    if seen.is_empty() {
        let mut alone = [0; 32];
        // Without random numbers no handshake succeeds.
        let _ = openssl::rand::rand_bytes(&mut alone);
        return Trust::Alone(alone);
    }
    seen.sort_unstable();
    let mut hash = Sha256::new();
    hash.update(b"rejoin trust");
    seen.iter().for_each(|digest| hash.update(digest));
    Trust::Seen(hash.finish())
}

/// Whether the session-id context that a session was made in is a hash, and no word.
///
/// # Safety
/// `session` is valid.
pub(crate) unsafe fn is_hash(session: *const SSL_SESSION) -> bool {
    const SHORTEST_HASH_BYTES: usize = 16;
    let mut length = 0;
    // SAFETY: the caller vouches for `session`.
    let start = unsafe { ffi::SSL_SESSION_get0_id_context(session, &raw mut length) };
    if start.is_null() || (length as usize) < SHORTEST_HASH_BYTES {
        return false;
    }
    // SAFETY: the session's own bytes, as many as it says.
    let bytes = unsafe { std::slice::from_raw_parts(start, length as usize) };
    !bytes.iter().all(|byte| byte.is_ascii_graphic())
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
