//! The input of the cache's targets: a small cache, and operations on it at certain times.

use arbitrary::Arbitrary;
use rejoin_cache::{Capacity, ContextTag, Policy, Prediction, Settings};

/// The number of clients whose sessions are operated on.
pub const CLIENTS: u16 = 24;

/// A cache of a few sessions.
#[derive(Debug, Arbitrary)]
pub struct Small {
    pub hash_key: [u8; 16],
    sessions: u8,
    shards: u8,
    blocks: u8,
    longest: u8,
    ghosts: u8,
    grace_ms: u16,
    prior_ms: u32,
    lru: bool,
    hints: Option<bool>,
}

impl Small {
    pub fn settings(&self) -> Settings {
        let predictions = [Prediction::Learned, Prediction::Hint];
        Settings {
            policy: if self.lru { Policy::Lru } else { Policy::Predictive },
            prediction: self.hints.map_or(Prediction::Both, |only| predictions[usize::from(only)]),
            grace_ms: self.grace_ms.into(),
            prior_ms: self.prior_ms.into(),
            block_bytes: 8 + u32::from(self.blocks % 40),
            longest_value_bytes: 1 + u32::from(self.longest),
            ghosts_percent: 3 * u32::from(self.ghosts),
            shards: Some(1 + u32::from(self.shards % 3)),
            ..Settings::new(Capacity::Sessions(1 + u64::from(self.sessions % 12)))
        }
    }
}

/// The step of the clock before an operation.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Step {
    Not,
    Milliseconds(u8),
    Seconds(u16),
    Days(u8),
    BackMilliseconds(u16),
}

impl Step {
    pub fn after(self, now_ms: u64) -> u64 {
        match self {
            Self::Not => now_ms,
            Self::Milliseconds(ms) => now_ms + u64::from(ms),
            Self::Seconds(seconds) => now_ms + 1_000 * u64::from(seconds),
            Self::Days(days) => now_ms + 86_400_000 * u64::from(days),
            Self::BackMilliseconds(ms) => now_ms.saturating_sub(ms.into()),
        }
    }
}

/// An operation on the session of a client.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Operation {
    Get { client: u8, foreign: bool },
    Peek { client: u8, foreign: bool },
    Take { client: u8, foreign: bool },
    Insert { client: u8, new: New },
    Hint { client: u8, interval_ms: u32 },
    Retire { client: u8 },
    Remove { client: u8 },
}

/// A session to insert.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct New {
    pub value_bytes: u8,
    pub lifetime_ms: u32,
    pub foreign: bool,
    pub hint_ms: Option<u32>,
    pub sibling: bool,
    pub seen_ago_ms: Option<u32>,
    pub with_history: bool,
}

/// A cache and the operations on it.
#[derive(Debug, Arbitrary)]
pub struct Input {
    pub cache: Small,
    pub operations: Vec<(Step, Operation)>,
}

pub fn client_of(byte: u8) -> u16 {
    u16::from(byte) % CLIENTS
}

pub fn context_of(foreign: bool) -> ContextTag {
    ContextTag(u32::from(foreign))
}
