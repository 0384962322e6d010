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

/// The size of a key in the files of other servers, in bytes.
pub const SERVER_KEY_BYTES: usize = NAME_BYTES + 2 * KEY_BYTES;

/// The size of an AES-256 key, and of an HMAC-SHA-256 key, in bytes.
const KEY_BYTES: usize = 32;

/// The order of the parts of a key in the files of other servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKeyFormat {
    /// nginx's `ssl_session_ticket_key`, a file for each key: name, HMAC key, AES key.
    Nginx,
    /// HAProxy's `tls-ticket-keys`, a line of base64 for each: name, AES key, HMAC key.
    Haproxy,
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

    /// Returns the key in the form of a server that has no rings, and opens this context's tickets with it.
    pub fn for_server(&self, format: ServerKeyFormat) -> Zeroizing<[u8; SERVER_KEY_BYTES]> {
        let (first, second) = match format {
            ServerKeyFormat::Nginx => (&self.mac_key, &self.cipher_key),
            ServerKeyFormat::Haproxy => (&self.cipher_key, &self.mac_key),
        };
        let mut bytes = Zeroizing::new([0; SERVER_KEY_BYTES]);
        bytes[..NAME_BYTES].copy_from_slice(&self.name);
        bytes[NAME_BYTES..][..KEY_BYTES].copy_from_slice(first.bytes());
        bytes[NAME_BYTES + KEY_BYTES..].copy_from_slice(second.bytes());
        bytes
    }
}

impl fmt::Debug for ContextKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContextKey(…)")
    }
}
