//! The answers to the program's questions about a connection that the manager made: they describe the server, and not
//! the hop.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rejoin_client::protocol::Connected;
use rejoin_hop::{Asks, SUITES, Taken, debug};

use crate::ffi::{
    GNUTLS_KX_ECDHE_RSA, GNUTLS_MAC_AEAD, GNUTLS_TLS1_2, GNUTLS_TLS1_3, Gnutls, Session,
};
use crate::settings::Settings;
use crate::shadow::Shadow;

/// The properties of the server's connection.
pub(crate) struct Shown {
    /// A `gnutls_protocol_t`.
    pub(crate) version: c_int,
    /// A `gnutls_kx_algorithm_t`.
    pub(crate) exchange: c_int,
    /// A `gnutls_cipher_algorithm_t`.
    pub(crate) cipher: c_int,
    /// A `gnutls_mac_algorithm_t`.
    pub(crate) mac: c_int,
    group: Option<String>,
    pub(crate) shadow: Shadow,
    pub(crate) status: AtomicU32,
    found: Connected,
    report: Mutex<Report>,
}

/// The state of the report that the manager gets.
enum Report {
    /// The program's verification is running. `passed`: GnuTLS's last verification found nothing wrong.
    Pending { passed: bool },
    /// The handshake is over, and the program may verify the server later.
    Awaited(Taken),
    /// The manager has been told, or never will be.
    Done,
}

impl Shown {
    /// Describes a server to a program whose ClientHello asked for this. `None`: the manager's description has something
    /// that libgnutls does not know.
    ///
    /// # Safety
    /// `session` is valid, and in no other thread's use.
    pub(crate) unsafe fn of(
        gnutls: &'static Gnutls,
        session: Session,
        settings: &Settings,
        (found, asks): (Connected, Asks),
    ) -> Option<Self> {
        let version = match found.version.as_str() {
            "TLSv1.2" => GNUTLS_TLS1_2,
            "TLSv1.3" => GNUTLS_TLS1_3,
            _ => return None,
        };
        let number = SUITES.iter().find(|(name, _)| *name == found.cipher)?.1;
        let (exchange, cipher, mac) = suite(gnutls, number)?;
        let ders = found.chain.iter().map(|certificate| Some(&*certificate.der.as_ref()?.0));
        let chain = ders.map(|der| der.map(|der| &der[..])).collect::<Option<Vec<&[u8]>>>()?;
        let staple = found.staple.as_ref().filter(|_| asks.staple);
        let shown = (&chain[..], staple.map(|staple| &staple.0[..]));
        // SAFETY: the caller vouches for `session`.
        let shadow = unsafe { Shadow::of(gnutls, session, settings, shown, asks) }?;
        let group = found.group.clone();
        let (status, report) = (AtomicU32::new(c_uint::MAX), Report::Pending { passed: false });
        let report = Mutex::new(report);
        Some(Self { version, exchange, cipher, mac, group, shadow, status, found, report })
    }

    /// Returns true if the server supports extended master secrets, as all of TLS 1.3 do for GnuTLS.
    pub(crate) fn has_extended_master_secret(&self) -> bool {
        self.version == GNUTLS_TLS1_3 || self.found.extended_master_secret == Some(true)
    }

    /// Returns the status of the verification that GnuTLS does by itself. Before that it is all ones, as in GnuTLS.
    pub(crate) fn status(&self) -> c_uint {
        self.status.load(Ordering::Relaxed)
    }

    /// Records a verification that GnuTLS did for the program. `passed`: it found nothing wrong.
    pub(crate) fn verified(&self, passed: bool) {
        let mut report = self.report();
        match &mut *report {
            Report::Pending { passed: last } => *last = passed,
            Report::Awaited(_) => self.send(&mut report, passed),
            Report::Done => {}
        }
    }

    /// Returns true if GnuTLS's last verification found nothing wrong.
    pub(crate) fn passed(&self) -> bool {
        matches!(*self.report(), Report::Pending { passed: true })
    }

    /// Tells the manager that the program's verification is over, and that the program goes on.
    pub(crate) fn believed(&self, taken: Taken, passed: bool) {
        if !passed {
            // The program goes on although the verification failed.
            taken.accept();
        }
        let mut report = self.report();
        *report = Report::Awaited(taken);
        self.send(&mut report, passed);
    }

    /// Tells the manager that the program goes on, and may verify the server later.
    pub(crate) fn awaits(&self, taken: Taken) {
        taken.accept();
        *self.report() = Report::Awaited(taken);
    }

    /// Ends the connection, because the program has refused the server.
    pub(crate) fn refused(&self, taken: Taken) {
        *self.report() = Report::Done;
        debug::stands(&self.found, false);
        drop(taken);
    }

    fn send(&self, report: &mut Report, passed: bool) {
        if let Report::Awaited(taken) = std::mem::replace(report, Report::Done) {
            debug::stands(&self.found, passed);
            if passed {
                taken.verified();
            }
        }
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the text of `gnutls_session_get_desc` without the signature algorithm, which the manager does not
    /// report. The program frees the text; it is null if there is no memory.
    pub(crate) fn description(&self, gnutls: &Gnutls) -> *mut c_char {
        let name = |name: *const c_char| match name.is_null() {
            true => String::new(),
            // SAFETY: the names that libgnutls returns are static.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
        };
        // SAFETY: the function takes any number.
        let version = name(unsafe { (gnutls.gnutls_protocol_get_name)(self.version) });
        // SAFETY: the function takes any number.
        let cipher = name(unsafe { (gnutls.gnutls_cipher_get_name)(self.cipher) });
        let exchange = match &self.group {
            Some(group) => format!("ECDHE-{}", group.to_uppercase()),
            // SAFETY: the function takes any number.
            None => name(unsafe { (gnutls.gnutls_kx_get_name)(self.exchange) }),
        };
        let mut text = format!("({version})-({exchange})-({cipher})");
        if self.mac != GNUTLS_MAC_AEAD {
            // SAFETY: the function takes any number.
            text += &format!("-({})", name(unsafe { (gnutls.gnutls_mac_get_name)(self.mac) }));
        }
        text.push('\0');
        let given = gnutls.allocate(text.len());
        if !given.is_null() {
            // SAFETY: `text.len()` bytes were allocated there.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), given, text.len()) };
        }
        given.cast()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Report::Awaited(_) = *self.report() {
            debug::stands(&self.found, false);
        }
    }
}

/// Returns the key exchange, the cipher and the MAC of a suite.
fn suite(gnutls: &Gnutls, wanted: u16) -> Option<(c_int, c_int, c_int)> {
    let (mut exchange, mut cipher, mut mac) = (0, 0, 0);
    for at in 0.. {
        let mut number = [0; 2];
        // SAFETY: each variable has room for its answer; null is allowed for the version.
        let name = unsafe {
            (gnutls.gnutls_cipher_suite_info)(
                at,
                number.as_mut_ptr(),
                &raw mut exchange,
                &raw mut cipher,
                &raw mut mac,
                null_mut(),
            )
        };
        if name.is_null() {
            return None;
        }
        if number == wanted.to_be_bytes() {
            // A suite of TLS 1.3 has no key exchange, and GnuTLS always reports this one.
            let exchange = if exchange == 0 { GNUTLS_KX_ECDHE_RSA } else { exchange };
            return Some((exchange, cipher, mac));
        }
    }
    None
}
