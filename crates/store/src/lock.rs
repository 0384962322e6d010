//! A lock that lies in shared memory, and that survives its holders.
//!
//! It is a futex (`futex(2)`): one word, which is zero, or the number of the thread that holds it. When
//! a thread dies, the kernel checks the words of its robust list and marks those that it held
//! (`get_robust_list(2)`, and the kernel's `robust-futex-ABI`). The C library keeps the links of that
//! list beside each word, and so in shared memory, and follows them: a process that writes there can make a more
//! privileged process follow a wrong pointer. So this lock uses only the list's *pending* entry, which is for a lock
//! that is being taken or released, and lies in the thread's own memory: nothing that lies in a lock is ever
//! followed. The entry holds one lock, and no operation takes two.
//!
//! After a death, the next holder learns that the guarded data is torn. The same happens after a
//! panic, and after a process wrote a value that cannot be a thread's number. No thread waits for longer than
//! [`Lock::WAIT_MS`], whatever was written over the lock, nor together with the other threads of its process for longer
//! than its [`Patience`] lasts.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use libc::c_long;
use rustix::thread::futex;

use crate::patience::Patience;

/// A lock on cache lines of its own.
#[repr(C, align(128))]
pub(crate) struct Lock {
    word: AtomicU32,
    /// Zero if this is no lock. Zeros replace a file that was cut short.
    mark: AtomicU32,
}

/// The reason why a lock was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotHeld {
    /// Other threads held it all the time: now, or for [`Lock::WAIT_MS`].
    TimedOut,
    /// Other threads held it all the time until the process's patience was used up.
    Impatient,
    /// It is no lock: its memory was written over.
    Broken,
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    lock: &'a Lock,
    holder: Holder,
    /// An earlier holder was interrupted.
    pub(crate) torn: bool,
    /// Not to be sent, because the kernel reads the holder's own list.
    stays: PhantomData<*const ()>,
}

impl Lock {
    /// The longest wait, in milliseconds.
    pub(crate) const WAIT_MS: u64 = 100;
    /// The longest sleep, in microseconds: a wake-up is lost with a process that is killed just after it was woken.
    const NAP_US: u64 = 10_000;
    /// Attempts before the first sleep, which take longer than an operation.
    const SPINS: u32 = 20;
    const MARK: u32 = 0x6c6f_636b;
    const FREE: u32 = 0;
    /// The bit of the word that is set while a thread sleeps. This bit and the next are the kernel's.
    const WAITERS: u32 = 1 << 31;
    /// The bit of the word that is set after the holder died, or panicked.
    const ORPHANED: u32 = 1 << 30;
    /// The limit of thread numbers (`PID_MAX_LIMIT` of the kernel).
    const THREADS: u32 = 1 << 22;

    /// Makes a lock of zeros that no other process can see yet.
    pub(crate) fn initialise(&self) {
        self.mark.store(Self::MARK, Ordering::Relaxed);
    }

    /// Makes a lock of one that was zeroed. Its next holder learns that the data is torn. Returns false if a thread may
    /// hold it.
    ///
    /// Nobody takes a lock without its mark. So a thread in the middle of an operation began before the mark was zeroed,
    /// and the caller has waited for longer than an operation takes.
    pub(crate) fn mend(&self) -> bool {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if Self::is_held(word) {
                return self.mark.load(Ordering::Relaxed) != 0;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            if self.word.compare_exchange(word, Self::ORPHANED, success, failure).is_ok() {
                self.mark.store(Self::MARK, Ordering::Release);
                return true;
            }
        }
    }

