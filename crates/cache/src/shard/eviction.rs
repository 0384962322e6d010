//! Eviction: which session a shard gives up for a new one.

use std::hint::select_unpredictable;
use std::ops::Range;

use super::{Shard, add};
use crate::candidates::{Candidates, LOOKS};
use crate::error::Refusal;
use crate::expectation::Expectation;
use crate::layout::Header;
use crate::order::{self, List, Turns};
use crate::region::Region;
use crate::return_time::{ReturnTimes, Waits};
use crate::session::Admission;
use crate::settings::{Policy, Prediction};
use crate::slots::{NONE, Slot, Slots};

impl<R: Region> Shard<'_, R> {
    /// Evicts one session per missing slot.
    pub(super) fn make_room(
        &mut self,
        now: u32,
        needed: u32,
        newcomer: Expectation,
        admission: Admission,
    ) -> Result<u32, Refusal> {
        let mut evicted = 0;
        while self.spare() < needed && !self.is_astray() {
            let victim = match (self.layout.policy, self.layout.prediction) {
                (Policy::Lru, _) => self.oldest(),
                (Policy::Predictive, Prediction::Hint) => self.overdue_or_latest(now, newcomer),
                (Policy::Predictive, _) => self.worth_least(now, newcomer),
            };
            let is_certain = admission == Admission::Always && !newcomer.is_never();
            let victim = victim.or_else(|| is_certain.then(|| self.oldest_of_few(now))?);
            let Some(victim) = victim else {
                add(&mut self.header.counters.refused_returns_later, 1);
                return Err(Refusal::ReturnsLater);
            };
            self.evict(now, victim);
            evicted += 1;
        }
        Ok(evicted)
    }

    /// Returns the number of slots that hold nothing.
    fn spare(&self) -> u32 {
        let spare = self.layout.slots.checked_sub(self.header.used);
        self.slots.expect(spare.is_some());
        spare.unwrap_or_default()
    }

    fn oldest(&mut self) -> Option<u32> {
        let oldest = self.order().first_of(Expectation::UNKNOWN);
        add(&mut self.header.counters.evicted_oldest, u64::from(oldest.is_some()));
        oldest
    }

    /// Chooses the session of a few whose client was seen longest ago: another few at each call, so that none that has just
    /// come goes soon.
    fn oldest_of_few(&mut self, now: u32) -> Option<u32> {
        let mut oldest = None;
        for at in next_part(&mut self.header.hand, self.header.fresh, LOOKS).into_iter().flatten() {
            let Slot { seen, .. } = self.slots[at];
            let age = now.abs_diff(seen);
            let is_older = oldest.is_none_or(|(_, most)| age > most);
            if self.slots[at].id_length() > 0 && is_older {
                oldest = Some((at, age));
            }
        }
        add(&mut self.header.counters.evicted_oldest, u64::from(oldest.is_some()));
        oldest.map(|(at, _)| at)
    }

    /// Chooses a session by Algorithm 1.
    fn overdue_or_latest(&mut self, now: u32, newcomer: Expectation) -> Option<u32> {
        let grace = self.layout.grace_ticks;
        let order = self.order();
        if let Some(end) = order.earliest()
            && end.returns().saturating_add(grace) < now
        {
            add(&mut self.header.counters.evicted_overdue, 1);
            return Some(end.slot);
        }
        if newcomer.is_never() {
            return None;
        }
        let returns = order::returns(now, newcomer);
        let last = order
            .never()
            .or_else(|| order.latest().filter(|end| returns < end.returns()).map(|end| end.slot));
        add(&mut self.header.counters.evicted_latest, u64::from(last.is_some()));
        last
    }

    /// Returns the session whose place is worth least of the candidates, if it is worth less than the newcomer's. The search adds to
    /// them the ends of a few lists and a few slots, others each time, whatever the number of either.
    fn worth_least(&mut self, now: u32, newcomer: Expectation) -> Option<u32> {
        if newcomer.is_never() {
            return None;
        }
        if let Some(never) = self.order().never() {
            add(&mut self.header.counters.evicted_latest, 1);
            return Some(never);
        }
        self.search(now);
        let own = self.worth(newcomer, now, now);
        // Each candidate is looked at twice at most: what it is worth now is noted, or it is none any more.
        for _ in 0..2 * Candidates::COUNT {
            let (slot, noted) = self.header.candidates.least()?;
            let Slot { seen, .. } = self.slots[slot];
            let (expected, from) = (self.slots[slot].expected(), self.slots[slot].counts_from());
            let is_there = self.slots[slot].id_length() > 0;
            let worth = is_there.then(|| self.worth(expected, from, now));
            match worth {
                Some(worth) if worth <= noted && worth >= own => return None,
                Some(worth) if worth <= noted => {}
                worth => {
                    self.header.candidates.remove_least();
                    if let Some(worth) = worth {
                        self.header.candidates.consider(slot, worth);
                    }
                    continue;
                }
            }
            self.header.candidates.remove_least();
            let overdue = order::returns(seen, expected) < now;
            add(&mut self.header.counters.evicted_overdue, u64::from(overdue));
            add(&mut self.header.counters.evicted_latest, u64::from(!overdue));
            return Some(slot);
        }
        None
    }

    /// Looks for candidates.
    #[inline]
    fn search(&mut self, now: u32) {
        let return_times = self.return_times();
        search(self.header, self.lists, &self.slots, return_times, now);
    }

    /// Returns what the place of a client is worth whose interval counts from then.
    #[inline]
    pub(crate) fn worth(&self, expected: Expectation, from: u32, now: u32) -> u64 {
        // A session seen in the future, before the clock stepped back, must be evictable too.
        self.return_times().worth(expected, now.abs_diff(from))
    }

    fn evict(&mut self, now: u32, slot: u32) {
        let victim = &self.slots[slot];
        if !self.slots.expect(victim.id_length() > 0) {
            return;
        }
        let (hash, expected) = (victim.hash(self.hash_key()), victim.expected());
        self.remember(hash, now, victim.seen, expected, victim.history);
        self.free(slot, hash);
    }

    /// Evicts a session, and gives up on its client.
    pub(crate) fn evict_unremembered(&mut self, now: u32, slot: u32) {
        let victim = &self.slots[slot];
        if !self.slots.expect(victim.id_length() > 0) {
            return;
        }
        self.learn(victim.expected(), now.saturating_sub(victim.counts_from()), false);
        self.free(slot, victim.hash(self.hash_key()));
    }
}

