//! The cache as its documentation describes it: sessions in a `Vec`, found by looking at each.
//!
//! Three things are the engine's own choice and are taken from it. Of equal return times the shorter
//! interval counts as earlier, and of equally old ghosts the last in its set goes first. Certain
//! bits of the keyed hash choose a shard and a set of ghosts, and tell a ghost. When a caller's
//! clock steps back, the sessions of one interval class stay in the order they were heard of: the
//! ends of a class are its oldest and newest arrivals, whatever their times.

use rejoin_cache::{ContextTag, Counters, Layout, NewSession, Policy, Refusal, SessionId};
use rejoin_cache::{Settings, TICK_MS};

use super::expectation::{Beliefs, Class, Past, interval_ticks};
use super::ghosts::Ghosts;

/// Ticks after which the epoch moves, and by how much.
const OLDEST_TICKS: u64 = 1 << 31;
const EPOCH_STEP_TICKS: u64 = 1 << 30;

/// What a lookup says. `value` is there if the session was found.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) past: Past,
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
        let shard =
            |layout: &Layout| Shard::new(settings, layout.sessions() as usize, hash_key, now_ms);
        Self {
            hash_key,
            beliefs: Beliefs::new(settings),
            shards: layouts.iter().map(shard).collect(),
        }
    }

    pub(crate) fn get(&mut self, now_ms: u64, id: &SessionId, context: ContextTag) -> Answer {
        let (shard, beliefs) = self.shard(id);
        shard.get(now_ms, id, context, beliefs)
    }

    pub(crate) fn take(&mut self, now_ms: u64, id: &SessionId, context: ContextTag) -> Answer {
        let (shard, beliefs) = self.shard(id);
        let answer = shard.get(now_ms, id, context, beliefs);
        if answer.value.is_some() {
            shard.remove(id);
        }
        answer
    }

    pub(crate) fn peek(
        &mut self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
    ) -> Option<Vec<u8>> {
        let shard = self.shard(id).0;
        let session = &shard.sessions[shard.find(id)?];
        (session.context == context && !shard.is_over(session.expiry_s, now_ms))
            .then(|| session.value.clone())
    }

    pub(crate) fn insert(
        &mut self,
        now_ms: u64,
        new: &NewSession<'_>,
        past: Past,
    ) -> Result<u32, Refusal> {
        let (shard, beliefs) = self.shard(&new.id);
        shard.insert(now_ms, new, past, beliefs)
    }

    pub(crate) fn hint(&mut self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
        let (shard, beliefs) = self.shard(id);
        let now = shard.tick(now_ms);
        let Some(at) = shard.find(id) else { return false };
        let class = beliefs.expectation(shard.sessions[at].past, Some(interval_ms), None);
        shard.expect(at, now, Some(class));
        true
    }

    pub(crate) fn retire(&mut self, id: &SessionId) {
        let shard = self.shard(id).0;
        if let Some(at) = shard.find(id).filter(|_| shard.policy == Policy::Predictive) {
            let seen = shard.sessions[at].seen;
            shard.sessions[at].past = Past::default();
            shard.expect(at, seen, None);
        }
    }

    pub(crate) fn remove(&mut self, id: &SessionId) -> bool {
        self.shard(id).0.remove(id)
    }

    pub(crate) fn counters(&self) -> Counters {
        let of =
            |shard: &Shard| Counters { sessions: shard.sessions.len() as u64, ..shard.counters };
        self.shards.iter().map(of).fold(Counters::default(), |sum, shard| sum.plus(&shard))
    }

    /// By whatever number of steps at once.
    pub(crate) fn epoch_moves(&self) -> u64 {
        self.shards.iter().map(|shard| shard.epoch / EPOCH_STEP_TICKS).sum()
    }

    fn shard(&mut self, id: &SessionId) -> (&mut Shard, &mut Beliefs) {
        let hash = super::keyed_hash(&self.hash_key, id);
        let at = (hash >> 48) as usize * self.shards.len() / (1 << 16);
        (&mut self.shards[at], &mut self.beliefs)
    }
}

