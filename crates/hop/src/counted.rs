//! Connections that go directly, counted by the manager: programs are short-lived, and have nowhere to say it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rejoin_client::protocol::Directly;

use crate::settings;

/// A program that often goes directly says so once in that time; what it counted last may be lost with it.
const AGAIN_MS: u64 = 1_000;

/// One reason's.
#[derive(Debug)]
struct Count {
    /// Not said yet.
    times: AtomicU32,
    /// From when on it may be said.
    from_ms: AtomicU64,
}

static COUNTS: [Count; Directly::ALL.len()] = [const { Count::new() }; Directly::ALL.len()];

impl Count {
    const fn new() -> Self {
        Self { times: AtomicU32::new(0), from_ms: AtomicU64::new(0) }
    }

    /// One more. Returns how many are to be said now, if any are.
    fn add(&self, now_ms: u64) -> Option<u32> {
        self.times.fetch_add(1, Ordering::Relaxed);
        let from_ms = self.from_ms.load(Ordering::Relaxed);
        let next_ms = now_ms + AGAIN_MS;
        let is_time = now_ms >= from_ms
            && self
                .from_ms
                .compare_exchange(from_ms, next_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        is_time.then(|| self.times.swap(0, Ordering::Relaxed))
    }
}

/// A connection goes directly.
pub(crate) fn count(why: Directly) {
    if why.is_known_there() {
        return;
    }
    let (Some(manager), count) = (settings::manager(), &COUNTS[why as usize]) else { return };
    let Some(times) = count.add(settings::now_ms()) else { return };
    // SAFETY: this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    if manager.went_directly(why, times).is_err() {
        count.times.fetch_add(times, Ordering::Relaxed);
    }
    // The program may ask what its TLS library came upon.
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_said_once_a_second() {
        let count = Count::new();
        let mut said = (0..2_500).filter_map(|ms| count.add(ms));
        assert_eq!([said.next(), said.next(), said.next()], [Some(1), Some(1_000), Some(1_000)]);
    }

    #[test]
    fn reasons_have_their_places() {
        for (place, why) in Directly::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place);
        }
    }
}
