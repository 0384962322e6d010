//! The ring: the secrets that are alive, and what becomes of them.

use std::fmt;

use crate::context::ContextKeys;
use crate::error::Error;
use crate::label::Label;
use crate::schedule::{CLOCKS_APART_S, KeyState, Schedule};
use crate::sealer::TicketSealer;
use crate::secret::Secret;
use crate::timeline::{Timed, Timeline};

/// Random bytes in a key: what AES-256 and HMAC-SHA-256 keys are derived from.
pub const SECRET_BYTES: usize = 32;

/// A key's public name, for operators: derived from its secret. Tickets do not carry it, but names
/// that differ by context, so that nobody sees which virtual servers share a ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId([u8; Self::BYTES]);

/// What is known of a key without its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyStatus {
    /// Its public name.
    pub id: KeyId,
    /// What it is for now.
    pub state: KeyState,
    /// Seconds since it was made.
    pub age_s: u64,
    /// When its turn begins or began, in Unix time.
    pub encrypts_from_s: u64,
    /// When its last ticket is over, in Unix time. Unknown before its successor is made.
    pub opens_until_s: Option<u64>,
}

/// The keys that tickets are sealed with and opened: see the library's documentation. Not to be
/// changed by two at a time.
#[derive(Debug, Clone)]
pub struct KeyRing {
    pub(crate) timeline: Timeline<RingKey>,
}

#[derive(Debug, Clone)]
pub(crate) struct RingKey {
    id: KeyId,
    secret: Secret<SECRET_BYTES>,
}

impl KeyRing {
    /// Keys in a ring.
    pub const MOST_KEYS: usize = 16;

    /// A ring without keys, for which a rotation is due.
    pub fn new(schedule: Schedule) -> Self {
        Self { timeline: Timeline { schedule, keys: Vec::with_capacity(Self::MOST_KEYS) } }
    }

    /// When keys change, as it was given.
    pub fn schedule(&self) -> &Schedule {
        &self.timeline.schedule
    }

    /// From now on, keys change by this schedule. Turns that are settled stay.
    pub fn reschedule(&mut self, schedule: Schedule) {
        self.timeline.schedule = schedule;
    }

    /// Whether the next key is to be made now. Asked every few seconds, and followed by
    /// [`Self::rotate`] on one of the servers, it keeps the schedule.
    pub fn due(&self, now_s: u64) -> bool {
        let Some(newest) = self.timeline.keys.last() else {
            return true;
        };
        let turn_ends_s =
            newest.encrypts_from_s.saturating_add(self.timeline.schedule.rotate_every_s());
        let next_begins_s = now_s.saturating_add(self.timeline.schedule.lead_s());
        turn_ends_s <= next_begins_s || self.is_far_ahead(newest, now_s)
    }

    /// Adds a key, whose turn begins after the schedule's lead; at once if it is the only one.
    /// Expired keys are wiped. `fresh` must be random; it is zeros afterwards.
    ///
    /// May be called before it is due: an operator who does not trust a key follows this with
    /// [`Self::retire`].
    ///
    /// # Errors
    /// [`Error::RingFull`], [`Error::NoSecret`] and [`Error::KnownSecret`].
    pub fn rotate(&mut self, now_s: u64, fresh: &mut [u8; SECRET_BYTES]) -> Result<KeyId, Error> {
        let key = RingKey::new(Secret::take(fresh))?;
        if self.position(&key.id).is_some() {
            return Err(Error::KnownSecret);
        }
        self.correct_far_ahead(now_s);
        self.remove_expired(now_s);
        let Timeline { schedule, keys } = &mut self.timeline;
        if keys.len() == Self::MOST_KEYS {
            return Err(Error::RingFull { most: Self::MOST_KEYS });
        }
        let encrypts_from_s = keys.last().map_or(now_s, |newest| {
            now_s.saturating_add(schedule.lead_s()).max(newest.encrypts_from_s)
        });
        let id = key.id;
        keys.push(Timed { key, created_s: now_s, encrypts_from_s });
        Ok(id)
    }

    /// A key that is not to be trusted neither seals nor opens from now on, and is wiped. If its
    /// turn was on, the one before it has another. Returns whether it was there.
    pub fn retire(&mut self, id: &KeyId) -> bool {
        let position = self.position(id);
        position.map(|at| self.timeline.keys.remove(at)).is_some()
    }

    /// Wipes the keys whose last ticket is over, and returns how many.
    pub fn remove_expired(&mut self, now_s: u64) -> usize {
        // Turns follow one another, and so do their ends.
        let expired = (0..self.timeline.keys.len())
            .take_while(|at| self.timeline.state(*at, now_s) == KeyState::Expired)
            .count();
        self.timeline.keys.drain(..expired).count()
    }

    /// The keys from the oldest to the newest, without their secrets.
    pub fn list(&self, now_s: u64) -> impl Iterator<Item = KeyStatus> {
        self.timeline.keys.iter().enumerate().map(move |(at, timed)| KeyStatus {
            id: timed.key.id,
            state: self.timeline.state(at, now_s),
            age_s: now_s.saturating_sub(timed.created_s),
            encrypts_from_s: timed.encrypts_from_s,
            opens_until_s: self.timeline.opens_until_s(at),
        })
    }

    /// A context's keys for a TLS stack that encrypts tickets by itself. They follow the schedule
    /// without the ring, up to its newest key.
    pub fn for_context(&self, label: &Label) -> ContextKeys {
        ContextKeys::derive(&self.timeline, label)
    }

    /// What seals a context's tickets for a TLS stack that does not.
    pub fn sealer(&self, label: &Label) -> TicketSealer {
        TicketSealer::derive(&self.timeline, label)
    }

    fn position(&self, id: &KeyId) -> Option<usize> {
        self.timeline.keys.iter().position(|timed| timed.key.id == *id)
    }

    /// No key begins its turn so late, unless it was made by a clock that was ahead. (Or this one
    /// is behind: then the key begins too early by what it is behind.)
    fn is_far_ahead(&self, timed: &Timed<RingKey>, now_s: u64) -> bool {
        let latest_s = now_s.saturating_add(self.timeline.schedule.lead_s() + CLOCKS_APART_S);
        timed.encrypts_from_s > latest_s
    }

    /// Without this one clock that was once a year ahead would stop rotation for a year.
    fn correct_far_ahead(&mut self, now_s: u64) {
        let first = self.timeline.keys.partition_point(|timed| !self.is_far_ahead(timed, now_s));
        let (before, ahead) = self.timeline.keys.split_at_mut(first);
        let begins_s = before.last().map_or(now_s, |before| before.encrypts_from_s.max(now_s));
        for timed in ahead {
            (timed.created_s, timed.encrypts_from_s) = (now_s, begins_s);
        }
    }
}

impl RingKey {
    pub(crate) fn new(secret: Secret<SECRET_BYTES>) -> Result<Self, Error> {
        if *secret.bytes() == [0; SECRET_BYTES] {
            return Err(Error::NoSecret);
        }
        let id = KeyId(*secret.derive(&[b"rejoin ticket id"]).bytes());
        Ok(Self { id, secret })
    }

    pub(crate) fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) fn secret(&self) -> &Secret<SECRET_BYTES> {
        &self.secret
    }
}

impl KeyId {
    /// Its length.
    pub const BYTES: usize = 16;

    /// The id as it is listed.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl From<[u8; Self::BYTES]> for KeyId {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

/// Hexadecimal.
impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}
