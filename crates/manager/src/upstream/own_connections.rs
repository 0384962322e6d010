//! Connections of the manager's own, one at a time to each server. Callers that wait use the session that the first one
//! obtained.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Waited, OwnedMutexGuard};

use crate::sessions::CacheKey;

/// The servers to which the manager is connecting for itself.
#[derive(Debug, Default)]
pub(crate) struct OwnConnections {
    table: Mutex<HashMap<CacheKey, Arc<Waited<()>>>>,
}

impl OwnConnections {
    /// Waits until no other connection of the manager's own to this server is open. The turn ends when the guard is
    /// dropped.
    pub(crate) async fn turn(&self, cache_key: &CacheKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            // Removes servers without a caller.
            table.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(table.entry(cache_key.clone()).or_default())
        };
        turn.lock_owned().await
    }
}
