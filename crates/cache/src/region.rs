//! The memory of shards, and the locks by which its users take turns.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Mutex;

use crate::error::Error;
use crate::ledger::Ledger;

/// A cache line, the unit of regions. It may hold a part of a session, so it is never printed.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct Line([u64; 8]);

impl Line {
    pub(crate) const BYTES: usize = size_of::<Self>();
    /// A line of zeros.
    pub const ZERO: Self = Self([0; 8]);
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line(…)")
    }
}

/// Memory that can hold a shard: a heap allocation, or a mapping.
///
/// The lines must keep their place and contents between uses, and belong to one user during a use.
pub trait Memory: Send {
    /// See [`Region::PRIVATE`].
    const PRIVATE: bool = false;

    /// Returns the region's lines.
    fn lines(&mut self) -> &mut [Line];
}

/// A shard's memory with a lock by which its users take turns.
pub trait Region {
    /// The owner of the ledger of a cache on such regions.
    type Ledger: Deref<Target = Ledger>;

    /// True if others go on using the memory after a cache on it is dropped. If false, the cache
    /// wipes it.
    const OUTLIVES_CACHE: bool = false;

    /// True if nobody can write to the memory but through [`Self::with`]. If false, the cache does
    /// not trust the contents, which costs every operation a few percent. If true by mistake, an
    /// operation may panic or run for ever, but not reach outside the memory.
    const PRIVATE: bool = false;

    /// Runs an operation with the memory to itself. The flag is true if an earlier user was
    /// interrupted, so that the contents cannot be trusted. Returns `None` if the memory could not
    /// be locked in time: the operation did not run, as if the session were not there.
    fn with<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> Option<T>;

    /// Is called when the cache has just emptied the shard because its contents could not be
    /// trusted.
    fn emptied(&self) {}
}

/// A region for any number of threads.
impl<M: Memory> Region for Mutex<M> {
    type Ledger = Box<Ledger>;
    const PRIVATE: bool = M::PRIVATE;

    #[inline]
    fn with<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> Option<T> {
        let (mut memory, torn) = match self.lock() {
            Ok(memory) => (memory, false),
            Err(error) => {
                // A thread panicked in the middle of an operation.
                self.clear_poison();
                (error.into_inner(), true)
            }
        };
        Some(operation(memory.lines(), torn))
    }
}

/// A region for one thread, such as a simulator's, which needs no lock.
impl<M: Memory> Region for RefCell<M> {
    type Ledger = Box<Ledger>;
    const PRIVATE: bool = M::PRIVATE;

    #[inline]
    fn with<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> Option<T> {
        Some(operation(self.borrow_mut().lines(), false))
    }
}

impl Memory for Vec<Line> {
    const PRIVATE: bool = true;

    fn lines(&mut self) -> &mut [Line] {
        self
    }
}

/// Memory on the heap, which the operating system zeroes when it is first used. (An allocation
/// aligned to lines would be zeroed at once.)
pub struct HeapMemory {
    words: Vec<u64>,
    /// The first word that begins a line.
    start: usize,
    lines: usize,
}

impl HeapMemory {
    const WORDS_PER_LINE: usize = size_of::<Line>() / size_of::<u64>();

    pub(crate) fn new(lines: usize) -> Result<Self, Error> {
        let bytes = (lines * size_of::<Line>()) as u64;
        let words: Vec<u64> = bytemuck::try_zeroed_vec((lines + 1) * Self::WORDS_PER_LINE)
            .map_err(|()| Error::OutOfMemory { bytes })?;
        let start = words.as_ptr().align_offset(align_of::<Line>());
        Ok(Self { words, start, lines })
    }
}

impl Memory for HeapMemory {
    const PRIVATE: bool = true;

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
