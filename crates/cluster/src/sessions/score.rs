//! The order in which clients are expected back, as a score in a sorted set.
//!
//! Valkey's scores are floating point: integers up to 2⁵³ are exact. Below 2⁵² a score is a return
//! time. From there on clients are not expected back, and the session that expires first comes last:
//!
//! ```text
//! 0 … returns_ms … 2⁵² | 2⁵³ − expires_ms … 2⁵³
//! ```
//! So the next victim is last, and expired sessions are found from the end. A client that is expected only after its
//! session's expiry counts as not expected. All other sessions become overdue before they expire.

use rejoin_cache::{Expectation, History, Interval, Prediction};

/// The return time of a client that is not expected back, because the session is the unused sibling of another one
/// (TLS 1.3).
pub const NEVER_MS: u64 = u64::MAX;

const NEVER: u64 = 1 << 52;

/// Returns the time at which a client seen at `now_ms` is expected back, in Unix time, by the rules of a machine's
/// cache. Without a hint or a usable history it is `prior_ms` from now.
pub fn returns_ms(
    prediction: Prediction,
    now_ms: u64,
    history: History,
    hint_ms: Option<u64>,
    prior_ms: u64,
) -> u64 {
    let prior = Expectation::every(Interval::from_ms(prior_ms));
    let expected = match Expectation::predicted(prediction, history, hint_ms, prior) {
        Expectation::UNKNOWN if hint_ms.is_none() => prior,
        expected => expected,
    };
    expected.returns_ms(now_ms).unwrap_or(NEVER_MS)
}

pub(super) fn score(returns_ms: u64, expires_ms: u64) -> u64 {
    let expires_ms = expires_ms.min(NEVER - 1);
    if returns_ms <= expires_ms { returns_ms } else { 2 * NEVER - expires_ms }
}

/// Returns the score from which on sessions have expired.
pub(super) fn expired_from(now_ms: u64) -> u64 {
    2 * NEVER - now_ms.min(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_never_expected_come_last_and_the_first_to_expire_at_the_end() {
        let scores =
            [score(5, 9), score(9, 9), score(NEVER_MS, u64::MAX), score(10, 9), score(NEVER_MS, 8)];
        assert!(scores.is_sorted(), "{scores:?}");
        assert!(scores[1] < NEVER && scores[2] > NEVER && scores[4] <= 1 << 53);
        assert!(score(NEVER_MS, 9) >= expired_from(9) && score(NEVER_MS, 9) < expired_from(8));
    }

    #[test]
    fn a_client_is_expected_by_hint_then_history_then_as_any() {
        let unknown = History::default();
        let minutes = |prediction, history, hint_ms| {
            returns_ms(prediction, 1_000, history, hint_ms, 61_440) - 1_000
        };
        // The class of 15 s, twice; its mean in quarters, of two gaps.
        let [low, high] = ((4 * 79_u16) | (2 << 10)).to_le_bytes();
        let known = History::from_bytes([79, 79, low, high]);
        let (learned, is_kept) = known.interval().expect("an interval");
        assert!(is_kept && (15_000..17_000).contains(&learned.as_ms()));
        for prediction in [Prediction::Hint, Prediction::Both] {
            assert_eq!(minutes(prediction, unknown, Some(28_672)), 28_672);
            assert_eq!(minutes(prediction, unknown, Some(0)), 0);
            assert_eq!(minutes(prediction, unknown, None), 61_440);
        }
        assert_eq!(minutes(Prediction::Hint, known, Some(4)), 4);
        assert_eq!(minutes(Prediction::Hint, known, None), 61_440);
        for (prediction, hint_ms) in
            [(Prediction::Both, Some(4)), (Prediction::Learned, Some(4)), (Prediction::Both, None)]
        {
            let interval_ms = minutes(prediction, known, hint_ms);
            assert!(
                (learned.as_ms()..learned.as_ms() * 9 / 8).contains(&interval_ms),
                "{prediction:?}"
            );
        }
    }
}
