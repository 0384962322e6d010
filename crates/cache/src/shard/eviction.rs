//! Eviction: which session a shard gives up for a new one.

use super::{Shard, add};
use crate::error::Refusal;
use crate::expectation::Expectation;
use crate::id::SessionId;
use crate::order;
use crate::region::Region;
use crate::session::Admission;
use crate::settings::{Policy, Prediction};
use crate::slots::Slot;

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
            let is_certain = admission == Admission::Always && newcomer != Expectation::NEVER;
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
        const FEW: u32 = 16;
        let mut oldest = None;
        for _ in 0..FEW.min(self.header.fresh) {
            let at = self.next_at_hand();
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

    /// Returns the next slot of those that have been used, in turns.
    fn next_at_hand(&mut self) -> u32 {
        let at = if self.header.hand < self.header.fresh { self.header.hand } else { 0 };
        self.header.hand = at + 1;
        at
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
        if newcomer == Expectation::NEVER {
            return None;
        }
        let returns = order::returns(now, newcomer);
        let last = order
            .never()
            .or_else(|| order.latest().filter(|end| returns < end.returns()).map(|end| end.slot));
        add(&mut self.header.counters.evicted_latest, u64::from(last.is_some()));
        last
    }

    /// Returns the session whose place is worth least, if it is worth less than the newcomer's. The
    /// search covers the ends of the lists and, because worth rises and falls within a list, the next
    /// few slots.
    fn worth_least(&mut self, now: u32, newcomer: Expectation) -> Option<u32> {
        const FEW: u32 = 8;
        if newcomer == Expectation::NEVER {
            return None;
        }
        if let Some(never) = self.order().never() {
            add(&mut self.header.counters.evicted_latest, 1);
            return Some(never);
        }
        let return_times = self.return_times;
        let mut least = (return_times.worth(newcomer, 0), None);
        let mut consider = |expected, seen, slot| {
            // A session seen in the future, before the clock stepped back, must be evictable too.
            let worth = return_times.worth(expected, now.abs_diff(seen));
            if worth < least.0 {
                least = (worth, Some((slot, order::returns(seen, expected) < now)));
            }
        };
        for [first, last] in self.order().ends() {
            consider(first.expected, first.seen, first.slot);
            consider(last.expected, last.seen, last.slot);
        }
        for _ in 0..FEW.min(self.header.fresh) {
            let at = self.next_at_hand();
            let slot = &self.slots[at];
            if slot.id_length() > 0 {
                consider(slot.expected(), slot.seen, at);
            }
        }
        let (slot, overdue) = least.1?;
        add(&mut self.header.counters.evicted_overdue, u64::from(overdue));
        add(&mut self.header.counters.evicted_latest, u64::from(!overdue));
        Some(slot)
    }

    fn evict(&mut self, now: u32, slot: u32) {
        let victim = self.slots[slot];
        let Slot { id, seen, history, .. } = victim;
        let (length, expected) = (victim.id_length(), victim.expected());
        if !self.slots.expect(length > 0) {
            return;
        }
        let hash = SessionId::from_padded(id, length).hash_with(self.hash_key);
        self.remember(hash, now, seen, expected, history);
        self.free(slot, hash);
    }
}
