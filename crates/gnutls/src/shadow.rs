//! A shadow: a session in memory that has received the server's certificates, and never gets further. The program's
//! questions about certificates are put to GnuTLS for the shadow, so that GnuTLS answers as it would for the server.
//!
//! A shadow is a client of TLS 1.2, which gets certificates in the clear. It has the program's own credentials, flags
//! and priorities, the security level among them. It has no proof that the certificates are the server's: the server
//! has proved that to the manager.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libc::{size_t, ssize_t};

use rejoin_hop::Asks;

use crate::ffi::{
    Certificate, Datum, GNUTLS_CLIENT, GNUTLS_CRD_CERTIFICATE, GNUTLS_E_AGAIN,
    GNUTLS_KEY_DIGITAL_SIGNATURE, GNUTLS_NO_EXTENSIONS, GNUTLS_NO_TICKETS, GNUTLS_NONBLOCK,
    GNUTLS_PK_ECDSA, GNUTLS_PK_EDDSA_ED448, GNUTLS_PK_EDDSA_ED25519, GNUTLS_X509_FMT_DER, Gnutls,
    Session,
};
use crate::records::{self, Shows};
use crate::settings::{Flags, Settings};

/// The priorities that the records need, whatever the program accepts.
const NEEDED: &str =
    "+VERS-TLS1.2:-VERS-TLS1.3:+ECDHE-RSA:+ECDHE-ECDSA:+AES-128-GCM:+AEAD:+GROUP-SECP256R1";

/// A shadow, as the module's documentation defines it.
pub(crate) struct Shadow {
    gnutls: &'static Gnutls,
    pub(crate) session: Session,
    /// True if the server's certificate allows its key to sign, which the key does in every handshake that the manager
    /// supports.
    pub(crate) may_sign: bool,
}

// SAFETY: a session may be used by any thread, one after the other, as the program's own may.
unsafe impl Send for Shadow {}
// SAFETY: it is used only where the program uses its own session, which no two threads do at once.
unsafe impl Sync for Shadow {}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: the session belongs to the shadow.
        unsafe { (self.gnutls.gnutls_deinit)(self.session) };
    }
}

/// The server's records that the shadow has not read yet.
struct Said<'a> {
    session: Session,
    left: Cell<&'a [u8]>,
}

impl Shadow {
    /// Makes the shadow of a session with these settings. `None`: GnuTLS does not accept the certificates.
    ///
    /// # Safety
    /// `session` is valid, and in no other thread's use.
    pub(crate) unsafe fn of(
        gnutls: &'static Gnutls,
        session: Session,
        settings: &Settings,
        shown: (&[&[u8]], Option<&[u8]>),
        asks: Asks,
    ) -> Option<Self> {
        // SAFETY: the caller vouches for `session`.
        let of = |asks| unsafe { Self::that_asks(gnutls, session, settings, shown, asks) };
        // A session without extensions serves programs that ask for no stapling, unless they demand extended master
        // secrets (`%FORCE_SESSION_HASH`, FIPS 140).
        let may_demand = asks.extended_master_secret && !asks.staple;
        of(asks).or_else(|| if may_demand { of(Asks { staple: true, ..asks }) } else { None })
    }

    /// Makes the shadow of a session whose ClientHello asks for this.
    ///
    /// # Safety
    /// The same as for [`of`](Self::of).
    unsafe fn that_asks(
        gnutls: &'static Gnutls,
        session: Session,
        settings: &Settings,
        (chain, staple): (&[&[u8]], Option<&[u8]>),
        asks: Asks,
    ) -> Option<Self> {
        let Key { is_of_curve, may_sign } = Key::of(gnutls, chain.first()?)?;
        let said = records::of_server(Shows {
            chain,
            is_of_curve,
            staple,
            // A session without extensions has not asked for it.
            has_extended_master_secret: asks.staple && asks.extended_master_secret,
        })?;
        let mut shadow = Self::new(gnutls, asks.staple)?;
        shadow.may_sign = may_sign;
        // SAFETY: the caller vouches for `session`.
        unsafe { shadow.like(session, settings) }?;
        shadow.hear(&said)?;
        let mut count = 0;
        // SAFETY: the session is the shadow's; `count` has room for the number.
        let got = unsafe { (gnutls.gnutls_certificate_get_peers)(shadow.session, &raw mut count) };
        let is_whole = !got.is_null() && count as usize == chain.len();
        is_whole.then_some(shadow)
    }

    /// Makes the session. It asks for stapling if the program's does. After a resumption, too: the manager has kept what
    /// the server stapled when the session began.
    fn new(gnutls: &'static Gnutls, asks_for_staple: bool) -> Option<Self> {
        let none = if asks_for_staple { 0 } else { GNUTLS_NO_EXTENSIONS };
        let flags = GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS | none;
        let mut session = null_mut();
        // SAFETY: `session` has room for the session.
        let made = unsafe { (gnutls.gnutls_init)(&raw mut session, flags) };
        (made == 0).then_some(Self { gnutls, session, may_sign: false })
    }

