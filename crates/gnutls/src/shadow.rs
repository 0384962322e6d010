//! A session in memory that has the server's certificates, and never gets further: where GnuTLS is asked about
//! those, it is asked about the shadow, and answers as it would have.
//!
//! It is a client of TLS 1.2, which gets certificates in the clear, with the program's own credentials, flags
//! and priorities, of which the level of security is one. Nobody has proved to it that the certificates are
//! the server's: the manager has had that proved.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libc::{size_t, ssize_t};

use crate::connection::Wishes;
use crate::ffi::{
    Certificate, Datum, GNUTLS_CLIENT, GNUTLS_CRD_CERTIFICATE, GNUTLS_E_AGAIN,
    GNUTLS_KEY_DIGITAL_SIGNATURE, GNUTLS_NO_EXTENSIONS, GNUTLS_NO_TICKETS, GNUTLS_NONBLOCK,
    GNUTLS_PK_ECDSA, GNUTLS_PK_EDDSA_ED448, GNUTLS_PK_EDDSA_ED25519, GNUTLS_X509_FMT_DER, Gnutls,
    Session,
};
use crate::judge::Flags;
use crate::records::{self, Shows};

/// What the records need, whatever the program would take of a server.
const NEEDED: &str =
    "+VERS-TLS1.2:-VERS-TLS1.3:+ECDHE-RSA:+ECDHE-ECDSA:+AES-128-GCM:+AEAD:+GROUP-SECP256R1";

/// See the module's documentation.
pub(crate) struct Shadow {
    gnutls: &'static Gnutls,
    pub(crate) session: Session,
    /// Whether the server's certificate lets its key make signatures, as it has in every handshake that
    /// the manager knows.
    pub(crate) may_sign: bool,
}

// SAFETY: a session may be used by any thread, one after the other, as the program's own may.
unsafe impl Send for Shadow {}
// SAFETY: it is used where the program uses its own session, which it does not in two threads at once.
unsafe impl Sync for Shadow {}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: it is nobody else's.
        unsafe { (self.gnutls.gnutls_deinit)(self.session) };
    }
}

/// What is left of what the server says.
struct Said<'a> {
    session: Session,
    left: Cell<&'a [u8]>,
}

impl Shadow {
    /// A shadow of a session that has these wishes. `None`: GnuTLS does not take the certificates.
    ///
    /// # Safety
    /// `session` is valid, and in no other thread's use.
    pub(crate) unsafe fn of(
        gnutls: &'static Gnutls,
        session: Session,
        wishes: &Wishes,
        (chain, staple): (&[&[u8]], Option<&[u8]>),
        is_resumed: bool,
    ) -> Option<Self> {
        let Key { is_of_curve, may_sign } = Key::of(gnutls, chain.first()?)?;
        let said =
            records::of_server(Shows { chain, is_of_curve, staple, has_extensions: !is_resumed })?;
        let mut shadow = Self::new(gnutls, is_resumed)?;
        shadow.may_sign = may_sign;
        // SAFETY: the caller vouches for `session`.
        unsafe { shadow.like(session, wishes) }?;
        shadow.hear(&said)?;
        let mut count = 0;
        // SAFETY: the session is there, and the number belongs there.
        let got = unsafe { (gnutls.gnutls_certificate_get_peers)(shadow.session, &raw mut count) };
        let is_whole = !got.is_null() && count as usize == chain.len();
        is_whole.then_some(shadow)
    }

    /// A server that resumes a session staples nothing, and none is missed: no extensions ask for it.
    fn new(gnutls: &'static Gnutls, is_resumed: bool) -> Option<Self> {
        let asks = if is_resumed { GNUTLS_NO_EXTENSIONS } else { 0 };
        let flags = GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS | asks;
        let mut session = null_mut();
        // SAFETY: the session belongs there.
        let made = unsafe { (gnutls.gnutls_init)(&raw mut session, flags) };
        (made == 0).then_some(Self { gnutls, session, may_sign: false })
    }

    /// Takes on what the program set.
    ///
    /// # Safety
    /// `session` is valid, and in no other thread's use.
    unsafe fn like(&self, session: Session, wishes: &Wishes) -> Option<()> {
        let (gnutls, own) = (self.gnutls, self.session);
        // SAFETY: our own session.
        if !unsafe { wishes.priorities.as_ref()?.set(gnutls, own, NEEDED) } {
            return None;
        }
        let (kind, mut credentials) = (GNUTLS_CRD_CERTIFICATE, null_mut());
        // SAFETY: the caller vouches for `session`; the answer belongs there.
        let found = unsafe { (gnutls.gnutls_credentials_get)(session, kind, &raw mut credentials) };
        // SAFETY: they are the program's, and stay while its session is in use.
        if found != 0 || unsafe { (gnutls.gnutls_credentials_set)(own, kind, credentials) } != 0 {
            return None;
        }
        for flags in &wishes.flags {
            match flags {
                // SAFETY: our own session, here and below.
                Flags::One(flags) => unsafe {
                    (gnutls.gnutls_session_set_verify_cert)(own, std::ptr::null(), *flags);
                },
                // SAFETY: as above.
                Flags::Two(flags) => unsafe {
                    (gnutls.gnutls_session_set_verify_cert2)(own, null_mut(), 0, *flags);
                },
            }
        }
        if wishes.output.is_some() {
            // SAFETY: as above; the callback is the program's, and does not see the session.
            unsafe { (gnutls.gnutls_session_set_verify_output_function)(own, wishes.output) };
        }
        // Never the program's own, which is to see its own session.
        // SAFETY: as above.
        unsafe { (gnutls.gnutls_session_set_verify_function)(own, Some(no_verification)) };
        Some(())
    }

