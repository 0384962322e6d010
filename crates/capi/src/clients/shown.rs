//! The answers to the program's questions about a connection that the manager made: they describe the server, and not
//! the hop.

use std::ffi::{CStr, c_int, c_long};
use std::ptr::null_mut;
use std::sync::OnceLock;

use openssl_sys::{OPENSSL_STACK, SSL, SSL_CIPHER, X509};
use rejoin_client::protocol::Connected;
use rejoin_hop::SUITES;

use super::ffi::{
    SSL_CIPHER_find, SSL_CTRL_GET_EXTMS_SUPPORT, SSL_CTRL_GET_RI_SUPPORT, TLS1_2_VERSION,
    TLS1_3_VERSION,
};

/// The properties of the server's connection.
pub(super) struct Shown {
    pub(super) version: Version,
    pub(super) cipher: *const SSL_CIPHER,
    /// The server's certificates, its own first.
    pub(super) chain: Certificates,
    has_extended_master_secret: Option<bool>,
    /// The program's judgement.
    judged: OnceLock<Judged>,
}

/// The outcome of a judgement.
struct Judged {
    is_believed: bool,
    /// The verified chain, up to an authority.
    verified: Option<Certificates>,
}

// SAFETY: certificates are counted and immutable, ciphers static; OpenSSL shares both between threads.
unsafe impl Send for Shown {}
// SAFETY: certificates are counted and immutable, and ciphers static; OpenSSL shares both between threads.
unsafe impl Sync for Shown {}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Tls12,
    Tls13,
}

impl Version {
    pub(super) fn number(self) -> c_int {
        match self {
            Self::Tls12 => TLS1_2_VERSION,
            Self::Tls13 => TLS1_3_VERSION,
        }
    }

    /// Returns libssl's name.
    pub(super) fn name(self) -> &'static CStr {
        match self {
            Self::Tls12 => c"TLSv1.2",
            Self::Tls13 => c"TLSv1.3",
        }
    }
}

impl Shown {
    /// Describes a server. `None`: the manager's description has something that libssl does not know.
    ///
    /// # Safety
    /// `ssl` is valid.
    pub(super) unsafe fn of(ssl: *mut SSL, found: &Connected) -> Option<Self> {
        let version = match found.version.as_str() {
            "TLSv1.2" => Version::Tls12,
            "TLSv1.3" => Version::Tls13,
            _ => return None,
        };
        let number = SUITES.iter().find(|(name, _)| *name == found.cipher)?.1.to_be_bytes();
        // SAFETY: the caller vouches for `ssl`, and a suite's number has two bytes.
        let cipher = unsafe { SSL_CIPHER_find(ssl, number.as_ptr()) };
        let ders =
            found.chain.iter().map(|certificate| certificate.der.as_ref().map(|der| &*der.0));
        let mut chain = Certificates::new()?;
        for der in ders {
            chain.push(der?)?;
        }
        chain.first()?;
        let has_extended_master_secret = found.extended_master_secret;
        let judged = OnceLock::new();
        let shown = Self { version, cipher, chain, has_extended_master_secret, judged };
        (!cipher.is_null()).then_some(shown)
    }

    /// Returns the server's own certificate.
    pub(super) fn own(&self) -> *mut X509 {
        self.chain.first().unwrap_or(null_mut())
    }

    /// Answers a command of `SSL_ctrl`. `None`: the hop's answer is the server's, too, or the server's is unknown.
    pub(super) fn control(&self, command: c_int) -> Option<c_long> {
        match (self.version, command) {
            // The manager takes no server of TLS 1.2 without secure renegotiation.
            (Version::Tls12, SSL_CTRL_GET_RI_SUPPORT) => Some(1),
            (Version::Tls12, SSL_CTRL_GET_EXTMS_SUPPORT) => {
                self.has_extended_master_secret.map(Into::into)
            }
            _ => None,
        }
    }

    /// Records the program's judgement, once.
    pub(super) fn judged(&self, is_believed: bool, verified: Option<Certificates>) {
        let _ = self.judged.set(Judged { is_believed, verified });
    }

    /// Returns the server's own certificate if the program believes it. libssl has none before.
    pub(super) fn peer(&self) -> *mut X509 {
        if self.is_believed() { self.own() } else { null_mut() }
    }

    /// Returns the verified chain, or null.
    pub(super) fn verified(&self) -> *mut OPENSSL_STACK {
        let verified = self.judged.get().and_then(|judged| judged.verified.as_ref());
        verified.map_or(null_mut(), Certificates::list)
    }

    fn is_believed(&self) -> bool {
        self.judged.get().is_some_and(|judged| judged.is_believed)
    }
}

/// A list of certificates, as OpenSSL has them.
pub(super) struct Certificates(*mut OPENSSL_STACK);

impl Certificates {
    fn new() -> Option<Self> {
        // SAFETY: the function takes no arguments.
        let list = unsafe { openssl_sys::OPENSSL_sk_new_null() };
        (!list.is_null()).then_some(Self(list))
    }

    /// Takes a list over. `None`: it is null.
    ///
    /// # Safety
    /// `list` is null, or a list of certificates that belongs to the caller.
    pub(super) unsafe fn own(list: *mut OPENSSL_STACK) -> Option<Self> {
        (!list.is_null()).then_some(Self(list))
    }

    fn push(&mut self, der: &[u8]) -> Option<()> {
        let mut from = der.as_ptr();
        // SAFETY: `from` points to `der.len()` bytes.
        let certificate =
            unsafe { openssl_sys::d2i_X509(null_mut(), &raw mut from, der.len() as c_long) };
        if certificate.is_null() {
            return None;
        }
        // SAFETY: the list belongs to `self`, and takes the certificate over.
        if unsafe { openssl_sys::OPENSSL_sk_push(self.0, certificate.cast()) } < 1 {
            // SAFETY: the certificate was made above, and the list has not taken it.
            unsafe { openssl_sys::X509_free(certificate) };
            return None;
        }
        Some(())
    }

    fn first(&self) -> Option<*mut X509> {
        // SAFETY: the list belongs to `self`; the answer for an empty list is null.
        let first = unsafe { openssl_sys::OPENSSL_sk_value(self.0, 0) }.cast::<X509>();
        (!first.is_null()).then_some(first)
    }

    pub(super) fn list(&self) -> *mut OPENSSL_STACK {
        self.0
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        unsafe extern "C" fn free(certificate: *mut libc::c_void) {
            // SAFETY: OpenSSL calls this for each certificate of the list.
            unsafe { openssl_sys::X509_free(certificate.cast()) };
        }
        // SAFETY: the list belongs to `self`, and is not used after this.
        unsafe { openssl_sys::OPENSSL_sk_pop_free(self.0, Some(free)) };
    }
}
