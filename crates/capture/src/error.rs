//! Reasons why a capture was not read, or not to its end.

use std::io;

/// The reason why nothing could be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input has no bytes.
    #[error("the capture is empty")]
    Empty,
    /// The input is neither pcap nor pcapng, nor gzip or zstd of either.
    #[error("this is no capture: neither pcap nor pcapng, nor gzip or zstd of one")]
    NotACapture,
    /// Reading the first bytes failed.
    #[error("the capture cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A cost model is invalid.
    #[error("line {line}: {what}")]
    Model {
        /// The line of the fault, counted from 1.
        line: usize,
        /// The fault.
        what: String,
    },
    /// A table of networks is invalid.
    #[error("line {line}: {what}")]
    Networks {
        /// The line of the fault, counted from 1.
        line: u64,
        /// The fault.
        what: String,
    },
}

/// The reason why reading stopped before the end of a capture. Everything before that point counts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The capture ends inside a record.
    #[error("the capture ends inside a record, after {frames} frames")]
    Truncated {
        /// Frames before that point.
        frames: u64,
    },
    /// A record is inconsistent.
    #[error("a record is corrupt, after {frames} frames")]
    Corrupt {
        /// Frames before that point.
        frames: u64,
    },
    /// A record claims to be longer than any packet.
    #[error("a record claims more than {limit} bytes, after {frames} frames")]
    TooLong {
        /// Frames before that point.
        frames: u64,
        /// The longest supported record, in bytes.
        limit: usize,
    },
    /// Reading the source failed (also on a truncated or corrupt gzip).
    #[error("reading failed after {frames} frames: {cause}")]
    Read {
        /// Frames before that point.
        frames: u64,
        /// The source's error.
        cause: io::Error,
    },
}
