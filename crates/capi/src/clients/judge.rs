//! The program's own verification of the server's certificates, as libssl runs it during a handshake
//! (`ssl_verify_cert_chain`), with all settings of the program.

use std::ffi::{c_int, c_void};

use openssl_sys::{SSL, SSL_CTX, X509_STORE_CTX};
use rejoin_openssl::Extra;

use super::allowed;
use super::ffi::{self, Libssl, VerifyAll, VerifyOne};
use super::shown::{Certificates, Shown};

/// The outcome of a verification.
pub(super) struct Judgement {
    pub(super) decision: Decision,
    /// True if the certificates are also valid without the program's functions.
    pub(super) is_verified: bool,
    /// True if a callback of the program had a part in it, which can be left out.
    is_overridable: bool,
    /// The chain up to an authority.
    pub(super) chain: Option<Certificates>,
}

/// The program's decision about a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Believed,
    Refused,
    /// The program wants to be asked again (`SSL_set_retry_verify`).
    Undecided,
}

impl Judgement {
    const REFUSED: Self = Self {
        decision: Decision::Refused,
        is_verified: false,
        is_overridable: false,
        chain: None,
    };
}

/// A program's function that does the whole verification, and its argument.
struct Own(VerifyAll, *mut c_void);

static OWN: Extra<SSL_CTX, Own> = Extra::new();

/// Records such a function, which libssl cannot be asked for. Where that fails, the context's connections go directly.
///
/// # Safety
/// `context` is valid, and in no other thread's use.
pub(super) unsafe fn note_own(context: *mut SSL_CTX, all: Option<VerifyAll>, with: *mut c_void) {
    match all {
        Some(all) => {
            // SAFETY: the caller vouches for `context`, and `judge` does not run meanwhile.
            if unsafe { OWN.put(context, Own(all, with)) }.is_none() {
                // SAFETY: the caller vouches for `context`.
                unsafe { allowed::mark_context(context) };
            }
        }
        // SAFETY: the caller vouches for `context`, and `judge` does not run meanwhile.
        None => drop(unsafe { OWN.take(context) }),
    }
}

/// Runs the program's verification, and again without the program's functions if they may have overridden it.
///
/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn judge(libssl: &Libssl, ssl: *mut SSL, seen: &Shown) -> Judgement {
    // SAFETY: the caller vouches for `ssl`.
    if !unsafe { forgets_wish(libssl, ssl) } {
        return Judgement::REFUSED;
    }
    // SAFETY: the caller vouches for `ssl`.
    let judgement = unsafe { judge_once(ssl, seen, true) };
    if !judgement.is_verified || !judgement.is_overridable {
        return judgement;
    }
    // A function of the program may have overridden an error, and hidden it.
    // SAFETY: the caller vouches for `ssl`.
    let plain = unsafe { judge_once(ssl, seen, false) };
    Judgement { is_verified: plain.is_verified, ..judgement }
}

/// Forgets that the program wanted to be asked again, as libssl does before it asks. Returns false if libssl does not.
///
/// # Safety
/// The same as [`judge`].
unsafe fn forgets_wish(libssl: &Libssl, ssl: *mut SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    if !unsafe { wants_again(ssl) } {
        return true;
    }
    // SAFETY: the function takes no arguments.
    unsafe { openssl_sys::ERR_clear_error() };
    // libssl notes that it waits for nothing when it is to read after the server's end, and does nothing else then.
    // SAFETY: the caller vouches for `ssl`.
    let before = unsafe { ffi::SSL_get_shutdown(ssl) };
    // SAFETY: the caller vouches for `ssl`.
    unsafe { ffi::SSL_set_shutdown(ssl, before | ffi::SSL_RECEIVED_SHUTDOWN) };
    let mut byte = 0_u8;
    // SAFETY: the caller vouches for `ssl`; there is room for one byte.
    unsafe { (libssl.SSL_read)(ssl, (&raw mut byte).cast(), 1) };
    // SAFETY: the caller vouches for `ssl`.
    unsafe { ffi::SSL_set_shutdown(ssl, before) };
    // SAFETY: the caller vouches for `ssl`.
    !unsafe { wants_again(ssl) }
}

/// Returns true if the program wants to be asked again about the server.
///
/// # Safety
/// `ssl` is valid.
unsafe fn wants_again(ssl: *mut SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    unsafe { ffi::SSL_want(ssl) == ffi::SSL_RETRY_VERIFY }
}

/// Runs the verification once, with the program's functions or without them.
///
/// # Safety
/// The same as [`judge`].
unsafe fn judge_once(ssl: *mut SSL, seen: &Shown, asks_program: bool) -> Judgement {
    // SAFETY: the function takes no arguments.
    let context = unsafe { openssl_sys::X509_STORE_CTX_new() };
    if context.is_null() {
        return Judgement::REFUSED;
    }
    // SAFETY: the caller vouches for `ssl`, and the context was made above.
    let judgement = unsafe { judge_in(context, ssl, seen, asks_program) };
    // SAFETY: the context belongs to this function.
    unsafe { openssl_sys::X509_STORE_CTX_free(context) };
    judgement.unwrap_or(Judgement::REFUSED)
}

