//! Unix time, the clock that servers have in common.

use std::time::{Duration, SystemTime};

/// Seconds of Unix time.
pub(crate) fn now_s() -> u64 {
    unix_time().as_secs()
}

/// Milliseconds of Unix time.
pub(crate) fn unix_ms() -> u64 {
    unix_time().as_millis() as u64
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
