//! The time: what has passed, and what the calendar says. They are two things, since somebody may
//! set the calendar.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The machine's clocks. Clones are the same clock. Tests let time pass on it.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    moved: Arc<Moved>,
}

/// How far tests moved the clock.
#[derive(Debug, Default)]
struct Moved {
    passed_ms: AtomicU64,
    stepped_s: AtomicI64,
}

impl Clock {
    /// Milliseconds since the machine started, those included in which it slept. What has an age
    /// is measured by this.
    pub fn now_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        let ms = now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000;
        ms + self.moved.passed_ms.load(Ordering::Relaxed)
    }

    /// What the calendar says. Certificates are judged by this.
    pub fn unix_s(&self) -> u64 {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let passed_s = self.moved.passed_ms.load(Ordering::Relaxed) / 1_000;
        (now + passed_s).saturating_add_signed(self.moved.stepped_s.load(Ordering::Relaxed))
    }

    /// As if so much time had passed.
    pub fn pass(&self, time: Duration) {
        self.moved.passed_ms.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// As if somebody had set the calendar by so many seconds.
    pub fn step(&self, seconds: i64) {
        self.moved.stepped_s.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// rustls takes the ages of tickets from this, and nothing else: our verifier asks the calendar
/// itself. So a calendar that is set changes no ticket's age.
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
