//! Session ids: parsed, and sealed with a keyed tag so that forged ones are recognised.

use std::fmt;
use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use siphasher::sip::SipHasher13;

use crate::history::History;
use crate::interval::Interval;
use crate::{Error, SecretBytes};

/// A TLS session id, or the opaque identity of a stateful TLS 1.3 ticket: 1 to 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId {
    length: u8,
    bytes: [u8; Self::LONGEST],
}

impl SessionId {
    /// The longest id: `opaque SessionID<0..32>` (RFC 5246, section 7.4.1.2).
    pub const LONGEST: usize = 32;

    /// Parses the bytes on the wire.
    ///
    /// # Errors
    /// Returns [`Error::BadSessionId`] if there are none, or more than 32.
    #[inline]
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.is_empty() || bytes.len() > Self::LONGEST {
            return Err(Error::BadSessionId { length: bytes.len() });
        }
        let mut padded = [0; Self::LONGEST];
        padded[..bytes.len()].copy_from_slice(bytes);
        Ok(Self { length: bytes.len() as u8, bytes: padded })
    }

    /// Returns the bytes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub(crate) fn length(&self) -> u8 {
        self.length
    }

    pub(crate) fn padded(&self) -> &[u8; Self::LONGEST] {
        &self.bytes
    }

    pub(crate) fn from_padded(bytes: [u8; Self::LONGEST], length: u8) -> Self {
        Self { length: length.min(Self::LONGEST as u8), bytes }
    }

    /// Returns the id's hash under a key.
    #[inline]
    pub(crate) fn hash_with(&self, key: &[u8; 16]) -> u64 {
        hash_of(&self.bytes, key)
    }
}

/// Returns the hash of a padded id under a key. It need not resist chosen ids: servers choose ids, at
/// random, and an id that a client makes up is looked up but never stored.
#[inline]
pub(crate) fn hash_of(padded: &[u8; SessionId::LONGEST], key: &[u8; 16]) -> u64 {
    static SHARED: SharedSeed = SharedSeed::from_u64(0);
    let [low, high]: [u64; 2] = bytemuck::pod_read_unaligned(key);
    let mut hasher = FoldHasher::with_seed(low ^ high.rotate_left(32), &SHARED);
    let halves: [u128; 2] = bytemuck::pod_read_unaligned(padded);
    halves.into_iter().for_each(|half| hasher.write_u128(half));
    hasher.finish()
}

/// An id and its hash, computed once for shard and index.
pub(crate) struct Key<'a> {
    pub(crate) id: &'a SessionId,
    pub(crate) hash: u64,
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.as_bytes().iter().take(4);
        f.write_str("SessionId(")?;
        start.into_iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "…, {} bytes)", self.length)
    }
}

/// A keyed hash of the TLS session-id context in which a session was made. A session made in one
/// context is never found from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ContextTag(pub u32);

impl ContextTag {
    /// Returns the tag of a context's name, under a key that all users of a cache share.
    pub fn of(context: &[u8], key: &[u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(key).hash(context) as u32)
    }
}

/// The data about a client that an id carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// The client's history, the visit on which the id is made included.
    pub history: History,
    /// The Unix time of that visit, in milliseconds.
    pub made_ms: u64,
}

impl Carried {
    /// The unit of the time in an id. It is counted in 32 bits, which wrap after eight years.
    const UNIT_MS: u64 = 64;

    /// Returns the bits for an id; never zero.
    fn to_number(self) -> u64 {
        let units = (self.made_ms / Self::UNIT_MS) as u32;
        let number =
            u64::from(units) << 32 | u64::from(u32::from_le_bytes(self.history.to_bytes()));
        number.max(1 << 32)
    }

    fn of_number(number: u64, now_ms: u64) -> Option<(History, u64)> {
        let now = (now_ms / Self::UNIT_MS) as u32;
        let away_ms = u64::from(now.wrapping_sub((number >> 32) as u32)) * Self::UNIT_MS;
        let history = History::from_bytes((number as u32).to_le_bytes());
        (away_ms <= Interval::LONGEST_MS).then_some((history, away_ms))
    }
}

