//! Unix time, the clock that servers have in common.

use std::time::{Duration, SystemTime};

use libc::time_t;

/// Seconds of Unix time.
pub(crate) fn now_s() -> u64 {
    unix_time().as_secs()
}

/// Milliseconds of Unix time.
pub(crate) fn unix_ms() -> u64 {
    unix_time().as_millis() as u64
}

/// Seconds of the clock by which libcrypto judges certificates. A program may have set it to another time.
pub(crate) fn libcrypto_now_s() -> time_t {
    // SAFETY: null, the time is returned alone.
    unsafe { libc::time(std::ptr::null_mut()) }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
