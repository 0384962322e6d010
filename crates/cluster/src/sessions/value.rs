//! The format of a session in Valkey.
//!
//! ```text
//! version, 1 byte | history, 4 | seen_ms, 8 | sealed: context, 4 | expires_ms, 8 | the serialised session
//! ```
//! The version is 1, or 2 if the session came from another site. Numbers are little-endian. The client's past visits are outside the seal, so that a script can replace them; they
//! reveal nothing of a session. `scripts/take.lua` reads the key's name, the first 16 bytes of the seal. The seal is
//! that of [`TicketSealer`] under separate keys, bound to the session's id, and to the version if that is 2: nobody who
//! writes to Valkey can make a session that was moved one that was not.

use rejoin_cache::{ContextTag, History, SecretBytes, SessionId};
use rejoin_tickets::{LONGEST_TICKET_BYTES, NONCE_BYTES, TicketSealer, Unopened};

use super::keys::Keys;
use super::misses::Miss;
use super::{Entry, Found, Past};
use crate::Error;
use crate::wrapping_key::fill_at_random;

const VERSION: u8 = 1;
const MOVED: u8 = 2;
/// It follows the id of a session that was moved.
const OF_ANOTHER_SITE: &[u8] = b" is the id of a session of another site";
/// No id is another one with this after it.
const _: () = assert!(OF_ANOTHER_SITE.len() > SessionId::LONGEST);
/// The length that no value has. What is as long as that was altered.
pub(super) const TOO_LONG: usize = PLAIN_BYTES + LONGEST_TICKET_BYTES + 1;

const SEEN_BYTES: usize = 8;
const PLAIN_BYTES: usize = 1 + Past::BYTES;
const HEAD_BYTES: usize = 4 + 8;

impl Past {
    pub(super) const BYTES: usize = History::BYTES + SEEN_BYTES;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..History::BYTES].copy_from_slice(&self.history.to_bytes());
        bytes[History::BYTES..].copy_from_slice(&self.seen_ms.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (history, seen) = bytes.split_first_chunk().expect("longer");
        let seen = seen.first_chunk().expect("as long as that");
        Self { history: History::from_bytes(*history), seen_ms: u64::from_le_bytes(*seen) }
    }
}

/// Returns the length of the value for a session of `length` bytes. `None`: it is too long.
pub(super) fn sealed_bytes(length: usize) -> Option<usize> {
    let sealed = length.checked_add(HEAD_BYTES + TicketSealer::OVERHEAD_BYTES)?;
    (sealed <= LONGEST_TICKET_BYTES).then_some(PLAIN_BYTES + sealed)
}

pub(super) fn seal(
    keys: &Keys,
    now_ms: u64,
    entry: &Entry<'_>,
    is_moved: bool,
) -> Result<Vec<u8>, Error> {
    let mut session = SecretBytes::with_capacity(HEAD_BYTES + entry.value.len());
    session.extend(&entry.context.0.to_le_bytes());
    session.extend(&entry.expires_ms.to_le_bytes());
    session.extend(entry.value);
    let mut nonce = [0; NONCE_BYTES];
    fill_at_random(&mut nonce)?;
    let bound_to = binding(entry.id, is_moved);
    let sealed = keys.sealer.seal_for(now_ms / 1_000, &bound_to, &session, nonce);
    let sealed = sealed.ok_or(Error::NoKey)?;
    let version = if is_moved { MOVED } else { VERSION };
    Ok([&[version], &entry.past.to_bytes()[..], &sealed].concat())
}

/// Returns the data that a value is bound to.
fn binding(id: &SessionId, is_moved: bool) -> Vec<u8> {
    [id.as_bytes(), if is_moved { OF_ANOTHER_SITE } else { b"" }].concat()
}

pub(super) fn open(keys: &Keys, now_ms: u64, id: &SessionId, value: &[u8]) -> Result<Found, Miss> {
    let (version, rest) = value.split_first().ok_or(Miss::Malformed)?;
    let (past, sealed) = rest.split_first_chunk().ok_or(Miss::Malformed)?;
    if ![VERSION, MOVED].contains(version) {
        return Err(Miss::Malformed);
    }
    let is_moved = *version == MOVED;
    let opened = keys.sealer.open_for(now_ms / 1_000, &binding(id, is_moved), sealed);
    let is_gone = || sealed.first_chunk().is_some_and(|name| keys.is_gone(name));
    let (session, _) = opened.map_err(|why| match why {
        Unopened::BadLength => Miss::Malformed,
        Unopened::UnknownKey if is_gone() => Miss::KeyOver,
        Unopened::UnknownKey => Miss::UnknownKey,
        Unopened::ExpiredKey => Miss::KeyOver,
        Unopened::Altered => Miss::Altered,
    })?;
    let (context, rest) = session.split_first_chunk().ok_or(Miss::Malformed)?;
    let (expires_ms, serialised) = rest.split_first_chunk().ok_or(Miss::Malformed)?;
    let expires_ms = u64::from_le_bytes(*expires_ms);
    if expires_ms <= now_ms {
        return Err(Miss::Expired);
    }
    let mut value = SecretBytes::with_capacity(serialised.len());
    value.extend(serialised);
    let context = ContextTag(u32::from_le_bytes(*context));
    let past = Past::from_bytes(*past);
    Ok(Found { context, value, expires_ms, past, is_moved, taken: None })
}