/// Runs the verification in a context. `None`: there is no memory.
///
/// # Safety
/// The same as [`judge`]; `in_context` is new.
unsafe fn judge_in(
    in_context: *mut X509_STORE_CTX,
    ssl: *mut SSL,
    seen: &Shown,
    asks_program: bool,
) -> Option<Judgement> {
    // SAFETY: the caller vouches for `ssl`.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    let mut store = std::ptr::null_mut::<openssl_sys::X509_STORE>();
    // SAFETY: the command writes a pointer, which stays libssl's, and `store` has room for it.
    unsafe {
        openssl_sys::SSL_ctrl(ssl, ffi::SSL_CTRL_GET_VERIFY_CERT_STORE, 0, (&raw mut store).cast());
    }
    if store.is_null() {
        // SAFETY: the context lives as long as `ssl`.
        store = unsafe { ffi::SSL_CTX_get_cert_store(context) };
    }
    let (own, others) = (seen.own(), seen.chain.list());
    // SAFETY: the caller vouches for `in_context`; store, certificate and chain live longer than it.
    if unsafe { openssl_sys::X509_STORE_CTX_init(in_context, store, own, others.cast()) } != 1 {
        return None;
    }
    // SAFETY: `in_context` was initialised above.
    let param = unsafe { ffi::X509_STORE_CTX_get0_param(in_context) };
    // SAFETY: the caller vouches for `ssl`.
    let level = unsafe { openssl_sys::SSL_get_security_level(ssl) };
    // SAFETY: the parameters belong to `in_context`, which lives longer.
    unsafe { ffi::X509_VERIFY_PARAM_set_auth_level(param, level) };
    // Where the program set Suite B after its handshake had begun. Before that, it goes directly.
    // SAFETY: the caller vouches for `ssl`.
    let flags = unsafe { ffi::suite_b_flags(ssl) };
    // SAFETY: `in_context` was initialised above.
    unsafe { ffi::X509_STORE_CTX_set_flags(in_context, flags) };
    // SAFETY: the function takes no arguments.
    let of_ssl = unsafe { openssl_sys::SSL_get_ex_data_X509_STORE_CTX_idx() };
    // SAFETY: both are valid. The program's callbacks ask for the SSL by this index.
    if unsafe { ffi::X509_STORE_CTX_set_ex_data(in_context, of_ssl, ssl.cast()) } != 1 {
        return None;
    }
    // SAFETY: `in_context` was initialised above, and the name ends with a zero byte.
    unsafe { ffi::X509_STORE_CTX_set_default(in_context, c"ssl_server".as_ptr()) };
    // SAFETY: the caller vouches for `ssl`, which keeps the parameters.
    let own_param = unsafe { openssl_sys::SSL_get0_param(ssl) };
    // SAFETY: both parameters belong to structures that are valid.
    unsafe { ffi::X509_VERIFY_PARAM_set1(param, own_param) };
    // SAFETY: the caller vouches for `ssl`.
    let one = unsafe { ffi::SSL_get_verify_callback(ssl) };
    // A context has the store's callback, unless it gets another.
    let only = if asks_program { one } else { Some(unchanged as VerifyOne) };
    if only.is_some() {
        // SAFETY: `in_context` was initialised above; the callback is the program's for this SSL, or ours.
        unsafe { ffi::X509_STORE_CTX_set_verify_cb(in_context, only) };
    }
    // SAFETY: the context lives as long as `ssl`.
    let all = unsafe { OWN.get(context) }.filter(|_| asks_program);
    let answer = match all {
        // SAFETY: the program's function and its argument; libssl would pass the same context.
        Some(Own(all, with)) => unsafe { all(in_context, *with) },
        // SAFETY: `in_context` was initialised above.
        None => unsafe { openssl_sys::X509_verify_cert(in_context) },
    };
    // SAFETY: `in_context` was initialised above.
    let error = unsafe { openssl_sys::X509_STORE_CTX_get_error(in_context) };
    if asks_program {
        // SAFETY: the caller vouches for `ssl`.
        unsafe { ffi::SSL_set_verify_result(ssl, error.into()) };
    }
    // SAFETY: `in_context` was initialised above; the copy belongs to this function.
    let copy = unsafe { ffi::X509_STORE_CTX_get1_chain(in_context) };
    // SAFETY: the copy is a list of certificates, and belongs to this function.
    let chain = unsafe { Certificates::own(copy) };
    // SAFETY: both parameters are valid. The name that was matched goes to the SSL, where the program asks for it.
    unsafe { ffi::X509_VERIFY_PARAM_move_peername(own_param, param) };
    let decision = match answer {
        // SAFETY: the caller vouches for `ssl`.
        1.. if unsafe { wants_again(ssl) } => Decision::Undecided,
        1.. => Decision::Believed,
        _ => Decision::Refused,
    };
    if decision != Decision::Refused {
        // Errors that a callback or a lookup left must not count as the handshake's.
        // SAFETY: the function takes no arguments.
        unsafe { openssl_sys::ERR_clear_error() };
    }
    // SAFETY: the store is the context's, or the SSL's, and may be null.
    let of_store = unsafe { ffi::has_callback(store) };
    let is_overridable = all.is_some() || one.is_some() || of_store;
    // SAFETY: the store is the context's, or the SSL's, and may be null.
    let is_by_openssl = !unsafe { ffi::has_own_steps(store) };
    let is_verified = decision == Decision::Believed && error == 0 && is_by_openssl;
    Some(Judgement { decision, is_verified, is_overridable, chain })
}

/// Leaves OpenSSL's result as it is, in place of the program's callbacks.
unsafe extern "C" fn unchanged(is_valid: c_int, _: *mut X509_STORE_CTX) -> c_int {
    is_valid
}

/// Puts the reason into libssl's error queue, where the program reads it.
pub(super) fn say(reason: c_int) {
    // SAFETY: the function takes no arguments.
    unsafe { openssl_sys::ERR_new() };
    // SAFETY: a null format takes no further arguments.
    unsafe { openssl_sys::ERR_set_error(ffi::ERR_LIB_SSL, reason, std::ptr::null()) };
}