struct Session {
    id: SessionId,
    value: Vec<u8>,
    context: ContextTag,
    expiry_s: u64,
    past: Past,
    /// Ticks since the shard was born.
    seen: u64,
    /// `None`: never expected back.
    class: Option<Class>,
}

/// A session's place in the order of return times.
struct End {
    at: usize,
    returns: u64,
    class: Class,
}

impl End {
    /// None for those never expected.
    fn of((at, session): (usize, &Session)) -> Option<Self> {
        let class = session.class?;
        Some(Self { at, returns: session.seen + class.ticks(), class })
    }
}

struct Shard {
    policy: Policy,
    block_bytes: usize,
    longest_value_bytes: usize,
    grace_ticks: u64,
    slots: usize,
    born_ms: u64,
    /// Ticks since the shard was born.
    epoch: u64,
    latest_now: u64,
    clock_stepped_back: bool,
    /// In the order in which they were heard of.
    sessions: Vec<Session>,
    ghosts: Ghosts,
    counters: Counters,
}

impl Shard {
    fn new(settings: &Settings, slots: usize, hash_key: [u8; 16], born_ms: u64) -> Self {
        let ghosts = slots * settings.ghosts_percent as usize / 100;
        Self {
            policy: settings.policy,
            block_bytes: settings.block_bytes.next_multiple_of(8) as usize,
            longest_value_bytes: settings.longest_value_bytes as usize,
            grace_ticks: interval_ticks(settings.grace_ms),
            slots,
            born_ms,
            epoch: 0,
            latest_now: 0,
            clock_stepped_back: false,
            sessions: Vec::new(),
            ghosts: Ghosts::new(ghosts, hash_key),
            counters: Counters::default(),
        }
    }

