//! The program's own verification of the server's certificates, as GnuTLS runs it during a handshake, with all
//! settings of the program.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use crate::allowed;
use crate::ffi::{
    GNUTLS_CRD_CERTIFICATE, GNUTLS_DT_DNS_HOSTNAME, GNUTLS_E_AGAIN, GNUTLS_E_CERTIFICATE_ERROR,
    GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR, GNUTLS_E_INTERRUPTED, Gnutls, Session, TypedData,
    Verify,
};
use crate::settings::Verification;
use crate::shown::Shown;

/// The outcome of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The program accepts the server. `passed`: GnuTLS found nothing wrong.
    Believed { passed: bool },
    /// The program goes on, and may verify the server later.
    Later,
    /// The program's function is to be called again.
    Again(c_int),
    /// The program refuses the server, for this error.
    Refused(c_int),
}

/// Runs the program's verification.
///
/// # Safety
/// `session` is valid, in no other thread's use, and its handshake is over. The pointers in `verification` are valid.
pub(crate) unsafe fn judge(
    gnutls: &Gnutls,
    session: Session,
    shown: &Shown,
    verification: Verification,
) -> Judgement {
    match verification {
        Verification::Name(name) => {
            let kind = GNUTLS_DT_DNS_HOSTNAME;
            let mut data = TypedData { kind, data: name.cast_mut().cast(), size: 0 };
            let (data, count) = if name.is_null() { (null_mut(), 0) } else { (&raw mut data, 1) };
            // SAFETY: `data` is null, or points to one element with the program's name.
            unsafe { by_gnutls(gnutls, shown, data, count) }
        }
        // SAFETY: the caller vouches for the data.
        Verification::Data(data, count) => unsafe { by_gnutls(gnutls, shown, data, count) },
        // SAFETY: the caller vouches for the session and the function.
        Verification::Function(function) => unsafe { by_function(function, session, shown) },
        Verification::Unset => {
            // SAFETY: the caller vouches for the session.
            let credentials = unsafe { allowed::of(gnutls, session, GNUTLS_CRD_CERTIFICATE) };
            match credentials.and_then(|credentials| allowed::set_on(credentials).verify) {
                // SAFETY: the caller vouches for the session; the program set the function on its credentials.
                Some(function) => unsafe { by_function(function, session, shown) },
                None => Judgement::Later,
            }
        }
    }
}

/// Has GnuTLS verify the shadow's certificates.
///
/// # Safety
/// `data` points to `count` elements.
unsafe fn by_gnutls(
    gnutls: &Gnutls,
    shown: &Shown,
    data: *mut TypedData,
    count: c_uint,
) -> Judgement {
    let mut status = 0;
    let session = shown.shadow.session;
    // SAFETY: the caller vouches for the data; the session is ours.
    let done =
        unsafe { (gnutls.gnutls_certificate_verify_peers)(session, data, count, &raw mut status) };
    if done < 0 {
        return Judgement::Refused(GNUTLS_E_CERTIFICATE_ERROR);
    }
    shown.status.store(status, Ordering::Relaxed);
    match status {
        0 => Judgement::Believed { passed: true },
        _ => Judgement::Refused(GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR),
    }
}

/// Calls the program's function.
///
/// # Safety
/// The same as [`judge`].
unsafe fn by_function(function: Verify, session: Session, shown: &Shown) -> Judgement {
    // SAFETY: the program's own function, for its own session, as libgnutls would call it.
    match unsafe { function(session) } {
        0 => Judgement::Believed { passed: shown.passed() },
        again @ (GNUTLS_E_AGAIN | GNUTLS_E_INTERRUPTED) => Judgement::Again(again),
        // libgnutls, too, reports numbers that are not its errors as this one.
        -1.. => Judgement::Refused(GNUTLS_E_CERTIFICATE_ERROR),
        refused => Judgement::Refused(refused),
    }
}
