//! Services by the applications that use them (paper 004, Fig. 3 and 4).

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::counted::{CountedHandshake, Target};
use super::interned::InternedTexts;
use super::steps::StaysFull;

/// A server name that applications request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Service {
    /// The name as requested.
    pub name: String,
    /// Applications that connected to it.
    pub applications: u64,
    /// Its hosts, the one with most applications first.
    pub hosts: Vec<Host>,
    /// Handshakes with it.
    pub handshakes: u64,
    /// Full handshakes, as observed.
    pub full_observed: u64,
    /// Full handshakes if all applications of a device shared their sessions.
    pub full_shared_client: u64,
    /// Full handshakes if the servers shared their sessions too.
    pub full_shared_server: u64,
}

/// A host of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Host {
    /// Its address.
    pub address: String,
    /// Applications that connected to it.
    pub applications: u64,
}

impl Service {
    /// Orders by applications, most first, then by name.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let most = other.applications.cmp(&self.applications);
        most.then_with(|| self.name.cmp(&other.name))
    }

    /// Sorts the hosts by applications, most first, then by address.
    pub(crate) fn sort_hosts(&mut self) {
        self.hosts.sort_by(|a, b| {
            b.applications.cmp(&a.applications).then_with(|| a.address.cmp(&b.address))
        });
    }
}

#[derive(Debug, Default)]
struct Tally {
    applications: HashSet<u32>,
    by_host: BTreeMap<u32, HashSet<u32>>,
    handshakes: u64,
    full: [u64; 3],
}

/// Returns the number of services, and at most `top` of them with most applications.
pub(super) fn top(
    uses: &[CountedHandshake],
    stays: &StaysFull,
    texts: &InternedTexts,
    top: usize,
) -> (u64, Vec<Service>) {
    let mut tallies: HashMap<u32, Tally> = HashMap::new();
    for (at, used) in uses.iter().enumerate() {
        // Without a name, an address does not identify a service.
        let Target::Name(name) = used.ids.target else { continue };
        let tally = tallies.entry(name).or_default();
        tally.applications.insert(used.ids.application);
        tally.by_host.entry(used.ids.host).or_default().insert(used.ids.application);
        tally.handshakes += 1;
        let full = [used.is_full, stays.shared_client[at], stays.shared_server[at]];
        tally.full.iter_mut().zip(full).for_each(|(count, full)| *count += u64::from(full));
    }
    let count = tallies.len() as u64;
    let mut order: Vec<(u32, Tally)> = tallies.into_iter().collect();
    let name = |service: u32| texts.get(service);
    order.sort_by(|(a, one), (b, other)| {
        let most = other.applications.len().cmp(&one.applications.len());
        most.then_with(|| name(*a).cmp(&name(*b)))
    });
    order.truncate(top);
    (count, order.iter().map(|(service, tally)| tally.service(&name(*service), texts)).collect())
}

impl Tally {
    fn service(&self, name: &str, texts: &InternedTexts) -> Service {
        let host = |(host, applications): (&u32, &HashSet<u32>)| Host {
            address: texts.get(*host).into_owned(),
            applications: applications.len() as u64,
        };
        let hosts = self.by_host.iter().map(host).collect();
        let [full_observed, full_shared_client, full_shared_server] = self.full;
        let mut service = Service {
            name: name.to_owned(),
            applications: self.applications.len() as u64,
            hosts,
            handshakes: self.handshakes,
            full_observed,
            full_shared_client,
            full_shared_server,
        };
        service.sort_hosts();
        service
    }
}
