//! One key of the cluster, from which all others are derived.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hkdf;
use zeroize::{Zeroize, Zeroizing};

use crate::Error;

const KEY_BYTES: usize = 32;

/// A key: 32 random bytes. It encrypts nothing itself; other keys are derived from it.
pub(crate) struct WrappingKey(Box<[u8; KEY_BYTES]>);

/// The name of a key, which is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyName([u8; Self::BYTES]);

/// AES-256-GCM under one derived key, with random nonces: safe for 2³² values (NIST SP 800-38D,
/// section 8.3).
pub(crate) struct Wrapping(LessSafeKey);

impl WrappingKey {
    /// The number of digits of a key in hexadecimal.
    pub(crate) const DIGITS: usize = 2 * KEY_BYTES;

    /// Makes a key.
    pub(crate) fn random() -> Result<Self, Error> {
        let mut key = Self(Box::new([0; KEY_BYTES]));
        fill_at_random(&mut *key.0)?;
        Ok(key)
    }

    /// Parses a key in hexadecimal. `None`: it is none, or all zero.
    pub(crate) fn parse(digits: &[u8]) -> Option<Self> {
        let mut key = Self(Box::new([0; KEY_BYTES]));
        parse_hex(digits, &mut *key.0)?;
        (*key.0 != [0; KEY_BYTES]).then_some(key)
    }

    /// Appends the key in hexadecimal.
    pub(crate) fn append_to(&self, text: &mut Vec<u8>) {
        append_hex(&*self.0, text);
    }

    /// Returns the name by which operators tell keys apart.
    pub(crate) fn name(&self) -> KeyName {
        let derived = self.derive(b"rejoin cluster key's name");
        KeyName(*derived.first_chunk().expect("longer"))
    }

    /// Derives the key of one purpose: HKDF-SHA-256 (RFC 5869) without salt.
    pub(crate) fn derive(&self, purpose: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&*self.0);
        let info = [purpose];
        let filled =
            key.expand(&info, hkdf::HKDF_SHA256).and_then(|bytes| bytes.fill(&mut *derived));
        assert!(filled.is_ok(), "as long as the hash");
        derived
    }

    /// Derives a key from which the keys of one purpose are derived.
    pub(crate) fn subkey(&self, purpose: &[u8]) -> Self {
        Self(Box::new(*self.derive(purpose)))
    }

    /// Returns the encryption for values of one purpose.
    pub(crate) fn wrapping(&self, purpose: &[u8]) -> Wrapping {
        let unbound = UnboundKey::new(&AES_256_GCM, &*self.derive(purpose));
        Wrapping(LessSafeKey::new(unbound.expect("AES-256 keys have 32 bytes")))
    }
}

impl KeyName {
    const BYTES: usize = 8;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

impl Wrapping {
    /// The length of the nonce at the start of a wrapped value, which distinguishes it from every other.
    pub(crate) const NONCE_BYTES: usize = NONCE_LEN;

    /// Encrypts a value. The context is authenticated with it, but not contained in it.
    pub(crate) fn wrap(&self, context: &[u8], value: &[u8]) -> Result<Vec<u8>, Error> {
        let mut nonce = [0; Self::NONCE_BYTES];
        fill_at_random(&mut nonce)?;
        let mut wrapped = [&nonce, value].concat();
        let (aad, nonce) = (Aad::from(context), Nonce::assume_unique_for_key(nonce));
        let sealed = &mut wrapped[Self::NONCE_BYTES..];
        match self.0.seal_in_place_separate_tag(nonce, aad, sealed) {
            Ok(tag) => wrapped.extend_from_slice(tag.as_ref()),
            Err(_) => {
                wrapped.zeroize();
                unreachable!("a page is not too long for AES-GCM");
            }
        }
        Ok(wrapped)
    }

    /// Decrypts a value. `None`: it was not wrapped under this key with this context.
    pub(crate) fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = wrapped.split_first_chunk()?;
        let mut value = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, Aad::from(context), &mut value).ok()?.len();
        value.truncate(length);
        Some(value)
    }
}

/// Parses as many bytes in hexadecimal as there is room for. `None`: it is anything else.
pub(crate) fn parse_hex(digits: &[u8], bytes: &mut [u8]) -> Option<()> {
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(())
}

/// Appends bytes in hexadecimal.
pub(crate) fn append_hex(bytes: &[u8], text: &mut Vec<u8>) {
    for byte in bytes {
        text.extend([digit(byte >> 4), digit(byte & 0xf)]);
    }
}

fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

fn value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

pub(crate) fn fill_at_random(bytes: &mut [u8]) -> Result<(), Error> {
    // Requests this short are never truncated (getrandom(2)).
    let filled = rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty());
    filled.map(|_| ()).map_err(|cause| Error::NoRandomNumbers { cause: cause.into() })
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl PartialEq for WrappingKey {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&*self.0, &*other.0).is_ok()
    }
}

impl Eq for WrappingKey {}

impl Drop for WrappingKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrappingKey(…)")
    }
}
