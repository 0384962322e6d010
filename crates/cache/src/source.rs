//! The sources that clients come from, and the share of a cache that one source can have.
//!
//! A flood of clients that behave like the best customers cannot be told from them by when they come. It can be told by
//! where it comes from: few attackers have as many networks, certificates or names as a service has clients. So a source
//! that has its share of a shard makes room for a new session among its own, and nobody else loses a place to it.
//!
//! A session has eight bits for its source, a keyed hash. A client of the same eight bits as a flood shares its fate: one
//! of 255, for each source that floods. Sessions of no known source are not bounded.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

use crate::error::Refusal;
use crate::expectation::Expectation;
use crate::order;
use crate::region::Region;
use crate::settings::{Policy, Prediction};
use crate::shard::eviction::next_part;
use crate::shard::{Shard, add};

/// The kind of data by which sources are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceBy {
    /// The client's network: 24 bits of an IPv4 address, 48 of an IPv6 address.
    Address,
    /// The client's certificate.
    Certificate,
    /// The name of the host that the client asks for.
    Name,
}

impl SourceBy {
    /// Returns the bytes of an address that name its network.
    pub fn network(address: IpAddr) -> [u8; 7] {
        let mut network = [0; 7];
        match address.to_canonical() {
            IpAddr::V4(address) => {
                network[0] = 4;
                network[1..4].copy_from_slice(&address.octets()[..3]);
            }
            IpAddr::V6(address) => {
                network[0] = 6;
                network[1..].copy_from_slice(&address.octets()[..6]);
            }
        }
        network
    }
}

/// A bound on what the clients of one source can take of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fairness {
    /// The data by which sources are told apart.
    pub by: SourceBy,
    /// The most that one source can have of each shard's places, in percent, 1 to 100.
    pub percent: u32,
}

/// The source of a client, as far as a cache tells sources apart ([`Cache::source`](crate::Cache::source)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Source(pub(crate) u8);

impl Source {
    /// The source of clients of which it is not known.
    pub const UNKNOWN: Self = Self(0);
    /// The number of sources that are told apart, the unknown one included.
    pub(crate) const COUNT: usize = 256;

    /// Returns the source of clients of which a server knows this, under the cache's key.
    pub(crate) fn of(known: &[u8], key: &[u8; 16]) -> Self {
        let mut hasher = SipHasher13::new_with_key(key);
        hasher.write(b"source\0\0");
        hasher.write(known);
        Self((1 + hasher.finish() % (Self::COUNT as u64 - 1)) as u8)
    }
}

impl<R: Region> Shard<'_, R> {
    /// Evicts sessions of a source that has its share, until so many more slots are within it. It fails if none is worth
    /// less than the newcomer.
    ///
    /// None of these clients is remembered, or the flood would take the places of others among the ghosts.
    pub(crate) fn keep_share(
        &mut self,
        now: u32,
        source: Source,
        needed: u32,
        newcomer: Expectation,
    ) -> Result<u32, Refusal> {
        let (Some(most), false) = (self.layout.most_of_source, source == Source::UNKNOWN) else {
            return Ok(0);
        };
        let mut evicted = 0;
        while self.slots_of(source).saturating_add(needed) > most && !self.is_astray() {
            let own = match self.layout.policy {
                Policy::Lru => u64::MAX,
                Policy::Predictive => self.worth_by_policy(now, now, newcomer),
            };
            let least = self.least_of(now, source);
            let victim = least.filter(|(_, worth)| *worth < own && needed <= most);
            let Some((victim, _)) = victim else {
                add(&mut self.header.counters.refused_source_share, 1);
                self.learn(newcomer, 0, false);
                return Err(Refusal::SourceHasItsShare);
            };
            add(&mut self.header.counters.evicted_source_share, 1);
            self.evict_unremembered(now, victim);
            evicted += 1;
        }
        Ok(evicted)
    }

    /// Returns the number of slots that a source has.
    fn slots_of(&self, source: Source) -> u32 {
        self.sources().get(usize::from(source.0)).copied().unwrap_or_default()
    }

    /// Counts slots that a source takes.
    pub(crate) fn takes(&mut self, source: Source, slots: u32) {
        if let Some(count) = self.sources_mut().get_mut(usize::from(source.0)) {
            *count = count.wrapping_add(slots);
        }
    }

    /// Counts slots that a source gives back.
    pub(crate) fn gives_back(&mut self, source: Source, slots: u32) {
        if let Some(count) = self.sources_mut().get_mut(usize::from(source.0)) {
            let left = count.checked_sub(slots);
            *count = left.unwrap_or_default();
            self.slots.expect(left.is_some());
        }
    }

    /// Returns the session worth least of sixteen of a source, and its worth. It looks at enough slots, in another place each time, to
    /// find as many of a source that has its share, on average.
    fn least_of(&mut self, now: u32, source: Source) -> Option<(u32, u64)> {
        const MOST_LOOKS: u32 = 512;
        const FEW: u32 = 16;
        let share = self.layout.most_of_source.unwrap_or(1).max(1);
        let looks = FEW.saturating_mul(self.layout.slots.div_ceil(share)).min(MOST_LOOKS);
        let mut least = None;
        let mut seen = 0;
        for at in next_part(&mut self.header.hand, self.header.fresh, looks).into_iter().flatten() {
            let slot = self.slots[at];
            if slot.id_length() == 0 || slot.source() != source {
                continue;
            }
            let worth = self.worth_by_policy(now, slot.counts_from(), slot.expected());
            if least.is_none_or(|(_, other)| worth < other) {
                least = Some((at, worth));
            }
            seen += 1;
            if seen == FEW {
                break;
            }
        }
        least
    }

    /// Returns the worth of the place of a client whose interval counts from then, by whatever policy there is. Only that of a client
    /// never expected back is zero.
    fn worth_by_policy(&self, now: u32, from: u32, expected: Expectation) -> u64 {
        match (self.layout.policy, self.layout.prediction) {
            (Policy::Lru, _) => u64::from(from),
            (Policy::Predictive, _) if expected.is_never() => 0,
            (Policy::Predictive, Prediction::Hint) => {
                let returns = order::returns(from, expected);
                let is_overdue = returns.saturating_add(self.layout.grace_ticks) < now;
                if is_overdue { 1 } else { u64::MAX - u64::from(returns) }
            }
            (Policy::Predictive, _) => self.worth(expected, from, now).saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_part_of_an_address() {
        let network = |address: &str| SourceBy::network(address.parse().expect("an address"));
        assert_eq!(network("192.0.2.1"), network("192.0.2.250"));
        assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_eq!(network("2001:db8:1::1"), network("2001:db8:1:ffff::9"));
        assert_ne!(network("2001:db8:1::1"), network("2001:db8:2::1"));
    }

    #[test]
    fn sources_are_told_apart_under_a_key() {
        let of = |key: u8| {
            let source = move |known: u32| Source::of(&known.to_be_bytes(), &[key; 16]);
            (0..10_000).map(source).collect::<Vec<_>>()
        };
        let ours = of(1);
        assert!(!ours.contains(&Source::UNKNOWN));
        let mut counts = [0_u32; Source::COUNT];
        ours.iter().for_each(|source| counts[usize::from(source.0)] += 1);
        assert!(counts[1..].iter().all(|count| (10..80).contains(count)), "{counts:?}");
        assert_ne!(ours, of(2), "an attacker could choose sources");
    }
}
