//! The decision which connections may go through the manager: those that look the same to the program.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;

use rejoin_abi::gate::Gated;
use rejoin_hop::Directly;

use crate::ffi::{
    Credentials, Datum, GNUTLS_CRD_ANON, GNUTLS_CRD_CERTIFICATE, GNUTLS_CRD_PSK, GNUTLS_CRD_SRP,
    Gnutls, Session, Verify,
};
use crate::settings::Settings;

/// The settings of a program's credentials that libgnutls cannot be asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Set {
    pub(crate) verify: Option<Verify>,
    /// True if a callback may return a certificate of the program.
    pub(crate) may_have_certificate: bool,
}

/// The settings by the addresses of the credentials.
static CREDENTIALS: Gated<BTreeMap<usize, Set>> = Gated::new(BTreeMap::new());

/// Records a setting of the program.
pub(crate) fn note(of: Credentials, what: impl FnOnce(&mut Set)) {
    what(CREDENTIALS.lock().entry(of as usize).or_default());
}

/// Forgets credentials that the program frees.
pub(crate) fn forget(of: Credentials) {
    CREDENTIALS.lock().remove(&(of as usize));
}

/// Returns the settings of credentials.
pub(crate) fn set_on(of: Credentials) -> Set {
    CREDENTIALS.lock().get(&(of as usize)).copied().unwrap_or_default()
}

/// Returns the credentials of a session, if it has any of this kind.
///
/// # Safety
/// `session` is valid.
pub(crate) unsafe fn of(gnutls: &Gnutls, session: Session, kind: i32) -> Option<Credentials> {
    let mut found = null_mut();
    // SAFETY: the caller vouches for `session`; `found` has room for the answer.
    let answer = unsafe { (gnutls.gnutls_credentials_get)(session, kind, &raw mut found) };
    (answer == 0 && !found.is_null()).then_some(found)
}

/// Returns the reason why a connection that is about to be made must go directly, if there is one.
///
/// # Safety
/// `session` is valid, and in no other thread's use.
pub(crate) unsafe fn through_the_manager(
    gnutls: &Gnutls,
    session: Session,
    settings: &Settings,
) -> Result<(), Directly> {
    let is = |fact: bool, why: Directly| if fact { Err(why) } else { Ok(()) };
    settings.directly.map_or(Ok(()), Err)?;
    is(rejoin_abi::variable("SSLKEYLOGFILE").is_some(), Directly::KeyLog)?;
    let priorities = settings.priorities.as_ref().filter(|_| settings.takes_keys);
    let priorities = priorities.ok_or(Directly::Callback)?;
    // SAFETY: the caller vouches for `session`.
    let certificate = unsafe { of(gnutls, session, GNUTLS_CRD_CERTIFICATE) };
    let certificate = certificate.ok_or(Directly::NotVerified)?;
    let mut own = Datum::EMPTY;
    // SAFETY: the credentials are the session's; `own` has room for the answer.
    let has =
        unsafe { (gnutls.gnutls_certificate_get_crt_raw)(certificate, 0, 0, &raw mut own) } == 0;
    let may_have = set_on(certificate).may_have_certificate;
    is(has || may_have, Directly::ClientCertificate)?;
    // A program without authorities verifies no server: it may neither leave nor use shared sessions.
    // SAFETY: the credentials are the session's.
    is(!unsafe { believes_anybody(gnutls, certificate) }, Directly::NotVerified)?;
    let others = [GNUTLS_CRD_ANON, GNUTLS_CRD_SRP, GNUTLS_CRD_PSK];
    // SAFETY: the caller vouches for `session`.
    let has_other = others.into_iter().any(|kind| unsafe { of(gnutls, session, kind) }.is_some());
    // Some programs always set other credentials; they have no effect unless the priorities name their key exchange.
    is(has_other && !priorities.certificates_only(gnutls), Directly::Callback)
}

/// Keeps a program's own keys out of use. A program may have set keys that its priorities do not enable, and the PSK
/// key exchange that [`set_with_keys`](crate::priorities::Priorities::set_with_keys) adds would enable them. The keys
/// are removed if the priorities do not name them; otherwise the program's own priorities are restored.
///
/// # Safety
/// `session` is valid, and in no other thread's use.
pub(crate) unsafe fn leave_own_keys(gnutls: &Gnutls, session: Session, settings: &mut Settings) {
    let Some(priorities) = settings.priorities.as_ref().filter(|_| settings.takes_keys) else {
        return;
    };
    // SAFETY: the caller vouches for `session`.
    if unsafe { of(gnutls, session, GNUTLS_CRD_PSK) }.is_none() {
        return;
    }
    if priorities.certificates_only(gnutls) {
        // SAFETY: the caller vouches for `session`; null removes the credentials.
        unsafe { (gnutls.gnutls_credentials_set)(session, GNUTLS_CRD_PSK, null_mut()) };
    } else {
        // SAFETY: the caller vouches for `session`.
        unsafe { priorities.set(gnutls, session, "") };
        settings.takes_keys = false;
    }
}

/// Returns true if the credentials trust an authority.
///
/// # Safety
/// The credentials are valid.
unsafe fn believes_anybody(gnutls: &Gnutls, credentials: Credentials) -> bool {
    let (mut list, mut place, mut authority) =
        (null_mut::<c_void>(), null_mut::<c_void>(), null_mut::<c_void>());
    // SAFETY: the caller vouches for the credentials, which keep the list.
    unsafe { (gnutls.gnutls_certificate_get_trust_list)(credentials, &raw mut list) };
    if list.is_null() {
        return false;
    }
    let next = gnutls.gnutls_x509_trust_list_iter_get_ca;
    // SAFETY: the list is the credentials'; `place` and `authority` have room for the answer.
    let found = unsafe { next(list, &raw mut place, &raw mut authority) } == 0;
    if found {
        // SAFETY: the iterator has returned a copy, which belongs to this function.
        unsafe { (gnutls.gnutls_x509_crt_deinit)(authority) };
    }
    if !place.is_null() {
        // SAFETY: the iterator belongs to this function.
        unsafe { (gnutls.gnutls_x509_trust_list_iter_deinit)(place) };
    }
    found
}
