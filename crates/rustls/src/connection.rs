//! The connection that a call of the store belongs to.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rejoin_cache::{Cache, Visit};
use rejoin_store::now_ms;

thread_local! {
    static CURRENT: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

/// One connection, as the store sees it. Clones are the same connection. A session that still
/// waits for a hint when the last clone is dropped is stored without one.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    visit: Mutex<Visit>,
    /// The cache of sessions that wait.
    cache: OnceLock<Arc<Cache>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let visit = self.visit.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(cache) = self.cache.get() {
            visit.finish(cache, now_ms());
        }
    }
}

impl Connection {
    /// Runs `work`, during which this thread's calls of the store belong to this connection. With
    /// a blocking server that is the handshake; with an asynchronous one, each poll of it.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _outer = Outer(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// Names the cache in which waiting sessions are stored at the end.
    pub(crate) fn waits_for(&self, cache: &Arc<Cache>) {
        self.shared.cache.get_or_init(|| Arc::clone(cache));
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Visit) -> T) -> T {
        work(&mut self.shared.visit.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Restores the connection of the surrounding scope, also when `work` panics.
struct Outer(Option<Connection>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Returns the connection in scope, or `None` outside of any.
pub(crate) fn current() -> Option<Connection> {
    CURRENT.with_borrow(Clone::clone)
}
