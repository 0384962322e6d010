//! A gate between Rejoin's own locks and fork(2).
//!
//! A child has the forking thread alone. A lock that another thread held, or a value that another thread was about to
//! make, stays as it is in the child for ever. So a thread [passes](pass) the gate while it holds or makes one, and
//! fork(2) waits, through `pthread_atfork`(3), until nobody is inside. Both wait a second at most.
//!
//! The handlers of `pthread_atfork` run in the reverse order of their registration. One that takes a lock, which a thread
//! takes inside, must run after the gate's: else the thread waits for the fork, and the fork for the thread. So whoever
//! brings such handlers registers them, and then calls [`enclose`].

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// The number of threads inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The number of forks that are being made.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// True once the handlers of fork(2) are registered.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);
/// The number of threads that a fork has awaited in vain, and that have not left since: something that entered may never
/// leave, such as a function that `longjmp` ended. Later forks wait for them, too, but not so long.
static STUCK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of passages of this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The number of times that a handler has begun this thread's fork.
    static BEGUN: Cell<usize> = const { Cell::new(0) };
}

/// A number that each fork changes in the child.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The steps of a wait, the longest one, and the longest one for those that are stuck.
const STEP: Duration = Duration::from_millis(1);
const STEPS: usize = 1_000;
const STEPS_FOR_STUCK: usize = 100;
const _: () = assert!(STEPS_FOR_STUCK < STEPS);

/// A thread's stay inside, which ends when it is dropped.
#[derive(Debug)]
pub struct Passage(PhantomData<*const ()>);

/// Enters. A thread that is inside may enter again.
pub fn pass() -> Passage {
    if !IS_WATCHED.load(Ordering::Acquire) {
        // Threads that come at the same time all register, because none may go on before.
        enclose();
    }
    let depth = DEPTH.get();
    if depth == 0 {
        enter();
    }
    DEPTH.set(depth + 1);
    Passage(PhantomData)
}

/// Has fork(2) wait at the gate before it runs the handlers that were registered until now. The gate's own may be
/// registered many times.
pub fn enclose() {
    // SAFETY: the handlers are static, and this library is never unloaded.
    unsafe { pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    IS_WATCHED.store(true, Ordering::Release);
}

impl Drop for Passage {
    fn drop(&mut self) {
        let depth = DEPTH.get().saturating_sub(1);
        DEPTH.set(depth);
        if depth == 0 {
            leave();
        }
    }
}

/// Returns a number that differs between a process and the children that it forks after it has [passed](pass).
pub fn forks() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// Runs `what` outside, where it may take long. The thread must hold nothing of Rejoin's.
pub fn outside<T>(what: impl FnOnce() -> T) -> T {
    /// Enters again, even if `what` panics.
    struct Back(usize);
    impl Drop for Back {
        fn drop(&mut self) {
            if self.0 > 0 {
                enter();
            }
            DEPTH.set(self.0);
        }
    }
    let _back = Back(DEPTH.replace(0));
    if _back.0 > 0 {
        leave();
    }
    what()
}

fn enter() {
    for _ in 0..STEPS {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) == 0 {
            return;
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(STEP);
    }
    INSIDE.fetch_add(1, Ordering::SeqCst);
}

fn leave() {
    let others = INSIDE.fetch_sub(1, Ordering::SeqCst).saturating_sub(1);
    if STUCK.load(Ordering::Relaxed) > others {
        STUCK.fetch_min(others, Ordering::Relaxed);
    }
}

fn own() -> usize {
    usize::from(DEPTH.get() > 0)
}

unsafe extern "C" fn before() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let begun = BEGUN.get();
    BEGUN.set(begun + 1);
    if begun > 0 {
        // The handlers that ran between may keep others from leaving.
        return;
    }
    let others = || INSIDE.load(Ordering::SeqCst).saturating_sub(own());
    for step in 0..STEPS {
        let others = others();
        let stuck = STUCK.fetch_min(others, Ordering::Relaxed);
        if others == 0 || others <= stuck && step >= STEPS_FOR_STUCK {
            return;
        }
        std::thread::sleep(STEP);
    }
    // This fork alone is given up: it goes on, as it would without the gate.
    STUCK.store(others(), Ordering::Relaxed);
}

unsafe extern "C" fn after_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
    BEGUN.set(BEGUN.get().saturating_sub(1));
}

unsafe extern "C" fn after_in_child() {
    FORKING.store(0, Ordering::SeqCst);
    INSIDE.store(own(), Ordering::SeqCst);
    STUCK.store(0, Ordering::Relaxed);
    BEGUN.set(0);
    // The handlers of one fork may be many, and any number that is new will do.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the value of a cell, and makes it inside the gate if necessary.
pub fn get_or_make<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    cell.get().unwrap_or_else(|| {
        let _inside = pass();
        cell.get_or_init(make)
    })
}

/// A value behind a lock whose holders are inside the gate.
#[derive(Debug)]
pub struct Gated<T>(Mutex<T>);

/// The lock of a [`Gated`] value. It is released before its holder leaves.
#[derive(Debug)]
pub struct Locked<'a, T>(MutexGuard<'a, T>, Passage);

impl<T> Gated<T> {
    /// Makes one.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Locked<'_, T> {
        let inside = pass();
        Locked(self.0.lock().unwrap_or_else(PoisonError::into_inner), inside)
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_enters_once_and_steps_outside() {
        let _one = pass();
        let _two = pass();
        assert_eq!(DEPTH.get(), 2);
        outside(|| {
            assert_eq!(DEPTH.get(), 0);
            let _again = pass();
            assert_eq!(DEPTH.get(), 1);
        });
        assert_eq!(DEPTH.get(), 2);
        assert!(INSIDE.load(Ordering::SeqCst) > 0);
    }

    /// Stays inside for a time, and notes when it leaves.
    fn stays(ms: u64, has_left: &AtomicBool) {
        let _inside = pass();
        std::thread::sleep(Duration::from_millis(ms));
        has_left.store(true, Ordering::SeqCst);
    }

    #[test]
    fn a_fork_that_waited_in_vain_is_given_up_alone() {
        let fork = || {
            // SAFETY: the handlers of one fork, of this thread.
            unsafe { before() };
            // SAFETY: the same.
            unsafe { after_in_parent() };
        };
        let (one, other) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let long = scope.spawn(|| stays(2_500, &one));
            std::thread::sleep(Duration::from_millis(200));
            fork();
            assert!(!one.load(Ordering::SeqCst), "it waits a second at most");
            long.join().expect("it leaves");
            scope.spawn(|| stays(500, &other));
            std::thread::sleep(Duration::from_millis(200));
            fork();
            assert!(other.load(Ordering::SeqCst), "later forks wait");
        });
    }
}
