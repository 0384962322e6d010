//! The decoding of a fuzzer's bytes: a small cache, and operations on it at their times.

use arbitrary::{Arbitrary, Result, Unstructured};
use rejoin_cache::{Capacity, ContextTag, Fairness, Policy, Prediction, Settings, SourceBy};
use rejoin_testkit::cache_model::operation::{New, Operation};

/// The number of clients whose sessions are operated on.
pub(crate) const CLIENTS: u16 = 24;
/// Sessions of the second are foreign to the first.
pub(crate) const CONTEXTS: [ContextTag; 2] = [ContextTag(0), ContextTag(1)];

/// A cache of a few sessions.
#[derive(Debug, Arbitrary)]
pub(crate) struct Small {
    pub(crate) hash_key: [u8; 16],
    sessions: u8,
    shards: u8,
    blocks: u8,
    longest: u8,
    ghosts: u8,
    grace_ms: u16,
    prior_ms: u32,
    lru: bool,
    hints: Option<bool>,
    source_percent: Option<u8>,
}

impl Small {
    pub(crate) fn settings(&self) -> Settings {
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
            fairness: self.source_percent.map(|percent| Fairness {
                by: SourceBy::Address,
                percent: 1 + u32::from(percent % 100),
            }),
            ..Settings::new(Capacity::Sessions(1 + u64::from(self.sessions % 12)))
        }
    }
}

/// A step of the clock before an operation.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub(crate) enum Step {
    Not,
    Milliseconds(u8),
    Seconds(u16),
    Days(u8),
    BackMilliseconds(u16),
}

impl Step {
    pub(crate) fn after(self, now_ms: u64) -> u64 {
        match self {
            Self::Not => now_ms,
            Self::Milliseconds(ms) => now_ms + u64::from(ms),
            Self::Seconds(seconds) => now_ms + 1_000 * u64::from(seconds),
            Self::Days(days) => now_ms + 86_400_000 * u64::from(days),
            Self::BackMilliseconds(ms) => now_ms.saturating_sub(ms.into()),
        }
    }
}

/// A cache, and the operations on it at their times in milliseconds.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) cache: Small,
    pub(crate) operations: Vec<(u64, Operation)>,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let (cache, mut now_ms, mut operations) = (bytes.arbitrary()?, 0, Vec::new());
        while !bytes.is_empty() {
            now_ms = Step::arbitrary(bytes)?.after(now_ms);
            operations.push((now_ms, operation(bytes, now_ms)?));
        }
        Ok(Self { cache, operations })
    }
}

fn operation(bytes: &mut Unstructured<'_>, now_ms: u64) -> Result<Operation> {
    let client = u16::from(u8::arbitrary(bytes)?) % CLIENTS;
    Ok(match bytes.int_in_range(0..=6)? {
        0 => Operation::Get { client, context: context(bytes)? },
        1 => Operation::Peek { client, context: context(bytes)? },
        2 => Operation::Take { client, context: context(bytes)? },
        3 => Operation::Insert { client, new: new_session(bytes, now_ms)? },
        4 => Operation::Hint { client, interval_ms: u32::arbitrary(bytes)?.into() },
        5 => Operation::Retire { client },
        _ => Operation::Remove { client },
    })
}

fn new_session(bytes: &mut Unstructured<'_>, now_ms: u64) -> Result<New> {
    let seen_ago_ms = Option::<u32>::arbitrary(bytes)?;
    Ok(New {
        value_bytes: u8::arbitrary(bytes)?.into(),
        expires_ms: now_ms + u64::from(u32::arbitrary(bytes)?),
        context: context(bytes)?,
        hint_ms: Option::<u32>::arbitrary(bytes)?.map(u64::from),
        sibling: bytes.arbitrary()?,
        seen_ms: seen_ago_ms.map(|ago_ms| now_ms.saturating_sub(ago_ms.into())),
        with_history: bytes.arbitrary()?,
        source: u8::arbitrary(bytes)? % 3,
    })
}

fn context(bytes: &mut Unstructured<'_>) -> Result<ContextTag> {
    Ok(CONTEXTS[usize::from(bool::arbitrary(bytes)?)])
}
