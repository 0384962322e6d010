//! The figures of the study, per transaction.

use serde::Serialize;

use super::simulator::Tally;
use super::{Cell, Misses, PARTS, Settings, Size, Suite};
use crate::Error;
use crate::experiment::{Ended, Turns};

/// All that the studies of caches say.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How the experiment ended, in parts: a trace, or a pair of caches, of one server.
    #[serde(flatten)]
    pub ended: Ended,
    /// Valgrind's name and version.
    pub valgrind: String,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Lines of a set in L1.
    pub l1_ways: u32,
    /// Lines of a set in L2.
    pub l2_ways: u32,
    /// Bytes of the L1 caches that L2 caches are compared behind.
    pub l1_bytes: Size,
    /// Bytes of the L2 cache that L1 caches are compared before.
    pub l2_bytes: Size,
    /// By cachegrind: one for each combination of transaction and caches.
    pub cells: Vec<Row>,
    /// By our simulator: one for each kind of transaction.
    pub traces: Vec<Traced>,
}

/// A kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Kind {
    /// `plain`, `full` or `resumed`.
    pub mode: &'static str,
    /// Version of TLS; `None` in clear.
    pub tls: Option<&'static str>,
    /// The server's key; `None` in clear.
    pub key: Option<&'static str>,
    /// Bytes of a response's body.
    pub size_bytes: Size,
}

impl Kind {
    fn of(cell: &Cell) -> Self {
        let names = cell.traffic.suite().map(Suite::names);
        Self {
            mode: cell.traffic.mode(),
            tls: names.map(|[tls, ..]| tls),
            key: names.map(|[_, key, _]| key),
            size_bytes: cell.size,
        }
    }

    /// Returns the key that rows are sorted by.
    fn place(self) -> impl Ord {
        let modes = ["plain", "full", "resumed"];
        (self.size_bytes, self.tls, modes.iter().position(|mode| *mode == self.mode))
    }
}

/// The effect of one kind of transaction on one pair of caches, by cachegrind: the program and its libraries only.
/// Figures are per transaction, the difference of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The kind of transaction.
    #[serde(flatten)]
    pub kind: Kind,
    /// Bytes of L1 for instructions, and of L1 for data.
    pub l1_bytes: Size,
    /// Bytes of L2.
    pub l2_bytes: Size,
    /// Transactions that one run had more than the other.
    pub transactions: u32,
    /// Instructions, each an access to L1.
    pub instructions: f64,
    /// Accesses to data.
    pub data_accesses: f64,
    /// Misses of L1 for instructions.
    pub l1i_misses: f64,
    /// Misses of L1 for data.
    pub l1d_misses: f64,
    /// Misses of L2.
    pub l2_misses: f64,
    /// Misses of L1 for instructions, in percent of instructions.
    pub l1i_percent: f64,
    /// Misses of L1 for data, in percent of accesses.
    pub l1d_percent: f64,
    /// Misses of L2, in percent of what misses L1.
    pub l2_percent: f64,
    /// Misses of L2 per instruction.
    pub mpi: f64,
    /// Branches, conditional or to where a register says, in percent of instructions (Table 6). Jumps and calls to a
    /// place in the program are not counted.
    pub branch_percent: f64,
    /// Mispredicted branches among these, by cachegrind's predictor, in percent (Table 6).
    pub mispredicted_percent: f64,
}

impl Row {
    pub(super) fn of(
        cell: &Cell,
        (l1_bytes, l2_bytes): (Size, Size),
        transactions: u32,
        (without, with): (Misses, Misses),
    ) -> Self {
        // Where nothing is missed, the noise of two starts may be below nothing.
        let each = |of: fn(Misses) -> u64| {
            of(with).saturating_sub(of(without)) as f64 / f64::from(transactions.max(1))
        };
        let instructions = each(|misses| misses.instructions);
        let data_accesses = each(|misses| misses.data);
        let l1i_misses = each(|misses| misses.first_instructions);
        let l1d_misses = each(|misses| misses.first_data);
        let l2_misses = each(|misses| misses.second);
        let branches = each(|misses| misses.branches);
        let mispredicted = each(|misses| misses.mispredicted);
        Self {
            kind: Kind::of(cell),
            l1_bytes,
            l2_bytes,
            transactions,
            instructions,
            data_accesses,
            l1i_misses,
            l1d_misses,
            l2_misses,
            l1i_percent: percent(l1i_misses, instructions),
            l1d_percent: percent(l1d_misses, data_accesses),
            l2_percent: percent(l2_misses, l1i_misses + l1d_misses),
            mpi: percent(l2_misses, instructions) / 100.0,
            branch_percent: percent(branches, instructions),
            mispredicted_percent: percent(mispredicted, branches),
        }
    }
}

