//! The program's own verification of the server's certificates, as GnuTLS does it during a handshake, with all
//! that the program set.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use crate::allowed;
use crate::connection::Connection;
use crate::ffi::{
    GNUTLS_CRD_CERTIFICATE, GNUTLS_DT_DNS_HOSTNAME, GNUTLS_E_AGAIN, GNUTLS_E_CERTIFICATE_ERROR,
    GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR, GNUTLS_E_INTERRUPTED, Gnutls, TypedData, Verify,
};
use crate::shown::Shown;

/// What the program has done before it believes a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Own {
    /// Nothing, that GnuTLS knows of; or what the credentials say.
    Nothing,
    /// GnuTLS verifies for this name, or for none.
    Name(*const c_char),
    /// GnuTLS verifies for so many things.
    Data(*mut TypedData, c_uint),
    /// A function does it.
    Function(Verify),
}

// SAFETY: the program's own, which stay as long as its session is in use.
unsafe impl Send for Own {}

/// What came with it, by one function or the other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flags {
    /// By `gnutls_session_set_verify_cert`.
    One(c_uint),
    /// By `gnutls_session_set_verify_cert2`.
    Two(c_uint),
}

/// What it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The program goes on; whether GnuTLS found nothing wrong.
    Believed {
        passed: bool,
    },
    /// It goes on, and verifies when it likes.
    Later,
    /// It is to be asked again.
    Again(c_int),
    Refused(c_int),
}

/// # Safety
/// The session is valid, in no other thread's use, and its handshake is over.
pub(crate) unsafe fn judge(
    gnutls: &Gnutls,
    connection: &Connection,
    shown: &Shown,
    own: Own,
) -> Judgement {
    match own {
        Own::Name(name) => {
            let kind = GNUTLS_DT_DNS_HOSTNAME;
            let mut data = TypedData { kind, data: name.cast_mut().cast(), size: 0 };
            let (data, count) = if name.is_null() { (null_mut(), 0) } else { (&raw mut data, 1) };
            // SAFETY: the program's own, which it keeps.
            unsafe { by_gnutls(gnutls, shown, data, count) }
        }
        // SAFETY: as above.
        Own::Data(data, count) => unsafe { by_gnutls(gnutls, shown, data, count) },
        // SAFETY: the caller vouches for the session.
        Own::Function(function) => unsafe { by_function(function, connection, shown) },
        Own::Nothing => {
            let session = connection.session();
            // SAFETY: as above.
            let credentials = unsafe { allowed::of(gnutls, session, GNUTLS_CRD_CERTIFICATE) };
            match credentials.and_then(|credentials| allowed::set_on(credentials).verify) {
                // SAFETY: as above.
                Some(function) => unsafe { by_function(function, connection, shown) },
                None => Judgement::Later,
            }
        }
    }
}

/// # Safety
/// There are so many data.
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

/// # Safety
/// As [`judge`].
unsafe fn by_function(function: Verify, connection: &Connection, shown: &Shown) -> Judgement {
    // SAFETY: the program's own function, for its own session, as libgnutls would call it.
    match unsafe { function(connection.session()) } {
        0 => Judgement::Believed { passed: shown.passed() },
        again @ (GNUTLS_E_AGAIN | GNUTLS_E_INTERRUPTED) => Judgement::Again(again),
        // As libgnutls does: small numbers are no errors of its own.
        -1.. => Judgement::Refused(GNUTLS_E_CERTIFICATE_ERROR),
        refused => Judgement::Refused(refused),
    }
}
