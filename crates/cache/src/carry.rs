//! Carrying sessions from one cache to another that takes its place.

use crate::cache::Cache;
use crate::expectation::{Expectation, Trust};
use crate::id::{ContextTag, SessionId};
use crate::interval::TICK_MS;
use crate::region::Region;
use crate::secret::SecretBytes;
use crate::session::{Kept, NewSession};
use crate::settings::Prediction;
use crate::shard::Shard;

/// A copy of a session.
struct Copied {
    id: SessionId,
    context: ContextTag,
    value: SecretBytes,
    kept: Kept,
    /// The interval that the application gave.
    hint_ms: Option<u64>,
}

impl<R: Region> Cache<R> {
    /// Stores copies of another cache's sessions here, until it has them all or `goes_on` returns false, and returns
    /// their number. Those that find no room are chosen as always: by when their clients are expected back. A lock of
    /// the other cache is held for a few hundred sessions at a time. Both caches must have the same clock, and sessions
    /// must mean the same in both. Their sources are not known in this cache: see [`Cache::source`].
    pub fn carry<O: Region>(
        &self,
        now_ms: u64,
        other: &Cache<O>,
        mut goes_on: impl FnMut() -> bool,
    ) -> u64 {
        const SLOTS_A_TURN: u32 = 256;
        let mut carried = 0;
        for placed in other.placed() {
            let turns = (0..placed.slots()).step_by(SLOTS_A_TURN as usize);
            for from in turns.take_while(|_| goes_on()) {
                let copied = |shard: &mut Shard<'_, O>| shard.copied(now_ms, from, SLOTS_A_TURN);
                let Some(copied) = other.in_shard(placed, copied).flatten() else { break };
                let stores = |of: &Copied| self.insert(now_ms, &of.as_new()).is_ok();
                carried += copied.iter().filter(|of| stores(of)).count() as u64;
            }
        }
        carried
    }
}

impl Copied {
    fn as_new(&self) -> NewSession<'_> {
        let Self { id, context, value, kept, hint_ms } = self;
        let Kept { expires_ms, history, seen_ms, returns_ms } = *kept;
        NewSession {
            history,
            sibling: returns_ms.is_none(),
            seen_ms: Some(seen_ms),
            hint_ms: *hint_ms,
            ..NewSession::new(*id, value, expires_ms, *context)
        }
    }
}

impl<R: Region> Shard<'_, R> {
    /// Copies the sessions in some of the slots that have not expired. Returns `None` beyond the last slot that was ever
    /// used.
    fn copied(&mut self, now_ms: u64, from: u32, slots: u32) -> Option<Vec<Copied>> {
        let used = self.slots.first(self.header.fresh).len() as u32;
        let copy = |slot: u32| {
            let of = self.slots[slot];
            let is_session = of.id_length() > 0 && !self.expired(slot, now_ms);
            let mut value = SecretBytes::default();
            (is_session && self.copy_value(slot, &mut value)).then(|| Copied {
                id: SessionId::from_padded(of.id, of.id_length()),
                context: ContextTag(of.context),
                value,
                kept: self.kept(slot),
                hint_ms: self.hint_ms(of.expected()),
            })
        };
        (from < used).then(|| (from..used.min(from + slots)).filter_map(copy).collect())
    }

    /// Returns the interval of a client if it is the application's.
    fn hint_ms(&self, expected: Expectation) -> Option<u64> {
        let is_hinted = match self.layout.prediction {
            Prediction::Hint => true,
            Prediction::Both => expected.trust() >= Trust::Claimed,
            Prediction::Learned => false,
        };
        let is_hinted = is_hinted && !expected.is_never();
        is_hinted.then(|| u64::from(expected.interval_ticks()) * TICK_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Capacity, Settings};

    fn id(number: u64) -> SessionId {
        SessionId::new(&number.to_be_bytes()).expect("8 bytes")
    }

    fn cache(sessions: u64, key: u8) -> Cache {
        let settings = Settings { block_bytes: 64, ..Settings::new(Capacity::Sessions(sessions)) };
        Cache::new(&settings, [key; 16], 1_000).expect("settings")
    }

    fn is_there(cache: &Cache, number: u64) -> bool {
        let mut value = SecretBytes::default();
        let context = ContextTag(number as u32 % 3);
        let found = cache.peek(5_000, &id(number), context, &mut value);
        assert!(!found || *value == vec![number as u8; 50 + number as usize % 300]);
        found
    }

    fn filled(sessions: u64) -> Cache {
        let old = cache(sessions, 1);
        for number in 0..1_000 {
            let value = vec![number as u8; 50 + number as usize % 300];
            let expires_ms = if number % 10 == 0 { 4_000 } else { 900_000 };
            let context = ContextTag(number as u32 % 3);
            let new = NewSession::new(id(number), &value, expires_ms, context);
            assert!(old.insert(2_000, &new).is_ok());
        }
        old
    }

    #[test]
    fn a_larger_cache_gets_all_that_have_not_expired() {
        let (old, new) = (filled(8_000), cache(20_000, 2));
        assert_eq!(new.carry(5_000, &old, || true), 900);
        assert!((0..1_000).all(|number| is_there(&new, number) == (number % 10 != 0)));
        assert!(old.check().iter().chain(&new.check()).all(Result::is_ok));
        let kept = |cache: &Cache| {
            let found = cache.look(5_000, &id(7), ContextTag(1), &mut SecretBytes::default());
            found.expect("there")
        };
        assert_eq!(
            (kept(&old).expires_ms, kept(&old).seen_ms),
            (kept(&new).expires_ms, kept(&new).seen_ms)
        );
    }

    #[test]
    fn what_the_application_said_goes_along() {
        let returns_ms = |cache: &Cache| {
            let mut value = SecretBytes::default();
            [1, 2]
                .map(|number| cache.look(3_000, &id(number), ContextTag(0), &mut value)?.returns_ms)
        };
        for prediction in [Prediction::Hint, Prediction::Both] {
            let settings = Settings { prediction, ..Settings::new(Capacity::Sessions(9)) };
            let [old, new] =
                [1, 2].map(|key| Cache::new(&settings, [key; 16], 1_000).expect("settings"));
            for (number, hint_ms) in [(1, 15_000), (2, 3_600_000)] {
                let session = NewSession::new(id(number), b"value", 9_000_000, ContextTag(0));
                let session = NewSession { hint_ms: Some(hint_ms), ..session };
                assert!(old.insert(2_000, &session).is_ok());
            }
            assert_eq!(new.carry(3_000, &old, || true), 2);
            let before = returns_ms(&old);
            assert!(before[0] < before[1], "{before:?}");
            assert_eq!(returns_ms(&new), before, "{prediction:?}");
        }
    }

    #[test]
    fn a_smaller_cache_is_filled() {
        let (old, new) = (filled(8_000), cache(300, 2));
        new.carry(5_000, &old, || true);
        assert!((0..1_000).filter(|number| is_there(&new, *number)).count() > 50);
        assert!(new.check().iter().all(Result::is_ok));
    }

    #[test]
    fn it_ends_when_it_is_told() {
        let (old, new) = (filled(8_000), cache(20_000, 2));
        assert_eq!(new.carry(5_000, &old, || false), 0);
    }
}
