//! The program's own verification of the server's certificates, as libssl does it during a handshake
//! (`ssl_verify_cert_chain`), with all that the program set.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libc::c_long;
use openssl_sys::{CRYPTO_EX_DATA, SSL, SSL_CTX, X509_STORE_CTX};

use super::ffi::{self, VerifyAll};
use super::shown::{Certificates, Shown};

/// What it comes to.
pub(super) struct Judgement {
    /// The program goes on.
    pub(super) is_believed: bool,
    /// And nobody overrode the verification.
    pub(super) is_verified: bool,
    /// A function of the program's had a part in it.
    is_overridable: bool,
    pub(super) chain: Option<Certificates>,
}

impl Judgement {
    const REFUSED: Self =
        Self { is_believed: false, is_verified: false, is_overridable: false, chain: None };
}

/// A program's function that does all of the verification, and what it wants to be called with.
struct Own(VerifyAll, *mut c_void);

fn index() -> c_int {
    static INDEX: OnceLock<c_int> = OnceLock::new();
    *INDEX.get_or_init(|| ffi::context_index(Some(freed)))
}

unsafe extern "C" fn freed(
    _context: *mut c_void,
    own: *mut c_void,
    _data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    _pointer: *mut c_void,
) {
    if !own.is_null() {
        // SAFETY: `note_own` put it there.
        drop(unsafe { Box::from_raw(own.cast::<Own>()) });
    }
}

/// The program sets such a function, of which libssl says nothing to anybody.
///
/// # Safety
/// `context` is valid, and in no other thread's use.
pub(super) unsafe fn note_own(context: *mut SSL_CTX, all: Option<VerifyAll>, with: *mut c_void) {
    let own = all.map_or(std::ptr::null_mut(), |all| Box::into_raw(Box::new(Own(all, with))));
    // SAFETY: the caller vouches for `context`, here and below.
    let old = unsafe { openssl_sys::SSL_CTX_get_ex_data(context, index()) };
    // SAFETY: as above.
    let is_set = unsafe { openssl_sys::SSL_CTX_set_ex_data(context, index(), own.cast()) } == 1;
    let unused = if is_set { old.cast() } else { own };
    if !unused.is_null() {
        // SAFETY: it is a box of this function, and in nobody's keeping.
        drop(unsafe { Box::from_raw(unused) });
    }
}

/// # Safety
/// `ssl` is valid, and in no other thread's use.
pub(super) unsafe fn judge(ssl: *mut SSL, seen: &Shown) -> Judgement {
    // SAFETY: the caller vouches for `ssl`.
    let judgement = unsafe { judge_once(ssl, seen, true) };
    if !judgement.is_verified || !judgement.is_overridable {
        return judgement;
    }
    // A function of the program's may have overridden what was found, and say that nothing was.
    // SAFETY: as above.
    let plain = unsafe { judge_once(ssl, seen, false) };
    Judgement { is_verified: plain.is_verified, ..judgement }
}

/// # Safety
/// As [`judge`].
unsafe fn judge_once(ssl: *mut SSL, seen: &Shown, asks_program: bool) -> Judgement {
    // SAFETY: no arguments.
    let context = unsafe { openssl_sys::X509_STORE_CTX_new() };
    if context.is_null() {
        return Judgement::REFUSED;
    }
    // SAFETY: the caller vouches for `ssl`, and the context was made above.
    let judgement = unsafe { judge_in(context, ssl, seen, asks_program) };
    // SAFETY: nobody else has it.
    unsafe { openssl_sys::X509_STORE_CTX_free(context) };
    judgement.unwrap_or(Judgement::REFUSED)
}