/// Makes session ids that carry a keyed tag, and recognises them. An id that was made up, or that
/// came from another server, is refused without touching the cache: one TLS 1.3 ClientHello can
/// carry hundreds.
///
/// An id is 16 random bytes, eight that say what was known of the client when it was made, encrypted, and the tag of both. So a
/// client whose session was evicted is known when it comes back. The tag is SipHash-1-3, a 64-bit pseudo-random function, over the
/// other bytes and the context's name: an id is recognised only in the context in which it was made.
#[derive(Clone)]
pub struct IdSeal {
    key: [u8; 16],
}

impl IdSeal {
    const TAG: usize = 8;
    const CARRIED: usize = 8;
    const TAGGED: usize = SessionId::LONGEST - Self::TAG;
    /// The number of random bytes in an id: 128 bits.
    pub const RANDOM: usize = Self::TAGGED - Self::CARRIED;

    /// Makes a seal of a key, which servers that share sessions must share.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// Makes an id of fresh random bytes, for a context of this name. It carries what is known of the client, if anything.
    pub fn seal(
        &self,
        context: &[u8],
        random: &[u8; Self::RANDOM],
        carried: Option<Carried>,
    ) -> SessionId {
        let mut bytes = [0; SessionId::LONGEST];
        let carried = carried.map_or(0, Carried::to_number) ^ self.mask(context, random);
        bytes[..Self::RANDOM].copy_from_slice(random);
        bytes[Self::RANDOM..Self::TAGGED].copy_from_slice(&carried.to_le_bytes());
        let tag = self.tag(context, &bytes[..Self::TAGGED]);
        bytes[Self::TAGGED..].copy_from_slice(&tag);
        SessionId { length: SessionId::LONGEST as u8, bytes }
    }

    /// Returns what an id carries that is [recognised](Self::recognises) at this Unix time in milliseconds: the client's history,
    /// and the milliseconds since the id was made. `None` if it carries nothing, as ids of earlier versions do, or was made by a
    /// server whose clock is ahead. One in 64 ids of earlier versions is misread.
    pub fn carried(&self, context: &[u8], id: &SessionId, now_ms: u64) -> Option<(History, u64)> {
        let random = id.bytes.first_chunk()?;
        let carried = id.bytes[Self::RANDOM..].first_chunk()?;
        let number = u64::from_le_bytes(*carried) ^ self.mask(context, random);
        if number == 0 { None } else { Carried::of_number(number, now_ms) }
    }

    /// Returns true if the id was made with this key, for a context of this name.
    pub fn recognises(&self, context: &[u8], id: &SessionId) -> bool {
        let (tagged, tag) = id.bytes.split_at(Self::TAGGED);
        usize::from(id.length) == SessionId::LONGEST && self.tag(context, tagged) == tag
    }

    /// Appends a tag to a session's bytes that binds them to its id and to a context of this name.
    /// Memory that others may write to can hold anything, and a changed session would fail its
    /// handshake.
    pub fn seal_value(&self, id: &SessionId, context: &[u8], value: &mut SecretBytes) {
        let tag = self.value_tag(id, context, value);
        value.extend(&tag);
    }

    /// Returns the bytes that were sealed, if they are unchanged.
    pub fn open_value<'a>(
        &self,
        id: &SessionId,
        context: &[u8],
        value: &'a [u8],
    ) -> Option<&'a [u8]> {
        let (value, tag) = value.split_last_chunk()?;
        (self.value_tag(id, context, value) == *tag).then_some(value)
    }

    fn value_tag(&self, id: &SessionId, context: &[u8], value: &[u8]) -> [u8; Self::TAG] {
        let mut hasher = self.hasher(b"value\0\0\0");
        hasher.write(&id.bytes);
        hasher.write(&(context.len() as u64).to_le_bytes());
        hasher.write(context);
        hasher.write(value);
        hasher.finish().to_le_bytes()
    }

    /// Returns the bits by which an id's carried data are encrypted: no two ids have the same.
    fn mask(&self, context: &[u8], random: &[u8; Self::RANDOM]) -> u64 {
        let mut hasher = self.hasher(b"carried\0");
        hasher.write(random);
        hasher.write(context);
        hasher.finish()
    }

    fn tag(&self, context: &[u8], tagged: &[u8]) -> [u8; Self::TAG] {
        let mut hasher = self.hasher(b"id\0\0\0\0\0\0");
        hasher.write(tagged);
        hasher.write(context);
        hasher.finish().to_le_bytes()
    }

    /// Returns a hasher for one purpose. (All parts of a message but the last are multiples of eight
    /// bytes, where they can be: the hasher takes eight at a time.)
    fn hasher(&self, purpose: &[u8; 8]) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(purpose);
        hasher
    }
}

