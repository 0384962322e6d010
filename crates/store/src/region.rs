//! The memory of a cache that processes share.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rejoin_cache::{Ledger, Line, Region};

use crate::clock::now_ms;
use crate::desk::count;
use crate::division::Division;
use crate::figures::Figures;
use crate::lock::{Held, Lock, NotHeld};
use crate::mapping::Mapping;
use crate::trouble::Trouble;

/// A shard's region in shared memory, with a lock that survives its holders. A process that ends
/// leaves the sessions to the others, and to those that come after.
#[derive(Debug, Clone)]
pub struct SharedRegion {
    mapping: Arc<Mapping>,
    lock: usize,
    start: usize,
    lines: usize,
    state: Arc<LockState>,
}

/// One process's experience with a lock.
#[derive(Debug, Default)]
struct LockState {
    /// This process waited for the lock in vain, so its holder may be stopped. No thread of this process waits for it
    /// until it is taken again, or one stopped process would cost every handshake a tenth of a second. Also set while
    /// the lock is none.
    stuck: AtomicBool,
    /// The time since when the lock is none, or of the last attempt to mend it. Zero: it is one.
    broken_ms: AtomicU64,
}

/// A cache's ledger in shared memory.
#[derive(Debug, Clone)]
pub struct SharedLedger {
    mapping: Arc<Mapping>,
    start: usize,
}

impl SharedRegion {
    /// Returns the region of a shard, or of the page for the caller (`None`).
    pub(crate) fn new(mapping: &Arc<Mapping>, division: &Division, shard: Option<usize>) -> Self {
        let page = (Division::PAGE, Division::PAGE_BYTES / size_of::<Line>());
        let (start, lines) = shard.map_or(page, |shard| division.regions[shard]);
        Self::at(mapping, division.locks[shard.map_or(0, |shard| shard + 1)], start, lines)
    }

    /// Returns a region of `lines` from `start` on, under the lock at `lock`.
    pub(crate) fn at(mapping: &Arc<Mapping>, lock: usize, start: usize, lines: usize) -> Self {
        Self { mapping: Arc::clone(mapping), lock, start, lines, state: Arc::default() }
    }

    pub(crate) fn lock(&self) -> &Lock {
        self.mapping.at(self.lock)
    }

    #[inline]
    fn acquire(&self) -> Option<Held<'_>> {
        let held = match self.lock().acquire_now() {
            Ok(held) => held,
            Err(why) => self.acquire_late(why)?,
        };
        if self.state.stuck.load(Ordering::Relaxed) {
            self.state.broken_ms.store(0, Ordering::Relaxed);
            self.state.stuck.store(false, Ordering::Relaxed);
        }
        Some(held)
    }

    /// Takes a lock that could not be taken at once.
    #[cold]
    fn acquire_late(&self, why: NotHeld) -> Option<Held<'_>> {
        let figures: &Figures = self.mapping.at(Division::FIGURES);
        let is_worth_waiting = why != NotHeld::Broken && !self.state.stuck.load(Ordering::Relaxed);
        let held = if is_worth_waiting {
            let Mapping { patience, .. } = &*self.mapping;
            self.lock().wait(patience, &figures.lock_waited_us, || self.mapping.notice())
        } else {
            Err(why)
        };
        count(match held {
            Ok(_) => &figures.lock_waits,
            Err(NotHeld::Broken) => &figures.locks_broken,
            Err(NotHeld::TimedOut) if is_worth_waiting => &figures.lock_timeouts,
            Err(NotHeld::TimedOut | NotHeld::Impatient) => &figures.lock_skips,
        });
        self.state.stuck.store(held.is_err(), Ordering::Relaxed);
        held.or_else(|why| if why == NotHeld::Broken { self.mend() } else { Err(why) }).ok()
    }

    /// Mends the lock, and takes it, if it was zeroed for longer than any operation takes.
    fn mend(&self) -> Result<Held<'_>, NotHeld> {
        let (now_ms, broken_ms) = (now_ms(), &self.state.broken_ms);
        let since_ms = broken_ms.load(Ordering::Relaxed);
        if since_ms == 0 {
            broken_ms.store(now_ms, Ordering::Relaxed);
        }
        let is_cut_short = self.mapping.alarm.has_raised(Trouble::CutShort);
        if is_cut_short || since_ms == 0 || now_ms < since_ms + Lock::WAIT_MS {
            return Err(NotHeld::Broken);
        }
        broken_ms.store(now_ms, Ordering::Relaxed);
        let is_there = self.mapping.has_room(self.lock, size_of::<Lock>())
            && self.mapping.has_room(self.start, self.lines * size_of::<Line>());
        if is_there && self.lock().mend() {
            return self.lock().acquire_now();
        }
        self.mapping.alarm.raise(Trouble::LockLost);
        Err(NotHeld::Broken)
    }

    /// Runs an operation like [`Region::with`], but waits no longer than another operation takes.
    pub(crate) fn with_soon<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> Option<T> {
        const ATTEMPTS: u32 = 200;
        let attempt = |_| {
            std::hint::spin_loop();
            self.lock().acquire_now().ok()
        };
        let held = (0..ATTEMPTS).find_map(attempt)?;
        // SAFETY: every process takes the lines only here and in `with`, and the lock is held.
        let lines = unsafe { self.mapping.lines(self.start, self.lines) };
        let result = operation(lines, held.torn);
        held.done();
        Some(result)
    }
}

