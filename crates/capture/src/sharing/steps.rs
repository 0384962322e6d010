//! The paper's rule: a full handshake counts unless its key was seen before.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::counted::{CountedHandshake, Target};
use super::interned::{InternedCertificates, InternedTexts, NONE};

/// The number of full handshakes at each step of sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// All handshakes, full and resumed.
    pub handshakes: u64,
    /// Full, as observed.
    pub full_observed: u64,
    /// Full if each application reused its own sessions: same address and name.
    pub full_own_reuse: u64,
    /// Full if all applications of a device shared theirs: same address and name.
    pub full_shared_client: u64,
    /// Full if each application reused its own sessions and servers shared theirs: same name and
    /// autonomous system.
    pub full_own_reuse_server: u64,
    /// Full if applications and servers shared: same name and autonomous system.
    pub full_shared_server: u64,
    /// Full if, in addition, a session could be resumed under every name of its certificate, where
    /// the certificate was seen (up to TLS 1.2): same autonomous system.
    pub full_shared_certificate: u64,
}

impl Counts {
    /// The number of resumed handshakes, as observed.
    pub fn resumed_observed(&self) -> u64 {
        self.handshakes - self.full_observed
    }

    /// Full handshakes avoidable only through another application's session: without and with
    /// servers that share.
    pub fn only_through_others(&self) -> [u64; 2] {
        let [client, server] = [
            (self.full_own_reuse, self.full_shared_client),
            (self.full_own_reuse_server, self.full_shared_server),
        ];
        [client, server].map(|(own, shared)| own.saturating_sub(shared))
    }
}

/// The handshakes that stay full at each step, in order.
#[derive(Debug)]
pub(super) struct StaysFull {
    pub(super) own_reuse: Vec<bool>,
    pub(super) shared_client: Vec<bool>,
    pub(super) own_reuse_server: Vec<bool>,
    pub(super) shared_server: Vec<bool>,
    pub(super) shared_certificate: Vec<bool>,
}

impl StaysFull {
    pub(super) fn of(
        uses: &[CountedHandshake],
        certificates: &InternedCertificates,
        texts: &InternedTexts,
    ) -> Self {
        let shared_server = first_of(uses, network);
        Self {
            own_reuse: first_of(uses, own_address),
            shared_client: first_of(uses, address),
            own_reuse_server: first_of(uses, own_network),
            shared_certificate: first_of_certificate(uses, &shared_server, certificates, texts),
            shared_server,
        }
    }

    pub(super) fn counts(&self, uses: &[CountedHandshake]) -> Counts {
        let count = |stay: &[bool]| stay.iter().filter(|stays| **stays).count() as u64;
        Counts {
            handshakes: uses.len() as u64,
            full_observed: uses.iter().filter(|used| used.is_full).count() as u64,
            full_own_reuse: count(&self.own_reuse),
            full_shared_client: count(&self.shared_client),
            full_own_reuse_server: count(&self.own_reuse_server),
            full_shared_server: count(&self.shared_server),
            full_shared_certificate: count(&self.shared_certificate),
        }
    }
}

pub(super) fn own_address(used: &CountedHandshake) -> impl Ord + use<> {
    (used.ids.application, address(used))
}

pub(super) fn address(used: &CountedHandshake) -> impl Ord + use<> {
    (used.ids.device, used.ids.host, used.ids.target)
}

pub(super) fn own_network(used: &CountedHandshake) -> impl Ord + use<> {
    (used.ids.application, network(used))
}

pub(super) fn network(used: &CountedHandshake) -> impl Ord + use<> {
    (used.ids.device, used.ids.network, used.ids.target)
}

fn first_of<K: Ord>(uses: &[CountedHandshake], key: impl Fn(&CountedHandshake) -> K) -> Vec<bool> {
    let mut stay = vec![false; uses.len()];
    let mut order: Vec<u32> = (0..uses.len() as u32).collect();
    for group in groups(&mut order, |at| (key(&uses[at as usize]), at)) {
        let first = group[0] as usize;
        stay[first] = uses[first].is_full;
    }
    stay
}

/// Sorts handshakes by a key and a place, and returns those of each key, in the order of their
/// places. It needs no memory besides, since a capture may have a key for each handshake.
pub(super) fn groups<K: Ord, P: Ord>(
    handshakes: &mut [u32],
    key: impl Fn(u32) -> (K, P),
) -> impl Iterator<Item = &[u32]> {
    handshakes.sort_unstable_by_key(|at| key(*at));
    handshakes.chunk_by(move |one, other| key(*one).0 == key(*other).0)
}

/// Like [`network`], but a name also counts as seen once a certificate with that name was seen.
fn first_of_certificate(
    uses: &[CountedHandshake],
    shared_server: &[bool],
    certificates: &InternedCertificates,
    texts: &InternedTexts,
) -> Vec<bool> {
    let mut covered: HashMap<_, HashSet<&str>> = HashMap::new();
    let mut told = HashSet::new();
    let stays = |(used, stays): (&CountedHandshake, &bool)| {
        let group = (used.ids.device, used.ids.network);
        let names = covered.entry(group).or_default();
        let is_covered = match used.ids.target {
            Target::Name(name) => covers(names, &texts.get(name)),
            Target::Host(_) => false,
        };
        if used.ids.certificate != NONE && told.insert((group, used.ids.certificate)) {
            names.extend(certificates.names(used.ids.certificate).iter().map(|name| &**name));
        }
        *stays && !is_covered
    };
    uses.iter().zip(shared_server).map(stays).collect()
}

/// Returns true if the names contain this one, or a wildcard for it: `*` matches one label (RFC
/// 6125, 6.4.3).
fn covers(names: &HashSet<&str>, name: &str) -> bool {
    let wild = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    names.contains(name) || wild().is_some_and(|wild| names.contains(wild.as_str()))
}
