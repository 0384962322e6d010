//! Reports of connections that go directly. The manager counts them, because programs are often short-lived and have
//! no place for statistics of their own.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rejoin_abi::undisturbed;
use rejoin_client::protocol::Directly;

use crate::settings;

/// The shortest time between two reports of one reason. The last count of a program may be lost when it exits.
const AGAIN_MS: u64 = 1_000;

/// The count of one reason.
#[derive(Debug)]
struct Count {
    /// Connections that are not reported yet.
    times: AtomicU32,
    /// The earliest time of the next report.
    from_ms: AtomicU64,
}

static COUNTS: [Count; Directly::ALL.len()] = [const { Count::new() }; Directly::ALL.len()];

impl Count {
    const fn new() -> Self {
        Self { times: AtomicU32::new(0), from_ms: AtomicU64::new(0) }
    }

    /// Counts one connection. Returns the number to report now, if a report is due.
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

/// Counts a connection that goes directly, and tells the manager if a report is due.
pub(crate) fn count(why: Directly) {
    if why.is_known_there() {
        return;
    }
    let (Some(manager), count) = (settings::manager(), &COUNTS[why as usize]) else { return };
    let Some(times) = count.add(settings::now_ms()) else { return };
    if undisturbed(|| manager.went_directly(why, times)).is_err() {
        count.times.fetch_add(times, Ordering::Relaxed);
    }
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
