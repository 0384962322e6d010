//! Why a capture was not read, or not to its end.

use std::io;

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not a single byte.
    #[error("the capture is empty")]
    Empty,
    /// The bytes are no pcap, no pcapng and no gzip of one.
    #[error("this is no capture: neither pcap nor pcapng, nor gzip of one")]
    NotACapture,
    /// The first bytes could not be read.
    #[error("the capture cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A model of costs is none.
    #[error("line {line}: {what}")]
    Model {
        /// Where, counted from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A table of networks is none.
    #[error("line {line}: {what}")]
    Networks {
        /// Where, counted from 1.
        line: u64,
        /// What is wrong there.
        what: String,
    },
}

/// Why a capture was left before its end. What came before it counts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The capture ends inside a record.
    #[error("the capture ends inside a record, after {frames} frames")]
    Truncated {
        /// Frames before it.
        frames: u64,
    },
    /// A record contradicts itself.
    #[error("a record is corrupt, after {frames} frames")]
    Corrupt {
        /// Frames before it.
        frames: u64,
    },
    /// A record claims to be longer than any packet.
    #[error("a record claims more than {limit} bytes, after {frames} frames")]
    TooLong {
        /// Frames before it.
        frames: u64,
        /// The longest record that is read, in bytes.
        limit: usize,
    },
    /// The source failed (a truncated or corrupt gzip does, too).
    #[error("reading failed after {frames} frames: {cause}")]
    Read {
        /// Frames before it.
        frames: u64,
        /// What the source said.
        cause: io::Error,
    },
}
