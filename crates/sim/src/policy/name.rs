//! The names of the yardsticks.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::{
    AdaptiveReplacement, Clairvoyant, Exact, Fifo, Lfu, Literal, Lru, Mru, Policy, RandomEviction,
    S3Fifo, SetAssociativeFifo, Sieve,
};

/// One of the yardsticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PolicyName {
    /// `fifo`: [`Fifo`].
    Fifo,
    /// `lru`: [`Lru`].
    Lru,
    /// `random`: [`RandomEviction`].
    Random,
    /// `lfu`: [`Lfu`].
    Lfu,
    /// `mru`: [`Mru`].
    Mru,
    /// `fifo-4way`: [`SetAssociativeFifo`].
    Fifo4Way,
    /// `fifo-8way`: [`SetAssociativeFifo`].
    Fifo8Way,
    /// `fifo-11way`: [`SetAssociativeFifo`].
    Fifo11Way,
    /// `sieve`: [`Sieve`].
    Sieve,
    /// `s3-fifo`: [`S3Fifo`].
    S3Fifo,
    /// `arc`: [`AdaptiveReplacement`].
    Arc,
    /// `literal`: [`Literal`].
    Literal,
    /// `exact`: [`Exact`].
    Exact,
    /// `clairvoyant`: [`Clairvoyant`].
    Clairvoyant,
    /// `clairvoyant-no-bypass`: [`Clairvoyant::without_bypass`].
    ClairvoyantNoBypass,
}

impl PolicyName {
    /// Every policy.
    pub const ALL: [Self; 15] = [
        Self::Fifo,
        Self::Lru,
        Self::Random,
        Self::Lfu,
        Self::Mru,
        Self::Fifo4Way,
        Self::Fifo8Way,
        Self::Fifo11Way,
        Self::Sieve,
        Self::S3Fifo,
        Self::Arc,
        Self::Literal,
        Self::Exact,
        Self::Clairvoyant,
        Self::ClairvoyantNoBypass,
    ];

    /// Returns the name as text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::Random => "random",
            Self::Lfu => "lfu",
            Self::Mru => "mru",
            Self::Fifo4Way => "fifo-4way",
            Self::Fifo8Way => "fifo-8way",
            Self::Fifo11Way => "fifo-11way",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::Arc => "arc",
            Self::Literal => "literal",
            Self::Exact => "exact",
            Self::Clairvoyant => "clairvoyant",
            Self::ClairvoyantNoBypass => "clairvoyant-no-bypass",
        }
    }

    /// Returns true if it needs [`Access::next`](super::Access::next), and so the whole trace beforehand.
    pub const fn needs_future(self) -> bool {
        matches!(self, Self::Clairvoyant | Self::ClairvoyantNoBypass)
    }

    /// Makes an empty cache for `capacity` sessions. Only random eviction depends on the seed, and
    /// only the policies that use announcements on the grace.
    pub fn build(self, capacity: NonZeroU32, seed: u64, grace_ms: u64) -> Box<dyn Policy + Send> {
        const WAYS: [NonZeroU32; 3] = [ways(4), ways(8), ways(11)];
        let set_associative = |ways| Box::new(SetAssociativeFifo::new(capacity, ways));
        match self {
            Self::Fifo => Box::new(Fifo::new(capacity)),
            Self::Lru => Box::new(Lru::new(capacity)),
            Self::Random => Box::new(RandomEviction::new(capacity, seed)),
            Self::Lfu => Box::new(Lfu::new(capacity)),
            Self::Mru => Box::new(Mru::new(capacity)),
            Self::Fifo4Way => set_associative(WAYS[0]),
            Self::Fifo8Way => set_associative(WAYS[1]),
            Self::Fifo11Way => set_associative(WAYS[2]),
            Self::Sieve => Box::new(Sieve::new(capacity)),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::Arc => Box::new(AdaptiveReplacement::new(capacity)),
            Self::Literal => Box::new(Literal::new(capacity, grace_ms)),
            Self::Exact => Box::new(Exact::new(capacity, grace_ms)),
            Self::Clairvoyant => Box::new(Clairvoyant::new(capacity)),
            Self::ClairvoyantNoBypass => Box::new(Clairvoyant::without_bypass(capacity)),
        }
    }
}

const fn ways(ways: u32) -> NonZeroU32 {
    NonZeroU32::new(ways).expect("not zero")
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text.trim());
        found.ok_or_else(|| UnknownPolicy::new(text, Self::ALL.into_iter().map(Self::as_str)))
    }
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no policy is called {name:?}: give one of {}", known.join(", "))]
pub struct UnknownPolicy {
    /// The name that was asked for.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

impl UnknownPolicy {
    pub(crate) fn new(name: &str, known: impl Iterator<Item = &'static str>) -> Self {
        Self { name: name.to_owned(), known: known.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in PolicyName::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(format!("{policy:>30}").parse(), Ok(policy));
        }
    }

    #[test]
    fn an_unknown_name_says_which_there_are() {
        let error = "lifo\n".parse::<PolicyName>().expect_err("no such policy").to_string();
        assert!(error.contains("\"lifo\\n\"") && error.contains("clairvoyant"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
