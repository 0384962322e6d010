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
        let settings = self.settings(policy, sessions);
        Ok(settings.map(|settings| Store::bytes_for(&settings)).transpose()?)
    }

    /// Returns the bytes that a cache must be given to hold so many sessions: a file of so many bytes has a little room that
    /// nothing fits in.
    pub(super) fn given(&self, policy: Subject, sessions: u32) -> anyhow::Result<Option<u64>> {
        /// The unit of memory.
        const PAGE_BYTES: u64 = 4 << 10;
        let Some(settings) = self.settings(policy, sessions) else { return Ok(None) };
        let needed = Store::sessions_for(&settings)?;
        let mut bytes = Store::bytes_for(&settings)?;
        loop {
            let given = Settings { capacity: Capacity::Bytes(bytes), ..settings.clone() };
            match Store::sessions_for(&given) {
                Ok(held) if held >= needed => return Ok(Some(bytes)),
                Ok(_) | Err(rejoin_cache::Error::CapacityTooSmall { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            bytes = (bytes + bytes / 512).next_multiple_of(PAGE_BYTES).max(bytes + PAGE_BYTES);
        }
    }

    /// Returns the settings of a cache for so many sessions, as `librejoin.so` and `rejoin serve` make it: with blocks of the default
    /// size, of which a session may need several.
    fn settings(&self, policy: Subject, sessions: u32) -> Option<Settings> {
        let (policy, prediction) = match policy {
            Subject::Lru => (Policy::Lru, Prediction::Hint),
            Subject::Predictive => (Policy::Predictive, Prediction::Hint),
            Subject::Learned => (Policy::Predictive, Prediction::Learned),
            Subject::Both => (Policy::Predictive, Prediction::Both),
            _ => return None,
        };
        let mut settings = Settings::new(Capacity::Sessions(u64::from(sessions)));
        let blocks = self.session_bytes.div_ceil(settings.block_bytes);
        settings.capacity = Capacity::Sessions(u64::from(sessions) * u64::from(blocks));
        settings.policy = policy;
        settings.prediction = prediction;
        settings.ghosts_percent = self.ghosts_percent.unwrap_or(settings.ghosts_percent);
        Some(settings)
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
    fn a_cache_of_the_bytes_that_are_given_holds_the_sessions() {
        let costs = Costs::known();
        for session_bytes in [100, 192, 500, 2_000] {
            let sizer = Sizer { session_bytes, ghosts_percent: None, costs: &costs };
            for sessions in [1, 240, 1_100, 30_000] {
                for policy in [Subject::Lru, Subject::Both] {
                    let bytes = sizer.given(policy, sessions).expect("a cache").expect("shipped");
                    let settings = sizer.settings(policy, sessions).expect("shipped");
                    let kib = bytes.div_ceil(1 << 10);
                    let given = Settings { capacity: Capacity::Bytes(kib << 10), ..settings };
                    let blocks = u64::from(sessions) * u64::from(session_bytes.div_ceil(192));
                    let held = Store::sessions_for(&given).expect("a cache");
                    assert!(
                        held >= blocks && bytes < 1_000_000 + 2 * blocks * 400,
                        "{held} of {blocks}"
                    );
                }
            }
        }
    }

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
