//! Connections of the manager's own: to one server one at a time. What the first finds is the others', too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Waited, OwnedMutexGuard};

use crate::sessions::CacheKey;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct OwnConnections {
    table: Mutex<HashMap<CacheKey, Arc<Waited<()>>>>,
}

impl OwnConnections {
    /// Waits until nobody else calls this server. The turn is over when what this returns is dropped.
    pub(crate) async fn turn(&self, cache_key: &CacheKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody calls.
            table.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(table.entry(cache_key.clone()).or_default())
        };
        turn.lock_owned().await
    }
}
