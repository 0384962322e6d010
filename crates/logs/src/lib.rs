//! Access logs of TLS servers, as arrivals of clients.
//!
//! A [`Collector`] reads the logs of nginx, HAProxy and Apache, in any order and compressed or not, and keeps of each
//! request a record of 40 bytes in a file that the caller gives. [`Collector::finish`] sorts the records by time, finds
//! out which requests were one connection, and writes a trace for each [`Reading`] of the log.
//!
//! Clients and connections are hashes under a key that the caller draws: no address, and no other text of a log, gets
//! into a record, a trace or an error. Memory is bounded whatever the input: a line by [`LONGEST_LINE_BYTES`], records
//! by a million at a time, open connections by four million.
//!
//! Not here: names of files, the network, clocks, randomness.

#![forbid(unsafe_code)]

mod collector;
mod connections;
mod counters;
mod entry;
mod error;
mod fields;
mod input;
mod line;
mod record;
mod single;
mod sorted;
mod time;

pub use collector::{Arrivals, Collector, Facts, Malformed, Pause, Told};
pub use connections::{ClientsBy, Reading};
pub use counters::{Counted, Counter, Counters};
pub use entry::{Entry, Parser, Why};
pub use error::Error;
pub use fields::Tls;
pub use line::LONGEST_LINE_BYTES;
pub use sorted::ReadAt;
pub use time::utc;
