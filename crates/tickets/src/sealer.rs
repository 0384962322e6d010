//! Seals and opens tickets for TLS stacks that do not encrypt them by themselves.
//!
//! AES-256-GCM under keys of its own: a context's [`crate::ContextKeys`] share neither key nor name
//! with its sealer. A ticket is
//!
//! ```text
//! name, 16 bytes | nonce, 12 | ciphertext, as long as the session | tag, 16
//! ```
//! Its name, the context's label, and the data that it is bound to are authenticated with it.
//! Nonces are random, which bounds a key to 2³² tickets (NIST SP 800-38D, section 8.3), of all
//! servers and one context together: that is 99,000 a second for a turn of 12 hours.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::{Zeroize, Zeroizing};

use crate::NAME_BYTES;
use crate::key::RingKey;
use crate::label::Label;
use crate::secret::Secret;
use crate::timeline::{Opened, Timeline};

/// The random bytes that a ticket needs: the nonce of AES-GCM.
pub const NONCE_BYTES: usize = 12;

/// The size of the longest ticket (RFC 8446, section 4.6.1: `opaque ticket<1..2^16-1>`).
pub const LONGEST_TICKET_BYTES: usize = (1 << 16) - 1;

const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = NAME_BYTES + NONCE_BYTES;

/// Seals and opens one context's tickets, under keys derived from a ring. Any number of threads may use it.
#[derive(Debug)]
pub struct TicketSealer {
    label: Label,
    timeline: Timeline<SealingKey>,
}

/// The reason why a ticket is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unopened {
    /// It is too short or too long for a ticket.
    BadLength,
    /// No key in the ring has its name.
    UnknownKey,
    /// The last ticket of its key has expired.
    ExpiredKey,
    /// It was altered, or is bound to other data.
    Altered,
}

struct SealingKey {
    name: [u8; NAME_BYTES],
    cipher: LessSafeKey,
}

impl TicketSealer {
    /// The bytes that a ticket has beside its session.
    pub const OVERHEAD_BYTES: usize = HEAD_BYTES + TAG_BYTES;

    pub(crate) fn derive(ring: &Timeline<RingKey>, label: &Label) -> Self {
        let timeline = ring.map(|key| SealingKey::derive(key, label));
        Self { label: label.clone(), timeline }
    }

    /// Seals a session. `nonce` must be random, and new for each ticket. `None` if there is no
    /// key, or the ticket would be longer than [`LONGEST_TICKET_BYTES`]: the client gets none.
    pub fn seal(&self, now_s: u64, session: &[u8], nonce: [u8; NONCE_BYTES]) -> Option<Vec<u8>> {
        self.seal_for(now_s, &[], session, nonce)
    }

    /// Seals a session like [`Self::seal`], and binds it to other data, such as the id that it is kept under, which is
    /// needed to open it.
    pub fn seal_for(
        &self,
        now_s: u64,
        bound_to: &[u8],
        session: &[u8],
        nonce: [u8; NONCE_BYTES],
    ) -> Option<Vec<u8>> {
        let length = session.len().checked_add(Self::OVERHEAD_BYTES)?;
        let key = self.timeline.encrypting(now_s).filter(|_| length <= LONGEST_TICKET_BYTES)?;
        let mut ticket = Vec::with_capacity(length);
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(session);
        let sealed = &mut ticket[HEAD_BYTES..];
        let context = self.authenticated(key, bound_to);
        let nonce = Nonce::assume_unique_for_key(nonce);
        match key.cipher.seal_in_place_separate_tag(nonce, Aad::from(context), sealed) {
            Ok(tag) => ticket.extend_from_slice(tag.as_ref()),
            Err(_) => {
                ticket.zeroize();
                return None;
            }
        }
        Some(ticket)
    }

    /// Opens a ticket, and tells whether the client should get a fresh one. `None` if it
    /// was not sealed in this context, under a key that is still alive: a full handshake.
    pub fn open(&self, now_s: u64, ticket: &[u8]) -> Option<(Zeroizing<Vec<u8>>, Opened)> {
        self.open_for(now_s, &[], ticket).ok()
    }

    /// Opens a ticket of [`Self::seal_for`].
    ///
    /// # Errors
    /// The reason why it is not opened.
    pub fn open_for(
        &self,
        now_s: u64,
        bound_to: &[u8],
        ticket: &[u8],
    ) -> Result<(Zeroizing<Vec<u8>>, Opened), Unopened> {
        if ticket.len() < Self::OVERHEAD_BYTES || ticket.len() > LONGEST_TICKET_BYTES {
            return Err(Unopened::BadLength);
        }
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>().ok_or(Unopened::BadLength)?;
        let (nonce, sealed) = rest.split_first_chunk().ok_or(Unopened::BadLength)?;
        let found = self.timeline.find(now_s, |key| key.name == *name);
        let is_there = || self.names().any(|known| known == name);
        let (key, opened) = found
            .ok_or_else(|| if is_there() { Unopened::ExpiredKey } else { Unopened::UnknownKey })?;
        let mut session = Zeroizing::new(sealed.to_vec());
        let context = Aad::from(self.authenticated(key, bound_to));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = key.cipher.open_in_place(nonce, context, &mut session);
        let length = plain.map_err(|_| Unopened::Altered)?.len();
        session.truncate(length);
        Ok((session, opened))
    }

    /// Iterates over the names with which tickets begin, from the oldest key to the newest, expired ones included. Those of
    /// another ring's keys are left out.
    pub fn names(&self) -> impl Iterator<Item = &[u8; NAME_BYTES]> {
        self.timeline.keys.iter().map(|timed| &timed.key.name)
    }

    /// The label has no length of its own: the key is another for each.
    fn authenticated(&self, key: &SealingKey, bound_to: &[u8]) -> Vec<u8> {
        [&key.name, self.label.as_bytes(), bound_to].concat()
    }
}

impl SealingKey {
    fn derive(key: &RingKey, label: &Label) -> Self {
        let (secret, label) = (key.secret(), label.as_bytes());
        let cipher_key: Secret<32> = secret.derive(&[b"rejoin ticket seal ", label]);
        let unbound = UnboundKey::new(&AES_256_GCM, cipher_key.bytes());
        // The library keeps its copy in memory of its own, and wipes it.
        let cipher = LessSafeKey::new(unbound.expect("AES-256 keys have 32 bytes"));
        Self { name: *secret.derive(&[b"rejoin ticket sealed name ", label]).bytes(), cipher }
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey(…)")
    }
}
