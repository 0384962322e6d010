//! The table of interposed functions: for each, its library, its name and its type. A function's slot is its place among
//! the functions of its library.

use crate::{Function, Library};

/// Calls a macro with the functions of one library: `interposed!(libssl => then { … })` becomes
/// `then! { { … } c"libssl.so.3" { NAME: TYPE; … } }`.
///
/// The libraries are `libssl` (first the function that servers begin with, too) and `gnutls` (what clients begin with, what they
/// ask about their connections, and what they set that nobody can read back), and `libc` (what
/// clients send, read and wait for, and what they ask about sockets). The types have the names of the library's header, and are those that
/// the calling module has in scope. No argument is a floating-point number: the trampolines do not keep those.
#[macro_export]
macro_rules! interposed {
    (libssl => $($then:ident)::+ $with:tt) => {
        $($then)::+! { $with c"libssl.so.3" {
            SSL_new: unsafe extern "C" fn(*mut SSL_CTX) -> *mut SSL;
            SSL_do_handshake: unsafe extern "C-unwind" fn(*mut SSL) -> c_int;
            SSL_connect: unsafe extern "C-unwind" fn(*mut SSL) -> c_int;
            SSL_get_version: unsafe extern "C" fn(*mut SSL) -> *const c_char;
            SSL_version: unsafe extern "C" fn(*mut SSL) -> c_int;
            SSL_get_current_cipher: unsafe extern "C" fn(*mut SSL) -> *const SSL_CIPHER;
            SSL_session_reused: unsafe extern "C" fn(*mut SSL) -> c_int;
            SSL_state_string: unsafe extern "C" fn(*mut SSL) -> *const c_char;
            SSL_state_string_long: unsafe extern "C" fn(*mut SSL) -> *const c_char;
            SSL_get0_peer_certificate: unsafe extern "C" fn(*mut SSL) -> *mut X509;
            SSL_get1_peer_certificate: unsafe extern "C" fn(*mut SSL) -> *mut X509;
            SSL_get_peer_cert_chain: unsafe extern "C" fn(*mut SSL) -> *mut OPENSSL_STACK;
            SSL_get0_verified_chain: unsafe extern "C" fn(*mut SSL) -> *mut OPENSSL_STACK;
            SSL_ctrl: unsafe extern "C" fn(*mut SSL, c_int, c_long, *mut c_void) -> c_long;
            SSL_CTX_new_ex: unsafe extern "C" fn(*mut OSSL_LIB_CTX, *const c_char, *const SSL_METHOD) -> *mut SSL_CTX;
            SSL_CTX_set_cert_verify_callback: unsafe extern "C" fn(*mut SSL_CTX, Option<unsafe extern "C" fn(*mut X509_STORE_CTX, *mut c_void) -> c_int>, *mut c_void);
            SSL_set_psk_use_session_callback: unsafe extern "C" fn(*mut SSL, Option<unsafe extern "C" fn(*mut SSL, *const EVP_MD, *mut *const c_uchar, *mut size_t, *mut *mut SSL_SESSION) -> c_int>);
            SSL_CTX_set_psk_use_session_callback: unsafe extern "C" fn(*mut SSL_CTX, Option<unsafe extern "C" fn()>);
            SSL_set_psk_client_callback: unsafe extern "C" fn(*mut SSL, Option<unsafe extern "C" fn()>);
            SSL_CTX_set_psk_client_callback: unsafe extern "C" fn(*mut SSL_CTX, Option<unsafe extern "C" fn()>);
            SSL_set_cert_cb: unsafe extern "C" fn(*mut SSL, Option<unsafe extern "C" fn()>, *mut c_void);
            SSL_CTX_set_cert_cb: unsafe extern "C" fn(*mut SSL_CTX, Option<unsafe extern "C" fn()>, *mut c_void);
            SSL_dane_enable: unsafe extern "C" fn(*mut SSL, *const c_char) -> c_int;
            SSL_read: unsafe extern "C-unwind" fn(*mut SSL, *mut c_void, c_int) -> c_int;
            SSL_peek: unsafe extern "C-unwind" fn(*mut SSL, *mut c_void, c_int) -> c_int;
            SSL_write: unsafe extern "C-unwind" fn(*mut SSL, *const c_void, c_int) -> c_int;
            SSL_read_ex: unsafe extern "C-unwind" fn(*mut SSL, *mut c_void, size_t, *mut size_t) -> c_int;
            SSL_peek_ex: unsafe extern "C-unwind" fn(*mut SSL, *mut c_void, size_t, *mut size_t) -> c_int;
            SSL_write_ex: unsafe extern "C-unwind" fn(*mut SSL, *const c_void, size_t, *mut size_t) -> c_int;
        } }
    };
    (gnutls => $($then:ident)::+ $with:tt) => {
        $($then)::+! { $with c"libgnutls.so.30" {
            gnutls_init: unsafe extern "C" fn(*mut Session, c_uint) -> c_int;
            gnutls_deinit: unsafe extern "C" fn(Session);
            gnutls_priority_set_direct: unsafe extern "C" fn(Session, *const c_char, *mut *const c_char) -> c_int;
            gnutls_set_default_priority: unsafe extern "C" fn(Session) -> c_int;
            gnutls_set_default_priority_append: unsafe extern "C" fn(Session, *const c_char, *mut *const c_char, c_uint) -> c_int;
            gnutls_priority_init: unsafe extern "C" fn(*mut Cache, *const c_char, *mut *const c_char) -> c_int;
            gnutls_priority_init2: unsafe extern "C" fn(*mut Cache, *const c_char, *mut *const c_char, c_uint) -> c_int;
            gnutls_priority_deinit: unsafe extern "C" fn(Cache);
            gnutls_priority_set: unsafe extern "C" fn(Session, Cache) -> c_int;
            gnutls_session_set_verify_cert: unsafe extern "C" fn(Session, *const c_char, c_uint);
            gnutls_session_set_verify_cert2: unsafe extern "C" fn(Session, *mut TypedData, c_uint, c_uint);
            gnutls_session_set_verify_function: unsafe extern "C" fn(Session, Option<unsafe extern "C" fn(Session) -> c_int>);
            gnutls_session_set_verify_output_function: unsafe extern "C" fn(Session, Option<unsafe extern "C" fn()>);
            gnutls_certificate_set_verify_function: unsafe extern "C" fn(Credentials, Option<unsafe extern "C" fn(Session) -> c_int>);
            gnutls_certificate_set_retrieve_function: unsafe extern "C" fn(Credentials, Option<unsafe extern "C" fn()>);
            gnutls_certificate_set_retrieve_function2: unsafe extern "C" fn(Credentials, Option<unsafe extern "C" fn()>);
            gnutls_certificate_set_retrieve_function3: unsafe extern "C" fn(Credentials, Option<unsafe extern "C" fn()>);
            gnutls_certificate_free_credentials: unsafe extern "C" fn(Credentials);
            gnutls_session_set_data: unsafe extern "C" fn(Session, *const c_void, size_t) -> c_int;
            gnutls_session_set_keylog_function: unsafe extern "C" fn(Session, Option<unsafe extern "C" fn()>);
            gnutls_handshake: unsafe extern "C" fn(Session) -> c_int;
            gnutls_certificate_get_peers: unsafe extern "C" fn(Session, *mut c_uint) -> *const Datum;
            gnutls_certificate_verify_peers: unsafe extern "C" fn(Session, *mut TypedData, c_uint, *mut c_uint) -> c_int;
            gnutls_certificate_verify_peers2: unsafe extern "C" fn(Session, *mut c_uint) -> c_int;
            gnutls_certificate_verify_peers3: unsafe extern "C" fn(Session, *const c_char, *mut c_uint) -> c_int;
            gnutls_certificate_type_get: unsafe extern "C" fn(Session) -> c_int;
            gnutls_certificate_type_get2: unsafe extern "C" fn(Session, c_int) -> c_int;
            gnutls_certificate_expiration_time_peers: unsafe extern "C" fn(Session) -> time_t;
            gnutls_certificate_activation_time_peers: unsafe extern "C" fn(Session) -> time_t;
            gnutls_auth_get_type: unsafe extern "C" fn(Session) -> c_int;
            gnutls_auth_server_get_type: unsafe extern "C" fn(Session) -> c_int;
            gnutls_auth_client_get_type: unsafe extern "C" fn(Session) -> c_int;
            gnutls_ocsp_status_request_get: unsafe extern "C" fn(Session, *mut Datum) -> c_int;
            gnutls_ocsp_status_request_get2: unsafe extern "C" fn(Session, c_uint, *mut Datum) -> c_int;
            gnutls_ocsp_status_request_is_checked: unsafe extern "C" fn(Session, c_uint) -> c_uint;
            gnutls_session_ext_master_secret_status: unsafe extern "C" fn(Session) -> c_uint;
            gnutls_safe_renegotiation_status: unsafe extern "C" fn(Session) -> c_uint;
            gnutls_protocol_get_version: unsafe extern "C" fn(Session) -> c_int;
            gnutls_kx_get: unsafe extern "C" fn(Session) -> c_int;
            gnutls_cipher_get: unsafe extern "C" fn(Session) -> c_int;
            gnutls_mac_get: unsafe extern "C" fn(Session) -> c_int;
            gnutls_session_get_verify_cert_status: unsafe extern "C" fn(Session) -> c_uint;
            gnutls_session_get_desc: unsafe extern "C" fn(Session) -> *mut c_char;
            gnutls_session_is_resumed: unsafe extern "C" fn(Session) -> c_int;
            gnutls_session_get_data: unsafe extern "C" fn(Session, *mut c_void, *mut size_t) -> c_int;
            gnutls_session_get_data2: unsafe extern "C" fn(Session, *mut Datum) -> c_int;
            gnutls_session_channel_binding: unsafe extern "C" fn(Session, c_int, *mut Datum) -> c_int;
            gnutls_prf: unsafe extern "C" fn(Session, size_t, *const c_char, c_int, size_t, *const c_char, size_t, *mut c_char) -> c_int;
            gnutls_prf_raw: unsafe extern "C" fn(Session, size_t, *const c_char, size_t, *const c_char, size_t, *mut c_char) -> c_int;
            gnutls_prf_rfc5705: unsafe extern "C" fn(Session, size_t, *const c_char, size_t, *const c_char, size_t, *mut c_char) -> c_int;
            gnutls_session_enable_compatibility_mode: unsafe extern "C" fn(Session);
        } }
    };
    (libc => $($then:ident)::+ $with:tt) => {
        $($then)::+! { $with c"libc.so.6" {
            write: unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
            send: unsafe extern "C" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
            sendmsg: unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;
            writev: unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
            read: unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t;
            __read_chk: unsafe extern "C" fn(c_int, *mut c_void, size_t, size_t) -> ssize_t;
            readv: unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
            recv: unsafe extern "C" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
            __recv_chk: unsafe extern "C" fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t;
            recvmsg: unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> ssize_t;
            recvfrom: unsafe extern "C" fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
            __recvfrom_chk: unsafe extern "C" fn(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
            epoll_ctl: unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
            poll: unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
            __poll_chk: unsafe extern "C" fn(*mut pollfd, nfds_t, c_int, size_t) -> c_int;
            ppoll: unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
            __ppoll_chk: unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, size_t) -> c_int;
            epoll_wait: unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
            epoll_pwait: unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
            epoll_pwait2: unsafe extern "C" fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
            select: unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
            pselect: unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int;
            getsockname: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
            getpeername: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
            getsockopt: unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
            setsockopt: unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
        } }
    };
}

