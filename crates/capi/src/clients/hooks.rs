//! The functions that are called in place of libssl's own, each under the name that it replaces.
//!
//! The program vouches for the arguments of each call, as for libssl's own function of that name.

#![expect(non_snake_case, reason = "as libssl calls them")]

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use libc::{c_uchar, size_t};
use openssl_sys::{
    EVP_MD, OPENSSL_STACK, OSSL_LIB_CTX, SSL, SSL_CIPHER, SSL_CTX, SSL_METHOD, SSL_SESSION, X509,
    X509_STORE_CTX,
};

use rejoin_abi::{Hooks, LIBSSL, interposed, replacements};
use rejoin_hop::guarded;

use super::connection::{self, Connection};
use super::ffi::{self, Libssl, UseSession, VerifyAll};
use super::shown::Shown;
use super::{allowed, judge};

interposed!(libssl => replacements { LIBSSL });

/// The hooks of this library.
pub(super) static HOOKS: Hooks = rejoin_hop::hooks(&REPLACEMENTS);

/// Makes one step of a handshake, by `own`.
///
/// # Safety
/// `ssl` is null or valid, and in no other thread's use; `own` is a function of libssl.
unsafe fn step(
    libssl: &Libssl,
    ssl: *mut SSL,
    own: unsafe extern "C" fn(*mut SSL) -> c_int,
) -> c_int {
    if ssl.is_null() {
        // SAFETY: libssl's function reports a null.
        return unsafe { own(ssl) };
    }
    // SAFETY: the caller vouches for `ssl`.
    guarded(|| unsafe { connection::begin(libssl, ssl) });
    // SAFETY: the caller vouches for `ssl`.
    let done = unsafe { own(ssl) };
    if done != 1 {
        return done;
    }
    // Whoever made the call, and whatever came before: a success counts only with a judgement.
    // SAFETY: the caller vouches for `ssl`.
    match guarded(|| unsafe { connection::of(ssl) }) {
        // SAFETY: the caller vouches for `ssl`, whose handshake has just succeeded.
        Some(Some(connection)) => unsafe { finished(libssl, ssl, &connection) },
        Some(None) => done,
        None => -1,
    }
}

/// Judges the server. Returns the result of the handshake.
///
/// # Safety
/// The same as [`step`]; the handshake is over.
unsafe fn finished(libssl: &Libssl, ssl: *mut SSL, connection: &Arc<Connection>) -> c_int {
    // SAFETY: the caller vouches for `ssl`, whose handshake is over.
    let stands = guarded(|| unsafe { connection::finish(libssl, ssl, connection) });
    if stands.is_none() {
        connection.refuse();
    }
    if stands == Some(true) { 1 } else { -1 }
}

/// Makes an SSL, and notes that the program's calls lead here.
unsafe extern "C" fn SSL_new(context: *mut SSL_CTX) -> *mut SSL {
    let Some(libssl) = Libssl::get() else { return null_mut() };
    // SAFETY: the program's own call, with its argument.
    let made = unsafe { (libssl.SSL_new)(context) };
    if !made.is_null() {
        // SAFETY: the SSL was made above, and nobody else has it yet.
        guarded(|| unsafe { allowed::note(made) });
    }
    made
}

unsafe extern "C-unwind" fn SSL_do_handshake(ssl: *mut SSL) -> c_int {
    let Some(libssl) = Libssl::get() else { return -1 };
    // SAFETY: the program's SSL, which is not null.
    if !ssl.is_null() && unsafe { openssl_sys::SSL_is_server(ssl) } != 0 {
        // SAFETY: the program's own call, with its argument.
        return unsafe { (libssl.SSL_do_handshake)(ssl) };
    }
    // SAFETY: the SSL is the program's, which uses it in this thread; the function is libssl's.
    unsafe { step(libssl, ssl, libssl.SSL_do_handshake) }
}

unsafe extern "C-unwind" fn SSL_connect(ssl: *mut SSL) -> c_int {
    let Some(libssl) = Libssl::get() else { return -1 };
    // SAFETY: the SSL is the program's, which uses it in this thread; the function is libssl's.
    unsafe { step(libssl, ssl, libssl.SSL_connect) }
}

