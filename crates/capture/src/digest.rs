//! Digests in place of secrets and identifiers: equal inputs have equal digests.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Serialize, Serializer};

/// The first 8 bytes of a SHA-256: enough to recognise a ticket or a session ID, too few to use it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 8]);

impl Digest {
    /// The digest of `bytes`, or `None` if there are none.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let whole = sha256(bytes);
        (!bytes.is_empty()).then_some(Self(*whole.first_chunk()?))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The complete SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().first_chunk().copied().unwrap_or_default()
}

/// Bytes as hexadecimal text, two digits each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
