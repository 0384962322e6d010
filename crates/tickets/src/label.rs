//! The name of a context, which separates the tickets of one virtual server from another's.

use crate::Error;

/// A context's name: 1 to 320 bytes. Servers that open each other's tickets use the same. It
/// is no secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Label(Box<[u8]>);

impl Label {
    /// The size of the longest label, in bytes. A DNS name has at most 255 (RFC 1035, section 2.3.4), a session-id
    /// context 32; the rest is for a certificate policy, and separators.
    pub const LONGEST_BYTES: usize = 255 + 32 + 33;

    /// Makes a label of any bytes: a server name, a session-id context, or both.
    ///
    /// # Errors
    /// [`Error::BadLabel`] if there are none, or more than [`Self::LONGEST_BYTES`].
    pub fn new(name: &[u8]) -> Result<Self, Error> {
        if name.is_empty() || name.len() > Self::LONGEST_BYTES {
            return Err(Error::BadLabel { length: name.len(), longest: Self::LONGEST_BYTES });
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        let refused = |length| Err(Error::BadLabel { length, longest: 320 });
        assert_eq!(Label::new(b""), refused(0));
        assert_eq!(Label::new(&[b'a'; 321]), refused(321));
        assert_eq!(Label::new(&[b'a'; 320]).map(|label| label.as_bytes().len()), Ok(320));
    }
}
