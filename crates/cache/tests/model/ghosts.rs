//! What stays known of clients whose session was evicted or refused.

use rejoin_cache::SessionId;

use super::expectation::Past;

/// An empty place is filled first, else the oldest makes way.
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
    past: Past,
}

/// The time of ghosts: in 16 ms, and starting again every three days.
#[derive(Clone, Copy)]
struct Units(u64);

impl Ghosts {
    pub(crate) fn new(ghosts: usize, hash_key: [u8; 16]) -> Self {
        Self { sets: vec![GhostSet::default(); ghosts.div_ceil(8)], hash_key }
    }

    /// Remembers a client seen at tick `seen`.
    pub(crate) fn add(&mut self, id: &SessionId, now: u64, seen: u64, past: Past) {
        let now = Units::at(now);
        let Some((places, told_by)) = self.set(id) else { return };
        let oldest = places.iter_mut().max_by_key(|place| {
            place.as_ref().map_or(Units::PERIOD, |ghost| ghost.seen.until(now))
        });
        *oldest.expect("eight places") =
            Some(Ghost { told_by, seen: Units::at(seen), past: past.coarse() });
    }

    /// Forgets a client; returns how many ticks ago it was seen, and its past.
    pub(crate) fn take(&mut self, id: &SessionId, now: u64) -> Option<(u64, Past)> {
        let (places, told_by) = self.set(id)?;
        let is_it = |ghost: &Ghost| ghost.told_by == told_by;
        let place = places.iter_mut().find(|place| place.as_ref().is_some_and(is_it))?;
        let ghost = place.take()?;
        Some((ghost.seen.until(Units::at(now)) * Units::TICKS, ghost.past))
    }

    fn set(&mut self, id: &SessionId) -> Option<(&mut GhostSet, u16)> {
        let hash = super::keyed_hash(&self.hash_key, id);
        let at = ((hash & 0xffff_ffff) * self.sets.len() as u64) >> 32;
        let told_by = ((hash >> 32) as u16).max(1);
        Some((self.sets.get_mut(at as usize)?, told_by))
    }
}

impl Units {
    const TICKS: u64 = 4;
    const PERIOD: u64 = 1 << 24;

    fn at(tick: u64) -> Self {
        Self(tick / Self::TICKS % Self::PERIOD)
    }

    fn until(self, now: Self) -> u64 {
        (now.0 + Self::PERIOD - self.0) % Self::PERIOD
    }
}
