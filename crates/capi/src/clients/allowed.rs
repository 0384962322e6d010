//! Which connections may go through the manager: those that would be the same to the program.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use openssl_sys::{SSL, SSL_CTX};

use rejoin_hop::{Directly, SUITES};

use super::ffi::{self, TLS1_3_VERSION};

/// What a program set that the manager cannot do for it, and of which libssl tells nobody.
fn marks() -> (c_int, c_int) {
    static INDICES: OnceLock<(c_int, c_int)> = OnceLock::new();
    *INDICES.get_or_init(|| (ffi::ssl_index(None, None), ffi::context_index(None)))
}

/// Not null, and never looked at.
const MARK: *mut c_void = std::ptr::without_provenance_mut(1);

/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn mark(ssl: *mut SSL) {
    // SAFETY: the caller vouches for `ssl`.
    unsafe { openssl_sys::SSL_set_ex_data(ssl, marks().0, MARK) };
}

/// # Safety
/// `context` is valid, and in no other thread's use.
pub(super) unsafe fn mark_context(context: *mut SSL_CTX) {
    // SAFETY: the caller vouches for `context`.
    unsafe { openssl_sys::SSL_CTX_set_ex_data(context, marks().1, MARK) };
}

/// Whether a connection that is to be made may.
///
/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn through_the_manager(ssl: *mut SSL) -> Result<(), Directly> {
    // SAFETY: the caller vouches for `ssl`, here and in all that follows.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    let is = |fact: bool, why: Directly| if fact { Err(why) } else { Ok(()) };
    // SAFETY: as above; it is -1 where libssl does not read itself.
    let reads = unsafe { ffi::SSL_get_rfd(ssl) };
    // SAFETY: as above.
    let writes = unsafe { ffi::SSL_get_wfd(ssl) };
    is(reads != writes, Directly::NoSocket)?;
    // SAFETY: as above.
    is(unsafe { ffi::SSL_is_dtls(ssl) } != 0, Directly::Datagrams)?;
    // Who does not verify has nothing that others could resume, and uses nothing of theirs.
    // SAFETY: as above.
    let verifies = unsafe { openssl_sys::SSL_get_verify_mode(ssl) } & ffi::SSL_VERIFY_PEER != 0;
    is(!verifies, Directly::NotVerified)?;
    // SAFETY: as above.
    is(!unsafe { openssl_sys::SSL_get_session(ssl) }.is_null(), Directly::OwnSession)?;
    // SAFETY: as above.
    let has_certificate = !unsafe { openssl_sys::SSL_get_certificate(ssl) }.is_null();
    // SAFETY: as above.
    let may_have = unsafe { ffi::SSL_CTX_get_client_cert_cb(context) }.is_some();
    is(has_certificate || may_have, Directly::ClientCertificate)?;
    // SAFETY: as above.
    let is_logged = unsafe { ffi::SSL_CTX_get_keylog_callback(context) }.is_some();
    is(is_logged, Directly::KeyLog)?;
    // SAFETY: as above.
    let staple = unsafe { ffi::control(ssl, ffi::SSL_CTRL_GET_TLSEXT_STATUS_TYPE) };
    is(staple != -1, Directly::Extension)?;
    // SAFETY: as above.
    is(unsafe { ffi::SSL_ct_is_enabled(ssl) } != 0, Directly::Extension)?;
    // SAFETY: as above.
    let of_ssl = unsafe { openssl_sys::SSL_get_ex_data(ssl, marks().0) };
    // SAFETY: as above.
    let of_context = unsafe { openssl_sys::SSL_CTX_get_ex_data(context, marks().1) };
    is(!of_ssl.is_null() || !of_context.is_null(), Directly::Callback)?;
    // SAFETY: as above.
    let most = unsafe { ffi::control(ssl, ffi::SSL_CTRL_GET_MAX_PROTO_VERSION) };
    // SAFETY: as above.
    let is_off = unsafe { ffi::SSL_get_options(ssl) } & ffi::SSL_OP_NO_TLSV1_3 != 0;
    is(is_off || (most != 0 && most < TLS1_3_VERSION.into()), Directly::Versions)?;
    // SAFETY: as above.
    is(!unsafe { speaks_all_suites(ssl) }, Directly::Suites)
}

/// Whether the program takes whatever suite the manager and a server agree on.
///
/// # Safety
/// `ssl` is valid.
unsafe fn speaks_all_suites(ssl: *mut SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    let least = unsafe { ffi::control(ssl, ffi::SSL_CTRL_GET_MIN_PROTO_VERSION) };
    // SAFETY: as above.
    let list = unsafe { ffi::SSL_get1_supported_ciphers(ssl) };
    if list.is_null() {
        return false;
    }
    // SAFETY: the list is ours.
    let count = unsafe { openssl_sys::OPENSSL_sk_num(list) };
    // SAFETY: as above, and it has so many.
    let at = |at| unsafe { openssl_sys::OPENSSL_sk_value(list, at) };
    // SAFETY: a list of ciphers.
    let number = |at_| unsafe { openssl_sys::SSL_CIPHER_get_protocol_id(at(at_).cast()) };
    let spoken: Vec<u16> = (0..count).map(number).collect();
    // SAFETY: as above; what is in it is static.
    unsafe { openssl_sys::OPENSSL_sk_free(list) };
    // Those of TLS 1.3 alone matter to who speaks nothing else.
    let of_tls13 = |number: u16| number >> 8 == 0x13;
    let only_tls13 = least >= TLS1_3_VERSION.into();
    let mut wanted = SUITES.iter().map(|(_, number)| *number);
    wanted.all(|number| spoken.contains(&number) || (only_tls13 && !of_tls13(number)))
}