/// Makes `REPLACEMENTS`: for each function of a library the one of the same name that the calling module defines. A
/// function that is missing, or has another type, does not compile. Called by [`interposed!`].
///
/// ```
/// use core::ffi::c_int;
/// unsafe extern "C" fn first(number: c_int) -> c_int { number }
/// unsafe extern "C" fn second(_text: *const u8) -> c_int { 0 }
/// rejoin_abi::replacements! { { rejoin_abi::LIBC } c"libc.so.6" {
///     first: unsafe extern "C" fn(c_int) -> c_int;
///     second: unsafe extern "C" fn(*const u8) -> c_int;
/// } }
/// assert_eq!(unsafe { (REPLACEMENTS.first)(7) }, 7);
/// ```
///
/// Rows whose names are swapped:
///
/// ```compile_fail,E0308
/// use core::ffi::c_int;
/// unsafe extern "C" fn first(number: c_int) -> c_int { number }
/// unsafe extern "C" fn second(_text: *const u8) -> c_int { 0 }
/// rejoin_abi::replacements! { { rejoin_abi::LIBC } c"libc.so.6" {
///     second: unsafe extern "C" fn(c_int) -> c_int;
///     first: unsafe extern "C" fn(*const u8) -> c_int;
/// } }
/// ```
///
/// A type that differs:
///
/// ```compile_fail,E0308
/// use core::ffi::{c_int, c_long};
/// unsafe extern "C" fn first(number: c_int) -> c_int { number }
/// rejoin_abi::replacements! { { rejoin_abi::LIBC } c"libc.so.6" {
///     first: unsafe extern "C" fn(c_int) -> c_long;
/// } }
/// ```
///
/// A function that is missing:
///
/// ```compile_fail,E0425
/// use core::ffi::c_int;
/// rejoin_abi::replacements! { { rejoin_abi::LIBC } c"libc.so.6" {
///     first: unsafe extern "C" fn(c_int) -> c_int;
/// } }
/// ```
#[macro_export]
macro_rules! replacements {
    ({ $library:path } $file:literal { $($name:ident: $type:ty;)* }) => {
        #[repr(C)]
        struct Replacements {
            $($name: $type,)*
        }

        // SAFETY: the structure has one pointer for each row, in the order of the rows.
        unsafe impl $crate::Replacements for Replacements {
            const LIBRARY: $crate::Library = $library;
        }

        static REPLACEMENTS: Replacements = Replacements { $($name,)* };
    };
}

