//! A lock that lies in shared memory, and that survives its holders.
//!
//! It is a POSIX mutex, process-shared and robust: when a process dies that holds one, the kernel
//! says so to the next who asks (`pthread_mutexattr_setrobust(3)`), who is then told that what the
//! lock guards is torn. The same is said after a panic. Nobody waits for longer than
//! [`Lock::WAIT_MS`], whatever was scribbled on the lock's memory before, and a lock is initialised
//! before anybody else can see it and never again.
//!
//! What is not promised: a robust mutex keeps pointers to its holder's others in its own memory, and
//! the C library follows them. Somebody who writes to a lock between our look at it and its being
//! given back can crash its holder, and perhaps do as much as somebody with a debugger, to processes
//! of more rights, too: all it takes is the mapping, which a server's workers inherit.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use rustix::time::{ClockId, clock_gettime};

/// As the C library's mutex, in words.
const MUTEX_WORDS: usize = size_of::<libc::pthread_mutex_t>() / size_of::<u32>();

unsafe extern "C" {
    /// As `pthread_mutex_timedlock`, on a clock that is never set (glibc 2.30).
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> libc::c_int;
}

/// See the module's documentation. On cache lines of its own.
#[repr(C, align(128))]
pub(crate) struct Lock {
    mutex: [AtomicU32; MUTEX_WORDS],
    /// Not zero while an operation is under way.
    busy: AtomicU32,
}

/// Why a lock was not had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotHeld {
    /// Somebody else has had it for all that time.
    TimedOut,
    /// It is no lock: somebody wrote to its memory.
    Broken,
}

/// How a lock was had.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    lock: &'a Lock,
    /// Somebody was interrupted who held it.
    pub(crate) torn: bool,
    /// Somebody else had it at first.
    pub(crate) waited: bool,
    /// The thread that locked a mutex must unlock it: not to be sent.
    stays: PhantomData<*const ()>,
}

impl Lock {
    /// Nobody waits for longer, in milliseconds.
    pub(crate) const WAIT_MS: u64 = 100;
    /// Who sleeps looks again after so many milliseconds: a wake-up can be lost together with a
    /// process that was killed when it had just been woken.
    const NAP_MS: u64 = 10;
    /// Attempts before going to sleep. Operations are shorter than that takes.
    const SPINS: u32 = 20;

    /// Makes a lock of zeros, which nobody else can see yet.
    pub(crate) fn initialise(&self) {
        template().iter().zip(&self.mutex).for_each(|(word, to)| {
            to.store(*word, Ordering::Relaxed);
        });
    }

    /// Waits until nobody else has it, but not for long.
    #[inline]
    pub(crate) fn acquire(&self) -> Result<Held<'_>, NotHeld> {
        self.acquire_or(Self::wait)
    }

    /// As [`Self::acquire`], without waiting.
    pub(crate) fn acquire_now(&self) -> Result<Held<'_>, NotHeld> {
        self.acquire_or(|_| Err(NotHeld::TimedOut))
    }

    #[inline]
    fn acquire_or<'a>(
        &'a self,
        otherwise: impl FnOnce(&'a Self) -> Result<Held<'a>, NotHeld>,
    ) -> Result<Held<'a>, NotHeld> {
        if !self.is_sound() {
            return Err(NotHeld::Broken);
        }
        // SAFETY: a mutex of the kind that `initialise` writes, in memory that stays mapped.
        let result = unsafe { libc::pthread_mutex_trylock(self.mutex()) };
        if result == libc::EBUSY { otherwise(self) } else { self.held(result, false) }
    }

    #[cold]
    fn wait(&self) -> Result<Held<'_>, NotHeld> {
        for attempt in 0..Self::SPINS {
            // Every attempt takes the holder's cache line from it.
            (0..1 << attempt.min(5)).for_each(|_| std::hint::spin_loop());
            // SAFETY: as in `acquire`.
            let result = unsafe { libc::pthread_mutex_trylock(self.mutex()) };
            if result != libc::EBUSY {
                return self.held(result, true);
            }
        }
        for _ in 0..Self::WAIT_MS / Self::NAP_MS {
            let until = in_ms(Self::NAP_MS);
            // SAFETY: as in `acquire`; `until` is a time.
            let result = unsafe {
                pthread_mutex_clocklock(self.mutex(), libc::CLOCK_MONOTONIC, &raw const until)
            };
            if result != libc::ETIMEDOUT {
                return self.held(result, true);
            }
        }
        Err(NotHeld::TimedOut)
    }

    #[inline]
    fn held(&self, result: libc::c_int, waited: bool) -> Result<Held<'_>, NotHeld> {
        let died = match result {
            0 => false,
            libc::EOWNERDEAD => {
                // SAFETY: the mutex is held, and its last holder died.
                unsafe { libc::pthread_mutex_consistent(self.mutex()) };
                true
            }
            _ => return Err(NotHeld::Broken),
        };
        let torn = died | (self.busy.load(Ordering::Relaxed) != 0);
        self.busy.store(1, Ordering::Relaxed);
        // What follows must not be found done by somebody who does not find the mark.
        compiler_fence(Ordering::SeqCst);
        Ok(Held { lock: self, torn, waited, stays: PhantomData })
    }

    /// Whether this is the kind of mutex that `initialise` writes: of another the C library makes
    /// demands, and may stop the program where they are not met.
    #[inline]
    fn is_sound(&self) -> bool {
        let pairs = template().iter().zip(&self.mutex);
        pairs.filter(|(word, _)| **word != 0).all(|(word, of)| of.load(Ordering::Relaxed) == *word)
    }

    /// Makes something of it that is no lock.
    #[cfg(test)]
    pub(crate) fn scribble(&self) {
        self.mutex.iter().for_each(|word| word.store(0x5a5a_5a5a, Ordering::Relaxed));
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        self.mutex.as_ptr().cast_mut().cast()
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock(…)")
    }
}

