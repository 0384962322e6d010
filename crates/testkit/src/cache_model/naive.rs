//! The cache as its documentation describes it: sessions in a `Vec`, found by looking at each.
//!
//! Five things are the engine's own choice and are taken from it. Of equal return times the shorter
//! interval counts as earlier, and of ghosts worth the same the first in its set makes way. Certain
//! bits of the keyed hash choose a shard and a set of ghosts, and tell a ghost. When a caller's
//! clock steps back, the sessions of one expectation stay in the order they were heard of: the
//! ends of its list are its oldest and newest arrivals, whatever their times. Where places are
//! weighed by what they are worth, each search weighs the ends of eight lists and sixteen slots, in turns, and eight candidates are remembered.

use std::collections::BTreeMap;

use rejoin_cache::{
    ContextTag, Counters, Layout, NewSession, Occupancy, Policy, Prediction, REACHES_BACK_MS,
    Refusal, SessionId, Source,
};
use rejoin_cache::{Settings, TICK_MS};

use super::candidates::Candidates;
use super::expectation::{Beliefs, Expected, Past, interval_ticks};
use super::ghosts::{Ghosts, Remembered};
use super::slots::Slots;

/// Ticks after which the epoch moves, and by how much.
const OLDEST_TICKS: u64 = 1 << 31;
const EPOCH_STEP_TICKS: u64 = 1 << 30;

/// The result of a lookup. `value` is there if the session was found.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) past: Past,
}

/// Decisions made by what places are worth.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weighed {
    /// Evictions of clients that should have been back.
    pub overdue: u64,
    /// And of others.
    pub in_time: u64,
    /// Evictions of sessions that were at no end of a list.
    pub swept: u64,
    pub refused: u64,
    /// Sessions of clients of whose gaps some were waits.
    pub waited: u64,
}

impl Weighed {
    pub fn plus(self, other: &Self) -> Self {
        Self {
            overdue: self.overdue + other.overdue,
            in_time: self.in_time + other.in_time,
            swept: self.swept + other.swept,
            refused: self.refused + other.refused,
            waited: self.waited + other.waited,
        }
    }
}

/// All shards.
pub(crate) struct Naive {
    hash_key: [u8; 16],
    beliefs: Beliefs,
    shards: Vec<Shard>,
}

impl Naive {
    pub(crate) fn new(settings: &Settings, hash_key: [u8; 16], now_ms: u64) -> Self {
        let layouts = Layout::for_cache(settings).expect("settings make a cache");
        let shards = layouts.len();
        let sessions = layouts.iter().map(Layout::sessions).sum();
        let clients = |layout: &Layout| {
            let sessions = layout.sessions() as usize;
            sessions + ghosts_of(settings, sessions, shards) / 4
        };
        let clients = layouts.iter().map(|layout| clients(layout) as u64).sum();
        let shard = |layout: &Layout| {
            let sessions = layout.sessions() as usize;
            let ghosts = Ghosts::new(ghosts_of(settings, sessions, shards), sessions, hash_key);
            Shard::new(settings, sessions, ghosts, now_ms)
        };
        Self {
            hash_key,
            beliefs: Beliefs::new(settings, sessions, clients),
            shards: layouts.iter().map(shard).collect(),
        }
    }

    pub(crate) fn get(&mut self, now_ms: u64, id: &SessionId, context: ContextTag) -> Answer {
        self.with(id, |shard, beliefs| shard.get(now_ms, id, context, beliefs))
    }

    pub(crate) fn take(&mut self, now_ms: u64, id: &SessionId, context: ContextTag) -> Answer {
        self.with(id, |shard, beliefs| {
            let answer = shard.get(now_ms, id, context, beliefs);
            if answer.value.is_some() {
                shard.remove(id);
            }
            answer
        })
    }

    pub(crate) fn peek(
        &mut self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
    ) -> Option<Vec<u8>> {
        self.with(id, |shard, _| {
            let session = &shard.sessions[shard.find(id)?];
            (session.context == context && !shard.is_over(session.expiry_s, now_ms))
                .then(|| session.value.clone())
        })
    }

    pub(crate) fn insert(
        &mut self,
        now_ms: u64,
        new: &NewSession<'_>,
        past: Past,
    ) -> Result<u32, Refusal> {
        self.with(&new.id, |shard, beliefs| shard.insert(now_ms, new, past, beliefs))
    }

