//! A bounded memory of session ids, for a few seconds.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rejoin_cache::SessionId;

/// The ids, at the place that a part of their hash gives: the rest of the hash, and an end. A newer id replaces an older one
/// in its place. Nobody outside can choose ids that have the same place.
pub(super) struct Lately {
    hasher: RandomState,
    began: Instant,
    places: Box<[AtomicU64]>,
}

impl Lately {
    /// The time for which an id is known.
    const KNOWN_FOR_S: u64 = 10;
    const PLACES: usize = 8_192;
    const SECONDS_BITS: u32 = 24;

    pub(super) fn new(now: Instant) -> Self {
        let places = (0..Self::PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: RandomState::new(), began: now, places }
    }

    pub(super) fn note(&self, id: &SessionId, now: Instant) {
        let (place, mark) = self.place(id);
        let until_s = self.seconds(now).wrapping_add(Self::KNOWN_FOR_S);
        place.store(mark << Self::SECONDS_BITS | until_s & Self::seconds_mask(), Relaxed);
    }

    pub(super) fn forget(&self, id: &SessionId) {
        let (place, mark) = self.place(id);
        let noted = place.load(Relaxed);
        if noted >> Self::SECONDS_BITS == mark {
            // Another id may have come into its place meanwhile.
            let _ = place.compare_exchange(noted, 0, Relaxed, Relaxed);
        }
    }

    pub(super) fn has(&self, id: &SessionId, now: Instant) -> bool {
        let (place, mark) = self.place(id);
        let noted = place.load(Relaxed);
        let left_s = noted.wrapping_sub(self.seconds(now)) & Self::seconds_mask();
        noted >> Self::SECONDS_BITS == mark && (1..=Self::KNOWN_FOR_S).contains(&left_s)
    }

    fn place(&self, id: &SessionId) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(id.as_bytes());
        (&self.places[hash as usize % Self::PLACES], hash >> Self::SECONDS_BITS)
    }

    fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).min(Duration::MAX).as_secs()
    }

    const fn seconds_mask() -> u64 {
        (1 << Self::SECONDS_BITS) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> SessionId {
        SessionId::new(&number.to_le_bytes()).expect("short")
    }

    #[test]
    fn an_id_is_known_for_a_while_and_only_that_one() {
        let begin = Instant::now();
        let lately = Lately::new(begin);
        // Also when the seconds no longer fit.
        for days in [0, 194, 195] {
            let at = |seconds: u64| begin + Duration::from_secs(86_400 * days + seconds);
            lately.note(&id(7), at(0));
            assert!(lately.has(&id(7), at(0)) && lately.has(&id(7), at(9)));
            assert!(!lately.has(&id(7), at(10)) && !lately.has(&id(8), at(0)));
            lately.note(&id(7), at(20));
            lately.forget(&id(8));
            assert!(lately.has(&id(7), at(20)));
            lately.forget(&id(7));
            assert!(!lately.has(&id(7), at(20)));
        }
    }

    #[test]
    fn many_are_known_in_bounded_room() {
        let now = Instant::now();
        let lately = Lately::new(now);
        (0..100_000).for_each(|number| lately.note(&id(number), now));
        let known = (0..100_000).filter(|number| lately.has(&id(*number), now)).count();
        assert!(known > Lately::PLACES / 2 && known <= Lately::PLACES, "{known}");
    }
}
