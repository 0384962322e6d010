//! Trials of sessions across names: which servers accepted a session of another name.

use std::collections::HashMap;

use super::{CacheKey, Family, Partition};
use crate::protocol::{Fingerprint, Host};

/// The outcomes of trials. Each partition has its own, because a program may have directed the trial to a server
/// of its choice.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    users: HashMap<u32, Outcomes>,
}

/// The outcome by partition, issuing name, receiving name, and certificate chain.
type Outcomes = HashMap<(Partition, Host, Host, Fingerprint), bool>;

impl Trials {
    /// The outcomes remembered for a user. When there are more, all of them are forgotten, and each pair is tried
    /// again.
    const MOST: usize = 4_096;
    /// The users with outcomes. When there are more, all outcomes are forgotten.
    const USERS: usize = 256;
    /// The certificate chains that are judged for one connection, at most.
    pub(super) const AT_ONCE: usize = 4;

    /// Returns true if a session of the name `from` was resumed at the origin `to`. `None`: not tried
    /// with these certificates.
    pub(super) fn outcome(&self, from: &Host, to: &CacheKey, family: &Family) -> Option<bool> {
        self.users.get(&to.partition.uid)?.get(&key(from, to, family)).copied()
    }

    pub(super) fn record(&mut self, from: &Host, to: &CacheKey, family: &Family, resumed: bool) {
        let uid = to.partition.uid;
        if self.users.len() >= Self::USERS && !self.users.contains_key(&uid) {
            self.users.clear();
        }
        let outcomes = self.users.entry(uid).or_default();
        if outcomes.len() >= Self::MOST {
            outcomes.clear();
        }
        outcomes.insert(key(from, to, family), resumed);
    }
}

fn key(from: &Host, to: &CacheKey, family: &Family) -> (Partition, Host, Host, Fingerprint) {
    (to.partition.clone(), from.clone(), to.host.clone(), family.chain.sha256)
}
