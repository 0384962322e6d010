//! Ghosts: clients whose session was evicted or refused. A client that comes back soon after is
//! counted as wanted, and its history is known when its next session is stored.
//!
//! A ghost is eight bytes: 14 bits of the id's hash, 22 of the time the client was seen, 20 of its history, and 8 that hold the
//! application's interval or else more history. Eight share a cache line, chosen by hash; when it is full,
//! the ghost worth least makes way. If one client is mistaken for another (once in two thousand
//! misses), or one seen more than three days ago for a recent one, the expectation is wrong, and
//! nothing else.

use std::hint::select_unpredictable;

use crate::History;
use crate::expectation::{Expectation, Trust};
use crate::interval::IntervalClass;

/// The number of ghosts in a cache line.
const GHOSTS: usize = 8;

/// Eight ghosts; a zero is an empty place.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct GhostSet([u64; GHOSTS]);

impl GhostSet {
    pub(crate) const GHOSTS: usize = GHOSTS;
}

const _: () = assert!(FINER == u8::MAX - IntervalClass::LONGEST + 1);

/// The record of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// The time since the client was last seen, less than [`Self::PERIOD_TICKS`].
    pub(crate) age_ticks: u32,
    pub(crate) expected: Expectation,
    pub(crate) history: History,
}

const TAG_BITS: u32 = 14;
const TAG_MASK: u16 = (1 << TAG_BITS) - 1;
/// The first bits of a hash of which neither the tag nor the set depends.
const ANY_SHIFT: u32 = 32 + TAG_BITS;
const TAG_SHIFT: u32 = u64::BITS - TAG_BITS;
const SEEN_SHIFT: u32 = 28;
const SEEN_MASK: u64 = (1 << (TAG_SHIFT - SEEN_SHIFT)) - 1;
const HINT_SHIFT: u32 = History::COARSE_BITS;
const COARSE_MASK: u32 = (1 << History::COARSE_BITS) - 1;
/// The first of the numbers that are no class of a hint: 225 to 255, and then 0. They hold the finer bits of a history.
const FIRST_FINER: u8 = IntervalClass::LONGEST + 1;
const FINER: u8 = 1 << History::FINER_BITS;
/// Ticks in the unit of [`SEEN_MASK`]: 64 ms, so that the field wraps after three days.
const UNIT_TICKS: u32 = 16;
/// The most units, an hour or so, by which a ghost may be in the future. A clock may step back, and threads wait for a shard.
const AHEAD: u64 = 1 << 16;

impl Ghost {
    /// The time after which the field of the time begins anew.
    pub(crate) const WRAP_TICKS: u64 = (SEEN_MASK + 1) * UNIT_TICKS as u64;
    /// The age from which a ghost would be taken for one in the future: three days.
    pub(crate) const PERIOD_TICKS: u32 = Self::WRAP_TICKS as u32 - AHEAD as u32 * UNIT_TICKS;

    fn packed(&self, hash: u64, now: u32) -> u64 {
        let history = self.history.packed();
        let hint = match (self.expected.trust(), self.expected.class()) {
            (Trust::Claimed | Trust::Kept, IntervalClass(class @ 1..)) => class,
            _ => FIRST_FINER.wrapping_add((history >> History::COARSE_BITS) as u8),
        };
        let known = u64::from(hint) << HINT_SHIFT | u64::from(history & COARSE_MASK);
        let seen = units(now.saturating_sub(self.age_ticks));
        u64::from(tag(hash)) << TAG_SHIFT | seen << SEEN_SHIFT | known
    }

    #[inline]
    fn unpacked(packed: u64, now: u32) -> Self {
        let place = Place(packed);
        Self {
            age_ticks: place.age_ticks(now),
            expected: place.expected(),
            history: place.history(),
        }
    }
}

/// A ghost as it is kept, of which some is to be read.
#[derive(Clone, Copy)]
pub(crate) struct Place(u64);

impl Place {
    /// Returns the time since the client was last seen; zero if that is in the future.
    #[inline]
    pub(crate) fn age_ticks(self, now: u32) -> u32 {
        let units = units(now).wrapping_sub(self.0 >> SEEN_SHIFT).wrapping_add(AHEAD) & SEEN_MASK;
        units.saturating_sub(AHEAD) as u32 * UNIT_TICKS
    }