    pub(crate) fn hint(&mut self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
        self.with(id, |shard, beliefs| {
            let now = shard.tick(now_ms);
            let Some(at) = shard.find(id) else { return false };
            let expected = beliefs.expectation(shard.sessions[at].past, Some(interval_ms), None);
            let session = &shard.sessions[at];
            if session.seen != now || session.expected != expected {
                shard.expect(at, now, expected);
            }
            true
        })
    }

    pub(crate) fn retire(&mut self, id: &SessionId) {
        self.with(id, |shard, _| match shard.find(id) {
            _ if shard.policy != Policy::Predictive => {}
            Some(at) => {
                let seen = shard.sessions[at].seen;
                shard.sessions[at].past = Past::default();
                shard.expect(at, seen, Expected::Never);
            }
            None => _ = shard.ghosts.take(id, 0),
        });
    }

    pub(crate) fn remove(&mut self, id: &SessionId) -> bool {
        self.with(id, |shard, _| shard.remove(id))
    }

    pub(crate) fn counters(&self) -> Counters {
        let of =
            |shard: &Shard| Counters { sessions: shard.sessions.len() as u64, ..shard.counters };
        self.shards.iter().map(of).fold(Counters::default(), |sum, shard| sum.plus(&shard))
    }

    pub(crate) fn occupancy(&self, now_ms: u64) -> Occupancy {
        let of = |shard: &Shard| shard.occupancy(now_ms);
        self.shards.iter().map(of).fold(Occupancy::default(), |sum, shard| sum.plus(&shard))
    }

    /// By whatever number of steps at once.
    pub(crate) fn epoch_moves(&self) -> u64 {
        self.shards.iter().map(|shard| shard.epoch / EPOCH_STEP_TICKS).sum()
    }

    pub(crate) fn weighed(&self) -> Weighed {
        self.shards.iter().fold(Weighed::default(), |sum, shard| sum.plus(&shard.weighed))
    }

    fn with<T>(&mut self, id: &SessionId, operation: impl FnOnce(&mut Shard, &Beliefs) -> T) -> T {
        let hash = super::keyed_hash(&self.hash_key, id);
        let at = (hash >> 48) as usize * self.shards.len() / (1 << 16);
        let done = operation(&mut self.shards[at], &self.beliefs);
        self.beliefs.learn();
        done
    }
}

struct Session {
    id: SessionId,
    value: Vec<u8>,
    /// The first one counts.
    slots: Vec<usize>,
    context: ContextTag,
    expiry_s: u64,
    past: Past,
    /// In ticks.
    seen: u64,
    expected: Expected,
    source: Source,
}

impl Session {
    /// `None`: never.
    fn returns(&self) -> Option<u64> {
        Some(self.seen + self.expected.ticks()?)
    }

    /// From when its interval counts as if it were the bound of its class, but not from before the epoch.
    fn counts_from(&self, epoch: u64) -> u64 {
        self.seen.saturating_sub(self.expected.lead()).max(epoch)
    }
}

/// A session's place in the order of return times.
struct End {
    at: usize,
    returns: u64,
    expected: Expected,
}

/// Never expected, overdue, or other, and by how much it is worth among others of its kind.
type Value = (u8, u64);

struct Shard {
    policy: Policy,
    block_bytes: usize,
    longest_value_bytes: usize,
    grace_ticks: u64,
    capacity: usize,
    /// The most slots of one source.
    share: Option<usize>,
    born_ms: u64,
    /// The earliest time at which a client may have been heard of elsewhere: that of tick zero.
    begin_ms: u64,
    /// In ticks.
    epoch: u64,
    latest_now: u64,
    clock_stepped_back: bool,
    /// In the order in which they were heard of.
    sessions: Vec<Session>,
    slots: Slots,
    candidates: Candidates,
    /// The number of the list from which the next search goes on.
    turn: u32,
    ghosts: Ghosts,
    counters: Counters,
    weighed: Weighed,
}

