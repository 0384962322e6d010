//! The clock of caches.

use rejoin_cache::REACHES_BACK_MS;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time on the clock of all caches: milliseconds since 49 days before the machine started, sleep
/// included. It never steps, and all processes share it. The 49 days leave room for the last visit of a client that
/// another machine saw before this one started.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    REACHES_BACK_MS + now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}
