//! A look once a second, by whichever thread comes first.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tells one thread in each second to look for a newer ring. All others go on without a wait.
#[derive(Debug, Default)]
pub struct OnceASecond {
    next_s: AtomicU64,
}

impl OnceASecond {
    /// Returns true if no thread was told so for a second. `now_s` is Unix time.
    pub fn is_due(&self, now_s: u64) -> bool {
        const EVERY_S: u64 = 1;
        let next_s = self.next_s.load(Ordering::Relaxed);
        let then_s = now_s.saturating_add(EVERY_S);
        // A later time means that the clock stepped back.
        let waits = next_s > now_s && next_s <= then_s;
        let take =
            || self.next_s.compare_exchange(next_s, then_s, Ordering::Relaxed, Ordering::Relaxed);
        !waits && take().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_looks_in_a_second_also_after_the_clock_was_set_back() {
        let look = OnceASecond::default();
        assert!(look.is_due(1_000) && !look.is_due(1_000));
        assert!(look.is_due(1_001) && !look.is_due(1_001));
        assert!(look.is_due(500) && !look.is_due(500));
    }
}
