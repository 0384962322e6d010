//! Which connection a call of the store belongs to.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use rejoin_cache::Visit;

use crate::server_sessions::{ServerSessions, now_ms};

thread_local! {
    static CURRENT: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

/// One connection's dealings with the store. Clones are the same connection.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    visit: Arc<Mutex<Visit>>,
}

impl Connection {
    /// Runs `work`, during which this thread's calls of the store belong to this connection. With
    /// a blocking server that is the handshake; with an asynchronous one, each poll of it.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _outer = Outer(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// The application says that this connection's client comes back in `interval_ms`. A session
    /// that waited for it is stored now.
    pub fn hint(&self, sessions: &ServerSessions, interval_ms: u64) {
        self.with(|visit| visit.hint(sessions.cache(), now_ms(), interval_ms));
    }

    /// The application has nothing to say about this connection's client.
    pub fn no_hint(&self, sessions: &ServerSessions) {
        self.with(|visit| visit.finish(sessions.cache(), now_ms()));
    }

    /// The connection ended in a fatal alert: its sessions are not to be resumed.
    pub fn forget(&self, sessions: &ServerSessions) {
        self.with(|visit| visit.forget(sessions.cache()));
    }

    fn with<T>(&self, work: impl FnOnce(&mut Visit) -> T) -> T {
        work(&mut self.visit.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Restores the connection of the surrounding scope, also when `work` panics.
struct Outer(Option<Connection>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The visit of the connection in scope; `None` outside of any.
pub(crate) fn current<T>(work: impl FnOnce(Option<&mut Visit>) -> T) -> T {
    match CURRENT.with_borrow(Clone::clone) {
        Some(connection) => connection.with(|visit| work(Some(visit))),
        None => work(None),
    }
}
