//! The memory of caches: Rejoin's with all that its file has, and other servers' by what their documents say.

use rejoin_cache::{Capacity, Policy, Prediction, Settings};
use rejoin_sim::Subject;
use rejoin_sim::sizing::{FIFO, HAPROXY, NGINX};
use rejoin_store::Store;
use serde::Serialize;

use super::costs::Costs;

/// The bytes of sessions in each cache that has the policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Memory {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejoin: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) openssl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nginx: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) haproxy: Option<u64>,
}

/// The settings that decide about memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizer<'a> {
    pub(super) session_bytes: u32,
    pub(super) ghosts_percent: Option<u32>,
    pub(super) costs: &'a Costs,
}

impl Sizer<'_> {
    pub(super) fn memory(&self, policy: Subject, sessions: u32) -> anyhow::Result<Memory> {
        Ok(match policy {
            FIFO => Memory {
                rejoin: None,
                openssl: Some(self.costs.openssl_bytes(sessions)),
                nginx: Some(NGINX.bytes(sessions)),
                haproxy: Some(HAPROXY.bytes(sessions)),
            },
            _ => Memory { rejoin: self.rejoin(policy, sessions)?, ..Memory::default() },
        })
    }

    /// Returns the bytes of Rejoin's cache: sessions, tables, histories of evicted clients, what is learned, locks and the
    /// file's head. A yardstick has none.
    pub(super) fn rejoin(&self, policy: Subject, sessions: u32) -> anyhow::Result<Option<u64>> {
        let (policy, prediction) = match policy {
            Subject::Lru => (Policy::Lru, Prediction::Hint),
            Subject::Predictive => (Policy::Predictive, Prediction::Hint),
            Subject::Learned => (Policy::Predictive, Prediction::Learned),
            Subject::Both => (Policy::Predictive, Prediction::Both),
            _ => return Ok(None),
        };
        let mut settings = Settings::new(Capacity::Sessions(u64::from(sessions)));
        settings.policy = policy;
        settings.prediction = prediction;
        settings.block_bytes = self.session_bytes;
        settings.ghosts_percent = self.ghosts_percent.unwrap_or(settings.ghosts_percent);
        Ok(Some(Store::bytes_for(&settings)?))
    }

    /// Returns the names of other caches, the bytes of a session in each, and the number that so many bytes hold.
    pub(super) fn others_with(&self, bytes: u64) -> [(&'static str, f64, u32); 3] {
        let sessions = |each: f64| (bytes as f64 / each) as u32;
        let of = |name, each| (name, each, sessions(each));
        let openssl = self.costs.openssl_session_bytes;
        [
            of(NGINX.name, NGINX.session_bytes),
            of(HAPROXY.name, HAPROXY.session_bytes),
            of("OpenSSL", openssl),
        ]
    }
}

#[cfg(test)]
mod tests {
    use rejoin_cache::Ledger;

    use super::*;

    #[test]
    fn what_is_learned_is_counted() {
        let costs = Costs::known();
        let sizer = Sizer { session_bytes: 192, ghosts_percent: None, costs: &costs };
        for policy in [Subject::Lru, Subject::Learned, Subject::Both] {
            let of = |sessions| sizer.rejoin(policy, sessions).expect("a cache").expect("shipped");
            assert!(of(1) > size_of::<Ledger>() as u64);
            assert!(of(10_000) - of(1) > 9_999 * 256, "{policy}");
        }
        assert_eq!(sizer.rejoin(FIFO, 1).expect("a yardstick"), None);
    }
}
