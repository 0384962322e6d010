//! The ring, as the ways out see it change.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rejoin_store::SharedKeys;
use rejoin_tickets::{KeyRing, KeySource};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// The newest ring; `None` until there is one.
pub type Rings = watch::Receiver<Option<Arc<KeyRing>>>;

/// Follows the ring of a cache once a second, for as long as anybody receives it. Makes keys that are due, unless a
/// cluster's agent does.
pub async fn follow(keys: Arc<SharedKeys>, rings: watch::Sender<Option<Arc<KeyRing>>>) {
    let mut look = every_second();
    while !rings.is_closed() {
        look.tick().await;
        if let Some(ring) = keys.newer(now_s()) {
            rings.send_replace(Some(Arc::new(ring)));
            let keys = Arc::clone(&keys);
            // It waits for the disk.
            let kept = tokio::task::spawn_blocking(move || keys.keep());
            let _ = kept.await;
        }
    }
}

pub(crate) fn every_second() -> tokio::time::Interval {
    let mut look = interval(Duration::from_secs(1));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

pub(crate) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
