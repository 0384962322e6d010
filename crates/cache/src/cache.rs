//! The thread-safe cache: shards behind locks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::Counters;
use crate::error::{Error, Refusal};
use crate::history::Population;
use crate::id::{ContextTag, Key, SessionId};
use crate::interval::Interval;
use crate::layout::{Layout, Line};
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

/// A session cache for any number of threads. Every operation runs under the lock of the one
/// shard that the session id belongs to, held for well under a microsecond.
pub struct Cache<M: Memory = HeapMemory> {
    shards: Box<[Guarded<M>]>,
    hash_key: [u8; 16],
    population: Population,
    forged: AtomicU64,
}

/// On cache lines of its own, so that neighbours' locks do not share one.
#[repr(align(128))]
struct Guarded<M> {
    layout: Layout,
    memory: Mutex<M>,
}

impl Cache {
    /// A cache on the heap. `hash_key` must be random: with it nobody can choose ids that fall
    /// on one place of the index. Memory is touched as it is first used.
    ///
    /// # Errors
    /// Settings that make no cache, or more memory than there is.
    pub fn new(settings: &Settings, hash_key: [u8; 16], now_ms: u64) -> Result<Self, Error> {
        let layouts = Layout::for_cache(settings)?.into_iter();
        let regions = layouts.map(|layout| Ok((HeapMemory::new(layout.region_lines())?, layout)));
        Ok(Self::assemble(settings, hash_key, now_ms, regions.collect::<Result<_, _>>()?))
    }
}

impl<M: Memory> Cache<M> {
    /// A cache on memory that the caller brings, all zeros, one region per layout.
    ///
    /// # Errors
    /// Settings that make no cache.
    pub fn on(
        settings: &Settings,
        hash_key: [u8; 16],
        now_ms: u64,
        mut memory: impl FnMut(&Layout) -> M,
    ) -> Result<Self, Error> {
        let layouts = Layout::for_cache(settings)?.into_iter();
        let regions = layouts.map(|layout| (memory(&layout), layout));
        Ok(Self::assemble(settings, hash_key, now_ms, regions.collect()))
    }

    fn assemble(
        settings: &Settings,
        hash_key: [u8; 16],
        now_ms: u64,
        regions: Vec<(M, Layout)>,
    ) -> Self {
        let shards = regions.into_iter().map(|(mut memory, layout)| {
            Shard::format(memory.lines(), &layout, now_ms);
            Guarded { layout, memory: Mutex::new(memory) }
        });
        Self {
            shards: shards.collect(),
            hash_key,
            population: Population::new(Interval::from_ms(settings.prior_ms)),
            forged: AtomicU64::new(0),
        }
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
        self.in_shard(&self.shards[at as usize], |shard| operation(shard, &Key { id, hash }))
    }

    fn in_shard<T>(&self, shard: &Guarded<M>, operation: impl FnOnce(&mut Shard<'_>) -> T) -> T {
        let Guarded { layout, memory } = shard;
        let (mut guard, poisoned) = match memory.lock() {
            Ok(guard) => (guard, false),
            Err(error) => (error.into_inner(), true),
        };
        let mut shard = Shard::view(guard.lines(), layout, &self.hash_key, &self.population);
        if poisoned {
            // A thread panicked in the middle of an operation: nothing in here can be trusted.
            shard.clear();
            memory.clear_poison();
        }
        operation(&mut shard)
    }
}

impl<M: Memory> Drop for Cache<M> {
    fn drop(&mut self) {
        self.shards.iter().for_each(|shard| self.in_shard(shard, |shard| shard.wipe()));
    }
}

impl<M: Memory> std::fmt::Debug for Cache<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.capacity_bytes();
        f.debug_struct("Cache").field("capacity_bytes", &bytes).finish_non_exhaustive()
    }
}
