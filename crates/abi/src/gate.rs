//! A gate between Rejoin's own locks and fork(2).
//!
//! A child has the forking thread alone. A lock that another thread held, or a value that another thread was about to
//! make, stays as it is in the child for ever. So a thread [passes](pass) the gate while it holds or makes one, and
//! fork(2) waits, through `pthread_atfork`(3), until nobody is inside. Both wait a second at most.

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
/// True once a fork has waited in vain: something that entered does not leave, such as a function that `longjmp`
/// ended.
static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The number of passages of this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The steps of a wait, and the longest one.
const STEP: Duration = Duration::from_millis(1);
const STEPS: usize = 1_000;

/// A thread's stay inside, which ends when it is dropped.
#[derive(Debug)]
pub struct Passage(PhantomData<*const ()>);

/// Enters. A thread that is inside may enter again.
pub fn pass() -> Passage {
    if !IS_WATCHED.load(Ordering::Acquire) {
        // Threads that come at the same time all register, because none may go on before. The handlers come in pairs.
        // SAFETY: the handlers are static, and this library is never unloaded.
        unsafe { pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
        IS_WATCHED.store(true, Ordering::Release);
    }
    let depth = DEPTH.get();
    if depth == 0 {
        enter();
    }
    DEPTH.set(depth + 1);
    Passage(PhantomData)
}

impl Drop for Passage {
    fn drop(&mut self) {
        let depth = DEPTH.get().saturating_sub(1);
        DEPTH.set(depth);
        if depth == 0 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
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
        INSIDE.fetch_sub(1, Ordering::SeqCst);
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

fn own() -> usize {
    usize::from(DEPTH.get() > 0)
}

unsafe extern "C" fn before() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    if IS_GIVEN_UP.load(Ordering::Relaxed) {
        return;
    }
    for _ in 0..STEPS {
        if INSIDE.load(Ordering::SeqCst) <= own() {
            return;
        }
        std::thread::sleep(STEP);
    }
    IS_GIVEN_UP.store(true, Ordering::Relaxed);
}

unsafe extern "C" fn after_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

unsafe extern "C" fn after_in_child() {
    FORKING.store(0, Ordering::SeqCst);
    INSIDE.store(own(), Ordering::SeqCst);
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
}