/// The ghosts of one shard of so many. Every eight share a set.
fn ghosts_of(settings: &Settings, sessions: usize, shards: usize) -> usize {
    let learns = settings.policy == Policy::Predictive && settings.prediction != Prediction::Hint;
    let has_least = learns && settings.ghosts_percent > 0;
    let least = if has_least { 1_536_usize.div_ceil(shards).min(12 * sessions) } else { 0 };
    (sessions * settings.ghosts_percent as usize / 100).max(least).next_multiple_of(8)
}

impl Shard {
    fn new(settings: &Settings, capacity: usize, ghosts: Ghosts, born_ms: u64) -> Self {
        Self {
            policy: settings.policy,
            block_bytes: settings.block_bytes.next_multiple_of(8) as usize,
            longest_value_bytes: settings.longest_value_bytes as usize,
            grace_ticks: interval_ticks(settings.grace_ms),
            capacity,
            share: settings.fairness.map(|fair| (capacity * fair.percent as usize / 100).max(1)),
            born_ms,
            begin_ms: born_ms - REACHES_BACK_MS.min(born_ms) / TICK_MS * TICK_MS,
            epoch: 0,
            latest_now: 0,
            clock_stepped_back: false,
            sessions: Vec::new(),
            slots: Slots::default(),
            candidates: Candidates::default(),
            turn: 0,
            ghosts,
            counters: Counters::default(),
            weighed: Weighed::default(),
        }
    }

    fn get(
        &mut self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        beliefs: &Beliefs,
    ) -> Answer {
        let now = self.tick(now_ms);
        let Some(at) = self.find(id) else {
            self.counters.misses += 1;
            return Answer { value: None, past: self.missed(now, id, beliefs) };
        };
        if self.is_over(self.sessions[at].expiry_s, now_ms) {
            self.counters.misses += 1;
            self.counters.expired += 1;
            let from = self.sessions[at].counts_from(self.epoch);
            beliefs.record(self.sessions[at].expected, now.saturating_sub(from), false);
            self.remove(id);
            return Answer::default();
        }
        if self.sessions[at].context != context {
            self.counters.misses += 1;
            self.counters.foreign_context += 1;
            return Answer::default();
        }
        self.counters.hits += 1;
        self.arrived(at, now, beliefs)
    }

    fn arrived(&mut self, at: usize, now: u64, beliefs: &Beliefs) -> Answer {
        let session = &mut self.sessions[at];
        let (gap_ticks, before) = (now.saturating_sub(session.seen), session.expected);
        let age_ticks = now.saturating_sub(session.counts_from(self.epoch));
        if let Some(returns) = session.returns().filter(|_| self.policy == Policy::Predictive)
            && before != Expected::Unknown
        {
            self.counters.predictions += 1;
            self.counters.prediction_error_ms += returns.abs_diff(now) * TICK_MS;
        }
        beliefs.record(before, age_ticks, true);
        beliefs.came(before, age_ticks);
        if self.policy == Policy::Predictive {
            session.past.record(gap_ticks);
        }
        let (past, value) = (session.past, session.value.clone());
        self.expect(at, now, beliefs.expectation(past, None, Some(before)));
        Answer { value: Some(value), past }
    }

    fn missed(&mut self, now: u64, id: &SessionId, beliefs: &Beliefs) -> Past {
        let Some(Remembered { age_ticks, expected, mut past }) = self.ghosts.take(id, now) else {
            return Past::default();
        };
        self.counters.wanted_after_eviction += 1;
        beliefs.record(expected, age_ticks, true);
        past.record(age_ticks);
        past
    }

