//! Which connections may go through the manager: those that would be the same to the program.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rejoin_hop::Directly;

use crate::connection::Wishes;
use crate::ffi::{
    Credentials, Datum, GNUTLS_CRD_ANON, GNUTLS_CRD_CERTIFICATE, GNUTLS_CRD_PSK, GNUTLS_CRD_SRP,
    Gnutls, Session, Verify,
};

/// What a program set on credentials, of which libgnutls tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Set {
    pub(crate) verify: Option<Verify>,
    /// A callback may give a certificate of the program's.
    pub(crate) may_have_certificate: bool,
}

/// By their addresses.
static CREDENTIALS: LazyLock<Mutex<HashMap<usize, Set>>> = LazyLock::new(Mutex::default);

fn credentials() -> MutexGuard<'static, HashMap<usize, Set>> {
    CREDENTIALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program sets something.
pub(crate) fn note(of: Credentials, what: impl FnOnce(&mut Set)) {
    what(credentials().entry(of as usize).or_default());
}

/// A program frees them.
pub(crate) fn forget(of: Credentials) {
    credentials().remove(&(of as usize));
}

/// What a program set.
pub(crate) fn set_on(of: Credentials) -> Set {
    credentials().get(&(of as usize)).copied().unwrap_or_default()
}

/// The credentials of a session, if it has such.
///
/// # Safety
/// `session` is valid.
pub(crate) unsafe fn of(gnutls: &Gnutls, session: Session, kind: i32) -> Option<Credentials> {
    let mut found = null_mut();
    // SAFETY: the caller vouches for `session`; the answer belongs there.
    let answer = unsafe { (gnutls.gnutls_credentials_get)(session, kind, &raw mut found) };
    (answer == 0 && !found.is_null()).then_some(found)
}

/// Whether a connection that is to be made may.
///
/// # Safety
/// `session` is valid, and in no other thread's use.
pub(crate) unsafe fn through_the_manager(
    gnutls: &Gnutls,
    session: Session,
    wishes: &Wishes,
) -> Result<(), Directly> {
    let is = |fact: bool, why: Directly| if fact { Err(why) } else { Ok(()) };
    wishes.directly.map_or(Ok(()), Err)?;
    is(rejoin_abi::variable("SSLKEYLOGFILE").is_some(), Directly::KeyLog)?;
    let priorities = wishes.priorities.as_ref().filter(|_| wishes.takes_keys);
    let priorities = priorities.ok_or(Directly::Callback)?;
    // SAFETY: the caller vouches for `session`, here and below.
    let certificate = unsafe { of(gnutls, session, GNUTLS_CRD_CERTIFICATE) };
    let certificate = certificate.ok_or(Directly::NotVerified)?;
    let mut own = Datum::EMPTY;
    // SAFETY: the session's credentials; the answer belongs there.
    let has =
        unsafe { (gnutls.gnutls_certificate_get_crt_raw)(certificate, 0, 0, &raw mut own) } == 0;
    let may_have = set_on(certificate).may_have_certificate;
    is(has || may_have, Directly::ClientCertificate)?;
    // Who believes nobody has nothing that others could resume, and uses nothing of theirs.
    // SAFETY: the session's credentials.
    is(!unsafe { believes_anybody(gnutls, certificate) }, Directly::NotVerified)?;
    let others = [GNUTLS_CRD_ANON, GNUTLS_CRD_SRP, GNUTLS_CRD_PSK];
    // SAFETY: as above.
    let has_other = others.into_iter().any(|kind| unsafe { of(gnutls, session, kind) }.is_some());
    // Some programs always have them, and they are no use where the priorities do not name them.
    is(has_other && !priorities.certificates_only(gnutls), Directly::Callback)
}

/// A program may have keys of its own, of which its priorities may say nothing. They would be of use now that
/// keys are taken: so they are taken away, or else its priorities are set again as they were.
///
/// # Safety
/// `session` is valid, and in no other thread's use.
pub(crate) unsafe fn leave_own_keys(gnutls: &Gnutls, session: Session, wishes: &mut Wishes) {
    let Some(priorities) = wishes.priorities.as_ref().filter(|_| wishes.takes_keys) else { return };
    // SAFETY: the caller vouches for `session`, here and below.
    if unsafe { of(gnutls, session, GNUTLS_CRD_PSK) }.is_none() {
        return;
    }
    if priorities.certificates_only(gnutls) {
        // SAFETY: as above.
        unsafe { (gnutls.gnutls_credentials_set)(session, GNUTLS_CRD_PSK, null_mut()) };
    } else {
        // SAFETY: as above.
        unsafe { priorities.set(gnutls, session, "") };
        wishes.takes_keys = false;
    }
}

/// Whether there is an authority.
///
/// # Safety
/// The credentials are valid.
unsafe fn believes_anybody(gnutls: &Gnutls, credentials: Credentials) -> bool {
    let (mut list, mut place, mut authority) =
        (null_mut::<c_void>(), null_mut::<c_void>(), null_mut::<c_void>());
    // SAFETY: the caller vouches for them; the list stays theirs.
    unsafe { (gnutls.gnutls_certificate_get_trust_list)(credentials, &raw mut list) };
    if list.is_null() {
        return false;
    }
    let next = gnutls.gnutls_x509_trust_list_iter_get_ca;
    // SAFETY: the list was given above; what is found belongs there.
    let found = unsafe { next(list, &raw mut place, &raw mut authority) } == 0;
    if found {
        // SAFETY: a copy, which is ours.
        unsafe { (gnutls.gnutls_x509_crt_deinit)(authority) };
    }
    if !place.is_null() {
        // SAFETY: nobody else has it.
        unsafe { (gnutls.gnutls_x509_trust_list_iter_deinit)(place) };
    }
    found
}