/// Looks for candidates at the ends of a few lists and in a few slots.
// Not inlined: what an insertion needs would leave too few registers.
#[inline(never)]
fn search<R: Region>(
    header: &mut Header,
    lists: &[List],
    slots: &Slots<'_, R>,
    return_times: ReturnTimes<&Waits>,
    now: u32,
) {
    const LISTS: usize = 8;
    let mut looks = return_times.begin_looks();
    let Header { occupied, candidates, turn, hand, fresh, .. } = header;
    for list in Turns::new(occupied, *turn).take(LISTS) {
        let [first, last] = order::ends_of(lists, slots, list);
        // It is marked as one that is not empty.
        slots.expect(first.slot != NONE);
        candidates.consider(first.slot, looks.worth(first.expected, now.abs_diff(first.from)));
        let worth = looks.worth(last.expected, now.abs_diff(last.from));
        let is_other = last.slot != first.slot;
        candidates.consider(last.slot, select_unpredictable(is_other, worth, u64::MAX));
        *turn = list as u32 + 1;
    }
    for range in next_part(hand, *fresh, LOOKS) {
        for (at, slot) in range.clone().zip(slots.range(range)) {
            if slot.id_length() > 0 {
                candidates
                    .consider(at, looks.look(slot.expected(), now.abs_diff(slot.counts_from())));
            }
        }
    }
    looks.end();
}

/// Returns the next slots to look at of those that have been used: so many, in two ranges, and in another place each time.
///
/// Slots are first used one after the other, so that neighbours are of one age, and the oldest sessions are in the first. If each look
/// began where the last one ended, the first few would be of the oldest alone, and what is learned from them false. Steps of the golden
/// ratio are everywhere from the start (Knuth, "The Art of Computer Programming", section 6.4).
#[inline]
pub(crate) fn next_part(hand: &mut u32, fresh: u32, count: u32) -> [Range<u32>; 2] {
    /// 2³² / the golden ratio.
    const STEP: u32 = 0x9e37_79b9;
    *hand = hand.wrapping_add(STEP);
    let from = ((u64::from(*hand) * u64::from(fresh)) >> 32) as u32;
    let count = count.min(fresh);
    let until = from.saturating_add(count).min(fresh);
    [from..until, 0..count - (until - from)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(fresh: u32, searches: usize) -> impl Iterator<Item = u32> {
        let mut hand = 0;
        (0..searches).flat_map(move |_| next_part(&mut hand, fresh, LOOKS)).flatten()
    }

    #[test]
    fn the_first_looks_are_everywhere() {
        const FRESH: u32 = 4_096;
        for searches in [8, 16, 50] {
            let mut seen: Vec<u32> = parts(FRESH, searches).chain([0, FRESH]).collect();
            seen.sort_unstable();
            let widest = seen.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default();
            assert!(widest <= 3 * FRESH / searches as u32, "{widest} after {searches}");
        }
    }

    #[test]
    fn each_slot_is_looked_at_before_long() {
        for fresh in [1_u32, 2, 15, 16, 17, 100, 6_750, 204_800] {
            let passes = 3 * fresh.div_ceil(LOOKS) as usize;
            let seen: std::collections::HashSet<u32> = parts(fresh, passes).collect();
            assert_eq!(seen.len(), fresh as usize);
        }
        assert_eq!(parts(0, 9).count(), 0);
        assert_eq!(parts(7, 3).count(), 21, "no slot twice in one search");
    }
}