    fn insert(
        &mut self,
        now_ms: u64,
        new: &NewSession<'_>,
        past: Past,
        beliefs: &Beliefs,
    ) -> Result<u32, Refusal> {
        let now = self.tick(now_ms);
        self.remove(&new.id);
        let needed = self.blocks(new.value.len());
        if new.value.len() > self.longest_value_bytes || needed > self.capacity {
            self.counters.refused_too_large += 1;
            return Err(Refusal::TooLarge);
        }
        let expiry_s = self.second(new.expires_ms);
        if self.is_over(expiry_s, now_ms) {
            self.counters.refused_expired += 1;
            return Err(Refusal::Expired);
        }
        let counted = beliefs.counted(past);
        self.weighed.waited += u64::from(counted != past);
        let past = counted;
        let sibling = new.sibling && self.policy == Policy::Predictive;
        let expected =
            if sibling { Expected::Never } else { beliefs.expectation(past, new.hint_ms, None) };
        let seen = new.seen_ms.map_or(now, |seen_ms| self.at(seen_ms).min(now));
        // It joins those heard of now.
        self.clock_stepped_back |= seen < now;
        let mut evicted = self.keep_share(now, new.source, needed, expected, beliefs)?;
        while self.capacity - self.used() < needed {
            let Some(victim) = self.victim(now, expected, beliefs) else {
                self.counters.refused_returns_later += 1;
                let refused = Remembered { age_ticks: now - seen, expected, past };
                self.remember(&new.id, now, refused, beliefs);
                return Err(Refusal::ReturnsLater);
            };
            self.evict(now, victim, beliefs);
            evicted += 1;
        }
        self.counters.stored += 1;
        self.sessions.push(Session {
            id: new.id,
            value: new.value.to_vec(),
            slots: self.slots.take(needed),
            context: new.context,
            expiry_s,
            past,
            seen,
            expected,
            source: new.source,
        });
        Ok(evicted)
    }

    /// Evicts sessions of a source, each worth less than the newcomer, until it has room for so many more slots within its
    /// share. Nobody is remembered.
    fn keep_share(
        &mut self,
        now: u64,
        source: Source,
        needed: usize,
        newcomer: Expected,
        beliefs: &Beliefs,
    ) -> Result<u32, Refusal> {
        let Some(share) = self.share.filter(|_| source != Source::UNKNOWN) else { return Ok(0) };
        let mut evicted = 0;
        loop {
            let its = self.sessions.iter().filter(|session| session.source == source);
            if its.map(|session| session.slots.len()).sum::<usize>() + needed <= share {
                return Ok(evicted);
            }
            let least = self.least_of(now, source, share, beliefs);
            let own = self.value(now, now, newcomer, true, beliefs);
            let Some((_, at)) = least.filter(|(value, _)| *value < own && needed <= share) else {
                self.counters.refused_source_share += 1;
                beliefs.record(newcomer, 0, false);
                return Err(Refusal::SourceHasItsShare);
            };
            self.counters.evicted_source_share += 1;
            let Session { id, expected, .. } = self.sessions[at];
            let from = self.sessions[at].counts_from(self.epoch);
            beliefs.record(expected, now.saturating_sub(from), false);
            self.remove(&id);
            evicted += 1;
        }
    }

    /// The session of a source that has the least value, of the first sixteen that the hand comes to. It gives up after so
    /// many slots that sixteen of a full share are among them, on average.
    fn least_of(
        &mut self,
        now: u64,
        source: Source,
        share: usize,
        beliefs: &Beliefs,
    ) -> Option<(Value, usize)> {
        let looks = (16 * self.capacity.div_ceil(share)).min(512);
        let Self { slots, sessions, .. } = self;
        let stored = |slot| sessions.iter().position(|s| s.slots[0] == slot && s.source == source);
        let its: Vec<usize> = slots.sweep(looks).filter_map(stored).take(16).collect();
        let value = |at: usize| {
            let from = self.sessions[at].counts_from(self.epoch);
            (self.value(now, from, self.sessions[at].expected, false, beliefs), at)
        };
        its.into_iter()
            .map(value)
            .reduce(|least, other| if other.0 < least.0 { other } else { least })
    }

    /// The worth of a place by whatever policy: comparable between sessions at one time.
    fn value(&self, now: u64, from: u64, of: Expected, is_new: bool, beliefs: &Beliefs) -> Value {
        let returns = of.ticks().map(|ticks| from + ticks);
        match returns {
            _ if self.policy == Policy::Lru && is_new => (2, u64::MAX),
            _ if self.policy == Policy::Lru => (2, from),
            None => (0, 0),
            Some(_) if beliefs.weighs() => (2, beliefs.worth(of, now.abs_diff(from))),
            Some(returns) if returns + self.grace_ticks < now => (1, 0),
            Some(returns) => (2, u64::MAX - returns),
        }
    }

    fn victim(&mut self, now: u64, newcomer: Expected, beliefs: &Beliefs) -> Option<usize> {
        if self.policy == Policy::Lru {
            self.counters.evicted_oldest += 1;
            Some(0)
        } else if beliefs.weighs() {
            self.worth_least(now, newcomer, beliefs)
        } else {
            self.overdue_or_latest(now, newcomer)
        }
    }