    fn get(
        &mut self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        beliefs: &mut Beliefs,
    ) -> Answer {
        let now = self.tick(now_ms);
        let Some(at) = self.find(id) else {
            self.counters.misses += 1;
            return Answer { value: None, past: self.missed(now, id, beliefs) };
        };
        if self.is_over(self.sessions[at].expiry_s, now_ms) {
            self.counters.misses += 1;
            self.counters.expired += 1;
            self.sessions.remove(at);
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

    fn arrived(&mut self, at: usize, now: u64, beliefs: &mut Beliefs) -> Answer {
        let session = &mut self.sessions[at];
        if let Some(class) = session.class.filter(|_| self.policy == Policy::Predictive) {
            let returns = session.seen + class.ticks();
            self.counters.predictions += 1;
            self.counters.prediction_error_ms += returns.abs_diff(now) * TICK_MS;
        }
        beliefs.record_visit(&mut session.past, now.saturating_sub(session.seen));
        let (past, value) = (session.past, session.value.clone());
        let class = beliefs.expectation(past, None, session.class);
        self.expect(at, now, Some(class));
        Answer { value: Some(value), past }
    }

    fn missed(&mut self, now: u64, id: &SessionId, beliefs: &mut Beliefs) -> Past {
        let Some((gap_ticks, mut past)) = self.ghosts.take(id, now) else {
            return Past::default();
        };
        self.counters.wanted_after_eviction += 1;
        beliefs.record_visit(&mut past, gap_ticks);
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
        if new.value.len() > self.longest_value_bytes || needed > self.slots {
            self.counters.refused_too_large += 1;
            return Err(Refusal::TooLarge);
        }
        let expiry_s = self.second(new.expires_ms);
        if self.is_over(expiry_s, now_ms) {
            self.counters.refused_expired += 1;
            return Err(Refusal::Expired);
        }
        let sibling = new.sibling && self.policy == Policy::Predictive;
        let class = (!sibling).then(|| beliefs.expectation(past, new.hint_ms, None));
        let mut evicted = 0;
        while self.slots - self.used() < needed {
            let Some(victim) = self.victim(now, class) else {
                self.counters.refused_returns_later += 1;
                if !new.sibling {
                    self.ghosts.add(&new.id, now, now, past);
                }
                return Err(Refusal::ReturnsLater);
            };
            self.evict(now, victim);
            evicted += 1;
        }
        self.counters.stored += 1;
        self.sessions.push(Session {
            id: new.id,
            value: new.value.to_vec(),
            context: new.context,
            expiry_s,
            past,
            seen: now,
            class,
        });
        Ok(evicted)
    }

    /// Algorithm 1, read with "else".
    fn victim(&mut self, now: u64, newcomer: Option<Class>) -> Option<usize> {
        if self.policy == Policy::Lru {
            self.counters.evicted_oldest += 1;
            return Some(0);
        }
        let overdue = |end: &End| end.returns + self.grace_ticks < now;
        if let Some(earliest) = self.earliest().filter(overdue) {
            self.counters.evicted_overdue += 1;
            return Some(earliest.at);
        }
        let returns = now + newcomer?.ticks();
        let never = self.sessions.iter().position(|session| session.class.is_none());
        let last = || self.latest().filter(|latest| returns < latest.returns).map(|end| end.at);
        let victim = never.or_else(last);
        self.counters.evicted_latest += u64::from(victim.is_some());
        victim
    }

    /// The session expected first: one of the oldest arrivals of each class.
    fn earliest(&self) -> Option<End> {
        let mut met = [false; Class::COUNT];
        let expected = self.sessions.iter().enumerate().filter_map(End::of);
        let oldest = expected.filter(|end| !std::mem::replace(&mut met[end.class.index()], true));
        let end = oldest.min_by_key(|end| (end.returns, end.class))?;
        self.check_end(end.returns, u64::min);
        Some(end)
    }

    /// The session expected last: one of the newest arrivals of each class.
    fn latest(&self) -> Option<End> {
        let mut met = [false; Class::COUNT];
        let expected = self.sessions.iter().enumerate().rev().filter_map(End::of);
        let newest = expected.filter(|end| !std::mem::replace(&mut met[end.class.index()], true));
        let end = newest.max_by_key(|end| (end.returns, end.class))?;
        self.check_end(end.returns, u64::max);
        Some(end)
    }

    /// While the clock only goes forward, the end of the classes is the end of everything.
    fn check_end(&self, found: u64, end: fn(u64, u64) -> u64) {
        if !self.clock_stepped_back {
            let all = self.sessions.iter().enumerate().filter_map(End::of);
            let exact = all.map(|end| end.returns).reduce(end);
            assert_eq!(Some(found), exact, "a class is not in order of return time");
        }
    }

    fn evict(&mut self, now: u64, at: usize) {
        let Session { id, seen, past, class, .. } = self.sessions.remove(at);
        if class.is_some() {
            self.ghosts.add(&id, now, seen, past);
        }
    }

    fn expect(&mut self, at: usize, seen: u64, class: Option<Class>) {
        let session = self.sessions.remove(at);
        self.sessions.push(Session { seen, class, ..session });
    }

    fn remove(&mut self, id: &SessionId) -> bool {
        self.find(id).map(|at| self.sessions.remove(at)).is_some()
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

    /// Ticks since the shard was born. A time before the epoch counts as the epoch, also when the
    /// epoch moves over it.
    fn tick(&mut self, now_ms: u64) -> u64 {
        let ticks = now_ms.saturating_sub(self.born_ms) / TICK_MS;
        self.clock_stepped_back |= ticks < self.latest_now;
        self.latest_now = ticks;
        while ticks >= self.epoch + OLDEST_TICKS {
            self.epoch += EPOCH_STEP_TICKS;
            let epoch = self.epoch;
            self.sessions.iter_mut().for_each(|s| s.seen = s.seen.max(epoch));
        }
        ticks.max(self.epoch)
    }
}
