//! The errors of reading logs.

use std::io;

use crate::entry::Why;

/// An error that ends the reading of logs. A malformed line is none: it is counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A log cannot be read, or its compression is damaged.
    #[error("cannot be read after line {line}")]
    Read {
        /// The number of lines read before.
        line: u64,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A log is compressed in a way that is not read.
    #[error("compressed by {by}, which is not read")]
    Compressed {
        /// The compression.
        by: &'static str,
        /// The program that prints such a file's content.
        program: &'static str,
    },
    /// The file for the records or a trace cannot be written or read.
    #[error("the temporary file cannot be written or read")]
    Temporary(#[source] io::Error),
    /// A trace cannot be written.
    #[error("the temporary trace cannot be written")]
    Trace(#[source] rejoin_trace::Error),
    /// There are more requests than are sorted.
    #[error("more than {most} requests: give fewer files")]
    TooMany {
        /// The most requests.
        most: u64,
    },
    /// No line is in a format that is known.
    #[error("no line of {lines} is in a known format; line {line}: {why}")]
    NothingKnown {
        /// The number of lines.
        lines: u64,
        /// The first of them.
        line: u64,
        /// The reason for which it is not known.
        why: Why,
    },
    /// No line is there.
    #[error("nothing is there")]
    Empty,
    /// All requests were without TLS.
    #[error("all {requests} requests came without TLS")]
    WithoutTls {
        /// The number of requests.
        requests: u64,
    },
    /// The caller stopped the reading.
    #[error("interrupted")]
    Stopped,
    /// The counters are no result of a range query.
    #[error("not the result of a range query in JSON: {what}")]
    NoCounters {
        /// The fault.
        what: String,
    },
}