    /// Returns what was expected of it.
    #[inline]
    pub(crate) fn expected(self) -> Expectation {
        let hint = (self.0 >> HINT_SHIFT) as u8;
        if hint.wrapping_sub(FIRST_FINER) >= FINER {
            return self.hinted(IntervalClass(hint));
        }
        let (class, is_kept, rhythm) = History::known(self.packed());
        let trust = usize::from(is_kept) * Trust::Confirmed as usize;
        Expectation::from_index(trust << 8 | usize::from(class.0)).with_rhythm(rhythm)
    }

    // Not inlined: it is long, and where the application gives no intervals none is.
    #[inline(never)]
    fn hinted(self, hint: IntervalClass) -> Expectation {
        // If the last gap is longer, the one before, which is not kept, was as short as that.
        Expectation::hinted(self.history().after(hint), hint.interval())
    }

    #[inline]
    fn history(self) -> History {
        History::from_packed(self.packed())
    }

    #[inline]
    fn packed(self) -> u32 {
        let coarse = self.0 as u32 & COARSE_MASK;
        let finer = u32::from(((self.0 >> HINT_SHIFT) as u8).wrapping_sub(FIRST_FINER));
        let known = coarse | finer << History::COARSE_BITS;
        select_unpredictable(finer < FINER.into(), known, History::without_finer(coarse))
    }
}

/// Remembers a client. Returns the ghost that had to make way, which is the client itself if there
/// is no place at all. `watch` is told of one that stays.
pub(crate) fn add(
    sets: &mut [GhostSet],
    hash: u64,
    now: u32,
    ghost: &Ghost,
    worth: impl Fn(Place) -> u64,
    watch: impl FnOnce(Place),
) -> Option<Ghost> {
    let Some(GhostSet(ghosts)) = set_of(sets, hash) else { return Some(*ghost) };
    let (mut least, mut worth_of_least) = (0, u64::MAX);
    for (at, place) in ghosts.iter().enumerate() {
        let worth = match *place {
            0 => 0,
            place => worth(Place(place)).saturating_add(1),
        };
        let is_less = worth < worth_of_least;
        least = select_unpredictable(is_less, at, least);
        worth_of_least = worth.min(worth_of_least);
        if worth == 0 {
            break;
        }
    }
    // Any of them, the one that makes way included: that is seldom one that is worth much.
    let other = ghosts[(hash >> ANY_SHIFT) as usize % GHOSTS];
    if other != 0 {
        watch(Place(other));
    }
    let before = std::mem::replace(&mut ghosts[least], ghost.packed(hash, now));
    (before != 0).then(|| Ghost::unpacked(before, now))
}

/// Removes a client and returns its record.
pub(crate) fn take(sets: &mut [GhostSet], hash: u64, now: u32) -> Option<Ghost> {
    forget(sets, hash).map(|Place(packed)| Ghost::unpacked(packed, now))
}

/// Removes a client.
pub(crate) fn forget(sets: &mut [GhostSet], hash: u64) -> Option<Place> {
    let GhostSet(ghosts) = set_of(sets, hash)?;
    let tag = u64::from(tag(hash));
    let ghost = ghosts.iter_mut().find(|ghost| **ghost >> TAG_SHIFT == tag)?;
    Some(Place(std::mem::take(ghost)))
}

fn units(ticks: u32) -> u64 {
    u64::from(ticks / UNIT_TICKS) & SEEN_MASK
}

fn set_of(sets: &mut [GhostSet], hash: u64) -> Option<&mut GhostSet> {
    let at = (u64::from(hash as u32) * sets.len() as u64) >> 32;
    sets.get_mut(at as usize)
}