/// The effect of one kind of transaction on many caches, by our simulator from a trace, per transaction.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Traced {
    /// The kind of transaction.
    #[serde(flatten)]
    pub kind: Kind,
    /// Transactions that were traced.
    pub transactions: u32,
    /// Instructions.
    pub instructions: f64,
    /// Accesses to data.
    pub data_accesses: f64,
    /// Each L1.
    pub l1: Vec<FirstLevel>,
    /// Each L2 behind the first L1.
    pub l2: Vec<SecondLevel>,
}

/// The misses of L1 caches of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FirstLevel {
    /// Bytes of each of both.
    pub bytes: Size,
    /// Misses for instructions.
    pub i_misses: f64,
    /// Misses for data.
    pub d_misses: f64,
    /// Misses for instructions, in percent of instructions.
    pub i_percent: f64,
    /// Misses for data, in percent of accesses.
    pub d_percent: f64,
}

/// The misses of an L2 cache, alone and with an auxiliary one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SecondLevel {
    /// Its bytes.
    pub bytes: Size,
    /// Misses, alone.
    pub misses: f64,
    /// Misses in percent of what misses L1.
    pub percent: f64,
    /// With L2′ of each size.
    pub auxiliary: Vec<Auxiliary>,
}

/// An L2 cache with an auxiliary one (§5 of the paper), beside one that is larger by as much.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Auxiliary {
    /// Bytes of L2′.
    pub bytes: u32,
    /// Misses of both, in percent of what misses L1.
    pub percent: f64,
    /// Misses, in percent too, of L2 alone with that many bytes more.
    pub larger_percent: f64,
}

impl Traced {
    pub(super) fn of(settings: &Settings, cell: &Cell, transactions: u32, tally: &Tally) -> Self {
        let each = |count: u64| count as f64 / f64::from(transactions.max(1));
        let l1 = settings.first.iter().zip(&tally.first).map(|(bytes, [i, d])| FirstLevel {
            bytes: *bytes,
            i_misses: each(*i),
            d_misses: each(*d),
            i_percent: percent(*i as f64, tally.instructions as f64),
            d_percent: percent(*d as f64, tally.data as f64),
        });
        let asked = tally.first.first().map_or(0, |[i, d]| i + d) as f64;
        let of_asked = |misses: u64| percent(misses as f64, asked);
        // As Settings::hierarchies orders them.
        let seconds = settings.traced_second.iter().zip(tally.second.chunks(1 + 2 * PARTS.len()));
        let l2 = seconds.filter_map(|(bytes, misses)| {
            let (alone, parts) = misses.split_first()?;
            let parts = PARTS.iter().zip(parts.chunks_exact(2)).map(|(part, both)| Auxiliary {
                bytes: bytes.bytes() / part,
                percent: of_asked(both[0]),
                larger_percent: of_asked(both[1]),
            });
            Some(SecondLevel {
                bytes: *bytes,
                misses: each(*alone),
                percent: of_asked(*alone),
                auxiliary: parts.collect(),
            })
        });
        Self {
            kind: Kind::of(cell),
            transactions,
            instructions: each(tally.instructions),
            data_accesses: each(tally.data),
            l1: l1.collect(),
            l2: l2.collect(),
        }
    }
}

impl Outcome {
    /// Returns an outcome without figures.
    pub(super) fn begun(settings: &Settings, valgrind: String) -> Result<Self, Error> {
        let (l1_bytes, l2_bytes) = settings.compared()?;
        Ok(Self {
            ended: Ended::interrupted(),
            valgrind,
            line_bytes: settings.line_bytes,
            l1_ways: Settings::FIRST_WAYS,
            l2_ways: Settings::SECOND_WAYS,
            l1_bytes,
            l2_bytes,
            cells: Vec::new(),
            traces: Vec::new(),
        })
    }

    /// Sorts the figures. The experiment's failure is an error where nothing was measured.
    pub(super) fn ended(mut self, turns: Turns) -> Result<Self, Error> {
        self.ended = turns.ended(self.cells.is_empty() && self.traces.is_empty())?;
        self.cells.sort_by_key(|row| (row.kind.place(), row.l1_bytes, row.l2_bytes));
        self.traces.sort_by_key(|row| row.kind.place());
        Ok(self)
    }
}

/// Returns a percentage; of nothing it is 0.
fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part * 100.0 / whole } else { 0.0 }
}
