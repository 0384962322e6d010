//! The two clocks: elapsed time and the time of day. They are separate because the time of day can be set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The machine's clocks. Clones share one clock. Tests can move it.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    moved: Arc<Moved>,
}

/// The distance by which tests moved the clocks.
#[derive(Debug, Default)]
struct Moved {
    passed_ms: AtomicU64,
    stepped_s: AtomicI64,
}

impl Clock {
    /// Returns the milliseconds since the machine started, including those in which it slept. Ages are measured by
    /// this clock.
    pub fn now_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        let ms = now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000;
        ms + self.moved.passed_ms.load(Ordering::Relaxed)
    }

    /// Returns the time of day in Unix time. Certificates are judged by this clock.
    pub fn unix_s(&self) -> u64 {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let passed_s = self.moved.passed_ms.load(Ordering::Relaxed) / 1_000;
        (now + passed_s).saturating_add_signed(self.moved.stepped_s.load(Ordering::Relaxed))
    }

    /// Moves both clocks forward.
    pub fn pass(&self, time: Duration) {
        self.moved.passed_ms.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// Sets the time of day forward or back by this many seconds.
    pub fn step(&self, seconds: i64) {
        self.moved.stepped_s.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// rustls takes only the ages of tickets from this clock: our verifier reads the time of day itself. So setting the
/// time of day changes no ticket's age.
impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(self.now_ms())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_that_is_set_makes_nothing_older() {
        let clock = Clock::default();
        let (before, date) = (clock.now_ms(), clock.unix_s());
        clock.step(86_400);
        assert!(clock.now_ms() - before < 60_000);
        assert!(clock.unix_s() >= date + 86_400);
        clock.step(-2 * 86_400);
        assert!(clock.now_ms() >= before && clock.unix_s() < date);
        clock.pass(Duration::from_secs(86_400));
        assert!(clock.now_ms() >= before + 86_400_000 && clock.unix_s() >= date);
    }
}
