//! Unix time, the clock that servers have in common.

use std::time::SystemTime;

/// Seconds of Unix time. A clock before 1970 counts as 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
