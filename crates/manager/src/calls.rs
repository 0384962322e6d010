//! Connections of the manager's own: to one server one at a time. What the first finds is the others', too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Waited, OwnedMutexGuard};

use crate::sessions::PlaceName;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    places: Mutex<HashMap<PlaceName, Arc<Waited<()>>>>,
}

impl Calls {
    /// Waits until nobody else calls this server. The turn is over when what this returns is dropped.
    pub(crate) async fn turn(&self, place: &PlaceName) -> OwnedMutexGuard<()> {
        let turn = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody calls.
            places.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(places.entry(place.clone()).or_default())
        };
        turn.lock_owned().await
    }
}
