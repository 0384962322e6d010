//! The visits of all apps: drawn once, the same for all rows.

use std::collections::BTreeSet;

/// Services that an app uses.
const SERVICES_OF_AN_APP: usize = 8;
/// One in so many visits is made twice, which is what apps resume by themselves (Table I: 19.5 %).
const ONE_AGAIN_IN: u64 = 4;
/// Hosts of a service at most.
const MOST_HOSTS: u64 = 4;

/// A service and one of its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) service: u8,
    pub(super) host: u8,
}

/// The visits of all apps.
#[derive(Debug)]
pub(super) struct Population {
    /// How many hosts each service has.
    hosts: Vec<u8>,
    apps: Vec<Vec<Place>>,
}

impl Population {
    /// Services are popular as Zipf has it, with exponent 1; which host answers is chance, as behind a
    /// balancer.
    pub(super) fn drawn(apps: u32, services: u8, seed: u64) -> Self {
        let mut draws = Draws(seed);
        let hosts: Vec<u8> = (0..services).map(|_| 1 + draws.below(MOST_HOSTS) as u8).collect();
        let apps = (0..apps).map(|_| visits(&hosts, &mut draws)).collect();
        Self { hosts, apps }
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        let hosts = self.hosts.iter().zip(0..);
        hosts.flat_map(|(hosts, service)| (0..*hosts).map(move |host| Place { service, host }))
    }

    pub(super) fn apps(&self) -> impl Iterator<Item = impl Iterator<Item = Place>> {
        self.apps.iter().map(|visits| visits.iter().copied())
    }

    pub(super) fn distinct_hosts(&self) -> u64 {
        self.apps.iter().flatten().collect::<BTreeSet<_>>().len() as u64
    }

    pub(super) fn distinct_services(&self) -> u64 {
        let services = self.apps.iter().flatten().map(|place| place.service);
        services.collect::<BTreeSet<_>>().len() as u64
    }
}

fn visits(hosts: &[u8], draws: &mut Draws) -> Vec<Place> {
    let mut chosen = BTreeSet::new();
    let mut visits = Vec::new();
    while chosen.len() < SERVICES_OF_AN_APP.min(hosts.len()) {
        let service = draws.zipf(hosts.len());
        if chosen.insert(service) {
            let times = if draws.below(ONE_AGAIN_IN) == 0 { 2 } else { 1 };
            for _ in 0..times {
                let host = draws.below(u64::from(hosts[service])) as u8;
                visits.push(Place { service: service as u8, host });
            }
        }
    }
    visits
}

/// SplitMix64: the same numbers on every machine.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A rank from 0, the r-th as often as 1 / (r + 1).
    fn zipf(&mut self, ranks: usize) -> usize {
        let weight = |rank: usize| 1.0 / (rank + 1) as f64;
        let all: f64 = (0..ranks).map(weight).sum();
        let mut left = self.next() as f64 / u64::MAX as f64 * all;
        let reached = |rank: &usize| {
            left -= weight(*rank);
            left <= 0.0
        };
        (0..ranks).find(reached).unwrap_or(ranks - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_visits() {
        let drawn = |seed| Population::drawn(20, 50, seed).apps;
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn visits_are_like_the_papers() {
        let population = Population::drawn(60, 90, 1);
        let visits: Vec<_> = population.apps.iter().flatten().collect();
        let of = |count: u64| 100.0 * count as f64 / visits.len() as f64;
        assert!((500..700).contains(&visits.len()), "{}", visits.len());
        assert!((10.0..20.0).contains(&of(population.distinct_services())));
        assert!((20.0..40.0).contains(&of(population.distinct_hosts())));
    }
}
