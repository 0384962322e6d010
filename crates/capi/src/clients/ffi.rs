//! Declarations that `openssl-sys` does not have, and the interposed functions of libssl. Those are called by their
//! addresses, because their names lead back here.

use libc::{c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void, size_t};
use openssl_sys::{
    EVP_MD, OPENSSL_STACK, OSSL_LIB_CTX, SSL, SSL_CIPHER, SSL_CTX, SSL_METHOD, SSL_SESSION, X509,
    X509_STORE, X509_STORE_CTX, X509_VERIFY_PARAM,
};

/// `SSL_psk_use_session_cb_func` of `ssl.h`.
pub(super) type UseSession = unsafe extern "C" fn(
    *mut SSL,
    *const EVP_MD,
    *mut *const c_uchar,
    *mut size_t,
    *mut *mut SSL_SESSION,
) -> c_int;
/// The callback of `SSL_CTX_set_cert_verify_callback`.
pub(super) type VerifyAll = unsafe extern "C" fn(*mut X509_STORE_CTX, *mut c_void) -> c_int;
/// `SSL_verify_cb` of `ssl.h`.
pub(super) type VerifyOne = unsafe extern "C" fn(c_int, *mut X509_STORE_CTX) -> c_int;

/// `ssl.h`, `tls1.h` and `crypto.h`.
pub(super) const SSL_VERIFY_PEER: c_int = 1;
pub(super) const SSL_OP_NO_TLSV1_3: u64 = 1 << 29;
pub(super) const TLS1_2_VERSION: c_int = 0x0303;
pub(super) const TLS1_3_VERSION: c_int = 0x0304;
pub(super) const SSL_CTRL_GET_RI_SUPPORT: c_int = 76;
pub(super) const SSL_CTRL_CLEAR_CERT_FLAGS: c_int = 100;
pub(super) const SSL_CTRL_GET_EXTMS_SUPPORT: c_int = 122;
pub(super) const SSL_CTRL_GET_TLSEXT_STATUS_TYPE: c_int = 127;
pub(super) const SSL_CTRL_GET_MAX_PROTO_VERSION: c_int = 131;
pub(super) const SSL_CTRL_GET_VERIFY_CERT_STORE: c_int = 137;
/// The bits of `SSL_CERT_FLAG_SUITEB_128_LOS`, and of the flags of `x509_vfy.h` for the same.
pub(super) const SUITE_B_FLAGS: c_ulong = 0x3_0000;
pub(super) const X509_V_ERR_UNSPECIFIED: c_long = 1;
pub(super) const SSL_R_CERTIFICATE_VERIFY_FAILED: c_int = 134;
pub(super) const SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: c_int = 199;
pub(super) const SSL_R_UNEXPECTED_EOF_WHILE_READING: c_int = 294;
pub(super) const SSL_SENT_SHUTDOWN: c_int = 1;
pub(super) const SSL_RECEIVED_SHUTDOWN: c_int = 2;
pub(super) const SSL_RETRY_VERIFY: c_int = 8;
pub(super) const ERR_LIB_SSL: c_int = 20;

