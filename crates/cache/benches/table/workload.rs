//! The workload: one stream of arrivals that every peer gets.
//!
//! Four fifths of a full cache belong to clients that keep returning, each at its interval with a
//! second of jitter; the rest belong to clients that are gone. There are three intervals, or
//! thousands ([`Intervals`]). A client makes twenty visits,
//! the first with a new session, so that one operation in twenty stores a session in a full cache.
//! At that rate an unused session is two minutes old when the last of its cohort is evicted: both
//! LRU and prediction can keep every session that is still wanted, and all peers do the same work.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub(crate) const ID_BYTES: usize = 32;
/// The bytes of a value. A serialised session without a client certificate takes 129 to 163 bytes.
pub(crate) const VALUE_BYTES: usize = 152;
pub(crate) type Id = [u8; ID_BYTES];
pub(crate) type Value = [u8; VALUE_BYTES];

/// The time at which the first session is stored, on the virtual clock.
pub(crate) const START_MS: u64 = 1_000_000;
/// The time that an unused session stays, by the shares above.
const STALE_MS: u64 = 128_000;
const INTERVALS_MS: [u32; 3] = [15_000, 30_000, 60_000];
const SHORTEST_MS: u32 = 8_000;
const LONGEST_MS: u32 = 64_000;

/// The intervals at which clients return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intervals {
    /// Each client has one of 15, 30 and 60 seconds.
    Three,
    /// Any number of milliseconds from 8 to 64 seconds, another one at each visit: no gap says
    /// anything about the next.
    Any,
}

impl Intervals {
    fn draw(self, random: &mut ChaCha8Rng) -> u32 {
        match self {
            Self::Three => INTERVALS_MS[random.random_range(0..INTERVALS_MS.len())],
            Self::Any => random.random_range(SHORTEST_MS..=LONGEST_MS),
        }
    }
}
const JITTER_MS: u32 = 1_000;
/// The visits of a client after its first.
const RETURNS: u32 = 19;

/// The arrival of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) id: Id,
    pub(crate) at_ms: u64,
    /// The time in which its client announces to return.
    pub(crate) interval_ms: u32,
    /// True if the client has no session yet.
    pub(crate) first: bool,
}

struct Client {
    id: Id,
    interval_ms: u32,
    returns_left: u32,
}

/// An endless stream of arrivals, the same for the same seed.
pub(crate) struct Workload {
    intervals: Intervals,
    random: ChaCha8Rng,
    clients: Vec<Client>,
    due: BinaryHeap<Reverse<(u64, u32)>>,
    fill: Vec<Arrival>,
}

impl Workload {
    pub(crate) fn new(intervals: Intervals, sessions: u64, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut fill = Vec::with_capacity(sessions as usize);
        let (mut clients, mut due) = (Vec::new(), Vec::new());
        for at in 0..sessions {
            let id = new_id(&mut random);
            let interval_ms = intervals.draw(&mut random);
            let returning = at % 5 != 0;
            let longest_ago = if returning { u64::from(interval_ms) } else { STALE_MS };
            let at_ms = START_MS + STALE_MS - random.random_range(0..longest_ago);
            fill.push(Arrival { id, at_ms, interval_ms, first: true });
            if returning {
                let next_ms = at_ms + jittered(interval_ms, &mut random);
                due.push(Reverse((next_ms.max(START_MS + STALE_MS), clients.len() as u32)));
                let returns_left = random.random_range(0..=RETURNS);
                clients.push(Client { id, interval_ms, returns_left });
            }
        }
        fill.sort_by_key(|arrival| arrival.at_ms);
        Self { intervals, random, clients, due: due.into(), fill }
    }

    /// Returns the arrivals that fill an empty cache. They are taken once, before any other.
    pub(crate) fn fill(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.fill)
    }

    /// The next arrivals.
    pub(crate) fn next(&mut self, count: usize) -> Vec<Arrival> {
        (0..count).map(|_| self.arrive()).collect()
    }

    fn arrive(&mut self) -> Arrival {
        let mut soonest = self.due.peek_mut().expect("clients return until they are replaced");
        let Reverse((at_ms, who)) = *soonest;
        let client = &mut self.clients[who as usize];
        let first = client.returns_left == 0;
        if first {
            client.id = new_id(&mut self.random);
            client.returns_left = RETURNS;
        } else {
            client.returns_left -= 1;
        }
        if self.intervals == Intervals::Any {
            client.interval_ms = self.intervals.draw(&mut self.random);
        }
        *soonest = Reverse((at_ms + jittered(client.interval_ms, &mut self.random), who));
        Arrival { id: client.id, at_ms, interval_ms: client.interval_ms, first }
    }
}

/// Arrivals of clients that never return, at a rate that replaces `sessions` in the time that a
/// stale session stays: the cache is full, and every arrival evicts.
pub(crate) struct Newcomers {
    random: ChaCha8Rng,
    sessions: u64,
    arrived: u64,
}

impl Newcomers {
    pub(crate) fn new(sessions: u64, seed: u64) -> Self {
        Self { random: ChaCha8Rng::seed_from_u64(seed), sessions, arrived: 0 }
    }

    /// Lets the next one arrive at this time.
    pub(crate) fn from(self, now_ms: u64) -> Self {
        let arrived = (now_ms - START_MS) * self.sessions / STALE_MS;
        Self { arrived, ..self }
    }

    /// The next arrivals.
    pub(crate) fn next(&mut self, count: u64) -> Vec<Arrival> {
        let arrivals = (self.arrived..self.arrived + count).map(|at| Arrival {
            id: new_id(&mut self.random),
            at_ms: START_MS + at * STALE_MS / self.sessions,
            interval_ms: Intervals::Three.draw(&mut self.random),
            first: true,
        });
        self.arrived += count;
        arrivals.collect()
    }
}

pub(crate) fn new_id(random: &mut ChaCha8Rng) -> Id {
    let mut id = [0; ID_BYTES];
    random.fill_bytes(&mut id);
    id
}

fn jittered(interval_ms: u32, random: &mut ChaCha8Rng) -> u64 {
    u64::from(interval_ms - JITTER_MS + random.random_range(0..=2 * JITTER_MS))
}
