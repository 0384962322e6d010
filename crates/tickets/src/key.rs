//! A key of a ring: its secret, and the public name that is derived from it.

use std::fmt;

use crate::error::Error;
use crate::secret::Secret;

/// The random bytes in a key, from which AES-256 and HMAC-SHA-256 keys are derived.
pub const SECRET_BYTES: usize = 32;

/// A key's public name, for operators, derived from its secret. Tickets carry other names, which
/// differ by context, so that nobody can see which virtual servers share a ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId([u8; Self::BYTES]);

#[derive(Debug, Clone)]
pub(crate) struct RingKey {
    id: KeyId,
    secret: Secret<SECRET_BYTES>,
}

impl RingKey {
    pub(crate) fn new(secret: Secret<SECRET_BYTES>) -> Result<Self, Error> {
        if *secret.bytes() == [0; SECRET_BYTES] {
            return Err(Error::NoSecret);
        }
        let id = KeyId(*secret.derive(&[b"rejoin ticket id"]).bytes());
        Ok(Self { id, secret })
    }

    pub(crate) fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) fn secret(&self) -> &Secret<SECRET_BYTES> {
        &self.secret
    }
}

impl KeyId {
    /// The length of an id.
    pub const BYTES: usize = 16;

    /// The bytes of the id.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl From<[u8; Self::BYTES]> for KeyId {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

/// An id is printed in hexadecimal.
impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}