unsafe extern "C" {
    pub(super) fn SSL_in_before(ssl: *const SSL) -> c_int;
    pub(super) fn SSL_get_options(ssl: *const SSL) -> u64;
    pub(super) fn SSL_ct_is_enabled(ssl: *const SSL) -> c_int;
    pub(super) fn SSL_get_rfd(ssl: *const SSL) -> c_int;
    pub(super) fn SSL_get_wfd(ssl: *const SSL) -> c_int;
    pub(super) fn SSL_is_dtls(ssl: *const SSL) -> c_int;
    pub(super) fn SSL_CTX_get_keylog_callback(
        context: *const SSL_CTX,
    ) -> Option<unsafe extern "C" fn()>;
    pub(super) fn SSL_CTX_get_client_cert_cb(
        context: *mut SSL_CTX,
    ) -> Option<unsafe extern "C" fn()>;
    pub(super) fn SSL_get1_supported_ciphers(ssl: *mut SSL) -> *mut OPENSSL_STACK;
    pub(super) fn SSL_CIPHER_find(ssl: *mut SSL, number: *const c_uchar) -> *const SSL_CIPHER;
    pub(super) fn SSL_SESSION_new() -> *mut SSL_SESSION;
    pub(super) fn SSL_SESSION_set1_master_key(
        session: *mut SSL_SESSION,
        key: *const c_uchar,
        length: size_t,
    ) -> c_int;
    pub(super) fn SSL_SESSION_set_cipher(
        session: *mut SSL_SESSION,
        cipher: *const SSL_CIPHER,
    ) -> c_int;
    pub(super) fn SSL_SESSION_set_protocol_version(
        session: *mut SSL_SESSION,
        version: c_int,
    ) -> c_int;
    pub(super) fn SSL_SESSION_get0_id_context(
        session: *const SSL_SESSION,
        length: *mut c_uint,
    ) -> *const c_uchar;
    pub(super) fn SSL_SESSION_set1_id_context(
        session: *mut SSL_SESSION,
        context: *const c_uchar,
        length: c_uint,
    ) -> c_int;
    pub(super) fn SSL_want(ssl: *const SSL) -> c_int;
    pub(super) fn SSL_get_shutdown(ssl: *const SSL) -> c_int;
    pub(super) fn SSL_set_shutdown(ssl: *mut SSL, mode: c_int);
    pub(super) fn SSL_set_verify_result(ssl: *mut SSL, result: c_long);
    pub(super) fn SSL_get_verify_callback(ssl: *const SSL) -> Option<VerifyOne>;
    pub(super) fn SSL_CTX_get_cert_store(context: *const SSL_CTX) -> *mut X509_STORE;
    fn X509_STORE_get_verify_cb(store: *const X509_STORE) -> AnyCallback;
    fn X509_STORE_get_verify(store: *const X509_STORE) -> AnyCallback;
    fn X509_STORE_get_get_issuer(store: *const X509_STORE) -> AnyCallback;
    fn X509_STORE_get_check_issued(store: *const X509_STORE) -> AnyCallback;
    fn X509_STORE_get_check_revocation(store: *const X509_STORE) -> AnyCallback;
    fn X509_STORE_get_check_crl(store: *const X509_STORE) -> AnyCallback;
    fn X509_STORE_get_cert_crl(store: *const X509_STORE) -> AnyCallback;
    fn X509_STORE_get_check_policy(store: *const X509_STORE) -> AnyCallback;
    fn X509_STORE_get_lookup_certs(store: *const X509_STORE) -> AnyCallback;
    pub(super) fn X509_STORE_CTX_set_default(
        context: *mut X509_STORE_CTX,
        name: *const c_char,
    ) -> c_int;
    pub(super) fn X509_STORE_CTX_set_flags(context: *mut X509_STORE_CTX, flags: c_ulong);
    pub(super) fn X509_STORE_CTX_get0_param(context: *mut X509_STORE_CTX)
    -> *mut X509_VERIFY_PARAM;
    pub(super) fn X509_STORE_CTX_set_ex_data(
        context: *mut X509_STORE_CTX,
        index: c_int,
        data: *mut c_void,
    ) -> c_int;
    pub(super) fn X509_STORE_CTX_set_verify_cb(
        context: *mut X509_STORE_CTX,
        one: Option<VerifyOne>,
    );
    pub(super) fn X509_STORE_CTX_get1_chain(context: *mut X509_STORE_CTX) -> *mut OPENSSL_STACK;
    pub(super) fn X509_VERIFY_PARAM_set1(
        to: *mut X509_VERIFY_PARAM,
        from: *const X509_VERIFY_PARAM,
    ) -> c_int;
    pub(super) fn X509_VERIFY_PARAM_move_peername(
        to: *mut X509_VERIFY_PARAM,
        from: *mut X509_VERIFY_PARAM,
    );
    pub(super) fn X509_VERIFY_PARAM_set_auth_level(param: *mut X509_VERIFY_PARAM, level: c_int);
}

/// Returns true if the program gave a store a callback, which contexts take over. OpenSSL gives it none.
///
/// # Safety
/// `store` is null or valid.
pub(super) unsafe fn has_callback(store: *const X509_STORE) -> bool {
    // SAFETY: the caller vouches for `store`.
    !store.is_null() && unsafe { X509_STORE_get_verify_cb(store) }.is_some()
}

/// Returns true if the program gave a store functions of its own for steps of the verification. Contexts take them over,
/// and OpenSSL's own, of which it says nothing, cannot be put back. OpenSSL gives a store none. Those that find
/// revocation lists are not asked for, because lists are signed.
///
/// # Safety
/// `store` is null or valid.
pub(super) unsafe fn has_own_steps(store: *const X509_STORE) -> bool {
    let steps = [
        X509_STORE_get_verify,
        X509_STORE_get_get_issuer,
        X509_STORE_get_check_issued,
        X509_STORE_get_check_revocation,
        X509_STORE_get_check_crl,
        X509_STORE_get_cert_crl,
        X509_STORE_get_check_policy,
        X509_STORE_get_lookup_certs,
    ];
    // SAFETY: the caller vouches for `store`; each returns what was set, or null.
    !store.is_null() && steps.into_iter().any(|step| unsafe { step(store) }.is_some())
}

