//! A context's keys for TLS stacks that encrypt tickets by themselves.
//!
//! OpenSSL's callback uses the form that RFC 5077, section 4, recommends: a name, a key for AES-256-CBC and
//! one for HMAC-SHA-256. All three are derived from the ring's secret and the context's label.
//! Two virtual servers on one ring therefore show different names, and neither can open, or even
//! recognise, a ticket of the other.

use std::fmt;

use zeroize::Zeroizing;

use crate::NAME_BYTES;
use crate::key::RingKey;
use crate::label::Label;
use crate::schedule::KeyState;
use crate::secret::Secret;
use crate::timeline::{Opened, Timeline};

/// The size of an AES-256 key, and of an HMAC-SHA-256 key, in bytes.
const KEY_BYTES: usize = 32;

/// The form of a key for servers that have no rings: its parts, their sizes and their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerKeyForm {
    /// A name, a key for HMAC-SHA-256 and one for AES-256: 80 bytes, as nginx, Envoy and BoringSSL take them.
    Raw80,
    /// A name, a key for AES-256 and one for HMAC-SHA-256: 80 bytes, as HAProxy takes them.
    Haproxy,
    /// A name, 16 bytes for HMAC-SHA-256 and a key for AES-128: 48 bytes, as Apache, Node and Netty take them.
    Raw48,
    /// One secret: 32 bytes, as Go takes it.
    Raw32,
}

impl ServerKeyForm {
    /// The size of a key, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Raw80 | Self::Haproxy => NAME_BYTES + 2 * KEY_BYTES,
            Self::Raw48 => NAME_BYTES + KEY_BYTES,
            Self::Raw32 => KEY_BYTES,
        }
    }
}

/// The keys of one context, derived from a ring. Any number of threads may read them.
#[derive(Debug, Clone)]
pub struct ContextKeys {
    timeline: Timeline<ContextKey>,
}

/// The name and the two keys of one turn.
#[derive(Clone)]
pub struct ContextKey {
    name: [u8; NAME_BYTES],
    cipher_key: Secret<KEY_BYTES>,
    mac_key: Secret<KEY_BYTES>,
}

impl ContextKeys {
    pub(crate) fn derive(ring: &Timeline<RingKey>, label: &Label) -> Self {
        Self { timeline: ring.map(|key| ContextKey::derive(key, label)) }
    }

    /// Returns the key that seals new tickets, or `None` if the ring has no key.
    pub fn encrypting(&self, now_s: u64) -> Option<&ContextKey> {
        self.timeline.encrypting(now_s)
    }

    /// Finds the key that a ticket names, and tells whether the client should get a fresh ticket. `None` if the
    /// ring does not have the key, or its last ticket has expired: a full handshake.
    pub fn find(&self, now_s: u64, name: &[u8; NAME_BYTES]) -> Option<(&ContextKey, Opened)> {
        self.timeline.find(now_s, |key| key.name == *name)
    }

    /// Lists every key, from the oldest to the newest, with its state.
    pub fn list(&self, now_s: u64) -> impl Iterator<Item = (&ContextKey, KeyState)> {
        self.iter().enumerate().map(move |(at, key)| (key, self.timeline.state(at, now_s)))
    }

    /// Iterates over the keys, from the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = &ContextKey> {
        self.timeline.keys.iter().map(|timed| &timed.key)
    }
}

impl ContextKey {
    fn derive(key: &RingKey, label: &Label) -> Self {
        let (secret, label) = (key.secret(), label.as_bytes());
        Self {
            name: *secret.derive(&[b"rejoin ticket name ", label]).bytes(),
            cipher_key: secret.derive(&[b"rejoin ticket cipher ", label]),
            mac_key: secret.derive(&[b"rejoin ticket mac ", label]),
        }
    }

    /// The name with which a ticket begins.
    pub fn name(&self) -> &[u8; NAME_BYTES] {
        &self.name
    }

    /// The key for AES-256-CBC.
    pub fn cipher_key(&self) -> &[u8; KEY_BYTES] {
        self.cipher_key.bytes()
    }

    /// The key for HMAC-SHA-256.
    pub fn mac_key(&self) -> &[u8; KEY_BYTES] {
        self.mac_key.bytes()
    }

    /// Returns the key in the form of a server that has no rings, and opens this context's tickets with it. A context has
    /// one form, so that no secret is used in two ways.
    pub fn for_server(&self, form: ServerKeyForm) -> Zeroizing<Vec<u8>> {
        let (mac, cipher) = (&self.mac_key.bytes()[..], &self.cipher_key.bytes()[..]);
        let parts: [&[u8]; 3] = match form {
            ServerKeyForm::Raw80 => [&self.name, mac, cipher],
            ServerKeyForm::Haproxy => [&self.name, cipher, mac],
            ServerKeyForm::Raw48 => [&self.name, &mac[..KEY_BYTES / 2], &cipher[..KEY_BYTES / 2]],
            ServerKeyForm::Raw32 => [cipher, &[], &[]],
        };
        // It must not grow, because that would leave a copy.
        let mut bytes = Zeroizing::new(Vec::with_capacity(form.bytes()));
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }
}

impl fmt::Debug for ContextKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContextKey(…)")
    }
}