macro_rules! described {
    ({ $(#[$about:meta])* $own:ident } $file:literal { $($name:ident: $type:ty;)* }) => {
        $(#[$about])*
        pub const $own: Library = Library {
            file: $file,
            functions: &[$(Function { name: stringify!($name), signature: stringify!($type) },)*],
        };
    };
}

interposed!(libssl => described {
    /// The functions of libssl that `librejoin.so` answers.
    LIBSSL
});
interposed!(gnutls => described {
    /// The functions of GnuTLS that `librejoin_gnutls.so` answers.
    GNUTLS
});
interposed!(libc => described {
    /// The functions of the C library that `librejoin_preload.so` answers.
    LIBC
});

/// The whole table.
pub const TABLE: [Library; 3] = [LIBSSL, GNUTLS, LIBC];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn functions() -> impl Iterator<Item = &'static Function> {
        TABLE.iter().flat_map(|library| library.functions)
    }

    #[test]
    fn no_function_is_in_the_table_twice() {
        let names: BTreeSet<_> = functions().map(|function| function.name).collect();
        assert_eq!(names.len(), functions().count());
    }

    #[test]
    fn no_argument_is_a_floating_point_number() {
        for function in functions() {
            let words =
                function.signature.split(|char: char| !char.is_alphanumeric() && char != '_');
            let is_float = |word: &str| ["f32", "f64", "c_float", "c_double"].contains(&word);
            assert!(!words.into_iter().any(is_float), "{function:?}");
        }
    }
}