/// `SSL_ctrl` for the commands of `ssl.h` that return a number.
///
/// # Safety
/// `ssl` is valid, and `what` is such a command.
pub(super) unsafe fn control(ssl: *mut SSL, what: c_int) -> c_long {
    // SAFETY: the caller vouches for `ssl` and the command.
    unsafe { openssl_sys::SSL_ctrl(ssl, what, 0, std::ptr::null_mut()) }
}

/// Returns the flags of Suite B (RFC 6460) that the program set, as verifications take them.
///
/// # Safety
/// `ssl` is valid.
pub(super) unsafe fn suite_b_flags(ssl: *mut SSL) -> c_ulong {
    // The command clears the flags that it is given, which are none, and returns the others.
    // SAFETY: the caller vouches for `ssl`, and the command returns a number.
    let flags = unsafe { control(ssl, SSL_CTRL_CLEAR_CERT_FLAGS) };
    flags as c_ulong & SUITE_B_FLAGS
}

type OfSsl<T> = unsafe extern "C" fn(*mut SSL) -> T;
type AnyCallback = Option<unsafe extern "C" fn()>;

pub(super) type Read = unsafe extern "C" fn(*mut SSL, *mut c_void, c_int) -> c_int;
pub(super) type Write = unsafe extern "C" fn(*mut SSL, *const c_void, c_int) -> c_int;
pub(super) type ReadEx = unsafe extern "C" fn(*mut SSL, *mut c_void, size_t, *mut size_t) -> c_int;
pub(super) type WriteEx =
    unsafe extern "C" fn(*mut SSL, *const c_void, size_t, *mut size_t) -> c_int;

rejoin_hop::functions_of! {
    c"libssl.so.3"
    /// The functions of libssl that this library replaces.
    #[expect(non_snake_case, reason = "as libssl calls them")]
    pub(super) struct Libssl {
        SSL_new: unsafe extern "C" fn(*mut SSL_CTX) -> *mut SSL;
        SSL_do_handshake: OfSsl<c_int>;
        SSL_connect: OfSsl<c_int>;
        SSL_get_version: OfSsl<*const c_char>;
        SSL_version: OfSsl<c_int>;
        SSL_get_current_cipher: OfSsl<*const SSL_CIPHER>;
        SSL_session_reused: OfSsl<c_int>;
        SSL_state_string: OfSsl<*const c_char>;
        SSL_state_string_long: OfSsl<*const c_char>;
        SSL_get0_peer_certificate: OfSsl<*mut X509>;
        SSL_get1_peer_certificate: OfSsl<*mut X509>;
        SSL_get_peer_cert_chain: OfSsl<*mut OPENSSL_STACK>;
        SSL_get0_verified_chain: OfSsl<*mut OPENSSL_STACK>;
        SSL_ctrl: unsafe extern "C" fn(*mut SSL, c_int, c_long, *mut c_void) -> c_long;
        SSL_CTX_new_ex: unsafe extern "C" fn(*mut OSSL_LIB_CTX, *const c_char, *const SSL_METHOD) -> *mut SSL_CTX;
        SSL_CTX_set_cert_verify_callback: unsafe extern "C" fn(*mut SSL_CTX, Option<VerifyAll>, *mut c_void);
        SSL_set_psk_use_session_callback: unsafe extern "C" fn(*mut SSL, Option<UseSession>);
        SSL_CTX_set_psk_use_session_callback: unsafe extern "C" fn(*mut SSL_CTX, AnyCallback);
        SSL_set_psk_client_callback: unsafe extern "C" fn(*mut SSL, AnyCallback);
        SSL_CTX_set_psk_client_callback: unsafe extern "C" fn(*mut SSL_CTX, AnyCallback);
        SSL_set_cert_cb: unsafe extern "C" fn(*mut SSL, AnyCallback, *mut c_void);
        SSL_CTX_set_cert_cb: unsafe extern "C" fn(*mut SSL_CTX, AnyCallback, *mut c_void);
        SSL_dane_enable: unsafe extern "C" fn(*mut SSL, *const c_char) -> c_int;
        SSL_read: Read;
        SSL_peek: Read;
        SSL_write: Write;
        SSL_read_ex: ReadEx;
        SSL_peek_ex: ReadEx;
        SSL_write_ex: WriteEx;
    }
}
