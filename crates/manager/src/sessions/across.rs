//! Which servers took a session of another name.

use std::collections::HashMap;

use super::Family;
use crate::protocol::{Fingerprint, Host};

/// The outcomes of trials.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    outcomes: HashMap<(Host, Host, Fingerprint), bool>,
}

impl Trials {
    /// So many are remembered; then all are forgotten, and each pair is tried once more.
    const MOST: usize = 4_096;
    /// Places looked at for one that may help.
    pub(super) const LOOKED_AT: usize = 4_096;

    /// Whether a session of the name `from` was resumed under the name `to`. `None`: not tried
    /// with these certificates.
    pub(super) fn outcome(&self, from: &Host, to: &Host, family: &Family) -> Option<bool> {
        self.outcomes.get(&(from.clone(), to.clone(), family.chain.sha256)).copied()
    }

    pub(super) fn record(&mut self, from: &Host, to: &Host, family: &Family, resumed: bool) {
        if self.outcomes.len() >= Self::MOST {
            self.outcomes.clear();
        }
        self.outcomes.insert((from.clone(), to.clone(), family.chain.sha256), resumed);
    }
}