    /// Takes the lock without waiting.
    #[inline]
    pub(crate) fn acquire_now(&self) -> Result<Held<'_>, NotHeld> {
        self.attempt(0)
    }

    /// Takes the lock if no living thread holds it, and leaves `waiters` in the word.
    #[inline]
    fn attempt(&self, waiters: u32) -> Result<Held<'_>, NotHeld> {
        if self.mark.load(Ordering::Relaxed) == 0 {
            return Err(NotHeld::Broken);
        }
        let holder = Holder::current();
        holder.announce(self);
        let mut seen = Self::FREE;
        loop {
            let mine = holder.id | waiters | (seen & Self::WAITERS);
            let took = self.word.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed);
            match took {
                Ok(before) => {
                    let torn = before & !Self::WAITERS != Self::FREE;
                    return Ok(Held { lock: self, holder, torn, stays: PhantomData });
                }
                Err(now) if Self::is_held(now) => {
                    holder.is_done();
                    return Err(NotHeld::TimedOut);
                }
                Err(now) => seen = now,
            }
        }
    }

    fn is_held(word: u32) -> bool {
        (1..Self::THREADS).contains(&(word & !Self::WAITERS))
    }

    /// Waits for the lock, up to [`Self::WAIT_MS`], and takes it. Adds the time asleep to `waited_us`. Calls `notice` after
    /// each sleep: the memory may be gone ([`Mapping::notice`](crate::mapping::Mapping::notice)).
    #[cold]
    pub(crate) fn wait(
        &self,
        patience: &Patience,
        waited_us: &AtomicU64,
        notice: impl Fn(),
    ) -> Result<Held<'_>, NotHeld> {
        for attempt in 0..Self::SPINS {
            // Every attempt takes the holder's cache line from it.
            (0..1 << attempt.min(5)).for_each(|_| std::hint::spin_loop());
            match self.attempt(0) {
                Err(NotHeld::TimedOut) => {}
                found => return found,
            }
        }
        let mut now = Instant::now();
        let until = now + Duration::from_millis(Self::WAIT_MS);
        while now < until {
            let nap_us = patience.lend(Self::NAP_US).ok_or(NotHeld::Impatient)?;
            self.sleep(Duration::from_micros(nap_us));
            notice();
            let awake = Instant::now();
            patience.settle(nap_us, awake - now);
            waited_us.fetch_add((awake - now).as_micros() as u64, Ordering::Relaxed);
            now = awake;
            match self.attempt(Self::WAITERS) {
                Err(NotHeld::TimedOut) => {}
                found => return found,
            }
        }
        Err(NotHeld::TimedOut)
    }

    /// Sleeps until the lock is released, or for so long.
    fn sleep(&self, nap: Duration) {
        let word = self.word.load(Ordering::Relaxed);
        let asleep = word | Self::WAITERS;
        if Self::is_held(word)
            && (word == asleep
                || self
                    .word
                    .compare_exchange(word, asleep, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok())
        {
            let nap = nap.try_into().ok();
            // The reason for the end of the sleep does not matter.
            let _ = futex::wait(&self.word, futex::Flags::empty(), asleep, nap.as_ref());
        }
    }

    /// Releases the lock, and leaves `free` in the word.
    #[inline]
    fn release(&self, free: u32) {
        if self.word.swap(free, Ordering::Release) & Self::WAITERS != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let _ = futex::wake(&self.word, futex::Flags::empty(), 1);
    }

    /// Destroys the lock.
    #[cfg(test)]
    pub(crate) fn scribble(&self) {
        self.mark.store(0, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock(…)")
    }
}

impl Held<'_> {
    /// Releases the lock after a complete operation. It is not called after a panic, so the next holder then finds
    /// the lock torn.
    #[inline]
    pub(crate) fn done(self) {
        self.lock.release(Lock::FREE);
        self.holder.is_done();
        std::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    #[cold]
    fn drop(&mut self) {
        self.lock.release(Lock::ORPHANED);
        self.holder.is_done();
    }
}

/// The head of a thread's robust list, in the thread's own memory. The kernel reads it when the thread dies.
#[repr(C)]
struct RobustList {
    first: usize,
    /// The distance from an entry to its word.
    offset: c_long,
    pending: Cell<usize>,
}

/// This thread's number and robust list.
#[derive(Debug, Clone, Copy)]
struct Holder {
    /// The value of [`FORKS`] when this was asked.
    forks: u32,
    id: u32,
    offset: c_long,
    /// `None` if the kernel has no list of this thread.
    pending: Option<NonNull<Cell<usize>>>,
}

thread_local! {
    static HOLDER: Cell<Option<Holder>> = const { Cell::new(None) };
}

/// The number of forks on the way to this process. A child's thread has another number.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

impl Holder {
    #[inline]
    fn current() -> Self {
        let known = HOLDER.get().filter(|known| known.forks == FORKS.load(Ordering::Relaxed));
        known.unwrap_or_else(Self::asked)
    }

    #[cold]
    fn asked() -> Self {
        static IS_TOLD: AtomicBool = AtomicBool::new(false);
        if !IS_TOLD.swap(true, Ordering::Relaxed) {
            // SAFETY: the function lives as long as the program, and may be called after a fork.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        }
        let mut head: *const RobustList = std::ptr::null();
        let mut bytes: usize = 0;
        let (thread, head_at, bytes_at) = (0, &raw mut head, &raw mut bytes);
        // SAFETY: the call writes to both, and zero stands for this thread.
        let told = unsafe { libc::syscall(libc::SYS_get_robust_list, thread, head_at, bytes_at) };
        let known = told == 0 && bytes == size_of::<RobustList>() && !head.is_null();
        // SAFETY: the C library registered the list with the kernel, and it lives as long as the thread.
        let list = known.then(|| unsafe { &*head });
        let holder = Self {
            forks: FORKS.load(Ordering::Relaxed),
            id: rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(),
            offset: list.map_or(0, |list| list.offset),
            pending: list.map(|list| NonNull::from(&list.pending)),
        };
        HOLDER.set(Some(holder));
        holder
    }

    /// Tells the kernel to check the lock if this thread dies.
    #[inline]
    fn announce(&self, lock: &Lock) {
        let word = lock.word.as_ptr() as usize;
        self.set_pending(word.wrapping_add_signed(-self.offset as isize));
        // The compiler must not move this: the kernel sees this thread's writes in order.
        compiler_fence(Ordering::SeqCst);
    }

    /// Tells the kernel that this thread holds no lock.
    #[inline]
    fn is_done(&self) {
        compiler_fence(Ordering::SeqCst);
        self.set_pending(0);
    }

    #[inline]
    fn set_pending(&self, entry: usize) {
        if let Some(pending) = self.pending {
            // SAFETY: this thread's own memory (a `Held` is not sent), which the kernel reads after the thread's end,
            // and the C library uses while it takes or releases a robust mutex.
            unsafe { pending.write_volatile(Cell::new(entry)) };
        }
    }
}

const _: () = {
    assert!(size_of::<Lock>() == 128);
    assert!(offset_of!(RobustList, pending) == 2 * size_of::<usize>());
};

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    use super::*;

    fn acquire(lock: &Lock) -> Result<Held<'_>, NotHeld> {
        lock.acquire_now()
            .or_else(|_| lock.wait(&Patience::default(), &AtomicU64::default(), || ()))
    }

    fn lock() -> Lock {
        let lock = Lock { word: 0.into(), mark: 0.into() };
        lock.initialise();
        lock
    }

    #[test]
    fn one_at_a_time_and_nobody_waits_for_ever() {
        let lock = lock();
        let held = acquire(&lock).expect("free");
        assert!(!held.torn);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| acquire(&lock).map(|held| held.torn));
            assert_eq!(other.join().expect("no panic"), Err(NotHeld::TimedOut));
        });
        assert!(start.elapsed() >= Duration::from_millis(Lock::WAIT_MS));
        assert_eq!(acquire(&lock).map(|held| held.torn).err(), Some(NotHeld::TimedOut), "same one");
        held.done();
        assert!(!acquire(&lock).expect("free again").torn);
    }

    #[test]
    fn who_waits_is_woken() {
        let lock = lock();
        let held = acquire(&lock).expect("free");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| acquire(&lock).map(|held| held.torn));
            while lock.word.load(Ordering::Relaxed) & Lock::WAITERS == 0 {
                std::thread::yield_now();
            }
            held.done();
            assert_eq!(other.join().expect("no panic"), Ok(false));
        });
    }

    #[test]
    fn a_thread_that_ends_or_panics_with_it_tears() {
        let lock = lock();
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(acquire(&lock).expect("free")));
        });
        let held = acquire(&lock).expect("its holder is gone");
        assert!(held.torn);
        held.done();
        acquire(&lock).map(|held| assert!(!held.torn, "told once")).expect("free");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = acquire(&lock).expect("free");
            panic!("in the middle");
        }));
        assert!(panicked.is_err());
        let held = acquire(&lock).expect("its holder is gone");
        assert!(held.torn);
        held.done();
        acquire(&lock).map(|held| assert!(!held.torn, "told once")).expect("free");
    }

    #[test]
    fn one_at_a_time_where_many_want_it() {
        const TIMES: u64 = 20_000;
        let (lock, count) = (lock(), AtomicU64::new(0));
        let add = || {
            for _ in 0..TIMES {
                let held = loop {
                    if let Ok(held) = acquire(&lock) {
                        break held;
                    }
                };
                // In two steps: another in between would be lost.
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                held.done();
            }
        };
        std::thread::scope(|scope| {
            let all = [(); 4].map(|()| scope.spawn(add));
            // Joined one by one, which ThreadSanitizer sees.
            all.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        assert_eq!((count.into_inner(), lock.word.into_inner()), (4 * TIMES, Lock::FREE));
    }

    #[test]
    fn a_child_has_a_number_of_its_own_and_the_kernel_knows_it() {
        let flags = rustix::mm::MapFlags::SHARED;
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let page = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), size_of::<Lock>(), protection, flags)
        };
        // SAFETY: a page of zeros, which are valid, and which stays.
        let lock: &Lock = unsafe { &*page.expect("a page").cast() };
        lock.initialise();
        acquire(lock).map(Held::done).expect("free");
        // SAFETY: the child touches shared memory, and dies.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::mem::forget(acquire(lock));
            // SAFETY: it ends this process.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        // SAFETY: it waits for the child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(lock.word.load(Ordering::Relaxed), Lock::ORPHANED, "the child's own number");
        assert!(acquire(lock).is_ok_and(|held| held.torn));
    }

    #[test]
    fn whatever_is_written_over_it_somebody_is_told() {
        for impossible in [Lock::ORPHANED, Lock::ORPHANED | 7, Lock::THREADS, !0, !Lock::WAITERS] {
            let lock = lock();
            lock.word.store(impossible, Ordering::Relaxed);
            let held = acquire(&lock).expect("nobody has it");
            assert!(held.torn, "{impossible:x}");
            held.done();
            assert!(acquire(&lock).is_ok_and(|held| !held.torn), "{impossible:x}");
        }
        let lock = lock();
        lock.word.store(Lock::THREADS - 1, Ordering::Relaxed);
        assert_eq!(acquire(&lock).err(), Some(NotHeld::TimedOut), "that may be a thread");
        lock.scribble();
        assert_eq!(acquire(&lock).err(), Some(NotHeld::Broken));
    }
}
