//! The cache: shards, each used by one at a time.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::Counters;
use crate::error::{Error, Refusal};
use crate::id::{ContextTag, Key, SessionId};
use crate::interval::Interval;
use crate::layout::{Layout, Line};
use crate::return_time::ReturnTimes;
use crate::secret::SecretBytes;
use crate::settings::Settings;
use crate::shard::{Arrival, Inserted, NewSession, Shard};

/// Memory that can hold a shard: a heap allocation, or a mapping.
///
/// The lines must stay where and what they are between uses, and be nobody else's during one.
pub trait Memory: Send {
    /// The region.
    fn lines(&mut self) -> &mut [Line];
}

/// A shard's memory, and what makes its users take turns.
pub trait Region {
    /// Uses the memory, alone. `torn` says that somebody was interrupted while using it: nothing
    /// in it can be trusted.
    fn with<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> T;
}

/// For any number of threads.
impl<M: Memory> Region for Mutex<M> {
    #[inline]
    fn with<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> T {
        let (mut memory, torn) = match self.lock() {
            Ok(memory) => (memory, false),
            Err(error) => {
                // A thread panicked in the middle of an operation.
                self.clear_poison();
                (error.into_inner(), true)
            }
        };
        operation(memory.lines(), torn)
    }
}

/// For one thread, which needs no lock: a simulator's.
impl<M: Memory> Region for RefCell<M> {
    #[inline]
    fn with<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> T {
        operation(self.borrow_mut().lines(), false)
    }
}

impl Memory for Vec<Line> {
    fn lines(&mut self) -> &mut [Line] {
        self
    }
}

/// Memory on the heap, which the operating system zeroes as it is first used. (An allocation
/// aligned to lines would be zeroed at once.)
pub struct HeapMemory {
    words: Vec<u64>,
    /// The first word on a line's border.
    start: usize,
    lines: usize,
}

impl HeapMemory {
    const WORDS_PER_LINE: usize = size_of::<Line>() / size_of::<u64>();

    fn new(lines: usize) -> Result<Self, Error> {
        let bytes = (lines * size_of::<Line>()) as u64;
        let words: Vec<u64> = bytemuck::try_zeroed_vec((lines + 1) * Self::WORDS_PER_LINE)
            .map_err(|()| Error::OutOfMemory { bytes })?;
        let start = words.as_ptr().align_offset(align_of::<Line>());
        Ok(Self { words, start, lines })
    }
}

impl Memory for HeapMemory {
    fn lines(&mut self) -> &mut [Line] {
        let words = &mut self.words[self.start..][..self.lines * Self::WORDS_PER_LINE];
        bytemuck::cast_slice_mut(words)
    }
}

impl std::fmt::Debug for HeapMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeapMemory({} lines)", self.lines)
    }
}

/// A session cache: by default on the heap, for any number of threads. Every operation runs alone
/// in the one shard that the session id belongs to, for well under a microsecond; to evict one
/// where clients of every interval and trust mix takes several. What is learned of return times
/// takes [`ReturnTimes::BYTES`] beside the shards.
pub struct Cache<R: Region = Mutex<HeapMemory>> {
    shards: Box<[Placed<R>]>,
    hash_key: [u8; 16],
    return_times: ReturnTimes,
    forged: AtomicU64,
}

/// On cache lines of its own, so that neighbours' locks do not share one.
#[repr(align(128))]
struct Placed<R> {
    layout: Layout,
    region: R,
}

impl Cache {
    /// A cache on the heap. `hash_key` must be random: with it nobody can choose ids that fall
    /// on one place of the index. Memory is touched as it is first used.
    ///
    /// # Errors
    /// Settings that make no cache, or more memory than there is.
    pub fn new(settings: &Settings, hash_key: [u8; 16], now_ms: u64) -> Result<Self, Error> {
        Self::on_heap(settings, hash_key, now_ms, Mutex::new)
    }
}

impl Cache<RefCell<HeapMemory>> {
    /// As [`Cache::new`], for one thread alone, which saves it the locks.
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub fn unshared(settings: &Settings, hash_key: [u8; 16], now_ms: u64) -> Result<Self, Error> {
        Self::on_heap(settings, hash_key, now_ms, RefCell::new)
    }
}

impl<R: Region> Cache<R> {
    /// A cache on regions that the caller brings, all zeros, one per layout.
    ///
    /// # Errors
    /// Settings that make no cache.
    pub fn on(
        settings: &Settings,
        hash_key: [u8; 16],
        now_ms: u64,
        mut region: impl FnMut(&Layout) -> R,
    ) -> Result<Self, Error> {
        let layouts = Layout::for_cache(settings)?.into_iter();
        let placed = layouts.map(|layout| Placed { region: region(&layout), layout });
        Ok(Self::assemble(settings, hash_key, now_ms, placed.collect()))
    }

