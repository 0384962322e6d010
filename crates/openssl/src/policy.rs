//! A server's requirements on client certificates, digested to a few bytes.
//!
//! A client that has shown its certificate resumes without showing it again, and OpenSSL does not check it
//! again. OpenSSL keeps session-id contexts apart. But many programs give the same word to all of their contexts, and
//! a server may switch to a stricter virtual server after OpenSSL has resumed. Without Rejoin each context has a cache
//! of its own, within one process and between two reloads. Where all contexts share a cache, a session resumes only
//! under exactly the policy that it was made under.
//!
//! The policy of a connection is known after the servername callback, but sessions are looked up before it. So in a
//! process that asks any client for a certificate, the policy of each context and host is learned from its handshakes
//! ([`Learned`]). Until it is known, handshakes are full.
//!
//! Two things cannot be seen: the checks of a program's own callback, and authorities in a folder.
//! Only programs that make their session-id contexts by a hash (nginx, Apache) are trusted to keep
//! these apart. In all other programs, a context that asks for certificates shares with no other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use foreign_types::ForeignTypeRef;
use libc::{c_int, c_ulong};
use openssl::sha::Sha256;
use openssl::stack::StackRef;
use openssl::x509::X509Name;
use openssl_sys::{OPENSSL_STACK, SSL, SSL_CTX, SSL_SESSION, SSL_VERIFY_PEER};

use crate::ffi;

/// The digest of a server's requirements on client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy([u8; Self::BYTES]);

impl Policy {
    const BYTES: usize = 16;
    /// The policy of a server that asks for no certificates.
    pub(crate) const ASKS_NOBODY: Self = Self([0; Self::BYTES]);

    /// Returns the digest, or an empty slice for [`Self::ASKS_NOBODY`].
    pub(crate) fn as_bytes(&self) -> &[u8] {
        if *self == Self::ASKS_NOBODY { &[] } else { &self.0 }
    }

    fn of_digest(digest: &[u8; 32]) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&digest[..Self::BYTES]);
        Self(bytes)
    }
}

/// True once a context of the process was seen to ask for certificates.
static ASKS: AtomicBool = AtomicBool::new(false);

/// Notes the verify mode of a context or a connection.
pub(crate) fn note(verify_mode: c_int) {
    if verify_mode & SSL_VERIFY_PEER != 0 {
        ASKS.store(true, Ordering::Relaxed);
    }
}

/// Returns true if a context of the process was seen to ask for certificates.
pub(crate) fn is_anybody_asked() -> bool {
    ASKS.load(Ordering::Relaxed)
}

/// The policies that connections of one context ended up with, by host.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    by_host: Mutex<ByHost>,
    alone: OnceLock<Policy>,
}

type ByHost = HashMap<Box<[u8]>, (Circumstances, Policy)>;

/// The inputs of a policy that are quick to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Circumstances {
    mode: c_int,
    flags: c_ulong,
    depth: c_int,
    /// The context after the servername callback, and the number of objects in its store.
    context: usize,
    objects: c_int,
}

impl Learned {
    /// The most hosts that are remembered, because clients choose them.
    const MOST_HOSTS: usize = 1_024;

    /// Returns the policy that a connection to this host will end up with, or `None` if it is not known.
    pub(crate) fn expected(&self, host: &[u8]) -> Option<Policy> {
        if !ASKS.load(Ordering::Relaxed) {
            return Some(Policy::ASKS_NOBODY);
        }
        // This never waits: another thread may have held the lock when the process forked.
        let known = self.by_host.try_lock().ok()?;
        known.get(&host.to_ascii_lowercase()[..]).map(|(_, policy)| *policy)
    }

