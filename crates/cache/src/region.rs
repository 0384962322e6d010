//! The memory of shards, and what makes its users take turns.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Mutex;

use crate::error::Error;
use crate::ledger::Ledger;

/// A cache line: what regions are made of. It may hold a part of a session: never printed.
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
/// The lines must stay where and what they are between uses, and be nobody else's during one.
pub trait Memory: Send {
    /// As [`Region::PRIVATE`].
    const PRIVATE: bool = false;

    /// The region.
    fn lines(&mut self) -> &mut [Line];
}

/// A shard's memory, and what makes its users take turns.
pub trait Region {
    /// What holds the ledger of a cache on such regions.
    type Ledger: Deref<Target = Ledger>;

    /// Whether others go on with the memory when a cache on it is dropped. Otherwise it is wiped.
    const OUTLIVES_CACHE: bool = false;

    /// Whether nobody can write to the memory but through [`Self::with`]. Otherwise nothing in it is
    /// trusted, which costs every operation a few percent. Where this is said and not so, an
    /// operation may panic or go on for ever, but not lead outside the memory.
    const PRIVATE: bool = false;

    /// Uses the memory, alone. The flag says that somebody was interrupted while using it: nothing
    /// in it can be trusted. `None`: it could not be had in time, and the operation was not run; it
    /// is then as if the session were not there.
    fn with<T>(&self, operation: impl FnOnce(&mut [Line], bool) -> T) -> Option<T>;

    /// The cache says that it has just emptied the shard, for nothing in it could be trusted.
    fn emptied(&self) {}
}

/// For any number of threads.
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

/// For one thread, which needs no lock: a simulator's.
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