/// Returns the bits of an id's hash by which a ghost is recognised; never zero. The bits above chose the shard, those below the set.
fn tag(hash: u64) -> u16 {
    ((hash >> 32) as u16 & TAG_MASK).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ghost(age_ticks: u32) -> Ghost {
        Ghost { age_ticks, expected: Expectation::UNKNOWN, history: History::default() }
    }

    fn add(set: &mut [GhostSet], client: u64, now: u32, ghost: &Ghost) -> Option<Ghost> {
        let younger = |place: Place| u64::from(u32::MAX - place.age_ticks(now));
        super::add(set, client << 32, now, ghost, younger, |_| {})
    }

    #[test]
    fn the_least_makes_way() {
        let mut set = [GhostSet([0; 8])];
        let ages = [20, 80, 40, 60, 8, 72, 32, 48].map(|age| age * UNIT_TICKS);
        let now = 100 * UNIT_TICKS;
        for (client, age) in (1..).zip(ages) {
            assert_eq!(add(&mut set, client, now, &ghost(age)), None);
        }
        let lost = add(&mut set, 9, now, &ghost(76 * UNIT_TICKS));
        assert_eq!(lost, Some(ghost(80 * UNIT_TICKS)));
        let lost = add(&mut set, 10, now, &ghost(0));
        let newcomer = Some(ghost(76 * UNIT_TICKS));
        assert_eq!(lost, newcomer, "the newcomer may have been seen before any other");
        assert_eq!(take(&mut set, 2 << 32, now), None);
        let later = now + 4 * UNIT_TICKS;
        assert_eq!(take(&mut set, 3 << 32, later), Some(ghost(44 * UNIT_TICKS)));
        assert_eq!(take(&mut set, 3 << 32, later), None);
    }

    #[test]
    fn a_ghost_is_given_back_as_it_was_remembered() {
        let mut history = History::default();
        [15_000, 15_000, 4_000].into_iter().for_each(|gap| history.record(gap));
        let history = History::from_packed(history.packed());
        let hint = IntervalClass(90);
        for expected in
            [Expectation::learned(history), Expectation::hinted(history, hint.interval())]
        {
            let mut set = [GhostSet([0; 8])];
            // Of a client with a hint less is kept.
            let history = match expected.trust() {
                Trust::Claimed | Trust::Kept => {
                    History::from_packed(History::without_finer(history.packed()))
                }
                _ => history,
            };
            let remembered = Ghost { expected, history, ..ghost(3 * UNIT_TICKS) };
            add(&mut set, 1, 9 * UNIT_TICKS, &remembered);
            assert_eq!(take(&mut set, 1 << 32, 9 * UNIT_TICKS), Some(remembered));
        }
    }

    /// The last gap was a wait, and the one before, which a ghost does not keep, as the application said.
    #[test]
    fn a_ghost_is_expected_as_its_session_was() {
        let hint = IntervalClass(95).interval();
        let gaps: [&[u32]; 4] =
            [&[15_000, 690_000], &[30_000, 15_000, 690_000], &[15_000, 20_000], &[3_000, 17_500]];
        for gaps in gaps {
            let mut history = History::default();
            gaps.iter().for_each(|gap| history.record(*gap));
            let expected = Expectation::hinted(history, hint);
            assert_eq!(expected.trust(), Trust::Kept);
            let mut set = [GhostSet([0; 8])];
            add(&mut set, 1, 9 * UNIT_TICKS, &Ghost { expected, history, ..ghost(0) });
            let ghost = take(&mut set, 1 << 32, 9 * UNIT_TICKS).expect("there");
            assert_eq!(ghost.expected, expected, "{gaps:?}");
        }
    }

    #[test]
    fn time_may_wrap() {
        let mut set = [GhostSet([0; 8])];
        let last = (SEEN_MASK as u32) * UNIT_TICKS;
        add(&mut set, 1, last, &ghost(0));
        let ghost = take(&mut set, 1 << 32, last + 100 * UNIT_TICKS).expect("there");
        assert_eq!(ghost.age_ticks, 100 * UNIT_TICKS);
    }

    #[test]
    fn a_ghost_in_the_future_was_seen_just_now() {
        let now = 9 * UNIT_TICKS;
        for (ahead, age_ticks) in [
            (UNIT_TICKS, 0),
            (AHEAD as u32 * UNIT_TICKS, 0),
            ((AHEAD as u32 + 1) * UNIT_TICKS, Ghost::PERIOD_TICKS - UNIT_TICKS),
        ] {
            let mut set = [GhostSet([0; 8])];
            add(&mut set, 1, now + ahead, &ghost(0));
            assert_eq!(take(&mut set, 1 << 32, now), Some(ghost(age_ticks)), "{ahead}");
        }
    }

    #[test]
    fn all_bits_of_a_hash_are_taken() {
        for bit in 0..u64::BITS {
            let (mut sets, hash) = ([GhostSet([0; 8]); 3], 1 << bit);
            super::add(&mut sets, hash, 0, &ghost(0), |_| 0, |_| {});
            assert_eq!(take(&mut sets, hash, 0), Some(ghost(0)), "bit {bit}");
        }
    }
}