    /// Algorithm 1, read with "else".
    fn overdue_or_latest(&mut self, now: u64, newcomer: Expected) -> Option<usize> {
        let overdue = |end: &End| end.returns + self.grace_ticks < now;
        if let Some(earliest) = self.earliest().filter(overdue) {
            self.counters.evicted_overdue += 1;
            return Some(earliest.at);
        }
        let returns = now + newcomer.ticks()?;
        let last = || self.latest().filter(|latest| returns < latest.returns).map(|end| end.at);
        let victim = self.never().or_else(last);
        self.counters.evicted_latest += u64::from(victim.is_some());
        victim
    }

    /// A session never expected, else the one worth least of those looked at, if that is less than
    /// the newcomer is worth.
    fn worth_least(&mut self, now: u64, newcomer: Expected, beliefs: &Beliefs) -> Option<usize> {
        if newcomer == Expected::Never {
            return None;
        }
        if let Some(never) = self.never() {
            self.counters.evicted_latest += 1;
            return Some(never);
        }
        let lists = self.ends();
        for _ in 0..lists.len().min(8) {
            let next = lists.range(self.turn..).next().or_else(|| lists.iter().next());
            let (list, ends) = next.expect("a list");
            self.turn = list + 1;
            for at in ends {
                let (slot, worth) = (self.sessions[*at].slots[0], self.worth(*at, now, beliefs));
                self.candidates.consider(slot, worth);
            }
        }
        for slot in self.slots.sweep(16).collect::<Vec<_>>() {
            if let Some(at) = self.stored_in(slot) {
                let from = self.sessions[at].counts_from(self.epoch);
                beliefs.look(self.sessions[at].expected, now.abs_diff(from));
                self.candidates.consider(slot, self.worth(at, now, beliefs));
            }
        }
        let own = beliefs.worth(newcomer, 0);
        let least = loop {
            let Some((slot, noted)) = self.candidates.least() else { break None };
            let at = self.stored_in(slot);
            let worth = at.map(|at| self.worth(at, now, beliefs));
            if worth.is_some_and(|worth| worth <= noted) {
                let at = at.filter(|_| worth < Some(own));
                at.inspect(|_| self.candidates.remove(slot));
                break at;
            }
            self.candidates.remove(slot);
            worth.inspect(|worth| self.candidates.consider(slot, *worth));
        };
        let Some(at) = least else {
            self.weighed.refused += 1;
            return None;
        };
        let overdue = self.sessions[at].returns().is_some_and(|returns| returns < now);
        let is_end = lists.values().flatten().any(|end| *end == at);
        self.weighed.swept += u64::from(!is_end);
        self.weighed.overdue += u64::from(overdue);
        self.weighed.in_time += u64::from(!overdue);
        self.counters.evicted_overdue += u64::from(overdue);
        self.counters.evicted_latest += u64::from(!overdue);
        Some(at)
    }

    fn worth(&self, at: usize, now: u64, beliefs: &Beliefs) -> u64 {
        let from = self.sessions[at].counts_from(self.epoch);
        beliefs.worth(self.sessions[at].expected, now.abs_diff(from))
    }

    fn stored_in(&self, slot: usize) -> Option<usize> {
        self.sessions.iter().position(|session| session.slots[0] == slot)
    }

    fn occupancy(&self, now_ms: u64) -> Occupancy {
        let now = self.at(now_ms);
        let mut occupancy = Occupancy::default();
        for session in &self.sessions {
            let wait_ms = session.returns().map(|at| (at as i64 - now as i64) * TICK_MS as i64);
            let count = match (session.expected, wait_ms) {
                (Expected::Unknown, _) => &mut occupancy.unknown,
                (_, None) => &mut occupancy.never,
                (_, Some(..0)) => &mut occupancy.overdue,
                (_, Some(..=1_000)) => &mut occupancy.within[0],
                (_, Some(..=10_000)) => &mut occupancy.within[1],
                (_, Some(..=60_000)) => &mut occupancy.within[2],
                (_, Some(..=600_000)) => &mut occupancy.within[3],
                (_, Some(..=3_600_000)) => &mut occupancy.within[4],
                (_, Some(_)) => &mut occupancy.later,
            };
            *count += 1;
        }
        occupancy
    }

