//! Functions and constants that `openssl-sys` does not declare.

use libc::{c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void, size_t};
use openssl_sys::{
    BIO, CRYPTO_EX_DATA, EVP_CIPHER_CTX, EVP_MAC_CTX, EVP_MD, OSSL_PARAM, SSL, SSL_CIPHER, SSL_CTX,
    SSL_METHOD, SSL_SESSION, X509_CRL, X509_OBJECT, X509_STORE, X509_VERIFY_PARAM,
};

pub(crate) type GenerateId = unsafe extern "C" fn(*mut SSL, *mut c_uchar, *mut c_uint) -> c_int;
pub(crate) type SessionMade = unsafe extern "C" fn(*mut SSL, *mut SSL_SESSION) -> c_int;
pub(crate) type SessionWanted =
    unsafe extern "C" fn(*mut SSL, *const c_uchar, c_int, *mut c_int) -> *mut SSL_SESSION;
/// `CRYPTO_EX_new` and `CRYPTO_EX_free` of `crypto.h` have the same arguments.
pub(crate) type ExData =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut CRYPTO_EX_DATA, c_int, c_long, *mut c_void);
pub(crate) type InfoCallback = unsafe extern "C" fn(*const SSL, c_int, c_int);
pub(crate) type TicketKey = unsafe extern "C" fn(
    *mut SSL,
    *mut c_uchar,
    *mut c_uchar,
    *mut EVP_CIPHER_CTX,
    *mut EVP_MAC_CTX,
    c_int,
) -> c_int;
pub(crate) type TicketMade = unsafe extern "C" fn(*mut SSL, *mut c_void) -> c_int;
pub(crate) type TicketOpened = unsafe extern "C" fn(
    *mut SSL,
    *mut SSL_SESSION,
    *const c_uchar,
    size_t,
    c_int,
    *mut c_void,
) -> c_int;
pub(crate) type Malloc = unsafe extern "C" fn(size_t, *const c_char, c_int) -> *mut c_void;
pub(crate) type Realloc =
    unsafe extern "C" fn(*mut c_void, size_t, *const c_char, c_int) -> *mut c_void;
pub(crate) type Free = unsafe extern "C" fn(*mut c_void, *const c_char, c_int);

/// `SSL_CTRL_SESS_NUMBER` of `ssl.h`.
pub(crate) const SSL_CTRL_SESS_NUMBER: c_int = 20;
/// `SSL_CTRL_GET_SESS_CACHE_MODE` of `ssl.h`.
const SSL_CTRL_GET_SESS_CACHE_MODE: c_int = 45;
/// `CRYPTO_EX_INDEX_SSL` and others of `crypto.h`.
pub(crate) const CRYPTO_EX_INDEX_SSL: c_int = 0;
pub(crate) const CRYPTO_EX_INDEX_SSL_CTX: c_int = 1;
pub(crate) const CRYPTO_EX_INDEX_SSL_SESSION: c_int = 2;
pub(crate) const CRYPTO_EX_INDEX_X509_STORE_CTX: c_int = 5;
/// `SSL_OP_NO_TICKET` of `ssl.h`.
pub(crate) const SSL_OP_NO_TICKET: u64 = 1 << 14;
/// `SSL_OP_NO_ANTI_REPLAY` of `ssl.h`.
pub(crate) const SSL_OP_NO_ANTI_REPLAY: u64 = 1 << 24;
/// `SSL_CTRL_GET_TLSEXT_TICKET_KEYS` of `ssl.h`.
pub(crate) const SSL_CTRL_GET_TLSEXT_TICKET_KEYS: c_int = 58;
/// The bytes of a context's own ticket keys: a name, a key for HMAC and one for AES (`SSL_CTX_get_tlsext_ticket_keys`).
pub(crate) const TICKET_KEYS_BYTES: usize = 80;
/// `SSL_CTRL_GET_VERIFY_CERT_STORE` of `ssl.h`.
pub(crate) const SSL_CTRL_GET_VERIFY_CERT_STORE: c_int = 137;
/// `SSL_VERIFY_POST_HANDSHAKE` of `ssl.h`.
pub(crate) const SSL_VERIFY_POST_HANDSHAKE: c_int = 0x08;
/// `SSL_EARLY_DATA_REJECTED` of `ssl.h`.
pub(crate) const SSL_EARLY_DATA_REJECTED: c_int = 1;
/// `SSL_EARLY_DATA_ACCEPTED` of `ssl.h`.
pub(crate) const SSL_EARLY_DATA_ACCEPTED: c_int = 2;
/// `SSL_CB_LOOP` of `ssl.h`.
pub(crate) const SSL_CB_LOOP: c_int = 0x01;
/// `SSL_CB_WRITE` of `ssl.h`.
pub(crate) const SSL_CB_WRITE: c_int = 0x08;
/// `SSL_CB_ALERT` of `ssl.h`.
pub(crate) const SSL_CB_ALERT: c_int = 0x4000;
/// `SSL_CB_HANDSHAKE_START` of `ssl.h`.
pub(crate) const SSL_CB_HANDSHAKE_START: c_int = 0x10;
/// `SSL_CB_HANDSHAKE_DONE` of `ssl.h`.
pub(crate) const SSL_CB_HANDSHAKE_DONE: c_int = 0x20;
/// `TLS_ST_EARLY_DATA` of `ssl.h`: early data may come, or a second ClientHello.
pub(crate) const TLS_ST_EARLY_DATA: c_int = 46;
/// `SSL3_AL_FATAL` of `ssl3.h`.
pub(crate) const SSL3_AL_FATAL: c_int = 2;

