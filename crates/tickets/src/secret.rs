//! Key bytes, and the derivation of some from others.

use std::fmt;

use aws_lc_rs::hkdf;
use zeroize::Zeroize;

/// The bytes of a key. They stay at one address until they are wiped, so that a move leaves no copy.
pub(crate) struct Secret<const BYTES: usize>(Box<[u8; BYTES]>);

impl<const BYTES: usize> Secret<BYTES> {
    /// Takes the bytes out of `source`, which is zeros afterwards.
    pub(crate) fn take(source: &mut [u8; BYTES]) -> Self {
        let mut secret = Self(Box::new([0; BYTES]));
        secret.0.copy_from_slice(source);
        source.zeroize();
        secret
    }

    pub(crate) fn copy_of(source: &[u8; BYTES]) -> Self {
        let mut secret = Self(Box::new([0; BYTES]));
        secret.0.copy_from_slice(source);
        secret
    }

    pub(crate) fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// Derives a key by HKDF-SHA-256 (RFC 5869) without salt. Keys of different `info` are independent.
    pub(crate) fn derive<const DERIVED: usize>(&self, info: &[&[u8]]) -> Secret<DERIVED> {
        const { assert!(DERIVED <= 255 * 32, "RFC 5869, section 2.3") };
        let mut derived = Secret(Box::new([0; DERIVED]));
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&*self.0);
        let filled =
            key.expand(info, Length(DERIVED)).and_then(|bytes| bytes.fill(derived.0.as_mut()));
        assert!(filled.is_ok(), "the length is asserted above");
        derived
    }
}

impl<const BYTES: usize> Clone for Secret<BYTES> {
    fn clone(&self) -> Self {
        Self::copy_of(&self.0)
    }
}

impl<const BYTES: usize> Drop for Secret<BYTES> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<const BYTES: usize> fmt::Debug for Secret<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({BYTES} bytes)")
    }
}

/// The length of the derived key.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}