/// Completes the handshake before bytes go over a connection whose server is not judged yet. libssl would complete it
/// by itself, without a judgement. `Err`: the handshake's result, also after a refusal.
///
/// # Safety
/// `ssl` is null or valid, and in no other thread's use.
unsafe fn ready(libssl: &Libssl, ssl: *mut SSL) -> Result<(), c_int> {
    if ssl.is_null() {
        return Ok(());
    }
    // SAFETY: the caller vouches for `ssl`.
    let connection = guarded(|| unsafe { connection::of(ssl) }).flatten();
    // What stands may be an earlier connection of the SSL, which was cleared since.
    // SAFETY: the caller vouches for `ssl`.
    let is_over = || unsafe { ffi::SSL_in_before(ssl) } == 0;
    if connection.is_none_or(|connection| connection.stands() && is_over()) {
        return Ok(());
    }
    // SAFETY: the caller vouches for `ssl`; the function is libssl's.
    match unsafe { step(libssl, ssl, libssl.SSL_do_handshake) } {
        1 => Ok(()),
        not_yet => Err(not_yet),
    }
}

/// Replaces a function that reads or writes.
macro_rules! bytes {
    ($name:ident, $pointer:ty, $length:ty $(, $more:ident: $type:ty)?; $failed:expr) => {
        unsafe extern "C-unwind" fn $name(
            ssl: *mut SSL,
            bytes: $pointer,
            length: $length,
            $($more: $type,)?
        ) -> c_int {
            let Some(libssl) = Libssl::get() else { return $failed(-1) };
            // SAFETY: the SSL is the program's, which uses it in this thread.
            if let Err(why) = unsafe { ready(libssl, ssl) } {
                return $failed(why);
            }
            // SAFETY: the program's own call, with its arguments.
            unsafe { (libssl.$name)(ssl, bytes, length $(, $more)?) }
        }
    };
}

bytes!(SSL_read, *mut c_void, c_int; std::convert::identity);
bytes!(SSL_peek, *mut c_void, c_int; std::convert::identity);
bytes!(SSL_write, *const c_void, c_int; std::convert::identity);
bytes!(SSL_read_ex, *mut c_void, size_t, done: *mut size_t; |_| 0);
bytes!(SSL_peek_ex, *mut c_void, size_t, done: *mut size_t; |_| 0);
bytes!(SSL_write_ex, *const c_void, size_t, done: *mut size_t; |_| 0);

/// Replaces a function that asks about the connection.
macro_rules! getter {
    ($name:ident, $type:ty, $none:expr, $shown:expr) => {
        unsafe extern "C" fn $name(ssl: *mut SSL) -> $type {
            // SAFETY: the SSL is the program's, and in use during this call only.
            if let Some(shown) = unsafe { connection::shown(ssl) } {
                return ($shown)(shown);
            }
            let Some(libssl) = Libssl::get() else { return $none };
            // SAFETY: the program's own call, with its argument.
            unsafe { (libssl.$name)(ssl) }
        }
    };
}

getter!(SSL_get_version, *const c_char, c"unknown".as_ptr(), |of: &Shown| {
    of.version.name().as_ptr()
});
getter!(SSL_version, c_int, 0, |of: &Shown| of.version.number());
getter!(SSL_get_current_cipher, *const SSL_CIPHER, null(), |of: &Shown| of.cipher);
// The program offered no session, and may skip checks of its own when one is resumed.
getter!(SSL_session_reused, c_int, 0, |_: &Shown| 0);
getter!(SSL_get0_peer_certificate, *mut X509, null_mut(), Shown::peer);
getter!(SSL_get1_peer_certificate, *mut X509, null_mut(), |of: &Shown| {
    let peer = of.peer();
    if !peer.is_null() {
        // SAFETY: the certificate lives as long as the chain; the caller frees the reference.
        unsafe { openssl_sys::X509_up_ref(peer) };
    }
    peer
});
getter!(SSL_get_peer_cert_chain, *mut OPENSSL_STACK, null_mut(), |of: &Shown| { of.chain.list() });
getter!(SSL_get0_verified_chain, *mut OPENSSL_STACK, null_mut(), Shown::verified);

/// Answers what a program asks about the connection by a command. All other commands are libssl's, and so is the rest of an
/// answer: it has none before the handshake is over.
unsafe extern "C" fn SSL_ctrl(
    ssl: *mut SSL,
    command: c_int,
    number: c_long,
    more: *mut c_void,
) -> c_long {
    let Some(libssl) = Libssl::get() else { return 0 };
    // SAFETY: the program's own call, with its arguments.
    let own = unsafe { (libssl.SSL_ctrl)(ssl, command, number, more) };
    // SAFETY: the SSL is the program's, and in use during this call only.
    let shown = if own == 0 { unsafe { connection::shown(ssl) } } else { None };
    shown.and_then(|shown| shown.control(command)).unwrap_or(own)
}

