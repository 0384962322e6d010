//! The paper's rule: a full handshake counts unless its key was seen before.

use std::collections::HashSet;

use serde::Serialize;

use super::counted::{CountedHandshake, Ids, Target};
use super::interned::{InternedCertificates, InternedTexts, NONE};
use super::uses::Uses;

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
        uses: &Uses,
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

    pub(super) fn counts(&self, uses: &Uses) -> Counts {
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

fn first_of<K: Ord>(uses: &Uses, key: impl Fn(&CountedHandshake) -> K) -> Vec<bool> {
    let mut stay = vec![false; uses.len()];
    for group in groups(&mut uses.places(), |at| (key(&uses.get(at)), at)) {
        stay[group[0] as usize] = uses.get(group[0]).is_full;
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
    uses: &Uses,
    shared_server: &[bool],
    certificates: &InternedCertificates,
    texts: &InternedTexts,
) -> Vec<bool> {
    let mut stay = shared_server.to_vec();
    let group = |used: &CountedHandshake| (used.ids.device, used.ids.network);
    for uses_of_group in groups(&mut uses.places(), |at| (group(&uses.get(at)), at)) {
        let (mut names, mut told) = (HashSet::new(), HashSet::new());
        for at in uses_of_group {
            let Ids { target, certificate, .. } = uses.get(*at).ids;
            if let Target::Name(name) = target {
                stay[*at as usize] &= !covers(&names, &texts.get(name));
            }
            if certificate != NONE && told.insert(certificate) {
                names.extend(certificates.names(certificate).iter().map(|name| &**name));
            }
        }
    }
    stay
}

/// Returns true if the names contain this one, or a wildcard for it: `*` matches one label (RFC
/// 6125, 6.4.3).
fn covers(names: &HashSet<&str>, name: &str) -> bool {
    let wild = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    names.contains(name) || wild().is_some_and(|wild| names.contains(wild.as_str()))
}
