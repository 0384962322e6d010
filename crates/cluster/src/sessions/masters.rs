//! The certainty that a session which Valkey hands out was not handed out before.
//!
//! Valkey hands a session out once, unless it loses its last writes: it restarts from an older file, or a replica that had
//! not heard of them becomes a master. Then the session is there again, for whoever copied its client's first flight. TLS
//! stacks accept early data for some seconds only (`rejoin_store::EARLY_WINDOW`). So no session is certain until its master
//! has been one for longer than that, to this agent's knowledge. A Valkey cluster's master that is cut off stops within the
//! node timeout, about when its replica is promoted, and what it took meanwhile is as old by then.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rejoin_store::EARLY_WINDOW;

/// The processes of Valkey that answered as masters. Each is known by two names of its own: one of the process, and one
/// that it gets with its promotion.
#[derive(Debug, Default)]
pub(super) struct Masters {
    since: Mutex<HashMap<Box<str>, Instant>>,
}

impl Masters {
    /// The most by which this machine's clock may differ from Valkey's: clients' early data is as old as it says by the
    /// clock of the machine that they come to.
    const CLOCKS_DIFFER: Duration = Duration::from_secs(2);
    /// The time for which early data may be accepted on some machine: the clocks of two machines differ, and perhaps those
    /// of two masters.
    const WAIT: Duration = EARLY_WINDOW.saturating_add(Self::CLOCKS_DIFFER.saturating_mul(3));
    /// The time for which a session that was taken is not stored again.
    pub(super) const MARKS_STAY: Duration = Self::WAIT.saturating_add(Duration::from_secs(4));
    /// A cluster of Valkey has a thousand nodes at most.
    const MOST: usize = 1_024;

    /// Notes that a master answers.
    pub(super) fn note(&self, master: &str) {
        self.since(master, Instant::now());
    }

    /// Forgets all masters: each is new again.
    pub(super) fn forget(&self) {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns true if a session that this master has handed out was certainly not handed out before. The times are those
    /// of this machine and of Valkey, in Unix time.
    pub(super) fn is_certain(&self, master: &str, now_ms: u64, valkeys_ms: u64) -> bool {
        self.is_certain_at(Instant::now(), master, now_ms, valkeys_ms)
    }

    fn is_certain_at(&self, now: Instant, master: &str, now_ms: u64, valkeys_ms: u64) -> bool {
        let differ = Duration::from_millis(now_ms.abs_diff(valkeys_ms));
        self.is_known(master, now) && differ <= Self::CLOCKS_DIFFER
    }

    fn is_known(&self, master: &str, now: Instant) -> bool {
        self.since(master, now)
            .is_some_and(|since| now.saturating_duration_since(since) >= Self::WAIT)
    }

    /// Returns the time since when a master is known. `None` if it has no name.
    fn since(&self, master: &str, now: Instant) -> Option<Instant> {
        if master.is_empty() {
            return None;
        }
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = since.get(master) {
            return Some(*since);
        }
        // Whoever is forgotten is new again.
        if since.len() >= Self::MOST {
            since.clear();
        }
        since.insert(master.into(), now);
        Some(now)
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_is_certain_once_it_is_known_for_long_enough() {
        let (masters, begin) = (Masters::default(), Instant::now());
        let after = |master, time| masters.is_known(master, begin + time);
        let nearly = Masters::WAIT - Duration::from_millis(1);
        assert!(!after("one", Duration::ZERO) && !after("one", nearly));
        assert!(after("one", Masters::WAIT));
        // Another process, or the same one promoted anew.
        assert!(!after("other", Masters::WAIT) && after("one", Masters::WAIT));
        assert!(after("other", 2 * Masters::WAIT));
        assert!(!after("", Duration::ZERO) && !after("", 9 * Masters::WAIT), "nobody said who");
    }

    #[test]
    fn clocks_must_agree() {
        let masters = Masters::default();
        let long_ago = Instant::now().checked_sub(Masters::WAIT).expect("the machine is up");
        masters.since("one", long_ago);
        let differ_ms = Masters::CLOCKS_DIFFER.as_millis() as u64;
        for ms in [0, differ_ms] {
            assert!(masters.is_certain("one", 90_000, 90_000 + ms));
            assert!(masters.is_certain("one", 90_000, 90_000 - ms));
        }
        assert!(!masters.is_certain("one", 90_000, 90_001 + differ_ms));
        assert!(!masters.is_certain("one", 90_000, 89_999 - differ_ms));
    }

    #[test]
    fn they_are_bounded() {
        let masters = Masters::default();
        (0..3 * Masters::MOST).for_each(|number| masters.note(&number.to_string()));
        assert!(masters.since.into_inner().expect("no panic").len() <= Masters::MOST);
    }
}
