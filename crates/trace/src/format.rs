//! The bytes of a trace, all numbers little-endian.
//!
//! ```text
//! header   24 bytes   "rejoin-trace\r\n\x1a\n", version u32, zero u32
//! event    24 bytes   time_ms u64, client u64, returns_in_ms u32, kind u32
//! …
//! end mark 24 bytes   number of events u64, zero u64, checksum u32, kind u32 "END."
//! ```
//!
//! The kind of an event has bit 0 set if it is the first of its run and bit 1 if `returns_in_ms`
//! is known; where it is not, the field is zero. The checksum is the CRC-32 of every byte before
//! it. A recording that was interrupted has no end mark; the line ends in the header show a copy
//! that was made as text.

use crate::error::Error;
use crate::event::Event;

/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 1;

pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const RECORD_BYTES: usize = 24;

/// The bytes with which a trace begins.
pub(crate) const MAGIC: [u8; 16] = *b"rejoin-trace\r\n\x1a\n";

const FIRST_OF_RUN: u32 = 1;
const ANNOUNCED: u32 = 2;
const END: u32 = u32::from_le_bytes(*b"END.");

/// The length of an end mark's part that its checksum covers.
pub(crate) const CHECKED_END_BYTES: usize = 16;

/// Returns the byte at which the record after so many events begins.
pub(crate) fn offset(events: u64) -> u64 {
    HEADER_BYTES as u64 + events * RECORD_BYTES as u64
}

pub(crate) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..16].copy_from_slice(&MAGIC);
    header[16..20].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// Checks the first bytes of a trace; there are fewer than a header's if the input ended there.
pub(crate) fn check_header(bytes: &[u8]) -> Result<(), Error> {
    let magic = bytes.len().min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Err(Error::NotATrace);
    }
    if bytes.len() < HEADER_BYTES {
        return Err(Error::Cut { events: 0, byte: bytes.len() as u64 });
    }
    match u32_at(bytes, 16) {
        VERSION => Ok(()),
        found => Err(Error::AnotherVersion { found }),
    }
}

/// A record of 24 bytes after the header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Event(Event),
    End { events: u64, checksum: u32 },
    Unknown,
}

impl Record {
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        let (first, second) = (u64_at(bytes, 0), u64_at(bytes, 8));
        let (third, kind) = (u32_at(bytes, 16), u32_at(bytes, 20));
        let announced = kind & ANNOUNCED != 0;
        match kind {
            END if second == 0 => Self::End { events: first, checksum: third },
            0..=3 if announced || third == 0 => Self::Event(Event {
                time_ms: first,
                client: second,
                first_of_run: kind & FIRST_OF_RUN != 0,
                returns_in_ms: announced.then_some(third),
            }),
            _ => Self::Unknown,
        }
    }
}

pub(crate) fn encode(event: Event) -> [u8; RECORD_BYTES] {
    let first_of_run = if event.first_of_run { FIRST_OF_RUN } else { 0 };
    let announced = event.returns_in_ms.map_or(0, |_| ANNOUNCED);
    let returns_in_ms = event.returns_in_ms.unwrap_or(0);
    record(event.time_ms, event.client, returns_in_ms, first_of_run | announced)
}

/// Encodes the end mark. `checksum` covers everything before it; the count is added here.
pub(crate) fn encode_end(events: u64, mut checksum: crc32fast::Hasher) -> [u8; RECORD_BYTES] {
    checksum.update(&record(events, 0, 0, END)[..CHECKED_END_BYTES]);
    record(events, 0, checksum.finalize(), END)
}

fn record(first: u64, second: u64, third: u32, kind: u32) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..16].copy_from_slice(&second.to_le_bytes());
    bytes[16..20].copy_from_slice(&third.to_le_bytes());
    bytes[20..].copy_from_slice(&kind.to_le_bytes());
    bytes
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