/// `SSL_TICKET_EMPTY` and what follows it in `ssl.h`: what was found in a client's ticket.
pub(crate) const SSL_TICKET_EMPTY: c_int = 3;
pub(crate) const SSL_TICKET_NO_DECRYPT: c_int = 4;
pub(crate) const SSL_TICKET_SUCCESS: c_int = 5;
pub(crate) const SSL_TICKET_SUCCESS_RENEW: c_int = 6;
/// `SSL_TICKET_RETURN_IGNORE` and what follows it in `ssl.h`: what is to be done about it.
pub(crate) const SSL_TICKET_RETURN_IGNORE: c_int = 1;
pub(crate) const SSL_TICKET_RETURN_IGNORE_RENEW: c_int = 2;
pub(crate) const SSL_TICKET_RETURN_USE: c_int = 3;
pub(crate) const SSL_TICKET_RETURN_USE_RENEW: c_int = 4;

/// Returns a context's cache mode (`SSL_CTX_get_session_cache_mode` of `ssl.h`).
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn session_cache_mode(context: *mut SSL_CTX) -> c_long {
    let (what, none) = (SSL_CTRL_GET_SESS_CACHE_MODE, std::ptr::null_mut());
    // SAFETY: the caller vouches for `context`; the call only reads a number.
    unsafe { openssl_sys::SSL_CTX_ctrl(context, what, 0, none) }
}

/// Registers an index of a class of objects (`CRYPTO_get_ex_new_index(3)`). Returns -1 when out of memory.
pub(crate) fn new_index(
    class: c_int,
    made: Option<ExData>,
    freed: Option<ExData>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the callbacks have the types that OpenSSL expects, and it only hands the argument to them.
    unsafe { CRYPTO_get_ex_new_index(class, 0, argument, made, None, freed) }
}

/// Returns false if no index of a class was registered so far. It registers one that nobody uses.
pub(crate) fn is_any_index_there(class: c_int) -> bool {
    /// The first index that OpenSSL returns.
    const FIRST: c_int = 1;
    new_index(class, None, None, std::ptr::null_mut()) != FIRST
}

