//! What `openssl-sys` does not declare.

use libc::{c_char, c_int, c_long, c_uchar, c_uint, c_void, size_t};
use openssl_sys::{SSL, SSL_CTX};

pub(crate) type GenerateId = unsafe extern "C" fn(*mut SSL, *mut c_uchar, *mut c_uint) -> c_int;
pub(crate) type InfoCallback = unsafe extern "C" fn(*const SSL, c_int, c_int);
pub(crate) type Malloc = unsafe extern "C" fn(size_t, *const c_char, c_int) -> *mut c_void;
pub(crate) type Realloc =
    unsafe extern "C" fn(*mut c_void, size_t, *const c_char, c_int) -> *mut c_void;
pub(crate) type Free = unsafe extern "C" fn(*mut c_void, *const c_char, c_int);

/// `SSL_CTRL_SESS_NUMBER` of `ssl.h`.
pub(crate) const SSL_CTRL_SESS_NUMBER: c_int = 20;
/// `SSL_CB_ALERT` of `ssl.h`.
pub(crate) const SSL_CB_ALERT: c_int = 0x4000;
/// `SSL_CB_HANDSHAKE_START` of `ssl.h`.
pub(crate) const SSL_CB_HANDSHAKE_START: c_int = 0x10;
/// `SSL_CB_HANDSHAKE_DONE` of `ssl.h`.
pub(crate) const SSL_CB_HANDSHAKE_DONE: c_int = 0x20;
/// `SSL3_AL_FATAL` of `ssl3.h`.
pub(crate) const SSL3_AL_FATAL: c_int = 2;

unsafe extern "C" {
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
