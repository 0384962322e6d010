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
    pub(super) size_bytes: u32,
    pub(super) l2_bytes: u32,
    /// Tables 1, 3 and 4: thousands of instructions per transaction.
    pub(super) path_length: Pair,
    /// Tables 2, 3 and 4: percent of accesses to L2.
    pub(super) l2_misses: Pair,
    /// Table 5: L2 misses per transaction, one for those with 512 KB.
    pub(super) relative: Option<Pair>,
}

pub(super) const CACHES: [CacheMeasured; 7] = [
    CacheMeasured {
        size_bytes: 30,
        l2_bytes: 512 << 10,
        path_length: [714.0, 49.0],
        l2_misses: [16.7, 5.0],
        relative: Some([1.0, 1.0]),
    },
    CacheMeasured {
        size_bytes: 30,
        l2_bytes: 1 << 20,
        path_length: [750.0, 49.0],
        l2_misses: [16.9, 3.6],
        relative: Some([1.019, 0.696]),
    },
    CacheMeasured {
        size_bytes: 30,
        l2_bytes: 2 << 20,
        path_length: [734.0, 49.0],
        l2_misses: [12.1, 1.9],
        relative: Some([0.601, 0.370]),
    },
    CacheMeasured {
        size_bytes: 36 << 10,
        l2_bytes: 2 << 20,
        path_length: [1_834.0, 136.0],
        l2_misses: [7.1, 8.7],
        relative: None,
    },
    CacheMeasured {
        size_bytes: 1 << 20,
        l2_bytes: 512 << 10,
        path_length: [35_380.0, 2_785.0],
        l2_misses: [15.6, 32.7],
        relative: Some([1.0, 1.0]),
    },
    CacheMeasured {
        size_bytes: 1 << 20,
        l2_bytes: 1 << 20,
        path_length: [34_695.0, 2_845.0],
        l2_misses: [14.1, 28.9],
        relative: Some([0.881, 0.910]),
    },
    CacheMeasured {
        size_bytes: 1 << 20,
        l2_bytes: 2 << 20,
        path_length: [35_077.0, 2_828.0],
        l2_misses: [11.2, 23.3],
        relative: Some([0.715, 0.726]),
    },
];

impl CacheMeasured {
    pub(super) fn of(size_bytes: u32, l2_bytes: u32) -> Option<Self> {
        let is =
            |measured: &Self| (measured.size_bytes, measured.l2_bytes) == (size_bytes, l2_bytes);
        CACHES.into_iter().find(is)
    }
}