    /// Returns the policy of this connection, after the servername callback.
    ///
    /// # Safety
    /// `ssl` is valid, and began in this context.
    pub(crate) unsafe fn asked(&self, ssl: *mut SSL, host: &[u8], is_named: bool) -> Policy {
        // SAFETY: the caller vouches for `ssl`.
        let mode = unsafe { openssl_sys::SSL_get_verify_mode(ssl) };
        if mode & SSL_VERIFY_PEER == 0 && !ASKS.load(Ordering::Relaxed) {
            return Policy::ASKS_NOBODY;
        }
        note(mode);
        let host = host.to_ascii_lowercase();
        // SAFETY: the caller vouches for `ssl`.
        let now = unsafe { Circumstances::of(ssl, mode) };
        let before = self.by_host.try_lock().ok().and_then(|known| known.get(&host[..]).copied());
        if let Some((_, policy)) = before.filter(|(then, _)| *then == now) {
            return policy;
        }
        // SAFETY: the caller vouches for `ssl`.
        let policy = unsafe { self.policy(ssl, &now, is_named) };
        self.learn(host, now, policy);
        policy
    }

    /// # Safety
    /// `ssl` is valid, and began in this context.
    unsafe fn policy(&self, ssl: *mut SSL, now: &Circumstances, is_named: bool) -> Policy {
        if now.mode & SSL_VERIFY_PEER == 0 {
            return Policy::ASKS_NOBODY;
        }
        // SAFETY: the caller vouches for `ssl`.
        let session = unsafe { openssl_sys::SSL_get_session(ssl) };
        // Under a name the session-id context may be another program's.
        // SAFETY: the connection's session, or null.
        if is_named || !unsafe { is_hash(session) } {
            return *self.alone.get_or_init(alone);
        }
        // SAFETY: the caller vouches for `ssl`.
        unsafe { fingerprint(ssl, now) }
    }

    fn learn(&self, host: Vec<u8>, now: Circumstances, policy: Policy) {
        let Ok(mut by_host) = self.by_host.try_lock() else { return };
        if by_host.len() >= Self::MOST_HOSTS {
            by_host.clear();
        }
        by_host.insert(host.into(), (now, policy));
    }
}

impl Circumstances {
    /// # Safety
    /// `ssl` is valid.
    unsafe fn of(ssl: *mut SSL, mode: c_int) -> Self {
        // SAFETY: the caller vouches for `ssl`.
        let parameters = unsafe { ffi::SSL_get0_param(ssl) };
        // SAFETY: the connection's own.
        let flags = unsafe { ffi::X509_VERIFY_PARAM_get_flags(parameters) };
        // SAFETY: the connection's own.
        let depth = unsafe { ffi::X509_VERIFY_PARAM_get_depth(parameters) };
        // SAFETY: the caller vouches for `ssl`.
        let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
        // SAFETY: the connection holds it.
        let objects = unsafe { with_objects(context, |_, count| count) };
        Self { mode, flags, depth, context: context as usize, objects }
    }
}

/// Makes a policy that no other context has.
fn alone() -> Policy {
    let mut digest = [0; 32];
    // Without random numbers no handshake succeeds.
    let _ = openssl::rand::rand_bytes(&mut digest);
    Policy::of_digest(&digest)
}

/// Returns true if the session-id context that a session was made in is a hash, binary or in hexadecimal, and not a
/// word. Returns false without a session.
///
/// # Safety
/// `session` is valid, or null.
unsafe fn is_hash(session: *const SSL_SESSION) -> bool {
    const SHORTEST_HASH_BYTES: usize = 16;
    if session.is_null() {
        return false;
    }
    let mut length = 0;
    // SAFETY: the caller vouches for `session`.
    let start = unsafe { ffi::SSL_SESSION_get0_id_context(session, &raw mut length) };
    if start.is_null() || (length as usize) < SHORTEST_HASH_BYTES {
        return false;
    }
    // SAFETY: the session's own bytes, as many as it says.
    let bytes = unsafe { std::slice::from_raw_parts(start, length as usize) };
    bytes.iter().all(u8::is_ascii_hexdigit) || !bytes.iter().all(u8::is_ascii_graphic)
}

