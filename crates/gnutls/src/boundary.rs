//! The property that holds for any certificates, and any OCSP response, that the manager reports of a server: a shadow
//! has exactly these, or there is no shadow. The fuzz target `gnutls_shadow` is this function.
//!
//! ```text
//! flags, 1 byte: 1 asks for no response, 2 stapled, 4 priorities of the program's own, 8 verified with flags
//! then, each after its length, 2 bytes, big-endian: the stapled response, if there is one, and the certificates
//! ```

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use rejoin_hop::Asks;

use crate::ffi::{Credentials, GNUTLS_CLIENT, GNUTLS_CRD_CERTIFICATE, Gnutls, Session};
use crate::priorities::Priorities;
use crate::settings::{Flags, Settings};
use crate::shadow::Shadow;

const LIBRARY: &CStr = c"libgnutls.so.30";
const MOST_CERTIFICATES: usize = 6;

type Allocate = unsafe extern "C" fn(*mut Credentials) -> c_int;

/// Checks the shadow of a server that shows these bytes. Returns true if GnuTLS accepted them; `None` without GnuTLS.
pub fn gnutls_shadow(bytes: &[u8]) -> Option<bool> {
    let program = Program::new()?;
    let Some(([flags], mut rest)) = bytes.split_first_chunk() else { return Some(false) };
    let is_set = |flag| flags & flag != 0;
    let staple = if is_set(2) { Some(part(&mut rest).unwrap_or_default()) } else { None };
    let chain: Vec<_> = std::iter::from_fn(|| part(&mut rest)).take(MOST_CERTIFICATES).collect();
    let priorities = if is_set(4) {
        Priorities::Text(c"SECURE128:-VERS-TLS1.0".into())
    } else {
        Priorities::Default(None, 0)
    };
    let flags = if is_set(8) { vec![Flags::One(0), Flags::Two(1)] } else { Vec::new() };
    let settings = Settings { priorities: Some(priorities), flags, ..Settings::default() };
    let Program { gnutls, session, .. } = program;
    let shown = (&chain[..], staple);
    let asks = Asks { staple: !is_set(1), extended_master_secret: !is_set(1) };
    // SAFETY: the session is the program's own, and this thread's.
    let shadow = unsafe { Shadow::of(gnutls, session, &settings, shown, asks) };
    if let Some(shadow) = &shadow {
        assert_eq!(peers(gnutls, shadow), chain);
        assert!(!is_believed(gnutls, shadow), "the program trusts nobody");
    }
    Some(shadow.is_some())
}

/// Takes a part with its length before it, or as much of it as there is.
fn part<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let length = after.len().min(u16::from_be_bytes(*length).into());
    let (part, after) = after.split_at(length);
    *rest = after;
    Some(part)
}

fn peers<'s>(gnutls: &Gnutls, shadow: &'s Shadow) -> Vec<&'s [u8]> {
    let mut count: c_uint = 0;
    // SAFETY: the session is the shadow's, and `count` has room for the number.
    let list = unsafe { (gnutls.gnutls_certificate_get_peers)(shadow.session, &raw mut count) };
    // SAFETY: GnuTLS returned so many elements, which live as long as the session.
    let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
    // SAFETY: each element has so many bytes, which live as long as the session.
    let bytes = |data, size: c_uint| unsafe { std::slice::from_raw_parts(data, size as usize) };
    list.iter().map(|datum| bytes(datum.data.cast_const(), datum.size)).collect()
}

fn is_believed(gnutls: &Gnutls, shadow: &Shadow) -> bool {
    let (session, mut status) = (shadow.session, 0);
    // SAFETY: the session is the shadow's; null data are allowed, if there are none.
    let done = unsafe {
        (gnutls.gnutls_certificate_verify_peers)(session, null_mut(), 0, &raw mut status)
    };
    done == 0 && status == 0
}

/// The session of a program whose credentials trust nobody.
struct Program {
    gnutls: &'static Gnutls,
    session: Session,
    credentials: Credentials,
}

impl Program {
    fn new() -> Option<Self> {
        let (allocate, gnutls) = (allocate()?, Gnutls::get()?);
        let (mut session, mut credentials) = (null_mut(), null_mut());
        // SAFETY: `session` has room for the session.
        let made = unsafe { (gnutls.gnutls_init)(&raw mut session, GNUTLS_CLIENT) };
        // SAFETY: `credentials` has room for the credentials.
        let allocated = unsafe { allocate(&raw mut credentials) };
        // SAFETY: both were made above.
        let set = unsafe {
            (gnutls.gnutls_credentials_set)(session, GNUTLS_CRD_CERTIFICATE, credentials)
        };
        assert_eq!([made, allocated, set], [0; 3]);
        Some(Self { gnutls, session, credentials })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the session is the program's own, and this is its last use.
        unsafe { (self.gnutls.gnutls_deinit)(self.session) };
        // SAFETY: the credentials are the program's own, and no session has them any more.
        unsafe { (self.gnutls.gnutls_certificate_free_credentials)(self.credentials) };
    }
}

/// Loads GnuTLS as a program does, and returns a function that the library itself does not call.
fn allocate() -> Option<Allocate> {
    static FOUND: OnceLock<Option<Allocate>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name ends with a zero byte, and GnuTLS's initialisers may run at any time.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let name = c"gnutls_certificate_allocate_credentials";
        // SAFETY: the library is loaded, and the name ends with a zero byte.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        // SAFETY: the function of that name has this type, and may be missing.
        unsafe { std::mem::transmute::<*mut c_void, Option<Allocate>>(found) }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/gnutls_shadow");

    #[test]
    fn every_input_that_is_kept_is_replayed() {
        if Program::new().is_none() {
            return eprintln!("skipped: the shadow (needs libgnutls.so.30)");
        }
        let inputs = fs::read_dir(CORPUS).expect("inputs");
        let inputs = inputs.map(|entry| fs::read(entry.expect("an entry").path()).expect("a file"));
        let accepted =
            inputs.filter_map(|input| gnutls_shadow(&input)).filter(|accepted| *accepted);
        assert!(accepted.count() > 0, "no input has a certificate that GnuTLS accepts");
    }
}
