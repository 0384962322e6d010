//! The sessions whose clients were turned away: the cluster was to be asked for each, and did not answer.
//!
//! Their early data is rejected, and their clients send it again after the handshake. But the cluster still has the
//! sessions, and would hand them out to whoever copied the first flights, once it answers again. So each is noted for as
//! long as a copy may be accepted.

use std::sync::atomic::{AtomicU64, Ordering};

use rejoin_cache::SessionId;

use crate::certainty::WINDOW_MS;

/// The sessions that were turned away lately, for all processes: of each a part of its id, and an end.
///
/// Anybody who may write to the memory may write here. No end beyond [`Self::FOR_S`] is believed.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct TurnedAway([AtomicU64; ROOM]);

const ROOM: usize = 128;

impl TurnedAway {
    /// The time for which a copied first flight may be accepted, in seconds. Clocks of machines may differ by two: this
    /// one's, that of the machine that made the session, and Valkey's. One more, because ends are whole seconds.
    const FOR_S: u64 = WINDOW_MS / 1_000 + 3 * 2 + 1;

    /// Notes a session. Returns false if there is no room: then none may be certain until [`Self::until_ms`].
    pub(crate) fn note(&self, id: &SessionId, now_ms: u64) -> bool {
        let noted = mark(id) << 32 | until_s(now_ms) & u64::from(u32::MAX);
        // A session that is noted twice takes two places if that is by two threads at once, which does no harm.
        let is_its_own = |slot: &&AtomicU64| slot.load(Ordering::Acquire) >> 32 == mark(id);
        if let Some(own) = self.0.iter().find(is_its_own) {
            let before = own.load(Ordering::Acquire);
            if before >> 32 == mark(id) && replace(own, before, noted) {
                return true;
            }
        }
        self.0.iter().any(|slot| {
            let before = slot.load(Ordering::Acquire);
            !is_live(before, now_ms) && replace(slot, before, noted)
        })
    }

    /// Returns true if a session was turned away so lately that a copy of its client's first flight may come.
    pub(crate) fn has(&self, id: &SessionId, now_ms: u64) -> bool {
        self.0.iter().any(|slot| {
            let noted = slot.load(Ordering::Acquire);
            noted >> 32 == mark(id) && is_live(noted, now_ms)
        })
    }

    /// Returns the time until which a session that is turned away now is in doubt.
    pub(crate) fn until_ms(now_ms: u64) -> u64 {
        until_s(now_ms).saturating_mul(1_000)
    }
}

fn until_s(now_ms: u64) -> u64 {
    (now_ms / 1_000).saturating_add(TurnedAway::FOR_S)
}

fn is_live(noted: u64, now_ms: u64) -> bool {
    let left_s = (noted & u64::from(u32::MAX)).saturating_sub(now_ms / 1_000);
    (1..=TurnedAway::FOR_S).contains(&left_s)
}

fn replace(slot: &AtomicU64, before: u64, noted: u64) -> bool {
    slot.compare_exchange(before, noted, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Returns the part of an id that is noted. Ids are random, or were refused before. Two with the same part are both in
/// doubt.
fn mark(id: &SessionId) -> u64 {
    let mut bytes = [0; 4];
    let known = id.as_bytes().len().min(4);
    bytes[..known].copy_from_slice(&id.as_bytes()[..known]);
    u32::from_le_bytes(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 5_000_000_999;
    const FOR_MS: u64 = 18_000;

    fn none() -> TurnedAway {
        TurnedAway([const { AtomicU64::new(0) }; ROOM])
    }

    fn id(number: u32) -> SessionId {
        SessionId::new(&[number.to_le_bytes(); 8].concat()).expect("32 bytes")
    }

    #[test]
    fn each_is_in_doubt_for_eighteen_seconds_and_a_little_more() {
        let away = none();
        assert!(!away.has(&id(0), NOW_MS) && away.note(&id(1), NOW_MS));
        assert!(away.has(&id(1), NOW_MS) && !away.has(&id(2), NOW_MS));
        assert!(away.has(&id(1), NOW_MS + FOR_MS) && !away.has(&id(1), NOW_MS + FOR_MS + 1_001));
        assert!(TurnedAway::until_ms(NOW_MS) >= NOW_MS + FOR_MS);
        // It is turned away once more.
        assert!(away.note(&id(1), NOW_MS + FOR_MS) && away.has(&id(1), NOW_MS + 2 * FOR_MS));
    }

    #[test]
    fn it_is_bounded_and_says_when_it_is_full() {
        let away = none();
        let all = 0..ROOM as u32;
        assert!(all.clone().all(|number| away.note(&id(number), NOW_MS)));
        assert!(!away.note(&id(1_000), NOW_MS) && away.note(&id(7), NOW_MS));
        assert!(all.clone().all(|number| away.has(&id(number), NOW_MS)));
        let later_ms = NOW_MS + FOR_MS + 1_001;
        assert!(all.into_iter().all(|number| away.note(&id(2_000 + number), later_ms)));
    }

    #[test]
    fn what_others_write_there_is_not_believed() {
        let away = none();
        away.0.iter().for_each(|slot| slot.store(u64::MAX, Ordering::Relaxed));
        assert!(!away.has(&id(u32::MAX), NOW_MS) && away.note(&id(u32::MAX), NOW_MS));
        assert!(away.has(&id(u32::MAX), NOW_MS));
    }
}
