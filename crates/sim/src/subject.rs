//! The subjects of a simulation, by name: the policies Rejoin ships and the yardsticks.

use std::fmt;
use std::str::FromStr;

use rejoin_cache::{Policy, Prediction};
use serde::{Serialize, Serializer};

use crate::policy::{PolicyName, UnknownPolicy};

/// A policy in a simulation.
///
/// The shipped policies run in `rejoin_cache` as they are. The name `lru` means the shipped one;
/// tests compare it with the yardstick of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Subject {
    /// `predictive`: shipped; believes what clients announce ([`Prediction::Hint`]).
    Predictive,
    /// `learned`: shipped; gets no announcements ([`Prediction::Learned`]).
    Learned,
    /// `both`: shipped; believes clients as far as their past supports it ([`Prediction::Both`]).
    Both,
    /// `lru`: shipped; evicts the least recently used session.
    Lru,
    /// A yardstick, by its own name.
    Yardstick(PolicyName),
    /// `bound` and `bound-learned`: what no policy exceeds that knows no more of its clients. It is
    /// calculated, and takes memory for every request. `bound-by-time` and `bound-learned-by-time` take longer, and are closer to
    /// what a policy can reach.
    Bound(Knows, Places),
}

/// The knowledge of a bound about clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Knows {
    /// Their announcements, with the visits of this run and of the run before, or else their last gap.
    Announced,
    /// Their interval once they have come back within a run, and nothing before.
    Past,
}

/// The use that a bound makes of places that are free for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Places {
    /// They are kept for another time, when there are too few.
    Saved,
    /// They are lost.
    Lost,
}

impl Subject {
    const BOUNDS: [Self; 4] = [
        Self::Bound(Knows::Announced, Places::Saved),
        Self::Bound(Knows::Past, Places::Saved),
        Self::Bound(Knows::Announced, Places::Lost),
        Self::Bound(Knows::Past, Places::Lost),
    ];
    const SHIPPED: [Self; 4] = [Self::Predictive, Self::Learned, Self::Both, Self::Lru];

    /// Returns every policy that can be asked for, the shipped ones first.
    pub fn all() -> impl Iterator<Item = Self> {
        let yardsticks = PolicyName::ALL.into_iter().filter(|name| *name != PolicyName::Lru);
        Self::SHIPPED.into_iter().chain(yardsticks.map(Self::Yardstick)).chain(Self::BOUNDS)
    }

    /// Returns the policy's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Predictive => "predictive",
            Self::Learned => "learned",
            Self::Both => "both",
            Self::Lru => "lru",
            Self::Yardstick(name) => name.as_str(),
            Self::Bound(Knows::Announced, Places::Saved) => "bound",
            Self::Bound(Knows::Past, Places::Saved) => "bound-learned",
            Self::Bound(Knows::Announced, Places::Lost) => "bound-by-time",
            Self::Bound(Knows::Past, Places::Lost) => "bound-learned-by-time",
        }
    }

    /// Returns the settings of the shipped cache for this policy; `None` for a yardstick.
    pub(crate) const fn shipped(self) -> Option<(Policy, Prediction)> {
        match self {
            Self::Predictive => Some((Policy::Predictive, Prediction::Hint)),
            Self::Learned => Some((Policy::Predictive, Prediction::Learned)),
            Self::Both => Some((Policy::Predictive, Prediction::Both)),
            Self::Lru => Some((Policy::Lru, Prediction::Hint)),
            Self::Yardstick(_) | Self::Bound(..) => None,
        }
    }

    /// Returns true if it must know the whole pass beforehand, which takes memory for every request.
    pub const fn needs_future(self) -> bool {
        matches!(self, Self::Yardstick(name) if name.needs_future())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Subject {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::all().find(|subject| subject.as_str() == text.trim());
        found.ok_or_else(|| UnknownPolicy::new(text, Self::all().map(Self::as_str)))
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_as_they_are_written() {
        for subject in Subject::all() {
            assert_eq!(subject.to_string().parse::<Subject>().expect("its name"), subject);
        }
        assert_eq!("lru".parse::<Subject>().expect("a name"), Subject::Lru);
    }

    #[test]
    fn an_unknown_name_says_which_there_are() {
        let error = "lifo\n".parse::<Subject>().expect_err("no such policy").to_string();
        assert!(error.contains("\"lifo\\n\"") && error.contains("learned, both, lru, fifo"));
        assert!(error.contains("clairvoyant") && !error.contains('\n'), "{error}");
    }
}