    /// Copies the settings of the program's session.
    ///
    /// # Safety
    /// `session` is valid, and in no other thread's use.
    unsafe fn like(&self, session: Session, settings: &Settings) -> Option<()> {
        let (gnutls, own) = (self.gnutls, self.session);
        // SAFETY: the session is the shadow's own.
        if !unsafe { settings.priorities.as_ref()?.set(gnutls, own, NEEDED) } {
            return None;
        }
        let (kind, mut credentials) = (GNUTLS_CRD_CERTIFICATE, null_mut());
        // SAFETY: the caller vouches for `session`; `credentials` has room for the answer.
        let found = unsafe { (gnutls.gnutls_credentials_get)(session, kind, &raw mut credentials) };
        // SAFETY: the credentials are the program's, and live while its session is in use.
        if found != 0 || unsafe { (gnutls.gnutls_credentials_set)(own, kind, credentials) } != 0 {
            return None;
        }
        for flags in &settings.flags {
            match flags {
                // SAFETY: the session is the shadow's own; a null name is allowed.
                Flags::One(flags) => unsafe {
                    (gnutls.gnutls_session_set_verify_cert)(own, std::ptr::null(), *flags);
                },
                // SAFETY: the session is the shadow's own; null data are allowed, if there are none.
                Flags::Two(flags) => unsafe {
                    (gnutls.gnutls_session_set_verify_cert2)(own, null_mut(), 0, *flags);
                },
            }
        }
        if settings.output.is_some() {
            // SAFETY: the session is the shadow's own; the callback is the program's, and does not see the session.
            unsafe { (gnutls.gnutls_session_set_verify_output_function)(own, settings.output) };
        }
        // Not the program's function, which must see the program's own session.
        // SAFETY: the session is the shadow's own, and the callback is static.
        unsafe { (gnutls.gnutls_session_set_verify_function)(own, Some(no_verification)) };
        Some(())
    }

    /// Feeds the server's records to the session, which then waits for more. `None`: it did not accept them.
    fn hear(&self, said: &[u8]) -> Option<()> {
        let (gnutls, session) = (self.gnutls, self.session);
        let said = Said { session, left: Cell::new(said) };
        let pointer = (&raw const said).cast_mut().cast::<c_void>();
        // SAFETY: the session is the shadow's own; it uses the pointer only while `said` lives.
        unsafe { (gnutls.gnutls_transport_set_ptr)(session, pointer) };
        // SAFETY: the session is the shadow's own, and the callback is static.
        unsafe { (gnutls.gnutls_transport_set_push_function)(session, swallow) };
        // SAFETY: the session is the shadow's own, and the callback is static.
        unsafe { (gnutls.gnutls_transport_set_pull_function)(session, pull) };
        loop {
            let left = said.left.get().len();
            // SAFETY: the session is the shadow's own; `pull` reads `said`, which lives longer than this call.
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

/// Discards what a session sends.
pub(crate) unsafe extern "C" fn swallow(
    _pointer: *mut c_void,
    _bytes: *const c_void,
    length: size_t,
) -> ssize_t {
    length as ssize_t
}

unsafe extern "C" fn pull(pointer: *mut c_void, bytes: *mut c_void, room: size_t) -> ssize_t {
    // SAFETY: `hear` has set the pointer to its `said`, and is still running.
    let said = unsafe { &*pointer.cast::<Said<'_>>() };
    let left = said.left.get();
    if left.is_empty() {
        if let Some(gnutls) = Gnutls::get() {
            // SAFETY: the session is the one whose records are being read.
            unsafe { (gnutls.gnutls_transport_set_errno)(said.session, libc::EAGAIN) };
        }
        return -1;
    }
    let (piece, rest) = left.split_at(room.min(left.len()));
    // SAFETY: libgnutls has `room` bytes there, and the piece is not longer.
    unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), bytes.cast(), piece.len()) };
    said.left.set(rest);
    piece.len() as ssize_t
}

unsafe extern "C" fn no_verification(_session: Session) -> c_int {
    0
}

/// The properties of a certificate's key.
struct Key {
    /// True if it makes signatures of ECDSA or EdDSA.
    is_of_curve: bool,
    /// True if the certificate allows it to sign.
    may_sign: bool,
}

impl Key {
    /// Reads the key of a certificate. `None`: the bytes are not a certificate.
    fn of(gnutls: &Gnutls, der: &[u8]) -> Option<Self> {
        let datum = Datum::of(der)?;
        let mut certificate: Certificate = null_mut();
        // SAFETY: `certificate` has room for the certificate.
        if unsafe { (gnutls.gnutls_x509_crt_init)(&raw mut certificate) } != 0 {
            return None;
        }
        // SAFETY: the certificate was made above, and `datum` points to `der`.
        let read = unsafe {
            (gnutls.gnutls_x509_crt_import)(certificate, &raw const datum, GNUTLS_X509_FMT_DER)
        };
        // SAFETY: the certificate was made above, and has been read.
        let key = (read == 0).then(|| unsafe { Self::in_certificate(gnutls, certificate) });
        // SAFETY: the certificate belongs to this function.
        unsafe { (gnutls.gnutls_x509_crt_deinit)(certificate) };
        key
    }

    /// Reads the key of a certificate.
    ///
    /// # Safety
    /// The certificate is valid, and has been read.
    unsafe fn in_certificate(gnutls: &Gnutls, certificate: Certificate) -> Self {
        let (mut bits, mut usage, mut is_critical) = (0, 0, 0);
        // SAFETY: the caller vouches for the certificate; `bits` has room for the answer.
        let kind = unsafe { (gnutls.gnutls_x509_crt_get_pk_algorithm)(certificate, &raw mut bits) };
        let get_usage = gnutls.gnutls_x509_crt_get_key_usage;
        // SAFETY: the caller vouches for the certificate; both variables have room for the answer.
        let said = unsafe { get_usage(certificate, &raw mut usage, &raw mut is_critical) };
        let of_curve = [GNUTLS_PK_ECDSA, GNUTLS_PK_EDDSA_ED25519, GNUTLS_PK_EDDSA_ED448];
        let may_sign = said != 0 || usage == 0 || usage & GNUTLS_KEY_DIGITAL_SIGNATURE != 0;
        Self { is_of_curve: of_curve.contains(&kind), may_sign }
    }
}