    /// Lets it hear what a server says, and has it wait for more.
    fn hear(&self, said: &[u8]) -> Option<()> {
        let (gnutls, session) = (self.gnutls, self.session);
        let said = Said { session, left: Cell::new(said) };
        let pointer = (&raw const said).cast_mut().cast::<c_void>();
        // SAFETY: our own session, here and below; it reads while `said` is there.
        unsafe { (gnutls.gnutls_transport_set_ptr)(session, pointer) };
        // SAFETY: as above.
        unsafe { (gnutls.gnutls_transport_set_push_function)(session, swallow) };
        // SAFETY: as above.
        unsafe { (gnutls.gnutls_transport_set_pull_function)(session, pull) };
        loop {
            let left = said.left.get().len();
            // SAFETY: as above.
            let done = unsafe { (gnutls.gnutls_handshake)(session) };
            if done != GNUTLS_E_AGAIN {
                return None;
            }
            if said.left.get().is_empty() {
                return Some(());
            }
            if said.left.get().len() == left {
                return None;
            }
        }
    }
}

/// What is sent is nobody's.
pub(crate) unsafe extern "C" fn swallow(
    _pointer: *mut c_void,
    _bytes: *const c_void,
    length: size_t,
) -> ssize_t {
    length as ssize_t
}

unsafe extern "C" fn pull(pointer: *mut c_void, bytes: *mut c_void, room: size_t) -> ssize_t {
    // SAFETY: `hear` put it there, and is at work.
    let said = unsafe { &*pointer.cast::<Said<'_>>() };
    let left = said.left.get();
    if left.is_empty() {
        if let Some(gnutls) = Gnutls::get() {
            // SAFETY: the session that is being served.
            unsafe { (gnutls.gnutls_transport_set_errno)(said.session, libc::EAGAIN) };
        }
        return -1;
    }
    let (piece, rest) = left.split_at(room.min(left.len()));
    // SAFETY: there is as much room.
    unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), bytes.cast(), piece.len()) };
    said.left.set(rest);
    piece.len() as ssize_t
}

unsafe extern "C" fn no_verification(_session: Session) -> c_int {
    0
}

/// A certificate's key.
struct Key {
    /// It makes signatures of ECDSA or EdDSA.
    is_of_curve: bool,
    may_sign: bool,
}

impl Key {
    /// `None`: it is no certificate.
    fn of(gnutls: &Gnutls, der: &[u8]) -> Option<Self> {
        let datum = Datum::of(der)?;
        let mut certificate: Certificate = null_mut();
        // SAFETY: the certificate belongs there.
        if unsafe { (gnutls.gnutls_x509_crt_init)(&raw mut certificate) } != 0 {
            return None;
        }
        // SAFETY: it was made above, and the bytes are there.
        let read = unsafe {
            (gnutls.gnutls_x509_crt_import)(certificate, &raw const datum, GNUTLS_X509_FMT_DER)
        };
        // SAFETY: as above, and it was read.
        let key = (read == 0).then(|| unsafe { Self::in_certificate(gnutls, certificate) });
        // SAFETY: it is nobody else's.
        unsafe { (gnutls.gnutls_x509_crt_deinit)(certificate) };
        key
    }

    /// # Safety
    /// The certificate was read.
    unsafe fn in_certificate(gnutls: &Gnutls, certificate: Certificate) -> Self {
        let (mut bits, mut usage, mut is_critical) = (0, 0, 0);
        // SAFETY: the caller vouches for the certificate; the answer belongs there, here and below.
        let kind = unsafe { (gnutls.gnutls_x509_crt_get_pk_algorithm)(certificate, &raw mut bits) };
        let get_usage = gnutls.gnutls_x509_crt_get_key_usage;
        // SAFETY: as above.
        let said = unsafe { get_usage(certificate, &raw mut usage, &raw mut is_critical) };
        let of_curve = [GNUTLS_PK_ECDSA, GNUTLS_PK_EDDSA_ED25519, GNUTLS_PK_EDDSA_ED448];
        let may_sign = said != 0 || usage == 0 || usage & GNUTLS_KEY_DIGITAL_SIGNATURE != 0;
        Self { is_of_curve: of_curve.contains(&kind), may_sign }
    }
}
