//! The ring, as the ways out see it change.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rejoin_store::SharedKeys;
use rejoin_tickets::{KeyRing, KeySource};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// The newest ring; `None` until there is one.
pub type Rings = watch::Receiver<Option<Arc<KeyRing>>>;

/// Follows the ring of a cache once a second, for as long as anybody receives it, or until `lost` says why nobody else has
/// the cache any more. Makes keys that are due, unless a cluster's agent does.
pub async fn follow<L>(
    keys: Arc<SharedKeys>,
    rings: watch::Sender<Option<Arc<KeyRing>>>,
    lost: impl Fn() -> Option<L>,
) -> Option<L> {
    let mut look = every_second();
    while !rings.is_closed() {
        look.tick().await;
        let newer = keys.newer(now_s());
        // After the look: in a cache that was removed before it, it has made keys that nobody else has.
        if let Some(lost) = lost() {
            return Some(lost);
        }
        if let Some(ring) = newer {
            rings.send_replace(Some(Arc::new(ring)));
            let keys = Arc::clone(&keys);
            // It waits for the disk.
            let kept = tokio::task::spawn_blocking(move || keys.keep());
            let _ = kept.await;
        }
    }
    None
}

pub(crate) fn every_second() -> tokio::time::Interval {
    let mut look = interval(Duration::from_secs(1));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

pub(crate) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
