//! The ring: the live keys, and their rotation.

use crate::context::ContextKeys;
use crate::error::Error;
use crate::key::{KeyId, RingKey, SECRET_BYTES};
use crate::label::Label;
use crate::schedule::{CLOCKS_APART_S, KeyState, MOST_KEYS, Schedule};
use crate::sealer::TicketSealer;
use crate::secret::Secret;
use crate::timeline::{Former, Timed, Timeline};

/// The public facts about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyStatus {
    /// Its public name.
    pub id: KeyId,
    /// Its use at present.
    pub state: KeyState,
    /// Seconds since it was made.
    pub age_s: u64,
    /// The Unix time when its turn begins or began.
    pub encrypts_from_s: u64,
    /// The Unix time when its last ticket expires. Unknown before its successor is made.
    pub opens_until_s: Option<u64>,
}

/// The keys that seal and open tickets: see the library's documentation. Only one thread may change it at a time.
#[derive(Debug, Clone)]
pub struct KeyRing {
    pub(crate) timeline: Timeline<RingKey>,
}

impl KeyRing {
    /// The most keys in a ring.
    pub const MOST_KEYS: usize = MOST_KEYS;

    /// Returns a ring without keys, for which a rotation is due.
    pub fn new(schedule: Schedule) -> Self {
        let keys = Vec::with_capacity(Self::MOST_KEYS);
        Self { timeline: Timeline { schedule, keys, former: Vec::new() } }
    }

    /// The schedule of the ring.
    pub fn schedule(&self) -> &Schedule {
        &self.timeline.schedule
    }

    /// Sets the schedule of later keys. The turns of existing keys stay.
    pub fn reschedule(&mut self, schedule: Schedule) {
        self.timeline.schedule = schedule;
    }

    /// Returns true if the ring must change now: the next key is to be made, or one has expired and is to be wiped. The
    /// schedule is kept if a server asks this every few seconds, and then calls [`Self::rotate_due`].
    pub fn due(&self, now_s: u64) -> bool {
        self.is_key_due(now_s) || self.timeline.state(0, now_s) == KeyState::Expired
    }

    fn is_key_due(&self, now_s: u64) -> bool {
        let Some(newest) = self.timeline.keys.last() else {
            return true;
        };
        let turn_ends_s =
            newest.encrypts_from_s.saturating_add(self.timeline.schedule.rotate_every_s());
        let next_begins_s = now_s.saturating_add(self.timeline.schedule.lead_s());
        turn_ends_s <= next_begins_s || self.is_far_ahead(newest, now_s)
    }

    /// Adds a key, whose turn begins after the schedule's lead, or at once if it is the only one.
    /// Expired keys are wiped. `fresh` must be random; it is zeros afterwards.
    ///
    /// It may be called before a key is due: an operator who does not trust a key then calls
    /// [`Self::retire`].
    ///
    /// # Errors
    /// [`Error::RingFull`], [`Error::NoSecret`] and [`Error::KnownSecret`].
    pub fn rotate(&mut self, now_s: u64, fresh: &mut [u8; SECRET_BYTES]) -> Result<KeyId, Error> {
        let key = RingKey::new(Secret::take(fresh))?;
        if self.position(&key.id()).is_some() {
            return Err(Error::KnownSecret);
        }
        self.correct_far_ahead(now_s);
        self.remove_expired(now_s);
        let Timeline { schedule, keys, .. } = &mut self.timeline;
        if keys.len() == Self::MOST_KEYS {
            return Err(Error::RingFull { most: Self::MOST_KEYS });
        }
        let encrypts_from_s = keys.last().map_or(now_s, |newest| {
            now_s.saturating_add(schedule.lead_s()).max(newest.encrypts_from_s)
        });
        let id = key.id();
        keys.push(Timed { key, created_s: now_s, encrypts_from_s });
        Ok(id)
    }

    /// Makes the change that is [due](Self::due): wipes expired keys, and adds the next key, as [`Self::rotate`] does, if it is
    /// time for that. A ring can be full after its schedule was changed, or after keys were made by hand. Then the oldest key
    /// is wiped, although some of its tickets have not expired: these cost full handshakes, and a key that encrypted on would
    /// protect all tickets for too long.
    ///
    /// # Errors
    /// Those of [`Self::rotate`]; [`Error::RingFull`] only if no key has had its turn.
    pub fn rotate_due(&mut self, now_s: u64, fresh: &mut [u8; SECRET_BYTES]) -> Result<(), Error> {
        let is_key_due = self.is_key_due(now_s);
        self.correct_far_ahead(now_s);
        self.remove_expired(now_s);
        if !is_key_due {
            return Ok(());
        }
        let is_full = self.timeline.keys.len() == Self::MOST_KEYS;
        if is_full && self.timeline.state(0, now_s) == KeyState::Opening {
            self.timeline.keys.remove(0);
        }
        self.rotate(now_s, fresh).map(drop)
    }

