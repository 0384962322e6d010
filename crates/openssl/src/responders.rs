//! The question whether a certificate was revoked, which nginx asks the responders of authorities (OCSP, RFC 6960) about each
//! client (`ssl_ocsp`).
//!
//! nginx asks also about a client that has resumed. Its session has its certificate, and no other of the chain, so nginx
//! builds the chain anew from the certificates in the context's store. If the store lacks an intermediate one, which the
//! client had sent before, nginx ends the connection. Such a client makes full handshakes.

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::stack::{Stack, StackRef};
use openssl::x509::store::X509StoreRef;
use openssl::x509::{X509, X509Ref, X509StoreContext};
use openssl_sys::SSL;

use crate::{ffi, known};

/// Returns true if the program would end a connection that resumes the session of this handshake, or if that is not known.
///
/// # Safety
/// `ssl` is valid.
pub(crate) unsafe fn would_end_a_resumed(ssl: *mut SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`; null if the client has shown nothing, or has resumed.
    let chain = unsafe { openssl_sys::SSL_get0_verified_chain(ssl) };
    if chain.is_null() {
        return false;
    }
    // SAFETY: the connection's own list, which lives longer than this call.
    let chain: &StackRef<X509> = unsafe { StackRef::from_ptr(chain) };
    // The last one is from the store.
    let has_intermediate = chain.len() > 2;
    // SAFETY: the caller vouches for `ssl`; the callback is not called.
    let callback = || unsafe { ffi::SSL_get_verify_callback(ssl) }.map_or(0, |it| it as usize);
    // SAFETY: the caller vouches for `ssl`.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    // SAFETY: the connection holds the context.
    let asks = || unsafe { known::asks_responders(context) };
    // An nginx that does not tell may.
    let may_ask = || asks().unwrap_or_else(|| known::hashes_its_checks(callback()));
    if !(has_intermediate && may_ask()) {
        return false;
    }
    // SAFETY: the connection holds the context.
    let store = unsafe { openssl_sys::SSL_CTX_get_cert_store(context) };
    // SAFETY: each context has a store.
    let store = unsafe { X509StoreRef::from_ptr(store) };
    let verified = chain.get(0).map(|client| is_verified_by(store, client));
    verified != Some(true)
}

/// Returns true if a store has all certificates that another one is verified by. Leaves no error in OpenSSL's queue.
fn is_verified_by(store: &X509StoreRef, certificate: &X509Ref) -> bool {
    // SAFETY: both calls change the thread's own queue.
    unsafe { ffi::ERR_set_mark() };
    let verified = || -> Result<bool, ErrorStack> {
        let others = Stack::new()?;
        X509StoreContext::new()?.init(store, certificate, &others, |it| it.verify_cert())
    };
    let is_verified = verified().unwrap_or(false);
    // SAFETY: the mark above.
    unsafe { ffi::ERR_pop_to_mark() };
    is_verified
}
