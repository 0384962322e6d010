//! Groups of clients that share a server: devices, browsers, floods.
//!
//! Every group draws from its own stream of the seed, so that a group does the same whatever the
//! other groups are; the first group does the same as it would alone. The groups are merged in
//! order of time; of connections in the same millisecond, those of the earlier group come first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arrivals::Arrivals;
use crate::browsers::{BrowserArrivals, Browsers};
use crate::draws::Draws;
use crate::error::{Error, in_range};
use crate::event::Event;
use crate::flood::{Flood, FloodArrivals};
use crate::population::Population;

/// The most groups in a mixture.
pub const MOST_GROUPS: u64 = 256;

/// The number of bits of a client's number that hold its number within the group. The bits above
/// hold the number of the group.
const MEMBER_BITS: u32 = 56;
const _: () = assert!(MOST_GROUPS == 1 << (u64::BITS - MEMBER_BITS));

/// Clients of one kind.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Group {
    /// The devices of paper 000 §V.A, truthful or not.
    Devices(Population),
    /// Browsers.
    Browsers(Browsers),
    /// Clients that never return.
    Flood(Flood),
}

impl Group {
    /// Returns the mean number of connections in a second in the steady state.
    pub fn expected_connections_per_s(&self) -> f64 {
        match self {
            Self::Devices(population) => population.expected_connections_per_s(),
            Self::Browsers(browsers) => browsers.expected_connections_per_s(),
            Self::Flood(flood) => flood.expected_connections_per_s(),
        }
    }

    fn arrivals(&self, draws: Draws) -> Source {
        match self {
            Self::Devices(population) => Source::Devices(Arrivals::new(population, draws)),
            Self::Browsers(browsers) => Source::Browsers(BrowserArrivals::new(browsers, draws)),
            Self::Flood(flood) => Source::Flood(FloodArrivals::new(flood, draws)),
        }
    }
}

impl From<Population> for Group {
    fn from(population: Population) -> Self {
        Self::Devices(population)
    }
}

impl From<Browsers> for Group {
    fn from(browsers: Browsers) -> Self {
        Self::Browsers(browsers)
    }
}

impl From<Flood> for Group {
    fn from(flood: Flood) -> Self {
        Self::Flood(flood)
    }
}

/// Groups of clients that connect to the same server.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture(Vec<Group>);

impl Mixture {
    /// Makes a mixture of groups.
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`] if there is no group, or more than [`MOST_GROUPS`].
    pub fn new(groups: impl IntoIterator<Item = Group>) -> Result<Self, Error> {
        let groups: Vec<Group> = groups.into_iter().collect();
        in_range("groups", groups.len() as u64, 1, MOST_GROUPS)?;
        Ok(Self(groups))
    }

    /// Returns the groups, in their order.
    pub fn groups(&self) -> &[Group] {
        &self.0
    }

    /// Returns the mean number of connections in a second in the steady state.
    pub fn expected_connections_per_s(&self) -> f64 {
        self.0.iter().map(Group::expected_connections_per_s).sum()
    }

    /// Returns all their connections in order of time, without end.
    ///
    /// The same seed gives the same connections on every platform. It takes the memory of all groups
    /// together and, per event, the time of a group and of the logarithm of their number. The
    /// clients of the first group keep their numbers; [`group_of`] and [`member_of`] split any
    /// number.
    pub fn arrivals(&self, seed: u64) -> MixtureArrivals {
        let of = |(stream, group): (u64, &Group)| group.arrivals(Draws::new(seed, stream));
        MixtureArrivals::new((0..).zip(&self.0).map(of).collect())
    }
}

/// Returns the place of a client's group in its [`Mixture`], counted from 0.
pub const fn group_of(client: u64) -> usize {
    (client >> MEMBER_BITS) as usize
}

/// Returns a client's number within its group, counted from 0 without gaps.
pub const fn member_of(client: u64) -> u64 {
    client & ((1 << MEMBER_BITS) - 1)
}

/// The connections of a [`Mixture`], in order of time, without end.
#[derive(Debug, Clone)]
pub struct MixtureArrivals {
    sources: Vec<Source>,
    /// The next connection of each group.
    heads: Vec<Event>,
    /// Time and group of the heads, the least on top.
    order: BinaryHeap<Reverse<(u64, usize)>>,
}

impl MixtureArrivals {
    fn new(mut sources: Vec<Source>) -> Self {
        let heads: Vec<Event> = sources.iter_mut().map(Source::next).collect();
        let order = heads.iter().enumerate().map(|(group, head)| Reverse((head.time_ms, group)));
        Self { order: order.collect(), sources, heads }
    }
}

impl Iterator for MixtureArrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut first = self.order.peek_mut()?;
        let Reverse((_, group)) = *first;
        let head = self.sources[group].next();
        *first = Reverse((head.time_ms, group));
        drop(first);
        let event = std::mem::replace(&mut self.heads[group], head);
        Some(Event { client: (group as u64) << MEMBER_BITS | event.client, ..event })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// The connections of a group.
#[derive(Debug, Clone)]
enum Source {
    Devices(Arrivals),
    Browsers(BrowserArrivals),
    Flood(FloodArrivals),
}

impl Source {
    fn next(&mut self) -> Event {
        let next = match self {
            Self::Devices(arrivals) => arrivals.next(),
            Self::Browsers(arrivals) => arrivals.next(),
            Self::Flood(arrivals) => arrivals.next(),
        };
        next.expect("a group has clients, and they connect without end")
    }
}
