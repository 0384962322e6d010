//! The name of a context: what separates the tickets of one virtual server from another's.

use crate::Error;

/// A context's name: 1 to 320 bytes. Servers that are to open each other's tickets give the same. It
/// is no secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Label(Box<[u8]>);

impl Label {
    /// A DNS name is at most 255 bytes (RFC 1035, section 2.3.4), a session-id context 32; room for what
    /// is asked of clients, and what divides them.
    pub const LONGEST_BYTES: usize = 255 + 32 + 33;

    /// Any bytes: a server name, a session-id context, or both.
    ///
    /// # Errors
    /// [`Error::BadLabel`] when there are none, or more than [`Self::LONGEST_BYTES`].
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