/// Digests the verify mode, flags and depth, the authorities and revocation lists, and the names that are sent to
/// clients, of the context that the connection is in now.
///
/// # Safety
/// `ssl` is valid.
unsafe fn fingerprint(ssl: *mut SSL, now: &Circumstances) -> Policy {
    let mut hash = Sha256::new();
    hash.update(b"rejoin policy");
    hash.update(&now.mode.to_le_bytes());
    hash.update(&now.flags.to_le_bytes());
    hash.update(&now.depth.to_le_bytes());
    // SAFETY: the connection holds it.
    let mut seen = unsafe { believed(now.context as *mut SSL_CTX) };
    seen.sort_unstable();
    seen.iter().for_each(|digest| hash.update(digest));
    hash.update(b"named");
    // SAFETY: the caller vouches for `ssl`.
    unsafe { named(ssl) }.iter().for_each(|digest| hash.update(digest));
    Policy::of_digest(&hash.finish())
}

/// Returns the digests of the context's authorities and revocation lists.
///
/// # Safety
/// `context` is valid.
unsafe fn believed(context: *mut SSL_CTX) -> Vec<[u8; 32]> {
    let digests = |objects: *const OPENSSL_STACK, count| {
        let object = |at| {
            // SAFETY: within the stack.
            let object = unsafe { openssl_sys::OPENSSL_sk_value(objects, at) };
            // SAFETY: an object of the store.
            unsafe { digest(object.cast()) }
        };
        (0..count).filter_map(object).collect()
    };
    // SAFETY: the caller vouches for `context`.
    unsafe { with_objects(context, digests) }
}

/// Lends the objects of a context's store, and their number. Threads that add to the store meanwhile wait.
///
/// # Safety
/// `context` is valid.
unsafe fn with_objects<T>(
    context: *mut SSL_CTX,
    look: impl FnOnce(*const OPENSSL_STACK, c_int) -> T,
) -> T {
    // SAFETY: the caller vouches for `context`.
    let store = unsafe { openssl_sys::SSL_CTX_get_cert_store(context) };
    // SAFETY: a context has a store.
    unsafe { ffi::X509_STORE_lock(store) };
    // SAFETY: the store is locked, so that nobody adds to it.
    let objects = unsafe { openssl_sys::X509_STORE_get0_objects(store) };
    // SAFETY: a stack.
    let count = unsafe { openssl_sys::OPENSSL_sk_num(objects.cast()) };
    let looked = look(objects.cast(), count);
    // SAFETY: locked above.
    unsafe { ffi::X509_STORE_unlock(store) };
    looked
}

/// Returns the digest of a certificate or a revocation list.
///
/// # Safety
/// `object` is valid.
unsafe fn digest(object: *mut openssl_sys::X509_OBJECT) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    // SAFETY: a constant of OpenSSL's.
    let sha256 = unsafe { openssl_sys::EVP_sha256() };
    let (start, length) = (digest.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: the caller vouches for `object`; null if it is no certificate.
    let certificate = unsafe { openssl_sys::X509_OBJECT_get0_X509(object) };
    // SAFETY: the caller vouches for `object`; null if it is no revocation list.
    let list = unsafe { ffi::X509_OBJECT_get0_X509_CRL(object) };
    let done = if !certificate.is_null() {
        // SAFETY: the certificate is valid, and a digest has 32 bytes.
        unsafe { openssl_sys::X509_digest(certificate, sha256, start.cast(), length) }
    } else if !list.is_null() {
        // SAFETY: the list is valid, and a digest has 32 bytes.
        unsafe { ffi::X509_CRL_digest(list, sha256, start, length) }
    } else {
        0
    };
    (done == 1).then_some(digest)
}

/// Returns the digests of the authorities' names that are sent to clients.
///
/// # Safety
/// `ssl` is valid.
unsafe fn named(ssl: *mut SSL) -> Vec<[u8; 32]> {
    // SAFETY: the caller vouches for `ssl`.
    let names = unsafe { ffi::SSL_get_client_CA_list(ssl) };
    if names.is_null() {
        return Vec::new();
    }
    // SAFETY: the connection's or its context's own list, which lives as long.
    let names: &StackRef<X509Name> = unsafe { StackRef::from_ptr(names.cast()) };
    names
        .iter()
        .filter_map(|name| name.to_der().ok())
        .map(|der| openssl::sha::sha256(&der))
        .collect()
}
