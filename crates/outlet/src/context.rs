//! The contexts that keys are derived for.

use std::hash::Hasher;

use rejoin_cache::{ContextTag, SessionId};
use rejoin_tickets::{Label, ServerKeyForm};
use siphasher::sip::SipHasher13;
use siphasher::sip128::{self, Hasher128};

use crate::Error;

/// The name of servers that open each other's tickets and find each other's sessions: 1 to 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Context(String);

impl Context {
    /// The longest name, in bytes.
    pub const LONGEST_BYTES: usize = 255;

    /// Makes a context.
    ///
    /// # Errors
    /// [`Error::BadContext`].
    pub fn new(name: &str) -> Result<Self, Error> {
        if name.is_empty() || name.len() > Self::LONGEST_BYTES {
            return Err(Error::BadContext { length: name.len() });
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the label of its keys in a form. Keys of different sizes have different labels, so no key is part of
    /// another. Servers with Rejoin cannot open these tickets: their labels begin with a length, of 32 at most.
    pub(crate) fn label(&self, form: ServerKeyForm) -> Label {
        let beginning = match form {
            ServerKeyForm::Raw80 | ServerKeyForm::Haproxy => "exported\0",
            ServerKeyForm::Raw48 => "exported 48\0",
            ServerKeyForm::Raw32 => "exported 32\0",
        };
        Label::new([beginning, &self.0].concat().as_bytes()).expect("shorter than the longest")
    }

    /// Returns the name under which its sessions are, in a cache whose processes have this key. No libssl server has the
    /// same.
    pub(crate) fn place(&self, id_key: &[u8; 16]) -> Place {
        let name = ["share\0", &self.0].concat();
        let seal = SipHasher13::new_with_key(id_key).hash([&name, "\0"].concat().as_bytes());
        let mut ids = sip128::SipHasher13::new_with_key(id_key);
        ids.write(&(name.len() as u64).to_le_bytes());
        ids.write(name.as_bytes());
        Place { tag: ContextTag::of(name.as_bytes(), id_key), seal: seal.to_le_bytes(), ids }
    }
}

/// The place of a context's sessions in a cache.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) tag: ContextTag,
    /// The beginning of each value. Tags of 32 bits can meet, and a TLS stack may look at nothing else that tells contexts
    /// apart.
    pub(crate) seal: [u8; 8],
    /// The hash of ids, with the context's name in it.
    ids: sip128::SipHasher13,
}

impl Place {
    /// Returns the id of a session in the cache. It differs by context, so no request reaches a session of another one, and
    /// whoever chooses the id cannot choose its place in the index.
    pub(crate) fn id(&self, theirs: &SessionId) -> SessionId {
        let mut ids = self.ids;
        ids.write(theirs.as_bytes());
        SessionId::new(&ids.finish128().as_bytes()).expect("16 bytes")
    }
}
