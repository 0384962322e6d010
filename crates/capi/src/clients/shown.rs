//! What the program sees of a connection that the manager made: the server, and not the hop.

use std::ffi::{CStr, c_int, c_long};
use std::ptr::null_mut;

use openssl_sys::{OPENSSL_STACK, SSL, SSL_CIPHER, X509};
use rejoin_client::protocol::Connected;
use rejoin_hop::SUITES;

use super::ffi::{SSL_CIPHER_find, TLS1_2_VERSION, TLS1_3_VERSION};

/// See the module's documentation.
pub(super) struct Shown {
    pub(super) version: Version,
    pub(super) cipher: *const SSL_CIPHER,
    pub(super) resumed: bool,
    /// The server's, its own first.
    pub(super) chain: Certificates,
    /// Up to an authority, as it was verified.
    pub(super) verified: Option<Certificates>,
}

// SAFETY: certificates are counted and immutable, ciphers static; OpenSSL shares both between threads.
unsafe impl Send for Shown {}
// SAFETY: as above.
unsafe impl Sync for Shown {}

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

    /// As libssl calls it.
    pub(super) fn name(self) -> &'static CStr {
        match self {
            Self::Tls12 => c"TLSv1.2",
            Self::Tls13 => c"TLSv1.3",
        }
    }
}

impl Shown {
    /// `None`: the manager says what this program cannot know.
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
        // SAFETY: the caller vouches for `ssl`, and two bytes are there.
        let cipher = unsafe { SSL_CIPHER_find(ssl, number.as_ptr()) };
        let ders =
            found.chain.iter().map(|certificate| certificate.der.as_ref().map(|der| &*der.0));
        let mut chain = Certificates::new()?;
        for der in ders {
            chain.push(der?)?;
        }
        chain.first()?;
        let resumed = found.resumed;
        (!cipher.is_null()).then_some(Self { version, cipher, resumed, chain, verified: None })
    }

    /// The server's own certificate.
    pub(super) fn own(&self) -> *mut X509 {
        self.chain.first().unwrap_or(null_mut())
    }
}

/// A list of certificates, in OpenSSL's keeping.
pub(super) struct Certificates(*mut OPENSSL_STACK);

impl Certificates {
    fn new() -> Option<Self> {
        // SAFETY: no arguments.
        let list = unsafe { openssl_sys::OPENSSL_sk_new_null() };
        (!list.is_null()).then_some(Self(list))
    }

    /// # Safety
    /// It is a list of certificates, and nobody else's.
    pub(super) unsafe fn own(list: *mut OPENSSL_STACK) -> Option<Self> {
        (!list.is_null()).then_some(Self(list))
    }

    fn push(&mut self, der: &[u8]) -> Option<()> {
        let mut from = der.as_ptr();
        // SAFETY: so many bytes are there.
        let certificate =
            unsafe { openssl_sys::d2i_X509(null_mut(), &raw mut from, der.len() as c_long) };
        if certificate.is_null() {
            return None;
        }
        // SAFETY: the list is ours, and takes the certificate over.
        if unsafe { openssl_sys::OPENSSL_sk_push(self.0, certificate.cast()) } < 1 {
            // SAFETY: it was made above.
            unsafe { openssl_sys::X509_free(certificate) };
            return None;
        }
        Some(())
    }

    fn first(&self) -> Option<*mut X509> {
        // SAFETY: the list is ours; beyond its end there is null.
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
            // SAFETY: one of a list of certificates.
            unsafe { openssl_sys::X509_free(certificate.cast()) };
        }
        // SAFETY: the list is ours, and not used after this.
        unsafe { openssl_sys::OPENSSL_sk_pop_free(self.0, Some(free)) };
    }
}