unsafe extern "C" {
    fn CRYPTO_get_ex_new_index(
        class: c_int,
        long: c_long,
        pointer: *mut c_void,
        made: Option<ExData>,
        copied: Option<unsafe extern "C" fn()>,
        freed: Option<ExData>,
    ) -> c_int;
    pub(crate) fn ERR_set_mark() -> c_int;
    pub(crate) fn ERR_pop_to_mark() -> c_int;
    pub(crate) fn SSL_CTX_sess_get_new_cb(ctx: *mut SSL_CTX) -> Option<SessionMade>;
    pub(crate) fn SSL_CTX_sess_get_get_cb(ctx: *mut SSL_CTX) -> Option<SessionWanted>;
    pub(crate) fn SSL_get_ciphers(ssl: *const SSL) -> *mut c_void;
    pub(crate) fn SSL_SESSION_get0_cipher(session: *const SSL_SESSION) -> *const SSL_CIPHER;
    pub(crate) fn SSL_CIPHER_get_kx_nid(cipher: *const SSL_CIPHER) -> c_int;
    pub(crate) fn SSL_CIPHER_is_aead(cipher: *const SSL_CIPHER) -> c_int;
    pub(crate) fn SSL_get_verify_callback(ssl: *const SSL) -> Option<unsafe extern "C" fn()>;
    pub(crate) fn SSL_get_client_CA_list(ssl: *const SSL) -> *mut c_void;
    pub(crate) fn SSL_get0_param(ssl: *mut SSL) -> *mut X509_VERIFY_PARAM;
    pub(crate) fn X509_VERIFY_PARAM_get_flags(param: *mut X509_VERIFY_PARAM) -> c_ulong;
    pub(crate) fn X509_VERIFY_PARAM_get_depth(param: *const X509_VERIFY_PARAM) -> c_int;
    pub(crate) fn X509_STORE_get0_param(store: *mut X509_STORE) -> *mut X509_VERIFY_PARAM;
    pub(crate) fn X509_STORE_lock(store: *mut X509_STORE) -> c_int;
    pub(crate) fn X509_STORE_unlock(store: *mut X509_STORE) -> c_int;
    pub(crate) fn X509_OBJECT_get0_X509_CRL(object: *const X509_OBJECT) -> *mut X509_CRL;
    pub(crate) fn X509_CRL_digest(
        crl: *const X509_CRL,
        kind: *const EVP_MD,
        digest: *mut c_uchar,
        length: *mut c_uint,
    ) -> c_int;
    pub(crate) fn SSL_get_max_early_data(ssl: *const SSL) -> u32;
    pub(crate) fn SSL_set_max_early_data(ssl: *mut SSL, most: u32) -> c_int;
    pub(crate) fn SSL_get_state(ssl: *const SSL) -> c_int;
    pub(crate) fn SSL_get_early_data_status(ssl: *const SSL) -> c_int;
    pub(crate) fn SSL_CTX_get_ssl_method(ctx: *const SSL_CTX) -> *const SSL_METHOD;
    pub(crate) fn SSL_CTX_get_ciphers(ctx: *const SSL_CTX) -> *mut c_void;
    pub(crate) fn SSL_get_options(ssl: *const SSL) -> u64;
    pub(crate) fn SSL_CTX_get_options(ctx: *const SSL_CTX) -> u64;
    pub(crate) fn SSL_set_options(ssl: *mut SSL, options: u64) -> u64;
    pub(crate) fn SSL_get_rfd(ssl: *const SSL) -> c_int;
    pub(crate) fn SSL_is_server(ssl: *const SSL) -> c_int;
    pub(crate) fn SSL_client_hello_get0_ext(
        ssl: *mut SSL,
        kind: c_uint,
        value: *mut *const c_uchar,
        length: *mut size_t,
    ) -> c_int;
    pub(crate) fn SSL_set_session_id_context(
        ssl: *mut SSL,
        context: *const c_uchar,
        length: c_uint,
    ) -> c_int;
    pub(crate) fn SSL_SESSION_is_resumable(session: *const SSL_SESSION) -> c_int;
    pub(crate) fn SSL_SESSION_get0_id_context(
        session: *const SSL_SESSION,
        length: *mut c_uint,
    ) -> *const c_uchar;
    pub(crate) fn SSL_CTX_set_tlsext_ticket_key_evp_cb(
        ctx: *mut SSL_CTX,
        callback: Option<TicketKey>,
    ) -> c_int;
    pub(crate) fn SSL_CTX_set_session_ticket_cb(
        ctx: *mut SSL_CTX,
        made: Option<TicketMade>,
        opened: Option<TicketOpened>,
        argument: *mut c_void,
    ) -> c_int;
    pub(crate) fn SSL_SESSION_set1_ticket_appdata(
        session: *mut SSL_SESSION,
        data: *const c_void,
        length: size_t,
    ) -> c_int;
    pub(crate) fn SSL_SESSION_dup(session: *const SSL_SESSION) -> *mut SSL_SESSION;
    pub(crate) fn SSL_SESSION_set1_id(
        session: *mut SSL_SESSION,
        id: *const c_uchar,
        length: c_uint,
    ) -> c_int;
    pub(crate) fn SSL_SESSION_set1_master_key(
        session: *mut SSL_SESSION,
        secret: *const c_uchar,
        length: size_t,
    ) -> c_int;
    pub(crate) fn SSL_SESSION_set_time(session: *mut SSL_SESSION, time: c_long) -> c_long;
    pub(crate) fn SSL_SESSION_set_timeout(session: *mut SSL_SESSION, time: c_long) -> c_long;
    pub(crate) fn SSL_SESSION_get_ex_data(session: *const SSL_SESSION, index: c_int)
    -> *mut c_void;
    pub(crate) fn SSL_SESSION_get0_ticket(
        session: *const SSL_SESSION,
        ticket: *mut *const c_uchar,
        length: *mut size_t,
    );
    pub(crate) fn X509_get0_notAfter(certificate: *const c_void) -> *const c_void;
    pub(crate) fn X509_cmp_current_time(time: *const c_void) -> c_int;
    pub(crate) fn SSL_get_security_level(ssl: *const SSL) -> c_int;
    pub(crate) fn SSL_CTX_get_security_level(ctx: *const SSL_CTX) -> c_int;
    pub(crate) fn SSL_set0_wbio(ssl: *mut SSL, output: *mut BIO);
    pub(crate) fn BIO_up_ref(bio: *mut BIO) -> c_int;
    pub(crate) fn BIO_new_socket(socket: c_int, close: c_int) -> *mut BIO;
    pub(crate) fn X509_VERIFY_PARAM_get_auth_level(param: *const X509_VERIFY_PARAM) -> c_int;
    pub(crate) fn X509_CRL_get0_nextUpdate(list: *const X509_CRL) -> *const c_void;
    pub(crate) fn SSL_SESSION_get0_peer(session: *mut SSL_SESSION) -> *mut c_void;
    pub(crate) fn SSL_SESSION_get0_ticket_appdata(
        session: *mut SSL_SESSION,
        data: *mut *mut c_void,
        length: *mut size_t,
    ) -> c_int;
    pub(crate) fn OSSL_PARAM_construct_utf8_string(
        key: *const c_char,
        text: *mut c_char,
        length: size_t,
    ) -> OSSL_PARAM;
    pub(crate) fn SSL_CTX_set_generate_session_id(
        ctx: *mut SSL_CTX,
        callback: Option<GenerateId>,
    ) -> c_int;
    pub(crate) fn SSL_set_info_callback(ssl: *mut SSL, callback: Option<InfoCallback>);
    pub(crate) fn SSL_get_info_callback(ssl: *const SSL) -> Option<InfoCallback>;
    pub(crate) fn SSL_CTX_set_info_callback(ctx: *mut SSL_CTX, callback: Option<InfoCallback>);
    pub(crate) fn SSL_CTX_get_info_callback(ctx: *mut SSL_CTX) -> Option<InfoCallback>;
    pub(crate) fn SSL_CTX_flush_sessions(ctx: *mut SSL_CTX, time: c_long);
    pub(crate) fn CRYPTO_set_mem_functions(malloc: Malloc, realloc: Realloc, free: Free) -> c_int;
}
