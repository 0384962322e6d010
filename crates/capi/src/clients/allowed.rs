//! The decision which connections may go through the manager: those that look the same to the program.

use openssl_sys::{SSL, SSL_CTX};
use rejoin_hop::{Directly, is_manager_there};
use rejoin_openssl::Extra;

use super::connection::HOP_SUITE;
use super::ffi::{self, TLS1_3_VERSION};

/// The marks on SSLs and on contexts: the program made a setting that the manager does not support, and that libssl
/// cannot be asked for.
static MARKS: Extra<SSL, ()> = Extra::new();
static CONTEXT_MARKS: Extra<SSL_CTX, ()> = Extra::new();

/// The SSLs that were made by our `SSL_new`. libssl calls its own functions by their names, which lead here also if the
/// program's calls do not: it finds them by `dlsym(3)`, or the loader binds them past us (`RTLD_DEEPBIND`). Nobody would judge
/// the server in what such a program calls itself.
static SEEN: Extra<SSL, ()> = Extra::new();

/// Notes an SSL that our `SSL_new` has made.
///
/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn note(ssl: *mut SSL) {
    // SAFETY: the caller vouches for `ssl`, and nobody has a note.
    unsafe { SEEN.put(ssl, ()) };
}

/// Marks an SSL.
///
/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn mark(ssl: *mut SSL) {
    // SAFETY: the caller vouches for `ssl`, and nobody has a mark.
    unsafe { MARKS.put(ssl, ()) };
}

/// Marks a context.
///
/// # Safety
/// `context` is valid, and in no other thread's use.
pub(super) unsafe fn mark_context(context: *mut SSL_CTX) {
    // SAFETY: the caller vouches for `context`, and nobody has a mark.
    unsafe { CONTEXT_MARKS.put(context, ()) };
}

/// Returns the reason why a connection that is about to be made must go directly, if there is one.
///
/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn through_the_manager(ssl: *mut SSL) -> Result<(), Directly> {
    // SAFETY: the caller vouches for `ssl`.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    let is = |fact: bool, why: Directly| if fact { Err(why) } else { Ok(()) };
    // SAFETY: the caller vouches for `ssl`.
    is(unsafe { SEEN.get(ssl) }.is_none(), Directly::Unseen)?;
    // SAFETY: the caller vouches for `ssl`. The answer is -1 if libssl does not read by itself.
    let reads = unsafe { ffi::SSL_get_rfd(ssl) };
    // SAFETY: the caller vouches for `ssl`. The answer is -1 if libssl does not write by itself.
    let writes = unsafe { ffi::SSL_get_wfd(ssl) };
    is(reads != writes, Directly::NoSocket)?;
    // SAFETY: the caller vouches for `ssl`.
    is(unsafe { ffi::SSL_is_dtls(ssl) } != 0, Directly::Datagrams)?;
    // SAFETY: the context lives as long as `ssl`. `SSL_is_dtls` does not know QUIC.
    is(unsafe { rejoin_openssl::is_quic(context) }, Directly::Datagrams)?;
    // A program that does not verify the server may neither leave nor use shared sessions.
    // SAFETY: the caller vouches for `ssl`.
    let verifies = unsafe { openssl_sys::SSL_get_verify_mode(ssl) } & ffi::SSL_VERIFY_PEER != 0;
    is(!verifies, Directly::NotVerified)?;
    // SAFETY: the caller vouches for `ssl`; the session is only compared with null.
    is(!unsafe { openssl_sys::SSL_get_session(ssl) }.is_null(), Directly::OwnSession)?;
    // SAFETY: the caller vouches for `ssl`; the certificate is only compared with null.
    let has_certificate = !unsafe { openssl_sys::SSL_get_certificate(ssl) }.is_null();
    // SAFETY: the context lives as long as `ssl`, which holds a reference to it.
    let may_have = unsafe { ffi::SSL_CTX_get_client_cert_cb(context) }.is_some();
    is(has_certificate || may_have, Directly::ClientCertificate)?;
    // SAFETY: the context lives as long as `ssl`.
    let is_logged = unsafe { ffi::SSL_CTX_get_keylog_callback(context) }.is_some();
    is(is_logged, Directly::KeyLog)?;
    // SAFETY: the caller vouches for `ssl`, and the command returns a number.
    let staple = unsafe { ffi::control(ssl, ffi::SSL_CTRL_GET_TLSEXT_STATUS_TYPE) };
    is(staple != -1, Directly::Extension)?;
    // SAFETY: the caller vouches for `ssl`.
    is(unsafe { ffi::SSL_ct_is_enabled(ssl) } != 0, Directly::Extension)?;
    // SAFETY: the caller vouches for `ssl`.
    is(unsafe { MARKS.get(ssl) }.is_some(), Directly::Callback)?;
    // SAFETY: the context lives as long as `ssl`.
    is(unsafe { CONTEXT_MARKS.get(context) }.is_some(), Directly::Callback)?;
    // A ClientHello does not show all rules of Suite B, such as which suite goes with which curve.
    // SAFETY: the caller vouches for `ssl`.
    is(unsafe { ffi::suite_b_flags(ssl) } != 0, Directly::Callback)?;
    // SAFETY: the caller vouches for `ssl`, and the command returns a number.
    let most = unsafe { ffi::control(ssl, ffi::SSL_CTRL_GET_MAX_PROTO_VERSION) };
    // SAFETY: the caller vouches for `ssl`.
    let is_off = unsafe { ffi::SSL_get_options(ssl) } & ffi::SSL_OP_NO_TLSV1_3 != 0;
    is(is_off || (most != 0 && most < TLS1_3_VERSION.into()), Directly::Versions)?;
    // SAFETY: the caller vouches for `ssl`.
    is(!unsafe { takes_hop_suite(ssl) }, Directly::Suites)?;
    // A key that no manager knows could only disturb the server.
    is(!is_manager_there(), Directly::NoManager)
}

/// Returns true if the program offers the suite of hops.
///
/// # Safety
/// `ssl` is valid.
unsafe fn takes_hop_suite(ssl: *mut SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`; the new list belongs to this function.
    let list = unsafe { ffi::SSL_get1_supported_ciphers(ssl) };
    if list.is_null() {
        return false;
    }
    // SAFETY: the list belongs to this function.
    let count = unsafe { openssl_sys::OPENSSL_sk_num(list) };
    // SAFETY: the list belongs to this function, and has an element at each number below `count`.
    let at = |at| unsafe { openssl_sys::OPENSSL_sk_value(list, at) };
    // SAFETY: the elements of the list are ciphers.
    let number = |at_| unsafe { openssl_sys::SSL_CIPHER_get_protocol_id(at(at_).cast()) };
    let takes = (0..count).map(number).any(|number| number.to_be_bytes() == HOP_SUITE);
    // SAFETY: the list belongs to this function; the ciphers in it are static.
    unsafe { openssl_sys::OPENSSL_sk_free(list) };
    takes
}