/// # Safety
/// As [`judge`]; `in_context` is new. The program's own functions are asked, or left out.
unsafe fn judge_in(
    in_context: *mut X509_STORE_CTX,
    ssl: *mut SSL,
    seen: &Shown,
    asks_program: bool,
) -> Option<Judgement> {
    // SAFETY: the caller vouches for `ssl` and `in_context`, here and in all that follows.
    let context = unsafe { openssl_sys::SSL_get_SSL_CTX(ssl) };
    let mut store = std::ptr::null_mut::<openssl_sys::X509_STORE>();
    // SAFETY: the answer belongs into `store`; the pointer stays libssl's.
    unsafe {
        openssl_sys::SSL_ctrl(ssl, ffi::SSL_CTRL_GET_VERIFY_CERT_STORE, 0, (&raw mut store).cast());
    }
    if store.is_null() {
        // SAFETY: as above.
        store = unsafe { ffi::SSL_CTX_get_cert_store(context) };
    }
    let (own, others) = (seen.own(), seen.chain.list());
    // SAFETY: as above; the chain lives as long as `seen`.
    if unsafe { openssl_sys::X509_STORE_CTX_init(in_context, store, own, others.cast()) } != 1 {
        return None;
    }
    // SAFETY: as above.
    let param = unsafe { ffi::X509_STORE_CTX_get0_param(in_context) };
    // SAFETY: as above.
    let level = unsafe { openssl_sys::SSL_get_security_level(ssl) };
    // SAFETY: as above.
    unsafe { ffi::X509_VERIFY_PARAM_set_auth_level(param, level) };
    // SAFETY: no arguments.
    let of_ssl = unsafe { openssl_sys::SSL_get_ex_data_X509_STORE_CTX_idx() };
    // SAFETY: as above: the program's callbacks ask whose connection it is.
    if unsafe { ffi::X509_STORE_CTX_set_ex_data(in_context, of_ssl, ssl.cast()) } != 1 {
        return None;
    }
    // SAFETY: as above.
    unsafe { ffi::X509_STORE_CTX_set_default(in_context, c"ssl_server".as_ptr()) };
    // SAFETY: as above.
    let own_param = unsafe { openssl_sys::SSL_get0_param(ssl) };
    // SAFETY: as above.
    unsafe { ffi::X509_VERIFY_PARAM_set1(param, own_param) };
    // SAFETY: as above.
    let one = unsafe { ffi::SSL_get_verify_callback(ssl) }.filter(|_| asks_program);
    if one.is_some() {
        // SAFETY: as above.
        unsafe { ffi::X509_STORE_CTX_set_verify_cb(in_context, one) };
    }
    // SAFETY: as above.
    let noted = unsafe { openssl_sys::SSL_CTX_get_ex_data(context, index()) };
    // SAFETY: what is there is a box of `note_own`.
    let all = unsafe { noted.cast::<Own>().as_ref() }.filter(|_| asks_program);
    let answer = match all {
        // SAFETY: as libssl would call it.
        Some(Own(all, with)) => unsafe { all(in_context, *with) },
        // SAFETY: as above.
        None => unsafe { openssl_sys::X509_verify_cert(in_context) },
    };
    // SAFETY: as above.
    let error = unsafe { openssl_sys::X509_STORE_CTX_get_error(in_context) };
    if asks_program {
        // SAFETY: as above.
        unsafe { ffi::SSL_set_verify_result(ssl, error.into()) };
    }
    // SAFETY: as above.
    let copy = unsafe { ffi::X509_STORE_CTX_get1_chain(in_context) };
    // SAFETY: it is ours.
    let chain = unsafe { Certificates::own(copy) };
    // SAFETY: as above: the name that was found, for who asks.
    unsafe { ffi::X509_VERIFY_PARAM_move_peername(own_param, param) };
    let is_believed = answer > 0;
    if is_believed {
        // What a callback or a lookup left is no fault of the handshake's.
        // SAFETY: no arguments.
        unsafe { openssl_sys::ERR_clear_error() };
    }
    let is_overridable = all.is_some() || one.is_some();
    Some(Judgement { is_believed, is_verified: is_believed && error == 0, is_overridable, chain })
}

/// Says why, where the program will look.
pub(super) fn say(reason: c_int) {
    // SAFETY: no arguments.
    unsafe { openssl_sys::ERR_new() };
    // SAFETY: no text follows.
    unsafe { openssl_sys::ERR_set_error(ffi::ERR_LIB_SSL, reason, std::ptr::null()) };
}