/// Replaces a function that names the state of the handshake: what is refused is an error, as libssl's own refusal is,
/// although libssl's handshake has succeeded.
macro_rules! state {
    ($name:ident, $refused:literal) => {
        unsafe extern "C" fn $name(ssl: *mut SSL) -> *const c_char {
            // SAFETY: the SSL is the program's, and in use during this call only.
            if unsafe { connection::is_refused(ssl) } {
                return $refused.as_ptr();
            }
            let Some(libssl) = Libssl::get() else { return c"unknown state".as_ptr() };
            // SAFETY: the program's own call, with its argument.
            unsafe { (libssl.$name)(ssl) }
        }
    };
}

state!(SSL_state_string, c"SSLERR");
state!(SSL_state_string_long, c"error");

/// Makes a context. Connections go directly if it has a library context or properties of its own: nobody can ask for
/// them, and they decide which algorithms verify certificates.
unsafe extern "C" fn SSL_CTX_new_ex(
    of: *mut OSSL_LIB_CTX,
    properties: *const c_char,
    method: *const SSL_METHOD,
) -> *mut SSL_CTX {
    let Some(libssl) = Libssl::get() else { return null_mut() };
    // SAFETY: the program's own call, with its arguments.
    let made = unsafe { (libssl.SSL_CTX_new_ex)(of, properties, method) };
    let is_usual = of.is_null() && properties.is_null();
    if !made.is_null() && !is_usual {
        // SAFETY: the context was made above, and nobody else has it yet.
        guarded(|| unsafe { allowed::mark_context(made) });
    }
    made
}

unsafe extern "C" fn SSL_CTX_set_cert_verify_callback(
    context: *mut SSL_CTX,
    all: Option<VerifyAll>,
    with: *mut c_void,
) {
    // SAFETY: the context is the program's, which uses it in this thread.
    guarded(|| unsafe { judge::note_own(context, all, with) });
    if let Some(libssl) = Libssl::get() {
        // SAFETY: the program's own call, with its arguments.
        unsafe { (libssl.SSL_CTX_set_cert_verify_callback)(context, all, with) };
    }
}

unsafe extern "C" fn SSL_set_psk_use_session_callback(ssl: *mut SSL, callback: Option<UseSession>) {
    // SAFETY: the SSL is the program's, which uses it in this thread.
    guarded(|| unsafe { allowed::mark(ssl) });
    if let Some(libssl) = Libssl::get() {
        // SAFETY: the program's own call, with its arguments.
        unsafe { (libssl.SSL_set_psk_use_session_callback)(ssl, callback) };
    }
}

/// Replaces a function that makes a setting which the manager does not support.
macro_rules! setter {
    ($name:ident, $of:ty, $mark:path $(, $with:ident: $type:ty)?) => {
        unsafe extern "C" fn $name(
            of: *mut $of,
            callback: Option<unsafe extern "C" fn()>,
            $($with: $type,)?
        ) {
            // SAFETY: `of` is the program's, which uses it in this thread.
            guarded(|| unsafe { $mark(of) });
            if let Some(libssl) = Libssl::get() {
                // SAFETY: the program's own call, with its arguments.
                unsafe { (libssl.$name)(of, callback $(, $with)?) };
            }
        }
    };
}

setter!(SSL_CTX_set_psk_use_session_callback, SSL_CTX, allowed::mark_context);
setter!(SSL_set_psk_client_callback, SSL, allowed::mark);
setter!(SSL_CTX_set_psk_client_callback, SSL_CTX, allowed::mark_context);
setter!(SSL_set_cert_cb, SSL, allowed::mark, with: *mut c_void);
setter!(SSL_CTX_set_cert_cb, SSL_CTX, allowed::mark_context, with: *mut c_void);

unsafe extern "C" fn SSL_dane_enable(ssl: *mut SSL, base: *const c_char) -> c_int {
    // SAFETY: the SSL is the program's, which uses it in this thread.
    guarded(|| unsafe { allowed::mark(ssl) });
    let Some(libssl) = Libssl::get() else { return 0 };
    // SAFETY: the program's own call, with its arguments.
    unsafe { (libssl.SSL_dane_enable)(ssl, base) }
}
