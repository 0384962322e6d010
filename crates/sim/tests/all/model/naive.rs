//! Naive policies without ghosts: a vector and searches through it.

use rejoin_sim::policy::{Access, Policy};

/// FIFO, LRU, MRU.
pub(crate) struct Ends {
    keys: Vec<u64>,
    capacity: usize,
    by_use: bool,
    last_goes: bool,
}

impl Ends {
    pub(crate) fn new(capacity: usize, by_use: bool, last_goes: bool) -> Self {
        Self { keys: Vec::new(), capacity, by_use, last_goes }
    }
}

impl Policy for Ends {
    fn access(&mut self, access: &Access) -> bool {
        let there = self.keys.contains(&access.key);
        if there && self.by_use {
            self.remove(access.key);
            self.keys.push(access.key);
        }
        there
    }

    fn store(&mut self, access: &Access) {
        if self.keys.contains(&access.key) {
            return;
        }
        if self.keys.len() == self.capacity {
            self.keys.remove(if self.last_goes { self.capacity - 1 } else { 0 });
        }
        self.keys.push(access.key);
    }

    fn remove(&mut self, key: u64) -> bool {
        let at = self.keys.iter().position(|&other| other == key);
        at.map(|at| self.keys.remove(at)).is_some()
    }

    fn len(&self) -> usize {
        self.keys.len()
    }
}

/// LFU and the clairvoyant: each session with a rank, of which the least goes.
pub(crate) struct Ranked {
    sessions: Vec<(u64, Rank)>,
    steps: u64,
    capacity: usize,
    rank: fn(&Access, before: Option<Rank>, step: u64) -> Rank,
    /// True if a session whose rank would be the least, or equal to it, is refused.
    bypass: bool,
}

type Rank = (u64, u64);

impl Ranked {
    /// Ranks by the number of uses, then by the step that counted the last of them.
    pub(crate) fn by_frequency(capacity: usize) -> Self {
        let rank = |_: &Access, before: Option<Rank>, step| (before.map_or(0, |b| b.0) + 1, step);
        Self { sessions: Vec::new(), steps: 0, capacity, rank, bypass: false }
    }

    /// Ranks by the next use, the last one least. Several may never be wanted; any will do, such as
    /// the one with the greatest key.
    pub(crate) fn by_next_use(capacity: usize, bypass: bool) -> Self {
        let rank = |access: &Access, _, _| (!access.next, !access.key);
        Self { sessions: Vec::new(), steps: 0, capacity, rank, bypass }
    }
}

impl Policy for Ranked {
    fn access(&mut self, access: &Access) -> bool {
        self.steps += 1;
        let found = self.sessions.iter_mut().find(|session| session.0 == access.key);
        found.map(|session| session.1 = (self.rank)(access, Some(session.1), self.steps)).is_some()
    }

    fn store(&mut self, access: &Access) {
        self.steps += 1;
        if self.sessions.iter().any(|session| session.0 == access.key) {
            return;
        }
        let rank = (self.rank)(access, None, self.steps);
        if self.sessions.len() == self.capacity {
            let least = self.sessions.iter().min_by_key(|session| session.1);
            let (key, least) = *least.expect("a session");
            if self.bypass && rank.0 <= least.0 {
                return;
            }
            self.remove(key);
        }
        self.sessions.push((access.key, rank));
    }

    fn remove(&mut self, key: u64) -> bool {
        let before = self.len();
        self.sessions.retain(|session| session.0 != key);
        self.len() < before
    }

    fn len(&self) -> usize {
        self.sessions.len()
    }
}

/// SIEVE: keys from old to new, whether they were used, and how many of them the hand is past.
pub(crate) struct Hand {
    sessions: Vec<(u64, bool)>,
    hand: usize,
    capacity: usize,
}

impl Hand {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { sessions: Vec::new(), hand: 0, capacity }
    }
}

impl Policy for Hand {
    fn access(&mut self, access: &Access) -> bool {
        let found = self.sessions.iter_mut().find(|session| session.0 == access.key);
        found.map(|session| session.1 = true).is_some()
    }

    fn store(&mut self, access: &Access) {
        if self.sessions.iter().any(|session| session.0 == access.key) {
            return;
        }
        if self.sessions.len() == self.capacity {
            while std::mem::take(&mut self.sessions[self.hand].1) {
                self.hand = (self.hand + 1) % self.capacity;
            }
            self.sessions.remove(self.hand);
            // Past the newest the hand starts over, and does not wait for the next new session.
            self.hand %= self.sessions.len().max(1);
        }
        self.sessions.push((access.key, false));
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some(at) = self.sessions.iter().position(|session| session.0 == key) else {
            return false;
        };
        self.sessions.remove(at);
        if at < self.hand {
            self.hand -= 1;
        }
        self.hand %= self.sessions.len().max(1);
        true
    }

    fn len(&self) -> usize {
        self.sessions.len()
    }
}
