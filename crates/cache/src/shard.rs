//! A shard: all the behaviour of the cache, single-threaded, over one region of plain memory.
//!
//! A shard is a *view*: it is made from a region at each use and owns nothing, so the same code
//! serves a heap allocation and a mapping shared by processes. Every operation costs the same at
//! any size: none scans the slots, and expiry is noticed when a session is looked up.
//!
//! Time is kept in 32 bits of ticks since an epoch, which is at least 49 days ago. The epoch moves
//! every 49 days of uptime; only that operation touches all slots.

pub(crate) mod eviction;

use std::cell::Cell;
use std::ops::Deref;

use crate::candidates::Candidates;
use crate::counters::Counters;
use crate::error::Refusal;
use crate::expectation::{Expectation, Trust};
use crate::ghosts::{self, Ghost, GhostSet};
use crate::history::History;
use crate::id::{ContextTag, Key};
use crate::index::{self, Group};
use crate::interval::{Interval, TICK_MS};
use crate::layout::{Header, Layout};
use crate::ledger::Ledger;
use crate::order::{self, List, Order};
use crate::region::{Line, Region};
use crate::return_time::{Clientele, ReturnTimes, Waits};
use crate::secret::{SecretBytes, wipe};
use crate::session::{Admission, Arrival, Inserted, Kept, NewSession};
use crate::settings::Policy;
use crate::slots::{Slot, Slots};

/// The longest time before a cache was made at which a client may have been seen elsewhere: 49 days,
/// like the longest interval. A clock of caches should start at least this far above zero.
pub const REACHES_BACK_MS: u64 = EPOCH_STEP_TICKS * TICK_MS;

/// A view of one region, of type `R`, as a shard.
pub(crate) struct Shard<'r, R: Region> {
    pub(crate) layout: &'r Layout,
    common: &'r Common<R::Ledger>,
    pub(crate) header: &'r mut Header,
    pub(crate) lists: &'r mut [List],
    pub(crate) groups: &'r mut [Group],
    pub(crate) slots: Slots<'r, R>,
    pub(crate) blocks: &'r mut [u8],
    /// Ghosts and sources, which hits do not need.
    others: &'r mut [Line],
}

/// What all shards of a cache have in common.
pub(crate) struct Common<L> {
    pub(crate) hash_key: [u8; 16],
    pub(crate) ledger: L,
    pub(crate) clientele: Clientele,
}

impl<L: Deref<Target = Ledger>> Common<L> {
    #[inline]
    pub(crate) fn return_times(&self) -> ReturnTimes<&Waits> {
        ReturnTimes::over(&self.ledger.waits, self.clientele)
    }
}

/// The ticks at which the epoch moves, and by how many: an interval of up to 2³⁰ ticks still fits
/// behind.
const OLDEST_TICKS: u64 = 1 << 31;
const EPOCH_STEP_TICKS: u64 = 1 << 30;

const _: () =
    assert!(EPOCH_STEP_TICKS.is_multiple_of(Ghost::WRAP_TICKS), "ghosts stay when the epoch moves");

impl<'r, R: Region> Shard<'r, R> {
    /// Turns a region of zeros into an empty shard. Writes its first few kilobytes only: the rest is
    /// not touched before it is used.
    ///
    /// # Panics
    /// Panics if the region does not have [`Layout::region_lines`].
    pub(crate) fn format(region: &mut [Line], layout: &Layout, now_ms: u64) {
        assert_eq!(region.len(), layout.region_lines(), "region of another layout");
        let [header, lists, ..] = layout.parts;
        let (header, rest) = region.split_at_mut(header);
        let before_ms = REACHES_BACK_MS.min(now_ms) / TICK_MS * TICK_MS;
        *one(header) = Header::new(now_ms - before_ms, now_ms);
        bytemuck::cast_slice_mut(&mut rest[..lists]).fill(List::EMPTY);
    }

    /// Makes the view of a formatted region. `astray` is set if an operation reads data that no operation can have written.
    ///
    /// # Panics
    /// Panics if the region is shorter than [`Layout::region_lines`].
    // Inlined wherever it is used: no operation needs all the parts.
    #[inline(always)]
    pub(crate) fn view(
        region: &'r mut [Line],
        layout: &'r Layout,
        common: &'r Common<R::Ledger>,
        astray: &'r Cell<bool>,
    ) -> Self {
        let [_, lists, index, slots, blocks, ..] = layout.parts;
        let (header, region) = region.split_at_mut(Layout::HEADER_LINES);
        let (lists, region) = region.split_at_mut(lists);
        let (groups, region) = region.split_at_mut(index);
        let (slots, region) = region.split_at_mut(slots);
        let (blocks, others) = region.split_at_mut(blocks);
        Self {
            layout,
            common,
            header: one(header),
            lists: bytemuck::cast_slice_mut(lists),
            groups: bytemuck::cast_slice_mut(groups),
            slots: Slots::new(bytemuck::cast_slice_mut(slots), astray),
            blocks: bytemuck::cast_slice_mut(blocks),
            others,
        }
    }

