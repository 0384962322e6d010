//! Ghosts: the history of clients whose session was evicted or refused.

use rejoin_cache::SessionId;

use super::expectation::{Beliefs, Expected, Past};

/// An empty place is filled first, else the ghost worth least makes way.
type GhostSet = [Option<Ghost>; 8];

/// Sets of eight, chosen by hash.
pub(crate) struct Ghosts {
    sets: Vec<GhostSet>,
    hash_key: [u8; 16],
}

#[derive(Clone)]
struct Ghost {
    told_by: u16,
    seen: Units,
    expected: Expected,
    past: Past,
}

/// A client's history, as a ghost gives it back.
pub(crate) struct Remembered {
    /// For how long it had not been seen.
    pub(crate) age_ticks: u64,
    pub(crate) expected: Expected,
    pub(crate) past: Past,
}

/// The time of ghosts: in 16 ms, and starting again every three days.
#[derive(Clone, Copy)]
struct Units(u64);

impl Ghosts {
    pub(crate) fn new(ghosts: usize, hash_key: [u8; 16]) -> Self {
        Self { sets: vec![GhostSet::default(); ghosts.div_ceil(8)], hash_key }
    }

    /// Remembers a client. A client that finds no place, or loses it, is recorded as not back.
    pub(crate) fn add(
        &mut self,
        id: &SessionId,
        now: u64,
        Remembered { age_ticks, expected, past }: Remembered,
        beliefs: &Beliefs,
    ) {
        let (places, told_by) = self.set(id);
        let Some(places) = places else {
            return beliefs.record(told_by, expected, age_ticks, false);
        };
        let age = |ghost: &Ghost| ghost.seen.ticks_until(now);
        let worth = |ghost: &Ghost| beliefs.worth_remembering(ghost.expected, age(ghost));
        let least = places.iter_mut().min_by_key(|place| place.as_ref().map(worth));
        let ghost =
            Ghost { told_by, seen: Units::at(now - age_ticks), expected, past: past.coarse() };
        if let Some(lost) = least.expect("eight places").replace(ghost) {
            beliefs.record(lost.told_by, lost.expected, age(&lost), false);
        }
    }

    /// Forgets a client that has returned.
    pub(crate) fn take(&mut self, id: &SessionId, now: u64) -> Option<Remembered> {
        let (places, told_by) = self.set(id);
        let is_it = |ghost: &Ghost| ghost.told_by == told_by;
        let place = places?.iter_mut().find(|place| place.as_ref().is_some_and(is_it))?;
        let Ghost { seen, expected, past, .. } = place.take()?;
        Some(Remembered { age_ticks: seen.ticks_until(now), expected, past })
    }

    fn set(&mut self, id: &SessionId) -> (Option<&mut GhostSet>, u16) {
        let hash = super::keyed_hash(&self.hash_key, id);
        let at = ((hash & 0xffff_ffff) * self.sets.len() as u64) >> 32;
        (self.sets.get_mut(at as usize), super::told_by(&self.hash_key, id))
    }
}

impl Units {
    const TICKS: u64 = 4;
    const PERIOD: u64 = 1 << 24;

    fn at(tick: u64) -> Self {
        Self(tick / Self::TICKS % Self::PERIOD)
    }

    fn ticks_until(self, now: u64) -> u64 {
        (Self::at(now).0 + Self::PERIOD - self.0) % Self::PERIOD * Self::TICKS
    }
}