impl Region for SharedRegion {
    type Ledger = SharedLedger;
    const OUTLIVES_CACHE: bool = true;

    #[inline]
    fn with<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> Option<T> {
        let held = self.acquire()?;
        // SAFETY: every process takes the lines only here and in `with_soon`, and the lock is held.
        let lines = unsafe { self.mapping.lines(self.start, self.lines) };
        let result = operation(lines, held.torn);
        held.done();
        Some(result)
    }

    #[cold]
    fn emptied(&self) {
        self.mapping.alarm.raise(Trouble::Damaged);
    }
}

impl SharedLedger {
    pub(crate) fn new(mapping: &Arc<Mapping>, division: &Division) -> Self {
        Self { mapping: Arc::clone(mapping), start: division.ledger }
    }
}

impl Deref for SharedLedger {
    type Target = Ledger;

    #[inline]
    fn deref(&self) -> &Ledger {
        self.mapping.at(self.start)
    }
}

#[cfg(test)]
mod tests {
    use rejoin_cache::{Cache, Capacity, ContextTag, Layout, Policy, Prediction, Settings};
    use rejoin_cache::{NewSession, SecretBytes, SessionId};
    use rejoin_testkit::cache_model::plan::Plan;
    use rejoin_testkit::random::Random;

    use super::*;

    /// An empty cache in a mapping of its own, and its regions.
    fn mapped(
        settings: &Settings,
        hash_key: [u8; 16],
        now_ms: u64,
    ) -> (Cache<SharedRegion>, Vec<SharedRegion>) {
        let division = Division::of(&Layout::for_cache(settings).expect("settings"), false);
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("test", flags).expect("a file in memory");
        rustix::fs::ftruncate(&file, division.bytes as u64).expect("room");
        let mapping = Arc::new(Mapping::new(&file, division.bytes, true).expect("mapped"));
        let regions: Vec<_> = (0..division.regions.len())
            .map(|shard| SharedRegion::new(&mapping, &division, Some(shard)))
            .collect();
        regions.iter().for_each(|region| region.lock().initialise());
        let ledger = SharedLedger::new(&mapping, &division);
        let mut shards = regions.iter().cloned();
        let region = |_: &Layout| shards.next().expect("one per layout");
        let cache = Cache::over(settings, hash_key, ledger, region).expect("settings");
        cache.format(now_ms);
        (cache, regions)
    }

    #[test]
    fn agrees_with_the_model() {
        let plans = [
            (Policy::Predictive, Prediction::Hint, 3, 1),
            (Policy::Predictive, Prediction::Learned, 64, 4),
            (Policy::Predictive, Prediction::Both, 250, 1),
            (Policy::Lru, Prediction::Both, 17, 4),
        ];
        for (seed, (policy, prediction, sessions, shards)) in (1..).zip(plans) {
            let settings = Settings {
                policy,
                prediction,
                block_bytes: 64,
                shards: Some(shards),
                ..Settings::new(Capacity::Sessions(sessions))
            };
            let clients = 3 * sessions as u16 + 6;
            let (operations, pace_bits, back, counters_every) = (100_000, 9, seed % 2 == 0, 8);
            let plan =
                Plan { settings, seed, operations, clients, pace_bits, back, counters_every };
            let happened = plan.run_on(|settings, key, now_ms| mapped(settings, key, now_ms).0);
            assert!(happened.counters.hits > 3_000, "hardly exercised: {happened:?}");
        }
    }

