//! What was learned of servers, and spares them and programs a trial.
//!
//! Over TLS 1.3 a server says after the handshake only that it does not take a certificate, or
//! wants one. Who issues tickets says at once that all is well; who does not is silent, and each
//! connection would wait for nothing. And a server that does not speak TLS as the manager does would be
//! called twice for every program that has a TLS of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::sessions::CacheKey;

/// Servers of which one thing was found out.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Each user's, and until when.
    users: Mutex<HashMap<u32, HashMap<CacheKey, u64>>>,
}

impl Verdicts {
    /// So many are remembered; then whoever has most has all of its own forgotten, and each of them is tried
    /// once more.
    const MOST: usize = 4_096;

    pub(crate) fn holds(&self, cache_key: &CacheKey, now_ms: u64) -> bool {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let until_ms = users.get(&cache_key.partition.uid).and_then(|table| table.get(cache_key));
        until_ms.is_some_and(|until_ms| now_ms < *until_ms)
    }

    pub(crate) fn note(&self, cache_key: &CacheKey, until_ms: u64) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.entry(cache_key.partition.uid).or_default().insert(cache_key.clone(), until_ms);
        if users.values().map(HashMap::len).sum::<usize>() > Self::MOST {
            let most = users.iter().max_by_key(|(_, table)| table.len()).map(|(uid, _)| *uid);
            most.and_then(|uid| users.remove(&uid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::Partition;

    fn cache_key(uid: u32, port: u16) -> CacheKey {
        let partition = Partition { uid, label: Default::default(), identity: None };
        CacheKey { host: "server.test".parse().unwrap(), port, partition }
    }

    #[test]
    fn who_finds_out_too_much_forgets_its_own() {
        let verdicts = Verdicts::default();
        verdicts.note(&cache_key(7, 443), 1_000);
        for port in 1..=Verdicts::MOST as u16 {
            verdicts.note(&cache_key(8, port), 1_000);
        }
        assert!(
            verdicts.holds(&cache_key(7, 443), 999) && !verdicts.holds(&cache_key(7, 443), 1_000)
        );
        assert!(
            !verdicts.holds(&cache_key(8, 1), 999) && !verdicts.holds(&cache_key(8, 4_096), 999)
        );
    }
}
