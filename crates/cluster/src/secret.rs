//! The cluster's secret, which is in a file on every machine, and never in Valkey: the key that encrypts all data that
//! leaves a machine, and a second one while the key is being replaced.
//!
//! ```text
//! 64 digits          the key in use
//! next 64 digits     a key that is accepted, too, and used next; or
//! last 64 digits     a key that is accepted, too, and was used before
//! ids 32 digits      the secret of session ids; without this line it is derived from the key in use
//! ```
//!
//! A key is replaced in three steps, each of which has reached all machines before the next one begins: the next key is
//! added; it is used; the last one is dropped. Machines of two neighbouring steps understand each other: whatever one of
//! them writes, the other has a key for.
//!
//! The secret of session ids is that of the first key for ever. Servers have it in memory, and recognise each other's
//! ids by it: with another one, a machine that starts anew would share no session with those that run.

use std::fmt;

use zeroize::Zeroizing;

use crate::Error;
use crate::error::KeyFileFault;
use crate::wrapping_key::{KeyName, WrappingKey, append_hex, parse_hex};

const IDS_BYTES: usize = 16;
const NEXT: &[u8] = b"next ";
const LAST: &[u8] = b"last ";
const IDS: &[u8] = b"ids ";

/// The contents of a key file.
#[derive(PartialEq, Eq)]
pub struct ClusterSecret {
    key: WrappingKey,
    other: Option<(Turn, WrappingKey)>,
    ids: Zeroizing<[u8; IDS_BYTES]>,
}

/// The turn of a key that is accepted and not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is used next.
    Next,
    /// It was used before.
    Last,
}

/// A step in the replacement of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RekeyStep {
    /// Adds the next key, which is accepted from now on.
    Add,
    /// Uses the next key; the last one is still accepted.
    Use,
    /// Drops the last key.
    Drop,
}

impl ClusterSecret {
    /// The length of the longest file.
    pub(crate) const LONGEST: usize =
        2 * (WrappingKey::DIGITS + 1) + NEXT.len() + IDS.len() + 2 * IDS_BYTES + 1;

    /// The secret of a new cluster.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(crate) fn random() -> Result<Self, Error> {
        WrappingKey::random().map(Self::of)
    }

    fn of(key: WrappingKey) -> Self {
        let ids = ids_of(&key);
        Self { key, other: None, ids }
    }

    /// Takes a step in the replacement of the key.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`], and there are no random numbers.
    pub(crate) fn rekeyed(self, step: RekeyStep) -> Result<Self, Error> {
        let Self { key, other, ids } = self;
        let (key, other) = match (step, other) {
            (RekeyStep::Add, None) => (key, Some((Turn::Next, WrappingKey::random()?))),
            (RekeyStep::Use, Some((Turn::Next, next))) => (next, Some((Turn::Last, key))),
            (RekeyStep::Drop, Some((Turn::Last, _))) => (key, None),
            (step, other) => {
                let due = match other {
                    None => RekeyStep::Add,
                    Some((Turn::Next, _)) => RekeyStep::Use,
                    Some((Turn::Last, _)) => RekeyStep::Drop,
                };
                return Err(Error::OutOfTurn { step, due });
            }
        };
        Ok(Self { key, other, ids })
    }

    /// Returns the name of the key in use.
    pub fn key_name(&self) -> KeyName {
        self.key.name()
    }

    /// Returns the name and turn of the key that is accepted, too, if there is one.
    pub fn other_name(&self) -> Option<(Turn, KeyName)> {
        self.other.as_ref().map(|(turn, key)| (*turn, key.name()))
    }

    /// The keys that are accepted; the first is used.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &WrappingKey> {
        [&self.key].into_iter().chain(self.other.as_ref().map(|(_, key)| key))
    }

    /// The steps that were taken since the key was replaced last.
    pub(crate) fn step(&self) -> u64 {
        match self.other {
            None => 0,
            Some((Turn::Next, _)) => 1,
            Some((Turn::Last, _)) => 2,
        }
    }

    /// The secret of session ids.
    pub(crate) fn ids(&self) -> &[u8; IDS_BYTES] {
        &self.ids
    }

    pub(crate) fn parse(text: &[u8]) -> Result<Self, KeyFileFault> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let mut lines = text.split(|byte| *byte == b'\n');
        let key = lines.next().and_then(WrappingKey::parse).ok_or(KeyFileFault::NoKey)?;
        let mut secret = Self::of(key);
        let rest: Vec<_> = lines.collect();
        let (second, line, ids) = match rest[..] {
            [] => return Ok(secret),
            [ids] => (None, 2, ids),
            [second, ids] => (Some(second), 3, ids),
            _ => return Err(KeyFileFault::BadLine { line: 4 }),
        };
        if let Some(second) = second {
            let (turn, key) = other(second).ok_or(KeyFileFault::BadLine { line: 2 })?;
            if key == secret.key {
                return Err(KeyFileFault::SameKeys);
            }
            secret.other = Some((turn, key));
        }
        let ids = ids.strip_prefix(IDS).and_then(|digits| parse_hex(digits, &mut *secret.ids));
        ids.ok_or(KeyFileFault::BadLine { line })?;
        Ok(secret)
    }

    /// Returns the contents of the file. The buffer does not grow, because that would leave a copy.
    pub(crate) fn to_text(&self) -> Zeroizing<Vec<u8>> {
        let mut text = Zeroizing::new(Vec::with_capacity(Self::LONGEST));
        self.key.append_to(&mut text);
        text.push(b'\n');
        if let Some((turn, key)) = &self.other {
            text.extend_from_slice(if *turn == Turn::Next { NEXT } else { LAST });
            key.append_to(&mut text);
            text.push(b'\n');
        }
        if self.other.is_some() || self.ids != ids_of(&self.key) {
            text.extend_from_slice(IDS);
            append_hex(&*self.ids, &mut text);
            text.push(b'\n');
        }
        text
    }
}

/// Names the keys, and shows none.
impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, other) = (self.key_name().to_string(), self.other_name());
        f.debug_struct("ClusterSecret")
            .field("key", &key)
            .field("other", &other)
            .finish_non_exhaustive()
    }
}

/// Writes the step as the command line has it.
impl fmt::Display for RekeyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Use => "use",
            Self::Drop => "drop",
        })
    }
}

/// Derives the secret of session ids from the first key of a cluster.
fn ids_of(key: &WrappingKey) -> Zeroizing<[u8; IDS_BYTES]> {
    Zeroizing::new(*key.derive(b"session ids").first_chunk().expect("longer"))
}

/// Parses a second key.
fn other(line: &[u8]) -> Option<(Turn, WrappingKey)> {
    let next = line.strip_prefix(NEXT).map(|digits| (Turn::Next, digits));
    let last = || line.strip_prefix(LAST).map(|digits| (Turn::Last, digits));
    let (turn, digits) = next.or_else(last)?;
    Some((turn, WrappingKey::parse(digits)?))
}
