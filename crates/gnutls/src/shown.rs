//! What the program sees of a connection that the manager made: the server, and not the hop.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rejoin_client::protocol::Connected;
use rejoin_hop::{SUITES, Taken, debug};

use crate::connection::Wishes;
use crate::ffi::{
    GNUTLS_KX_ECDHE_RSA, GNUTLS_MAC_AEAD, GNUTLS_TLS1_2, GNUTLS_TLS1_3, Gnutls, Session,
};
use crate::shadow::Shadow;

/// See the module's documentation.
pub(crate) struct Shown {
    /// `gnutls_protocol_t` and the like, here and below.
    pub(crate) version: c_int,
    pub(crate) exchange: c_int,
    pub(crate) cipher: c_int,
    pub(crate) mac: c_int,
    group: Option<String>,
    pub(crate) shadow: Shadow,
    pub(crate) status: AtomicU32,
    found: Connected,
    word: Mutex<Word>,
}

/// What the manager is told.
enum Word {
    /// The program's verification is at work; whether the last that GnuTLS did found nothing wrong.
    During { passed: bool },
    /// The program verifies when it likes, if it does.
    Awaited(Taken),
    /// It was said, or never will be.
    Said,
}

impl Shown {
    /// `None`: the manager says what this program cannot know.
    ///
    /// # Safety
    /// `session` is valid, and in no other thread's use.
    pub(crate) unsafe fn of(
        gnutls: &'static Gnutls,
        session: Session,
        wishes: &Wishes,
        found: Connected,
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
        let staple = found.staple.as_ref().map(|staple| &staple.0[..]);
        // SAFETY: the caller vouches for `session`.
        let shadow =
            unsafe { Shadow::of(gnutls, session, wishes, (&chain, staple), found.resumed) }?;
        let group = found.group.clone();
        let (status, word) = (AtomicU32::new(c_uint::MAX), Word::During { passed: false });
        let word = Mutex::new(word);
        Some(Self { version, exchange, cipher, mac, group, shadow, status, found, word })
    }

    /// Of the verification that GnuTLS does by itself; before that it is all ones, as ever.
    pub(crate) fn status(&self) -> c_uint {
        self.status.load(Ordering::Relaxed)
    }

    /// GnuTLS has verified the certificates for the program, and found nothing wrong, or something.
    pub(crate) fn verified(&self, passed: bool) {
        let mut word = self.word();
        match &mut *word {
            Word::During { passed: last } => *last = passed,
            Word::Awaited(_) => self.say(&mut word, passed),
            Word::Said => {}
        }
    }

    /// Whether the last verification found nothing wrong.
    pub(crate) fn passed(&self) -> bool {
        matches!(*self.word(), Word::During { passed: true })
    }

    /// The program's verification is over, and it goes on.
    pub(crate) fn believed(&self, taken: Taken, passed: bool) {
        if !passed {
            // It goes on nevertheless.
            taken.accept();
        }
        let mut word = self.word();
        *word = Word::Awaited(taken);
        self.say(&mut word, passed);
    }

    /// The program will verify when it likes.
    pub(crate) fn awaits(&self, taken: Taken) {
        taken.accept();
        *self.word() = Word::Awaited(taken);
    }

    /// The program has refused the server.
    pub(crate) fn refused(&self, taken: Taken) {
        *self.word() = Word::Said;
        debug::stands(&self.found, false);
        drop(taken);
    }

    fn say(&self, word: &mut Word, passed: bool) {
        if let Word::Awaited(taken) = std::mem::replace(word, Word::Said) {
            debug::stands(&self.found, passed);
            if passed {
                taken.verified();
            }
        }
    }

    fn word(&self) -> MutexGuard<'_, Word> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As `gnutls_session_get_desc`, but for the signature, of which the manager says nothing. It is
    /// the program's to free, or null.
    pub(crate) fn description(&self, gnutls: &Gnutls) -> *mut c_char {
        let name = |name: *const c_char| match name.is_null() {
            true => String::new(),
            // SAFETY: libgnutls' own text, which is static.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
        };
        // SAFETY: any number may be asked for, here and below.
        let version = name(unsafe { (gnutls.gnutls_protocol_get_name)(self.version) });
        // SAFETY: as above.
        let cipher = name(unsafe { (gnutls.gnutls_cipher_get_name)(self.cipher) });
        let exchange = match &self.group {
            Some(group) => format!("ECDHE-{}", group.to_uppercase()),
            // SAFETY: as above.
            None => name(unsafe { (gnutls.gnutls_kx_get_name)(self.exchange) }),
        };
        let mut text = format!("({version})-({exchange})-({cipher})");
        if self.mac != GNUTLS_MAC_AEAD {
            // SAFETY: as above.
            text += &format!("-({})", name(unsafe { (gnutls.gnutls_mac_get_name)(self.mac) }));
        }
        text.push('\0');
        let given = gnutls.allocate(text.len());
        if !given.is_null() {
            // SAFETY: there is as much room.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), given, text.len()) };
        }
        given.cast()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Word::Awaited(_) = *self.word() {
            debug::stands(&self.found, false);
        }
    }
}

/// The key exchange, the cipher and the MAC of a suite.
fn suite(gnutls: &Gnutls, wanted: u16) -> Option<(c_int, c_int, c_int)> {
    let (mut exchange, mut cipher, mut mac) = (0, 0, 0);
    for at in 0.. {
        let mut number = [0; 2];
        // SAFETY: what is asked belongs there, and nobody asks for the version.
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
            // In TLS 1.3 the suite does not say, and GnuTLS always says the same.
            let exchange = if exchange == 0 { GNUTLS_KX_ECDHE_RSA } else { exchange };
            return Some((exchange, cipher, mac));
        }
    }
    None
}