impl fmt::Debug for IdSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdSeal(…)")
    }
}

impl Drop for IdSeal {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_the_same_key_are_recognised() {
        let (ours, theirs) = (IdSeal::new([1; 16]), IdSeal::new([2; 16]));
        let id = ours.seal(b"one", &[7; IdSeal::RANDOM], None);
        assert!(ours.recognises(b"one", &id));
        assert!(!theirs.recognises(b"one", &id));
        assert!(!ours.recognises(b"two", &id) && !ours.recognises(b"", &id));
        for bit in 0..256 {
            let mut forged = *id.padded();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!ours.recognises(b"one", &SessionId::from_padded(forged, 32)));
        }
        assert!(!ours.recognises(b"one", &SessionId::from_padded(*id.padded(), 31)));
    }

    #[test]
    fn an_id_carries_what_is_known_of_its_client() {
        const MADE_MS: u64 = 1_800_000_000_000;
        let seal = IdSeal::new([1; 16]);
        let mut history = History::default();
        [15_000, 15_000].into_iter().for_each(|gap| history.record(gap));
        for known in [History::default(), history] {
            let carried = Some(Carried { history: known, made_ms: MADE_MS });
            let made = [3, 4].map(|byte| seal.seal(b"one", &[byte; IdSeal::RANDOM], carried));
            for id in &made {
                assert!(seal.recognises(b"one", id));
                let read = seal.carried(b"one", id, MADE_MS + 6_400);
                assert_eq!(read, Some((known, 6_400)));
                let ahead = seal.carried(b"one", id, MADE_MS - 6_400);
                assert_eq!(ahead, None, "the clock of the server that made it is ahead");
                assert_ne!(read, seal.carried(b"two", id, MADE_MS + 6_400));
            }
            let [one, other] = made.map(|id| id.padded()[IdSeal::RANDOM..].to_vec());
            assert_ne!(one, other, "whoever sees two ids sees that the same is known");
        }
        let nothing = seal.seal(b"one", &[3; IdSeal::RANDOM], None);
        assert_eq!(seal.carried(b"one", &nothing, MADE_MS), None);
    }

    #[test]
    fn few_ids_that_carry_nothing_are_misread() {
        let seal = IdSeal::new([1; 16]);
        let misread = |number: u64| {
            let random: [u8; 32] =
                bytemuck::cast([SipHasher13::new().hash(&number.to_le_bytes()); 4]);
            seal.carried(b"one", &SessionId::from_padded(random, 32), number << 20).is_some()
        };
        let misread = (0..7_000).filter(|number| misread(*number)).count();
        assert!((40..180).contains(&misread), "{misread} of 7,000");
    }

    #[test]
    fn a_value_belongs_to_its_id_and_context() {
        let seal = IdSeal::new([1; 16]);
        let [id, other] = [7, 8].map(|byte| seal.seal(b"one", &[byte; IdSeal::RANDOM], None));
        let [context, elsewhere] = [b"one", b"two"];
        let mut value = SecretBytes::from(vec![9; 150]);
        seal.seal_value(&id, context, &mut value);
        assert_eq!(seal.open_value(&id, context, &value), Some(&[9; 150][..]));
        assert_eq!(seal.open_value(&other, context, &value), None);
        assert_eq!(seal.open_value(&id, elsewhere, &value), None);
        for bit in 0..8 * value.len() {
            let mut changed = value.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.open_value(&id, context, &changed), None);
        }
        for length in 0..value.len() {
            assert_eq!(seal.open_value(&id, context, &value[..length]), None);
        }
    }

    #[test]
    fn lengths_are_checked() {
        assert_eq!(SessionId::new(&[]), Err(Error::BadSessionId { length: 0 }));
        assert_eq!(SessionId::new(&[0; 33]), Err(Error::BadSessionId { length: 33 }));
        assert_eq!(SessionId::new(&[5; 32]).map(|id| id.as_bytes().len()), Ok(32));
        assert_ne!(SessionId::new(&[0]), SessionId::new(&[0, 0]));
    }
}
