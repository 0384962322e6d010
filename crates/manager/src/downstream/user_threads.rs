//! Threads for connections over sockets that programs passed, one thread per user.
//!
//! A program keeps a copy of such a socket, and can hold the kernel's lock on it for any length of
//! time by sending from memory whose pages it supplies itself (userfaultfd, a file system of its
//! own). Every system call on this socket then blocks, even a non-blocking one. So only the thread that serves
//! this user's programs makes such calls.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// The threads of all users.
#[derive(Debug, Default)]
pub(crate) struct UserThreads {
    users: Mutex<HashMap<u32, Arc<Thread>>>,
}

/// A thread that serves one user.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: Handle,
    /// The thread ends when this is dropped.
    _stays: oneshot::Sender<Infallible>,
}

impl UserThreads {
    /// The number of threads, at most.
    const MOST: usize = 64;

    /// Returns a user's thread. `None`: the limit is reached, or the system cannot start one.
    pub(crate) fn of(&self, uid: u32) -> Option<Arc<Thread>> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = users.get(&uid) {
            return Some(Arc::clone(thread));
        }
        if users.len() >= Self::MOST {
            // Threads that serve no connection end.
            users.retain(|_, thread| Arc::strong_count(thread) > 1);
        }
        if users.len() >= Self::MOST {
            return None;
        }
        let thread = Arc::new(Thread::start().ok()?);
        users.insert(uid, Arc::clone(&thread));
        Some(thread)
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stays, ended) = oneshot::channel();
        let (give, given) = std::sync::mpsc::channel::<Runtime>();
        let thread = std::thread::Builder::new().name("passed sockets".into());
        let started = thread.spawn(move || {
            if let Ok(runtime) = given.recv() {
                // Nothing is ever sent.
                let _ = runtime.block_on(ended);
            }
        });
        if let Err(error) = started {
            runtime.shutdown_background();
            return Err(error);
        }
        // The thread waits for its runtime.
        let _ = give.send(runtime);
        Ok(Self { handle, _stays: stays })
    }

    /// Runs a future on this thread, and waits for it. Dropping the wait cancels the future.
    pub(crate) async fn run(self: Arc<Self>, what: impl Future<Output = ()> + Send + 'static) {
        let mut one = JoinSet::new();
        one.spawn_on(what, &self.handle);
        one.join_next().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_few_and_make_room_for_each_other() {
        let user_threads = UserThreads::default();
        let busy: Vec<_> =
            (0..UserThreads::MOST as u32).map(|uid| user_threads.of(uid).unwrap()).collect();
        assert!(user_threads.of(1_000).is_none());
        assert!(Arc::ptr_eq(&busy[7], &user_threads.of(7).unwrap()));
        drop(busy);
        assert!(user_threads.of(1_000).is_some());
        assert_eq!(user_threads.users.lock().unwrap().len(), 1);
    }
}
