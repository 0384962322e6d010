//! Services by the applications that use them (paper 004, Fig. 3 and 4).

use std::cmp::Ordering;

use serde::Serialize;

use super::best::Best;
use super::counted::Target;
use super::interned::InternedTexts;
use super::steps::{self, StaysFull};
use super::uses::Uses;

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

/// Returns the number of services, and at most `top` of them with most applications.
pub(super) fn top(
    uses: &Uses,
    stays: &StaysFull,
    texts: &InternedTexts,
    top: usize,
) -> (u64, Vec<Service>) {
    let mut count = 0;
    let mut best = Best::new(top, Service::order);
    let by_host = |at: u32| {
        let ids = uses.get(at).ids;
        (ids.target, (ids.host, ids.application))
    };
    for handshakes in steps::groups(&mut uses.places(), by_host) {
        // Without a name, an address does not identify a service.
        let Target::Name(name) = uses.get(handshakes[0]).ids.target else { continue };
        count += 1;
        best.add(Service::of(&texts.get(name), handshakes, uses, stays, texts));
    }
    (count, best.into_sorted())
}

impl Service {
    /// Counts the handshakes of a name, which are sorted by host and application.
    fn of(
        name: &str,
        handshakes: &[u32],
        uses: &Uses,
        stays: &StaysFull,
        texts: &InternedTexts,
    ) -> Self {
        let count =
            |is: &dyn Fn(u32) -> bool| handshakes.iter().filter(|at| is(**at)).count() as u64;
        let application = |at: &u32| uses.get(*at).ids.application;
        let hosts = handshakes.chunk_by(|a, b| uses.get(*a).ids.host == uses.get(*b).ids.host);
        let hosts = hosts.map(|of_host| Host {
            address: texts.get(uses.get(of_host[0]).ids.host).into_owned(),
            applications: of_host.chunk_by(|a, b| application(a) == application(b)).count() as u64,
        });
        let mut service = Self {
            name: name.to_owned(),
            applications: super::distinct(handshakes.iter().map(application)),
            hosts: hosts.collect(),
            handshakes: handshakes.len() as u64,
            full_observed: count(&|at| uses.get(at).is_full),
            full_shared_client: count(&|at| stays.shared_client[at as usize]),
            full_shared_server: count(&|at| stays.shared_server[at as usize]),
        };
        service.sort_hosts();
        service
    }
}
