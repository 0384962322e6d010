//! Keys in the order of their turns.
//!
//! The rules for the use of a key are here once, for a ring's secrets and for all keys that are
//! derived from them.

use crate::schedule::{KeyState, Schedule};

/// The state of the key that opened a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// The key seals new tickets, here or where clocks are ahead.
    Fresh,
    /// The key's turn is over: give the client a fresh ticket, or it loses its session with the key.
    Renew,
}

/// A key with its times.
#[derive(Debug, Clone)]
pub(crate) struct Timed<K> {
    pub(crate) key: K,
    pub(crate) created_s: u64,
    pub(crate) encrypts_from_s: u64,
}

/// A key of another ring, which seals nothing any more.
#[derive(Debug, Clone)]
pub(crate) struct Former<K> {
    pub(crate) key: K,
    pub(crate) opens_until_s: u64,
}

/// Up to [`crate::KeyRing::MOST_KEYS`] keys, in the order of their turns, and as many of another ring.
#[derive(Debug, Clone)]
pub(crate) struct Timeline<K> {
    pub(crate) schedule: Schedule,
    pub(crate) keys: Vec<Timed<K>>,
    pub(crate) former: Vec<Former<K>>,
}

impl<K> Timeline<K> {
    /// Derives other keys, with the same turns.
    pub(crate) fn map<D>(&self, derive: impl Fn(&K) -> D) -> Timeline<D> {
        let derived = |timed: &Timed<K>| Timed {
            key: derive(&timed.key),
            created_s: timed.created_s,
            encrypts_from_s: timed.encrypts_from_s,
        };
        let former = self.former.iter().map(|Former { key, opens_until_s }| Former {
            key: derive(key),
            opens_until_s: *opens_until_s,
        });
        Timeline {
            schedule: self.schedule,
            keys: self.keys.iter().map(derived).collect(),
            former: former.collect(),
        }
    }

    /// Returns the position of the key that encrypts: the newest whose turn has begun. If none has begun, because this
    /// clock is behind or earlier keys were retired, it is the first one, which is better than no ticket.
    pub(crate) fn encrypting_at(&self, now_s: u64) -> usize {
        self.keys.iter().rposition(|timed| timed.encrypts_from_s <= now_s).unwrap_or(0)
    }

    pub(crate) fn encrypting(&self, now_s: u64) -> Option<&K> {
        self.keys.get(self.encrypting_at(now_s)).map(|timed| &timed.key)
    }

    /// Returns the time when a key's last ticket expires. Unknown as long as the key has no successor.
    pub(crate) fn opens_until_s(&self, at: usize) -> Option<u64> {
        let successor = self.keys.get(at + 1)?;
        Some(successor.encrypts_from_s.saturating_add(self.schedule.opens_for_s()))
    }

    pub(crate) fn state(&self, at: usize, now_s: u64) -> KeyState {
        match at.cmp(&self.encrypting_at(now_s)) {
            std::cmp::Ordering::Greater => KeyState::Upcoming,
            std::cmp::Ordering::Equal => KeyState::Encrypting,
            std::cmp::Ordering::Less if self.opens_until_s(at) > Some(now_s) => KeyState::Opening,
            std::cmp::Ordering::Less => KeyState::Expired,
        }
    }

    /// Finds the key that a ticket names, unless it has expired. Names are public, and few, so they are
    /// compared one by one.
    pub(crate) fn find(&self, now_s: u64, named: impl Fn(&K) -> bool) -> Option<(&K, Opened)> {
        let Some(at) = self.keys.iter().position(|timed| named(&timed.key)) else {
            let is_alive = |former: &&Former<K>| former.opens_until_s > now_s && named(&former.key);
            return self.former.iter().find(is_alive).map(|former| (&former.key, Opened::Renew));
        };
        let opened = match self.state(at, now_s) {
            KeyState::Upcoming | KeyState::Encrypting => Opened::Fresh,
            KeyState::Opening => Opened::Renew,
            KeyState::Expired => return None,
        };
        Some((&self.keys[at].key, opened))
    }
}
