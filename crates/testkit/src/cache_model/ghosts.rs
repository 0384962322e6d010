//! Ghosts: the history of clients whose session was evicted or refused.

use rejoin_cache::SessionId;

use super::expectation::{Beliefs, Class, Expected, Past};

/// An empty place is filled first, else the ghost worth least makes way.
type GhostSet = [Option<Ghost>; 8];

/// Sets of eight, chosen by hash.
pub(crate) struct Ghosts {
    sets: Vec<GhostSet>,
    /// The ghosts for which one stands that is looked at beside sixteen sessions.
    a_look: u32,
    hash_key: [u8; 16],
}

#[derive(Clone)]
struct Ghost {
    told_by: u16,
    seen: Units,
    hint: Option<Class>,
    past: Past,
}

/// A client's history, as a ghost gives it back.
pub(crate) struct Remembered {
    /// For how long it had not been seen.
    pub(crate) age_ticks: u64,
    pub(crate) expected: Expected,
    pub(crate) past: Past,
}

/// The time of ghosts: in 64 ms, and starting again every three days. The last hour before is the future.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Units(u64);

impl Ghosts {
    pub(crate) fn new(ghosts: usize, sessions: usize, hash_key: [u8; 16]) -> Self {
        let a_look = (16 * ghosts / sessions).max(1) as u32;
        Self { sets: vec![GhostSet::default(); ghosts.div_ceil(8)], a_look, hash_key }
    }

    /// Remembers a client. A client that was seen too long ago, finds no place, or loses it, is recorded as not back.
    pub(crate) fn add(
        &mut self,
        id: &SessionId,
        now: u64,
        Remembered { age_ticks, expected, past }: Remembered,
        beliefs: &Beliefs,
    ) {
        let a_look = self.a_look;
        let any = super::keyed_hash(&self.hash_key, id) >> 46 & 7;
        let (places, told_by) = self.set(id);
        let places = places.filter(|_| age_ticks < Units::OLDEST_TICKS);
        let Some(places) = places else {
            return beliefs.record(expected, age_ticks, false);
        };
        let age = |ghost: &Ghost| ghost.seen.ticks_until(now);
        let worth =
            |ghost: &Ghost| beliefs.worth_remembering(ghost.past.expected(ghost.hint), age(ghost));
        let at = (0..8).min_by_key(|at| places[*at].as_ref().map(worth)).expect("eight places");
        if let Some(other) = &places[any as usize] {
            beliefs.watch(other.past.expected(other.hint), age(other), a_look);
        }
        let (seen, hint) = (Units::at(now - age_ticks), expected.hint());
        let ghost = Ghost { told_by, seen, hint, past: past.coarse(hint.is_some()) };
        if let Some(lost) = places[at].replace(ghost) {
            beliefs.record(lost.past.expected(lost.hint), age(&lost), false);
        }
    }

    /// Forgets a client that has returned.
    pub(crate) fn take(&mut self, id: &SessionId, now: u64) -> Option<Remembered> {
        let (places, told_by) = self.set(id);
        let is_it = |ghost: &Ghost| ghost.told_by == told_by;
        let place = places?.iter_mut().find(|place| place.as_ref().is_some_and(is_it))?;
        let Ghost { seen, hint, past, .. } = place.take()?;
        let (age_ticks, expected) = (seen.ticks_until(now), past.expected(hint));
        Some(Remembered { age_ticks, expected, past })
    }

    fn set(&mut self, id: &SessionId) -> (Option<&mut GhostSet>, u16) {
        let hash = super::keyed_hash(&self.hash_key, id);
        let at = ((hash & 0xffff_ffff) * self.sets.len() as u64) >> 32;
        (self.sets.get_mut(at as usize), super::told_by(&self.hash_key, id))
    }
}

impl Units {
    const TICKS: u64 = 16;
    const PERIOD: u64 = 1 << 22;
    const FUTURE: u64 = 1 << 16;
    const OLDEST_TICKS: u64 = (Self::PERIOD - Self::FUTURE) * Self::TICKS;

    fn at(tick: u64) -> Self {
        Self(tick / Self::TICKS % Self::PERIOD)
    }

    fn ticks_until(self, now: u64) -> u64 {
        let units = (Self::at(now).0 + Self::PERIOD - self.0) % Self::PERIOD;
        if units < Self::PERIOD - Self::FUTURE { units * Self::TICKS } else { 0 }
    }
}