    fn on_heap(
        settings: &Settings,
        hash_key: [u8; 16],
        now_ms: u64,
        region: impl Fn(HeapMemory) -> R,
    ) -> Result<Self, Error> {
        let layouts = Layout::for_cache(settings)?.into_iter();
        let placed = layouts.map(|layout| {
            Ok(Placed { region: region(HeapMemory::new(layout.region_lines())?), layout })
        });
        Ok(Self::assemble(settings, hash_key, now_ms, placed.collect::<Result<_, _>>()?))
    }

    fn assemble(
        settings: &Settings,
        hash_key: [u8; 16],
        now_ms: u64,
        shards: Box<[Placed<R>]>,
    ) -> Self {
        for Placed { layout, region } in &shards {
            region.with(|lines, _| Shard::format(lines, layout, now_ms));
        }
        let sessions = shards.iter().map(|shard| shard.layout.sessions()).sum();
        let prior = Interval::from_ms(settings.prior_ms);
        let return_times = ReturnTimes::new(sessions, prior);
        Self { shards, hash_key, return_times, forged: AtomicU64::new(0) }
    }

    /// A client presents `id` in `context`. A session found is copied to `value`, and its client
    /// expected again by what is known of it until [`Self::hint`] says more.
    pub fn get(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        self.with(id, |shard, key| shard.get(now_ms, key, context, value))
    }

    /// Copies a session to `value` again, for the client that just presented it: leaves no trace.
    pub fn peek(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> bool {
        self.with(id, |shard, key| shard.peek(now_ms, key, context, value))
    }

    /// As [`Self::get`], and the session is gone afterwards: nobody gets it twice.
    pub fn take(
        &self,
        now_ms: u64,
        id: &SessionId,
        context: ContextTag,
        value: &mut SecretBytes,
    ) -> Arrival {
        self.with(id, |shard, key| shard.take(now_ms, key, context, value))
    }

    /// Stores a session, evicting others as the policy allows; one of the same id is replaced.
    ///
    /// # Errors
    /// The reason it was not stored.
    pub fn insert(&self, now_ms: u64, new: &NewSession<'_>) -> Result<Inserted, Refusal> {
        self.with(&new.id, |shard, key| shard.insert(now_ms, key, new))
    }

    /// The application says that the client of this session comes back in `interval_ms`. Returns
    /// whether the session is there.
    pub fn hint(&self, now_ms: u64, id: &SessionId, interval_ms: u64) -> bool {
        self.with(id, |shard, key| shard.hint(now_ms, key, interval_ms))
    }

    /// The client of this session holds a newer one: it is kept only while there is room to spare.
    /// Under the policy `lru` it keeps its place.
    pub fn retire(&self, id: &SessionId) {
        self.with(id, |shard, key| shard.retire(key));
    }

    /// Forgets a session and wipes it. Returns whether it was there.
    pub fn remove(&self, id: &SessionId) -> bool {
        self.with(id, |shard, key| shard.remove(key))
    }

    /// Counts an id that was refused before it reached the cache.
    pub fn record_forged(&self) {
        self.forged.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of all shards. Not one instant's: shards are read one after the other.
    pub fn counters(&self) -> Counters {
        let mut sum =
            Counters { forged: self.forged.load(Ordering::Relaxed), ..Counters::default() };
        for shard in &self.shards {
            sum = sum.plus(&self.in_shard(shard, |shard| shard.counters()));
        }
        sum
    }

    /// Sessions of up to one block that fit.
    pub fn capacity_sessions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.layout.sessions()).sum()
    }

    /// Bytes of all regions: the bound on what the cache holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.layout.region_bytes() as u64).sum()
    }

    fn with<T>(&self, id: &SessionId, operation: impl FnOnce(&mut Shard<'_>, &Key<'_>) -> T) -> T {
        let hash = id.hash_with(&self.hash_key);
        let at = ((hash >> 48) * self.shards.len() as u64) >> 16;
        let shard = &self.shards[at as usize];
        let done = self.in_shard(shard, |shard| operation(shard, &Key { id, hash }));
        self.return_times.learn();
        done
    }

    #[inline]
    fn in_shard<T>(&self, placed: &Placed<R>, operation: impl FnOnce(&mut Shard<'_>) -> T) -> T {
        let Placed { layout, region } = placed;
        region.with(|lines, torn| {
            let mut shard = Shard::view(lines, layout, &self.hash_key, &self.return_times);
            if torn {
                shard.clear();
            }
            operation(&mut shard)
        })
    }
}

impl<R: Region> Drop for Cache<R> {
    fn drop(&mut self) {
        self.shards.iter().for_each(|shard| self.in_shard(shard, |shard| shard.wipe()));
    }
}

impl<R: Region> std::fmt::Debug for Cache<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.capacity_bytes();
        f.debug_struct("Cache").field("capacity_bytes", &bytes).finish_non_exhaustive()
    }
}