    /// Wipes a key that is not trusted any more, which then neither seals nor opens. In its turn the key before it
    /// is used again. Returns true if the key was there.
    pub fn retire(&mut self, id: &KeyId) -> bool {
        let position = self.position(id);
        position.map(|at| self.timeline.keys.remove(at)).is_some()
    }

    /// Lets the keys of another ring, with which nobody seals since `sealed_until_s`, open its tickets until the last one
    /// expires by its own schedule, or by this ring's if that is sooner. Their clients get fresh tickets under this ring.
    /// Those keys are no part of this ring's page, and are not listed. They replace those of an earlier call.
    pub fn open_tickets_of(&mut self, other: &Self, sealed_until_s: u64) {
        let keys = &other.timeline.keys;
        let opens_for_s = self.schedule().opens_for_s().min(other.schedule().opens_for_s());
        let former = keys.iter().enumerate().map(|(at, timed)| {
            let turn_ends_s = keys.get(at + 1).map_or(u64::MAX, |next| next.encrypts_from_s);
            let sealed_until_s = turn_ends_s.min(sealed_until_s);
            let opens_until_s = sealed_until_s.saturating_add(opens_for_s);
            Former { key: timed.key.clone(), opens_until_s }
        });
        self.timeline.former = former.collect();
    }

    /// Wipes the keys whose last ticket has expired, and returns their number.
    pub fn remove_expired(&mut self, now_s: u64) -> usize {
        // Turns follow one another, and so do their ends.
        let expired = (0..self.timeline.keys.len())
            .take_while(|at| self.timeline.state(*at, now_s) == KeyState::Expired)
            .count();
        self.timeline.keys.drain(..expired).count()
    }

    /// Lists the keys from the oldest to the newest, without their secrets.
    pub fn list(&self, now_s: u64) -> impl Iterator<Item = KeyStatus> {
        self.timeline.keys.iter().enumerate().map(move |(at, timed)| KeyStatus {
            id: timed.key.id(),
            state: self.timeline.state(at, now_s),
            age_s: now_s.saturating_sub(timed.created_s),
            encrypts_from_s: timed.encrypts_from_s,
            opens_until_s: self.timeline.opens_until_s(at),
        })
    }

    /// Returns the Unix time when the next key begins to encrypt, or `None` without a key. Before that key is made, this
    /// is the end of the turn that the schedule gives to the newest; it is in the past if no process rotates the keys.
    pub fn next_turn_s(&self, now_s: u64) -> Option<u64> {
        let mut upcoming = self.list(now_s).filter(|key| key.state == KeyState::Upcoming);
        let newest = self.timeline.keys.last()?;
        let due_s = newest.encrypts_from_s.saturating_add(self.schedule().rotate_every_s());
        Some(upcoming.next().map_or(due_s, |key| key.encrypts_from_s))
    }

    /// Derives a context's keys, for a TLS stack that encrypts tickets by itself. They follow the schedule
    /// without the ring, up to its newest key.
    pub fn for_context(&self, label: &Label) -> ContextKeys {
        ContextKeys::derive(&self.timeline, label)
    }

    /// Derives a context's sealer, for a TLS stack that does not encrypt tickets by itself.
    pub fn sealer(&self, label: &Label) -> TicketSealer {
        TicketSealer::derive(&self.timeline, label)
    }

    fn position(&self, id: &KeyId) -> Option<usize> {
        self.timeline.keys.iter().position(|timed| timed.key.id() == *id)
    }

    /// Returns true for a key whose turn begins so late that it was made by a clock that was ahead. (Or this clock
    /// is behind: then the key begins too early by the difference.)
    fn is_far_ahead(&self, timed: &Timed<RingKey>, now_s: u64) -> bool {
        let latest_s = now_s.saturating_add(self.timeline.schedule.lead_s() + CLOCKS_APART_S);
        timed.encrypts_from_s > latest_s
    }

    /// Moves keys that begin too late to the present. Otherwise a clock that was once a year ahead would stop
    /// rotation for a year.
    fn correct_far_ahead(&mut self, now_s: u64) {
        let first = self.timeline.keys.partition_point(|timed| !self.is_far_ahead(timed, now_s));
        let (before, ahead) = self.timeline.keys.split_at_mut(first);
        let begins_s = before.last().map_or(now_s, |before| before.encrypts_from_s.max(now_s));
        for timed in ahead {
            (timed.created_s, timed.encrypts_from_s) = (now_s, begins_s);
        }
    }
}