    #[inline]
    fn ghosts(&mut self) -> &mut [GhostSet] {
        bytemuck::cast_slice_mut(&mut self.others[..self.layout.ghost_sets()])
    }

    /// Returns the number of slots that each source has: none where no source has a share.
    pub(crate) fn sources(&self) -> &[u32] {
        bytemuck::cast_slice(&self.others[self.layout.ghost_sets()..])
    }

    /// Returns the same, to count in.
    #[inline]
    pub(crate) fn sources_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(&mut self.others[self.layout.ghost_sets()..])
    }

    #[inline]
    pub(crate) fn hash_key(&self) -> &'r [u8; 16] {
        &self.common.hash_key
    }

    /// Returns what is learned of all shards.
    #[inline]
    pub(crate) fn return_times(&self) -> ReturnTimes<&'r Waits> {
        self.common.return_times()
    }

    /// Makes the same view anew, for an operation that is seldom needed and takes its view by value. A view that is lent to a function
    /// lies in memory, and to write it there costs every hit some fifty instructions.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> Shard<'_, R> {
        Shard {
            layout: self.layout,
            common: self.common,
            header: self.header,
            lists: self.lists,
            groups: self.groups,
            slots: self.slots.reborrow(),
            blocks: self.blocks,
            others: self.others,
        }
    }

    /// See [`Cache::get`](crate::Cache::get).
    #[inline(always)]
    pub(crate) fn get(
        &mut self,
        now_ms: u64,
        key: &Key<'_>,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        let now = self.tick(now_ms);
        let Some(slot) = self.find(key) else {
            return self.reborrow().missed(now, key.hash);
        };
        if self.expired(slot, now_ms) {
            self.reborrow().came_too_late(now, slot, key.hash);
            return Arrival::default();
        }
        if self.slots[slot].context != context.0 {
            add(&mut self.header.counters.foreign_context, 1);
            add(&mut self.header.counters.misses, 1);
            return Arrival::default();
        }
        if !self.copy_value(slot, value) {
            add(&mut self.header.counters.misses, 1);
            return Arrival::default();
        }
        add(&mut self.header.counters.hits, 1);
        let history = self.arrived(slot, now);
        Arrival { found: true, history, ..Arrival::default() }
    }

    /// See [`Cache::peek`](crate::Cache::peek).
    pub(crate) fn peek(
        &mut self,
        now_ms: u64,
        key: &Key<'_>,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        let found = self
            .find(key)
            .filter(|slot| self.slots[*slot].context == context.0 && !self.expired(*slot, now_ms));
        found.is_some_and(|slot| self.copy_value(slot, value))
    }

    /// See [`Cache::look`](crate::Cache::look).
    pub(crate) fn look(
        &mut self,
        now_ms: u64,
        key: &Key<'_>,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Option<Kept> {
        if !self.peek(now_ms, key, context, value) {
            return None;
        }
        self.find(key).map(|slot| self.kept(slot))
    }

    /// Returns the data stored with a session's value.
    pub(crate) fn kept(&self, slot: u32) -> Kept {
        let slot = self.slots[slot];
        let Slot { seen, history, expiry_s, .. } = slot;
        let expected = match (self.layout.policy, slot.expected()) {
            // A stranger has no interval yet. Whoever asks when it returns is told that of any client.
            (Policy::Predictive, stranger) if stranger.is_unknown() => {
                Expectation::new(Trust::Loose, self.layout.prior)
            }
            (_, expected) => expected,
        };
        let Header { epoch_ms, born_ms, .. } = *self.header;
        let at_ms = |tick: u32| epoch_ms.saturating_add(u64::from(tick) * TICK_MS);
        let returns = (!expected.is_never()).then(|| order::returns(seen, expected));
        Kept {
            expires_ms: born_ms.saturating_add(u64::from(expiry_s) * 1_000),
            history,
            seen_ms: at_ms(seen),
            returns_ms: returns.map(at_ms),
        }
    }

    /// See [`Cache::take`](crate::Cache::take).
    pub(crate) fn take(
        &mut self,
        now_ms: u64,
        key: &Key<'_>,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        let arrival = self.get(now_ms, key, context, value);
        if arrival.found {
            self.remove(key);
        }
        arrival
    }

    /// See [`Cache::insert`](crate::Cache::insert).
    pub(crate) fn insert(
        &mut self,
        now_ms: u64,
        key: &Key<'_>,
        new: &NewSession<'_>,
        admission: Admission,
    ) -> Result<Inserted, Refusal> {
        let now = self.tick(now_ms);
        if let Some(old) = self.find(key) {
            self.free(old, key.hash);
        }
        let needed = self.layout.slots_for(new.value.len());
        let longest = self.layout.longest_value_bytes as usize;
        if new.value.len() > longest || needed > self.layout.slots {
            add(&mut self.header.counters.refused_too_large, 1);
            return Err(Refusal::TooLarge);
        }
        let expiry_s = self.second(new.expires_ms);
        if expiry_s <= self.second(now_ms) {
            add(&mut self.header.counters.refused_expired, 1);
            return Err(Refusal::Expired);
        }
        let seen = new.seen_ms.map_or(now, |seen_ms| self.ticks(seen_ms).min(now.into()) as u32);
        let history = self.without_waits(new.history);
        let expected = self.expected_of_new(new, history);
        let of_source = self.keep_share(now, new.source, needed, expected)?;
        let evicted = match self.make_room(now, needed, expected, admission) {
            Ok(evicted) => evicted,
            Err(refusal) => {
                self.remember(key.hash, now, seen, expected, history);
                return Err(refusal);
            }
        };
        self.write(seen, key.hash, new, expiry_s, expected, history);
        Ok(Inserted { evicted: of_source + evicted })
    }

    /// See [`Cache::hint`](crate::Cache::hint).
    pub(crate) fn hint(&mut self, now_ms: u64, key: &Key<'_>, interval_ms: u64) -> bool {
        let now = self.tick(now_ms);
        self.find(key).is_some_and(|slot| {
            let Slot { history, seen, .. } = self.slots[slot];
            let expected = self.predict(history, Some(interval_ms), Expectation::NEVER);
            // A client that keeps its interval is in the right list since it arrived.
            if seen != now || !self.slots[slot].is_expected(expected) {
                self.expect(slot, now, expected, history);
            }
            true
        })
    }

    /// See [`Cache::retire`](crate::Cache::retire).
    pub(crate) fn retire(&mut self, key: &Key<'_>) {
        if self.layout.policy == Policy::Lru {
            return;
        }
        let Some(slot) = self.find(key) else {
            // A session refused or evicted meanwhile: nobody will ask for it, which says nothing about its client.
            ghosts::forget(self.ghosts(), key.hash);
            return;
        };
        let seen = self.slots[slot].seen;
        self.expect(slot, seen, Expectation::NEVER, History::default());
    }

    /// See [`Cache::remove`](crate::Cache::remove).
    pub(crate) fn remove(&mut self, key: &Key<'_>) -> bool {
        self.find(key).map(|slot| self.free(slot, key.hash)).is_some()
    }

    /// Wipes every session's secrets. Afterwards the shard can only be cleared ([`Self::clear`]).
    pub(crate) fn wipe(&mut self) {
        let touched = self.header.fresh as usize * self.layout.block_bytes as usize;
        let touched = touched.min(self.blocks.len());
        wipe(&mut self.blocks[..touched]);
    }

    /// Removes and wipes every session. The counts stay.
    pub(crate) fn clear(&mut self) {
        // The region may have been overwritten, so it is not asked how many slots were touched, or
        // when tick zero was. The epoch moves to its right place at the next use.
        wipe(self.blocks);
        self.slots.clear();
        self.groups.fill(Group::EMPTY);
        self.others.fill(Line::ZERO);
        self.lists.fill(List::EMPTY);
        let Header { counters, emptied, .. } = *self.header;
        let counters = Counters { sessions: 0, ..counters };
        *self.header = Header { counters, emptied, ..Header::new(0, 0) };
    }

    /// Resets the counts. The sessions stay.
    pub(crate) fn reset_counters(&mut self) {
        let Counters { sessions, .. } = self.header.counters;
        self.header.counters = Counters { sessions, ..Counters::default() };
        self.header.emptied = 0;
    }

    /// Returns true if the operation read data that no operation can have written.
    #[inline]
    pub(crate) fn is_astray(&self) -> bool {
        self.slots.is_astray()
    }

    /// Removes every session because the region cannot be trusted, and counts that.
    #[cold]
    #[inline(never)]
    pub(crate) fn start_over(mut self) {
        self.clear();
        self.header.emptied = self.header.emptied.wrapping_add(1);
    }

    /// Returns how often it had to start over.
    pub(crate) fn emptied(&self) -> u64 {
        self.header.emptied
    }

    /// Returns the counts so far.
    pub(crate) fn counters(&self) -> Counters {
        self.header.counters
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<u32> {
        let length = key.id.length();
        index::find(self.groups, key.hash, |slot| {
            let slot = &self.slots[slot];
            slot.id == *key.id.padded() && slot.id_length() == length
        })
    }

    /// Removes a session that has expired.
    #[cold]
    #[inline(never)]
    fn came_too_late(mut self, now: u32, slot: u32, hash: u64) {
        add(&mut self.header.counters.expired, 1);
        add(&mut self.header.counters.misses, 1);
        // Its place was kept in vain, although the client has come.
        let (expected, from) = (self.slots[slot].expected(), self.slots[slot].counts_from());
        self.learn(expected, now.saturating_sub(from), false);
        self.free(slot, hash);
    }

    #[inline(never)]
    fn missed(mut self, now: u32, hash: u64) -> Arrival {
        add(&mut self.header.counters.misses, 1);
        if self.layout.ghost_sets() == 0 {
            return Arrival::default();
        }
        let Some(ghost) = ghosts::take(self.ghosts(), hash, now) else {
            return Arrival::default();
        };
        add(&mut self.header.counters.wanted_after_eviction, 1);
        let Ghost { age_ticks, expected, mut history, .. } = ghost;
        self.learn(expected, age_ticks, true);
        history.record(age_ticks);
        Arrival { history, ..Arrival::default() }
    }

    /// Records the visit of a session's client and predicts the next.
    #[inline(always)]
    fn arrived(&mut self, slot: u32, now: u32) -> History {
        let Slot { seen, mut history, .. } = self.slots[slot];
        if self.layout.policy == Policy::Lru {
            // Nothing is predicted from a history, so that none is kept.
            self.order().renew_unexpected(slot, now);
            return history;
        }
        let (expected, from) = (self.slots[slot].expected(), self.slots[slot].counts_from());
        self.count_prediction(seen, now, expected);
        let age_ticks = now.saturating_sub(from);
        self.learn(expected, age_ticks, true);
        self.return_times().came(expected, age_ticks);
        history.record(now.saturating_sub(seen));
        let expected = self.predict(history, None, expected);
        self.expect(slot, now, expected, history);
        history
    }

    #[inline]
    fn count_prediction(&mut self, seen: u32, now: u32, expected: Expectation) {
        if !expected.is_never() && !expected.is_unknown() {
            let error = u64::from(order::returns(seen, expected).abs_diff(now)) * TICK_MS;
            add(&mut self.header.counters.predictions, 1);
            add(&mut self.header.counters.prediction_error_ms, error);
        }
    }

    /// Returns a history without gaps that are known to be waits between two runs.
    #[inline]
    fn without_waits(&self, history: History) -> History {
        match self.layout.learns() {
            true => history.without(|gap| self.return_times().is_wait(gap)),
            false => history,
        }
    }

    fn expected_of_new(&self, new: &NewSession<'_>, history: History) -> Expectation {
        if new.sibling && self.layout.policy == Policy::Predictive {
            return Expectation::NEVER;
        }
        self.predict(history, new.hint_ms, Expectation::NEVER)
    }

    /// Predicts a client's return. Where only hints count and there is none, returns the expectation
    /// from before, or else that of any client.
    #[inline]
    fn predict(&self, history: History, hint_ms: Option<u64>, before: Expectation) -> Expectation {
        if self.layout.policy == Policy::Lru {
            return Expectation::UNKNOWN;
        }
        let otherwise = match before {
            Expectation::NEVER => Expectation::new(Trust::Loose, self.layout.prior),
            before => before,
        };
        let expected = Expectation::predicted(self.layout.prediction, history, hint_ms, otherwise);
        match hint_ms {
            Some(ms) => self.return_times().with_due(expected, Interval::from_ms(ms)),
            None => expected,
        }
    }

    /// Moves a session to the place of a client seen at `now`.
    #[inline(always)]
    fn expect(&mut self, slot: u32, now: u32, expected: Expectation, history: History) {
        self.order().renew(slot, |moved| {
            moved.seen = now;
            // An irregular client's place depends on its history.
            moved.history = history;
            moved.expect(expected);
        });
    }

    /// Remembers a client whose session is not kept, if it was expected back.
    #[inline]
    fn remember(
        &mut self,
        hash: u64,
        now: u32,
        seen: u32,
        expected: Expectation,
        history: History,
    ) {
        let is_known = self.layout.ghost_sets() > 0 || self.layout.learns();
        if is_known && !expected.is_never() {
            self.reborrow().remember_known(hash, now, seen, expected, history);
        }
    }

    #[inline(never)]
    fn remember_known(
        mut self,
        hash: u64,
        now: u32,
        seen: u32,
        expected: Expectation,
        history: History,
    ) {
        let age_ticks = now.saturating_sub(seen);
        if age_ticks >= Ghost::PERIOD_TICKS || self.layout.ghost_sets() == 0 {
            return self.learn(expected, age_ticks, false);
        }
        let ghost = Ghost { age_ticks, expected, history };
        let learns = self.layout.learns();
        let Layout { ghosts_a_look, .. } = *self.layout;
        let return_times = self.return_times();
        let lost = ghosts::add(
            self.ghosts(),
            hash,
            now,
            &ghost,
            |ghost| match learns {
                true => return_times.worth_of_ghost(ghost.expected(), ghost.age_ticks(now)),
                false => u64::from(u32::MAX - ghost.age_ticks(now)),
            },
            |ghost| {
                if learns {
                    let age_ticks = ghost.age_ticks(now);
                    return_times.watch(ghost.expected(), age_ticks, ghosts_a_look);
                }
            },
        );
        if let Some(lost) = lost {
            self.learn(lost.expected, lost.age_ticks, false);
        }
    }

    /// Learns that a client has returned after so long, or is given up on.
    #[inline]
    pub(crate) fn learn(&self, expected: Expectation, age_ticks: u32, returned: bool) {
        if self.layout.learns() {
            self.return_times().record(expected, age_ticks, returned);
        }
    }

    #[inline]
    pub(crate) fn order(&mut self) -> Order<'_, 'r, R> {
        Order { lists: self.lists, occupied: &mut self.header.occupied, slots: &mut self.slots }
    }

    #[inline]
    pub(crate) fn expired(&self, slot: u32, now_ms: u64) -> bool {
        // The same as a comparison of seconds, without a division.
        let age_ms = now_ms.saturating_sub(self.header.born_ms);
        u64::from(self.slots[slot].expiry_s) * 1_000 <= age_ms
    }

    #[inline]
    fn second(&self, ms: u64) -> u32 {
        (ms.saturating_sub(self.header.born_ms) / 1_000).min(u64::from(u32::MAX)) as u32
    }

    /// Ticks since the epoch; a time before it counts as the epoch.
    #[inline]
    fn tick(&mut self, now_ms: u64) -> u32 {
        let ticks = self.ticks(now_ms);
        if ticks < OLDEST_TICKS { ticks as u32 } else { self.reborrow().tick_of_later(ticks) }
    }

    /// Moves the epoch until so many ticks since the old one are few enough, and returns how many they are since the new one.
    #[cold]
    #[inline(never)]
    fn tick_of_later(mut self, ticks: u64) -> u32 {
        let steps = (ticks - OLDEST_TICKS) / EPOCH_STEP_TICKS + 1;
        self.move_epoch(steps * EPOCH_STEP_TICKS);
        (ticks - steps * EPOCH_STEP_TICKS) as u32
    }

    #[inline]
    fn ticks(&self, ms: u64) -> u64 {
        ms.saturating_sub(self.header.epoch_ms) / TICK_MS
    }

    /// Moves the epoch by whole steps. They do not affect ghosts, whose time has begun anew after each.
    fn move_epoch(&mut self, ticks: u64) {
        self.header.epoch_ms += ticks * TICK_MS;
        let ticks = ticks.min(u64::from(u32::MAX)) as u32;
        let sessions = self.slots.first(self.header.fresh).iter_mut();
        sessions.for_each(|slot| slot.seen = slot.seen.saturating_sub(ticks));
        self.order().refresh();
        self.header.candidates = Candidates::NONE;
    }
}

/// Adds to a count. An overwritten count may have any value, so it wraps.
#[inline]
pub(crate) fn add(count: &mut u64, more: u64) {
    *count = count.wrapping_add(more);
}

#[inline]
fn one<T: bytemuck::Pod>(lines: &mut [Line]) -> &mut T {
    bytemuck::from_bytes_mut(&mut bytemuck::cast_slice_mut::<Line, u8>(lines)[..size_of::<T>()])
}
