//! The connection that a call of the store or of the ticketer belongs to.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use rejoin_cache::Visit;
use rejoin_store::now_ms;

use crate::server_sessions::AnyStore;

thread_local! {
    static CURRENT: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

/// One connection, as the store sees it. Clones are the same connection. A session that still
/// waits for a hint when the last clone is dropped is stored without one.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The store of the connection's sessions, once it has any.
    store: OnceLock<Arc<AnyStore>>,
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) visit: Visit,
    /// The Unix time of the client's last full handshake, if it has presented a session or a ticket.
    pub(crate) authenticated_s: Option<u64>,
    /// The number of sessions that were looked for.
    pub(crate) lookups: u32,
    /// The name of its source, once that is known.
    pub(crate) source: Option<Box<[u8]>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = self.store.get() {
            state.visit.finish(&**store, now_ms());
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

    /// Runs each poll of a future, such as a handshake, in the connection's [`Self::scope`].
    pub fn around<F: Future>(&self, work: F) -> Around<F> {
        Around { connection: self.clone(), work: Box::pin(work) }
    }

    /// Tells the store which source this connection's client comes from, before it is given a session. `known` is what the
    /// server knows of the source: its network ([`SourceBy::network`](rejoin_cache::SourceBy::network)), its certificate,
    /// or the name that it asks for. It matters only in a store that bounds what one source can take
    /// ([`Fairness`](rejoin_cache::Fairness)).
    pub fn comes_from(&self, known: &[u8]) {
        self.with(|state| state.source = Some(known.into()));
    }

    /// Tells the store that this connection's client returns in `interval_ms`. Stores the session that waited for the
    /// hint. Does nothing for a connection without a session.
    pub fn hint(&self, interval_ms: u64) {
        self.in_store(|visit, store| visit.hint(store, now_ms(), interval_ms));
    }

    /// Tells the store that the application has no hint for this connection's client.
    pub fn no_hint(&self) {
        self.in_store(|visit, store| visit.finish(store, now_ms()));
    }

    /// Forgets the sessions of a connection that ended in a fatal alert.
    pub fn forget(&self) {
        self.in_store(|visit, store| visit.forget(store));
    }

    fn in_store(&self, work: impl FnOnce(&mut Visit, &AnyStore)) {
        if let Some(store) = self.shared.store.get() {
            self.with(|state| work(&mut state.visit, store));
        }
    }

    /// Names the store of the connection's sessions.
    pub(crate) fn uses(&self, store: &Arc<AnyStore>) {
        self.shared.store.get_or_init(|| Arc::clone(store));
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if the client has presented a session that was found.
    pub(crate) fn is_known(&self) -> bool {
        self.with(|state| state.authenticated_s.is_some())
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A future whose polls run in a connection's scope: see [`Connection::around`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Around<F> {
    connection: Connection,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Around<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let Self { connection, work } = &mut *self;
        connection.scope(|| work.as_mut().poll(task))
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
