//! Algorithm 1 of paper 000, by the return times that clients announce, in their exact order.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use hashbrown::HashTable;

use super::nodes::hash;
use super::{Access, Policy};

/// Algorithm 1 as printed (paper 000 §IV): its two `if`s follow each other, so that an insertion
/// may evict twice. If the earliest session is overdue, it is evicted and the new one is added; then,
/// if the latest session in the cache returns later than the new one, it is evicted, too.
pub type Literal = Announced<true>;

/// Algorithm 1 read with "else": an insertion evicts once at most. Rejoin ships this reading with
/// return times in classes; here their order is exact.
pub type Exact = Announced<false>;

/// Sessions in order of their clients' announced return. A client that announces nothing is not
/// expected back.
#[derive(Debug)]
pub struct Announced<const EVICTS_TWICE: bool> {
    sessions: HashTable<Session>,
    order: BTreeSet<Session>,
    capacity: usize,
    grace_ms: u64,
}

/// A session, ordered by its return time and then by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Session {
    returns_ms: u64,
    key: u64,
}

impl Session {
    fn of(access: &Access) -> Self {
        let announced = access.returns_in_ms.filter(|ms| *ms != Access::NOT_BACK_MS);
        let returns_ms = announced.map_or(u64::MAX, |ms| access.now_ms + u64::from(ms));
        Self { returns_ms, key: access.key }
    }
}

impl<const EVICTS_TWICE: bool> Announced<EVICTS_TWICE> {
    /// Makes a cache for `capacity` sessions. A session is overdue if it was not used by `grace_ms`
    /// after its client's return time.
    pub fn new(capacity: NonZeroU32, grace_ms: u64) -> Self {
        Self {
            sessions: HashTable::new(),
            order: BTreeSet::new(),
            capacity: capacity.get() as usize,
            grace_ms,
        }
    }

    fn add(&mut self, session: Session) {
        self.sessions.insert_unique(hash(session.key), session, |other| hash(other.key));
        self.order.insert(session);
    }
}

impl<const EVICTS_TWICE: bool> Policy for Announced<EVICTS_TWICE> {
    fn access(&mut self, access: &Access) -> bool {
        let found = self.sessions.find_mut(hash(access.key), |session| session.key == access.key);
        let Some(session) = found else { return false };
        let renewed = Session::of(access);
        let before = std::mem::replace(session, renewed);
        if before != renewed {
            self.order.remove(&before);
            self.order.insert(renewed);
        }
        true
    }

    fn store(&mut self, access: &Access) {
        let new = Session::of(access);
        if self.sessions.find(hash(new.key), |session| session.key == new.key).is_some() {
            return;
        }
        if self.order.len() < self.capacity {
            return self.add(new);
        }
        let overdue = |end: &Session| end.returns_ms.saturating_add(self.grace_ms) < access.now_ms;
        if let Some(earliest) = self.order.first().copied().filter(overdue) {
            self.remove(earliest.key);
            self.add(new);
            if !EVICTS_TWICE {
                return;
            }
        }
        if let Some(latest) = self.order.last().copied()
            && new.returns_ms < latest.returns_ms
        {
            self.remove(latest.key);
            if !self.order.contains(&new) {
                self.add(new);
            }
        }
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.sessions.find_entry(hash(key), |session| session.key == key);
        found.map(|entry| self.order.remove(&entry.remove().0)).is_ok()
    }

    fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE_MS: u64 = 2_000;

    fn access(key: u64, now_ms: u64, returns_in_ms: Option<u32>) -> Access {
        Access { key, now_ms, next: u64::MAX, returns_in_ms }
    }

    fn filled<const EVICTS_TWICE: bool>(announced: [Option<u32>; 3]) -> Announced<EVICTS_TWICE> {
        let mut cache = Announced::new(NonZeroU32::new(3).expect("not zero"), GRACE_MS);
        announced.into_iter().zip(1..).for_each(|(ms, key)| cache.store(&access(key, 0, ms)));
        cache
    }

    fn keys<const EVICTS_TWICE: bool>(cache: &Announced<EVICTS_TWICE>) -> Vec<u64> {
        let keys = cache.order.iter().map(|session| session.key).collect::<Vec<_>>();
        assert_eq!(keys.len(), cache.sessions.len());
        keys
    }

    #[test]
    fn the_latest_goes_unless_the_new_one_returns_later_still() {
        let mut cache: Exact = filled([Some(10_000), Some(60_000), Some(30_000)]);
        cache.store(&access(4, 1_000, Some(59_000)));
        assert_eq!(keys(&cache), [1, 3, 2], "at the same time as the latest");
        cache.store(&access(5, 1_000, Some(58_999)));
        assert_eq!(keys(&cache), [1, 3, 5]);
        cache.store(&access(6, 1_000, None));
        cache.store(&access(7, 1_000, Some(Access::NOT_BACK_MS)));
        assert_eq!(keys(&cache), [1, 3, 5]);
    }

    #[test]
    fn the_overdue_goes_first_and_as_printed_the_latest_too() {
        let announced = [Some(10_000), Some(60_000), Some(30_000)];
        let (mut exact, mut literal): (Exact, Literal) = (filled(announced), filled(announced));
        for (now_ms, by_exact, by_literal) in
            [(12_000, &[1, 3, 2][..], &[1, 3, 2][..]), (12_001, &[3, 2, 4], &[3, 2, 4])]
        {
            exact.store(&access(4, now_ms, Some(60_000)));
            literal.store(&access(4, now_ms, Some(60_000)));
            assert_eq!((&keys(&exact)[..], &keys(&literal)[..]), (by_exact, by_literal));
        }
        exact.store(&access(5, 32_001, Some(10_000)));
        literal.store(&access(5, 32_001, Some(10_000)));
        assert_eq!(keys(&exact), [5, 2, 4]);
        assert_eq!(keys(&literal), [5, 2], "4 was the latest");
    }

    #[test]
    fn a_use_renews_the_return() {
        let mut cache: Exact = filled([Some(10_000), None, Some(30_000)]);
        assert!(cache.access(&access(1, 9_000, Some(90_000))));
        assert!(cache.access(&access(2, 9_000, Some(1_000))));
        assert!(!cache.access(&access(9, 9_000, Some(1_000))));
        assert_eq!(keys(&cache), [2, 3, 1]);
        assert!(cache.remove(3) && !cache.remove(3));
        assert_eq!(keys(&cache), [2, 1]);
    }
}
