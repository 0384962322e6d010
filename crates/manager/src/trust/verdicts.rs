//! Facts learned about servers, which save a wait or a failed attempt the next time.
//!
//! In TLS 1.3 a server rejects or demands a client certificate only after the handshake. A server that issues tickets
//! shows at once that it accepted the client. A server that issues none is silent, and every connection would wait
//! in vain. And a server with which the manager cannot complete a handshake would be called twice for every program
//! that has a TLS library of its own. What holds for a program that accepts little says nothing of others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::sessions::CacheKey;
use crate::upstream::policy::Terms;

/// The servers for which one fact holds.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Each user's servers, and the time until which the fact holds.
    users: Mutex<HashMap<u32, HashMap<Case, u64>>>,
}

/// A server, and the terms that were offered to it.
type Case = (CacheKey, Terms);

impl Verdicts {
    /// The servers remembered. When there are more, those of the user with the most are forgotten, and each of them is
    /// tried again.
    const MOST: usize = 4_096;

    pub(crate) fn holds(&self, case: &Case, now_ms: u64) -> bool {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let until_ms = users.get(&case.0.partition.uid).and_then(|table| table.get(case));
        until_ms.is_some_and(|until_ms| now_ms < *until_ms)
    }

    pub(crate) fn note(&self, case: Case, until_ms: u64) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.entry(case.0.partition.uid).or_default().insert(case, until_ms);
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

    fn case(uid: u32, port: u16) -> Case {
        let partition =
            Partition { uid, label: Default::default(), identity: None, is_named: true };
        (CacheKey { host: "server.test".parse().unwrap(), port, partition }, Terms::ALL)
    }

    #[test]
    fn who_finds_out_too_much_forgets_its_own() {
        let verdicts = Verdicts::default();
        verdicts.note(case(7, 443), 1_000);
        for port in 1..=Verdicts::MOST as u16 {
            verdicts.note(case(8, port), 1_000);
        }
        assert!(verdicts.holds(&case(7, 443), 999) && !verdicts.holds(&case(7, 443), 1_000));
        assert!(!verdicts.holds(&case(8, 1), 999) && !verdicts.holds(&case(8, 4_096), 999));
        assert!(!verdicts.holds(&(case(7, 443).0, Terms::NONE), 999));
    }
}