impl Held<'_> {
    /// What was begun is done: who is next is told nothing. After a panic this is not called.
    #[inline]
    pub(crate) fn done(self) {
        compiler_fence(Ordering::SeqCst);
        self.lock.busy.store(0, Ordering::Relaxed);
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this thread holds the mutex: a `Held` is not made without, nor sent.
        unsafe { libc::pthread_mutex_unlock(self.lock.mutex()) };
    }
}

fn in_ms(ms: u64) -> libc::timespec {
    let now = clock_gettime(ClockId::Monotonic);
    let ns = now.tv_nsec as u64 + ms * 1_000_000;
    libc::timespec {
        tv_sec: now.tv_sec + (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// A free mutex, process-shared and robust, as the C library initialises it.
fn template() -> &'static [u32; MUTEX_WORDS] {
    static TEMPLATE: OnceLock<[u32; MUTEX_WORDS]> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let mut words = [0_u64; MUTEX_WORDS.div_ceil(2)];
        let mutex: *mut libc::pthread_mutex_t = words.as_mut_ptr().cast();
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: room for attributes.
        unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) };
        let shared = libc::PTHREAD_PROCESS_SHARED;
        // SAFETY: initialised attributes.
        unsafe { libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), shared) };
        let robust = libc::PTHREAD_MUTEX_ROBUST;
        // SAFETY: initialised attributes.
        unsafe { libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), robust) };
        // SAFETY: room for a mutex, as aligned as one, and initialised attributes. The mutex is
        // free, so that its bytes are all there is to it.
        unsafe { libc::pthread_mutex_init(mutex, attributes.as_ptr()) };
        let words: &[u32] = bytemuck::cast_slice(&words);
        std::array::from_fn(|at| words[at])
    })
}

const _: () = {
    assert!(size_of::<libc::pthread_mutex_t>().is_multiple_of(size_of::<u64>()));
    assert!(align_of::<libc::pthread_mutex_t>() <= align_of::<u64>());
    assert!(size_of::<Lock>() == 128);
};

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    use super::*;

    fn lock() -> Lock {
        let lock = Lock { mutex: [const { AtomicU32::new(0) }; MUTEX_WORDS], busy: 0.into() };
        lock.initialise();
        lock
    }

    #[test]
    fn one_at_a_time_and_nobody_waits_for_ever() {
        let lock = lock();
        let held = lock.acquire().expect("free");
        assert!(!held.torn && !held.waited);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.acquire().map(|held| held.torn));
            assert_eq!(other.join().expect("no panic"), Err(NotHeld::TimedOut));
        });
        assert!(start.elapsed() >= Duration::from_millis(Lock::WAIT_MS));
        assert_eq!(lock.acquire().map(|held| held.torn).err(), Some(NotHeld::TimedOut), "same one");
        held.done();
        assert!(!lock.acquire().expect("free again").torn);
    }

    #[test]
    fn who_waited_says_so() {
        let lock = lock();
        let held = lock.acquire().expect("free");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.acquire().map(|held| held.waited));
            std::thread::sleep(Duration::from_millis(20));
            held.done();
            assert_eq!(other.join().expect("no panic"), Ok(true));
        });
    }

    #[test]
    fn a_thread_that_ends_or_panics_with_it_tears() {
        let lock = lock();
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(lock.acquire().expect("free")));
        });
        let held = lock.acquire().expect("its holder is gone");
        assert!(held.torn);
        held.done();
        lock.acquire().map(|held| assert!(!held.torn, "told once")).expect("free");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = lock.acquire().expect("free");
            panic!("in the middle");
        }));
        assert!(panicked.is_err());
        let held = lock.acquire().expect("its holder is gone");
        assert!(held.torn);
        held.done();
        lock.acquire().map(|held| assert!(!held.torn, "told once")).expect("free");
    }

    #[test]
    fn whatever_is_written_over_it_somebody_is_told() {
        let mut state = 1_u32;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        for round in 0..2_000 {
            let lock = lock();
            // Every fourth time the kind of mutex is left alone.
            let kinds = template().map(|word| word != 0 && round % 4 == 0);
            for (word, keep) in lock.mutex.iter().zip(kinds) {
                if !keep {
                    word.store(random(), Ordering::Relaxed);
                }
            }
            // Mostly it is held by nobody who lives: the kernel would be asked to wait.
            lock.mutex[0].store((random() % 2) << 30, Ordering::Relaxed);
            let _ = lock.acquire().map(|held| held.torn);
        }
    }
}