    fn never(&self) -> Option<usize> {
        self.sessions.iter().position(|session| session.expected == Expected::Never)
    }

    /// The oldest and the newest arrival of each list, in order.
    fn ends(&self) -> BTreeMap<u32, [usize; 2]> {
        let mut ends = BTreeMap::new();
        for (at, Session { expected, .. }) in self.sessions.iter().enumerate() {
            if *expected != Expected::Never {
                ends.entry(expected.list()).or_insert([at, at])[1] = at;
            }
        }
        ends
    }

    fn end(&self, at: usize) -> Option<End> {
        let session = &self.sessions[at];
        Some(End { at, returns: session.returns()?, expected: session.expected })
    }

    /// The session expected first: one of the oldest arrivals of each expectation.
    fn earliest(&self) -> Option<End> {
        let oldest = self.ends().into_values().filter_map(|[oldest, _]| self.end(oldest));
        let end = oldest.min_by_key(|end| (end.returns, end.expected))?;
        self.check_end(end.returns, u64::min);
        Some(end)
    }

    /// The session expected last: one of the newest arrivals of each expectation.
    fn latest(&self) -> Option<End> {
        let newest = self.ends().into_values().filter_map(|[_, newest]| self.end(newest));
        let end = newest.max_by_key(|end| (end.returns, end.expected))?;
        self.check_end(end.returns, u64::max);
        Some(end)
    }

    /// While the clock only goes forward, the end of the lists is the end of everything.
    fn check_end(&self, found: u64, end: fn(u64, u64) -> u64) {
        if !self.clock_stepped_back {
            let exact = self.sessions.iter().filter_map(Session::returns).reduce(end);
            assert_eq!(Some(found), exact, "a list is not in order of return time");
        }
    }

    fn evict(&mut self, now: u64, at: usize, beliefs: &Beliefs) {
        let Session { id, seen, expected, past, .. } = self.sessions[at];
        let evicted = Remembered { age_ticks: now.saturating_sub(seen), expected, past };
        self.remember(&id, now, evicted, beliefs);
        self.remove(&id);
    }

    fn remember(&mut self, id: &SessionId, now: u64, client: Remembered, beliefs: &Beliefs) {
        if client.expected != Expected::Never {
            self.ghosts.add(id, now, client, beliefs);
        }
    }

    fn expect(&mut self, at: usize, seen: u64, expected: Expected) {
        let session = self.sessions.remove(at);
        self.sessions.push(Session { seen, expected, ..session });
    }

    fn remove(&mut self, id: &SessionId) -> bool {
        let removed = self.find(id).map(|at| self.sessions.remove(at));
        removed.map(|session| self.slots.give_back(&session.slots)).is_some()
    }

    fn find(&self, id: &SessionId) -> Option<usize> {
        self.sessions.iter().position(|session| session.id == *id)
    }

    fn used(&self) -> usize {
        self.sessions.iter().map(|session| self.blocks(session.value.len())).sum()
    }

    fn blocks(&self, value_bytes: usize) -> usize {
        value_bytes.div_ceil(self.block_bytes).max(1)
    }

    fn is_over(&self, expiry_s: u64, now_ms: u64) -> bool {
        self.second(now_ms) >= expiry_s
    }

    fn second(&self, ms: u64) -> u64 {
        (ms.saturating_sub(self.born_ms) / 1_000).min(u64::from(u32::MAX))
    }

    /// In ticks. A time before the epoch counts as the epoch, also when the epoch moves over it.
    fn tick(&mut self, now_ms: u64) -> u64 {
        let ticks = now_ms.saturating_sub(self.begin_ms) / TICK_MS;
        self.clock_stepped_back |= ticks < self.latest_now;
        self.latest_now = ticks;
        while ticks >= self.epoch + OLDEST_TICKS {
            self.epoch += EPOCH_STEP_TICKS;
            let epoch = self.epoch;
            self.sessions.iter_mut().for_each(|s| s.seen = s.seen.max(epoch));
            self.candidates = Candidates::default();
        }
        self.at(now_ms)
    }

    fn at(&self, ms: u64) -> u64 {
        (ms.saturating_sub(self.begin_ms) / TICK_MS).max(self.epoch)
    }
}