    fn session(client: u8) -> NewSession<'static> {
        let id = SessionId::new(&[client; 32]).expect("32 bytes");
        NewSession::new(id, &[7; 150], 1_000_000, ContextTag(1))
    }

    /// A child that dies by SIGKILL in the middle of `operation`.
    fn die_in(region: &SharedRegion, operation: impl FnOnce(&mut [Line])) {
        // SAFETY: the child touches shared memory, and dies.
        let child = unsafe { libc::fork() };
        if child == 0 {
            region.with(|lines, _| {
                operation(lines);
                // SAFETY: it ends this process.
                unsafe { libc::raise(libc::SIGKILL) };
            });
        }
        assert!(child > 0, "forked");
        let mut status = 0;
        // SAFETY: it waits for the child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(libc::WIFSIGNALED(status));
    }

    #[test]
    fn a_death_in_the_middle_costs_one_shard() {
        let settings = Settings { shards: Some(4), ..Settings::new(Capacity::Sessions(400)) };
        let (cache, regions) = mapped(&settings, [3; 16], 0);
        (0..200).for_each(|client| assert!(cache.insert(1, &session(client)).is_ok()));
        let before: Vec<u64> =
            cache.check().iter().map(|shard| shard.map_or(0, |of| of.sessions)).collect();
        die_in(&regions[2], |lines| lines[9..43].fill(bytemuck::cast([0x5a_u8; 64])));
        let mut value = SecretBytes::default();
        let there = |client: &u8| {
            let NewSession { id, context, .. } = session(*client);
            cache.peek(2, &id, context, &mut value)
        };
        assert_eq!((0..200).filter(there).count() as u64, 200 - before[2]);
        assert_eq!(cache.emptied(), 1);
        let after: Vec<u64> =
            cache.check().iter().map(|shard| shard.map_or(0, |of| of.sessions)).collect();
        assert_eq!(after, [before[0], before[1], 0, before[3]]);
        (0..200).for_each(|client| assert!(cache.insert(3, &session(client)).is_ok()));
        assert!(cache.check().iter().all(Result::is_ok));
    }

    #[test]
    fn who_waited_in_vain_waits_no_more_until_the_lock_is_free() {
        let settings = Settings { shards: Some(1), ..Settings::new(Capacity::Sessions(10)) };
        let (cache, regions) = mapped(&settings, [3; 16], 0);
        let insert = |client| cache.insert(1, &session(client)).is_ok();
        let start = std::time::Instant::now();
        regions[0].with(|_, _| (0..100).for_each(|client| assert!(!insert(client))));
        let waited_ms = start.elapsed().as_millis() as u64;
        assert!((Lock::WAIT_MS..20 * Lock::WAIT_MS).contains(&waited_ms), "{waited_ms} ms");
        assert!(insert(1), "it is had again");
    }

    #[test]
    fn a_lock_that_is_none_costs_its_shard() {
        let settings = Settings { shards: Some(1), ..Settings::new(Capacity::Sessions(10)) };
        let (cache, regions) = mapped(&settings, [3; 16], 0);
        regions[0].lock().scribble();
        let refused = cache.insert(1, &session(1));
        assert_eq!(refused, Err(rejoin_cache::Refusal::Unavailable));
        let NewSession { id, context, .. } = session(1);
        assert!(!cache.get(1, &id, context, &mut SecretBytes::default()).found);
        let figures: &Figures = regions[0].mapping.at(Division::FIGURES);
        assert_eq!(figures.locks_broken.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_ledger_may_hold_anything() {
        let settings = Settings { shards: Some(1), ..Settings::new(Capacity::Sessions(20)) };
        let (cache, regions) = mapped(&settings, [3; 16], 0);
        let layouts = Layout::for_cache(&settings).expect("settings");
        let (start, lines) = (Division::of(&layouts, false).ledger, size_of::<Ledger>() / 64);
        let mut random = Random::new(1);
        for round in 0..300 {
            // SAFETY: nobody else uses the ledger now.
            let words = unsafe { regions[0].mapping.lines(start, lines) };
            let words: &mut [u32] = bytemuck::cast_slice_mut(words);
            let bits = random.one_of(&[1, 8, 32]);
            words.fill_with(|| if random.once_in(2) { 0 } else { random.of_any_size(bits) as u32 });
            for step in 0..300 {
                let now_ms = round * 1_000 + step;
                let new = NewSession { expires_ms: u64::MAX, ..session(random.below(60) as u8) };
                let mut value = SecretBytes::default();
                let found = cache.get(now_ms, &new.id, new.context, &mut value).found;
                assert!(!found || *value == *new.value);
                let _ = cache.insert(now_ms, &new);
            }
        }
        assert!(cache.check().iter().all(Result::is_ok) && cache.emptied() == 0);
    }
}
