//! The figures of paper 001, measured on one processor with 2 MB of L2 cache: the rows of its tables that have a
//! counterpart here. An Intel Pentium III Xeon, SSL with 512-bit RSA and 128-bit RC4.

/// Figures with SSL, and without.
pub(super) type Pair = [f64; 2];

/// A size of the paper's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub(super) size_bytes: u32,
    /// Table 1: transactions a second, scaled to full utilisation.
    pub(super) throughput: Pair,
    /// Table 1: thousands of instructions per transaction.
    pub(super) path_length: Pair,
    /// Table 1.
    pub(super) cycles_per_instruction: Pair,
    /// Table 2: throughput and cycles per transaction, one without SSL over one with it.
    pub(super) relative: [f64; 2],
    /// Table 2: percent of accesses to L1 for instructions, L1 for data, and L2.
    pub(super) misses: [Pair; 3],
    /// Table 6: branches per instruction, and those of them that were predicted wrong.
    pub(super) branches: [Pair; 2],
    /// Table 7: milliseconds to the first byte; not measured at 36 KB.
    pub(super) first_byte_ms: Option<Pair>,
}

pub(super) const PAPER: [Measured; 3] = [
    Measured {
        size_bytes: 30,
        throughput: [353.0, 2_496.0],
        path_length: [734.0, 49.0],
        cycles_per_instruction: [1.94, 4.13],
        relative: [7.07, 7.02],
        misses: [[0.93, 1.77], [2.71, 5.54], [12.1, 1.9]],
        branches: [[0.116, 0.210], [0.116, 0.219]],
        first_byte_ms: Some([558.0, 63.0]),
    },
    Measured {
        size_bytes: 36 << 10,
        throughput: [201.0, 1_120.0],
        path_length: [1_834.0, 136.0],
        cycles_per_instruction: [1.39, 3.30],
        relative: [5.58, 5.67],
        misses: [[0.52, 0.77], [3.03, 5.00], [7.1, 8.7]],
        branches: [[0.068, 0.191], [0.099, 0.141]],
        first_byte_ms: None,
    },
    Measured {
        size_bytes: 1 << 20,
        throughput: [12.0, 75.0],
        path_length: [35_077.0, 2_828.0],
        cycles_per_instruction: [1.18, 2.39],
        relative: [6.14, 6.10],
        misses: [[0.35, 0.27], [2.46, 4.57], [11.2, 23.3]],
        branches: [[0.058, 0.158], [0.067, 0.062]],
        first_byte_ms: Some([272.0, 25.0]),
    },
];

impl Measured {
    pub(super) fn of(size_bytes: u32) -> Option<Self> {
        PAPER.into_iter().find(|measured| measured.size_bytes == size_bytes)
    }
}

/// A size of responses and of L2 caches: what the paper measured on one processor with 16 KB of L1 cache for
/// instructions, and as much for data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CacheMeasured {
    /// Tables 1, 3 and 4: thousands of instructions per transaction.
    pub(super) path_length: Pair,
    /// Tables 2, 3 and 4: percent of accesses to L2.
    pub(super) l2_misses: Pair,
    /// Table 5: L2 misses per transaction, one for those with 512 KB.
    pub(super) relative: Option<Pair>,
}

/// The figures of [`CacheMeasured`] in its order, each after a size of responses and one of L2 caches.
const CACHES: [(u32, u32, Pair, Pair, Option<Pair>); 7] = [
    (30, 512 << 10, [714.0, 49.0], [16.7, 5.0], Some([1.0, 1.0])),
    (30, 1 << 20, [750.0, 49.0], [16.9, 3.6], Some([1.019, 0.696])),
    (30, 2 << 20, [734.0, 49.0], [12.1, 1.9], Some([0.601, 0.370])),
    (36 << 10, 2 << 20, [1_834.0, 136.0], [7.1, 8.7], None),
    (1 << 20, 512 << 10, [35_380.0, 2_785.0], [15.6, 32.7], Some([1.0, 1.0])),
    (1 << 20, 1 << 20, [34_695.0, 2_845.0], [14.1, 28.9], Some([0.881, 0.910])),
    (1 << 20, 2 << 20, [35_077.0, 2_828.0], [11.2, 23.3], Some([0.715, 0.726])),
];

impl CacheMeasured {
    pub(super) fn of(size_bytes: u32, l2_bytes: u32) -> Option<Self> {
        let is_it = |row: &(u32, u32, Pair, Pair, _)| (row.0, row.1) == (size_bytes, l2_bytes);
        let (_, _, path_length, l2_misses, relative) = CACHES.into_iter().find(is_it)?;
        Some(Self { path_length, l2_misses, relative })
    }
}
