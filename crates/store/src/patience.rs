//! The time that a process may spend waiting for locks that others hold.
//!
//! A lock is held for well under a microsecond. If it is held for longer, its holder was preempted, or is stopped, or
//! keeps others from the shard on purpose: a process that holds a lock, lets go of it and takes it again could make
//! every operation of all others wait. So all waits of a process together take no more than a burst, and one part in
//! [`Patience::SHARE`] of the time since. Beyond that an operation is skipped, as if its session were not there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// One process's patience, which its threads share.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// The time at which all waits so far are made up for, in microseconds.
    paid_us: AtomicU64,
}

impl Patience {
    /// The part of its time that a process waits at most.
    pub(crate) const SHARE: u64 = 100;
    /// The most that a process may wait after a while without a wait, in microseconds: two waits in vain.
    pub(crate) const BURST_US: u64 = 200_000;
    /// The shortest sleep that is worth its system call, in microseconds.
    const LEAST_US: u64 = 1_000;

    /// Lends up to `most_us` for a sleep. `None` if the share is used up.
    pub(crate) fn lend(&self, most_us: u64) -> Option<u64> {
        self.lend_at(now_us(), most_us)
    }

    /// Settles a loan after the sleep, which took so long. Of a longer sleep a burst is charged: the process itself was
    /// stopped.
    pub(crate) fn settle(&self, lent_us: u64, slept: Duration) {
        let slept_us = (slept.as_micros() as u64).min(Self::BURST_US);
        if slept_us < lent_us {
            self.paid_us.fetch_sub((lent_us - slept_us) * Self::SHARE, Ordering::Relaxed);
        } else {
            self.paid_us.fetch_add((slept_us - lent_us) * Self::SHARE, Ordering::Relaxed);
        }
    }

    fn lend_at(&self, now_us: u64, most_us: u64) -> Option<u64> {
        let mut lent_us = 0;
        let lend = |paid_us: u64| {
            let from = paid_us.max(now_us.saturating_sub(Self::BURST_US * Self::SHARE));
            lent_us = (now_us.saturating_sub(from) / Self::SHARE).min(most_us);
            (lent_us >= Self::LEAST_US.min(most_us)).then(|| from + lent_us * Self::SHARE)
        };
        self.paid_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lend).ok().map(|_| lent_us)
    }
}

/// Returns the time since the machine started, in microseconds, and the time of a burst.
fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let since_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000;
    since_us + Patience::BURST_US * Patience::SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: u64 = 3_600_000_000;

    #[test]
    fn it_lends_a_burst_and_then_its_share() {
        let patience = Patience::default();
        let lent =
            |now_us| -> u64 { std::iter::from_fn(|| patience.lend_at(now_us, 10_000)).sum() };
        assert_eq!(lent(HOUR_US), Patience::BURST_US);
        assert_eq!(lent(HOUR_US), 0);
        assert_eq!(lent(HOUR_US + 90_000), 0, "less than is worth it");
        assert_eq!(lent(HOUR_US + 1_000_000), 10_000);
        let by_second =
            |seconds| (2..seconds).map(|of| lent(HOUR_US + of * 1_000_000)).sum::<u64>();
        assert_eq!(by_second(102), 1_000_000, "a hundredth");
        assert_eq!(lent(3 * HOUR_US), Patience::BURST_US, "no more is saved up");
    }

    #[test]
    fn what_was_not_slept_is_given_back_and_more_is_charged() {
        let patience = Patience::default();
        let lend = |most_us| patience.lend_at(HOUR_US, most_us);
        for _ in 0..1_000 {
            assert_eq!(lend(10_000), Some(10_000));
            patience.settle(10_000, Duration::ZERO);
        }
        assert_eq!(lend(10_000), Some(10_000));
        patience.settle(10_000, Duration::from_micros(195_000));
        assert_eq!(lend(10_000), Some(5_000));
        assert_eq!(lend(10_000), None);
        patience.settle(5_000, Duration::from_secs(1_000));
        assert_eq!(patience.lend_at(HOUR_US + 19_000_000, 10_000), None, "the debt is paid first");
        assert_eq!(patience.lend_at(HOUR_US + 21_000_000, 10_000), Some(10_000));
    }
}
