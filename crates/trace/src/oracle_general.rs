//! libCacheSim's `oracleGeneral` format, so that its policies run on our traces and ours on its
//! published ones.
//!
//! ```text
//! request  24 bytes   seconds u32, object u64, size u32, next i64
//! …
//! ```
//!
//! Little-endian and packed, without a header, an end mark or a checksum. An object is a client, a
//! request a connection. `next` is the number of the object's next request, *counted from 1*, or
//! −1 if there is none (libCacheSim `traceConvOracleGeneral.cpp`: "reference count starts with
//! 1"; its Bélády evicts by it). libCacheSim knows the format by the file's name, which must
//! contain `oracleGeneral`.
//!
//! Whole seconds are too coarse for a grace of two seconds; our own format keeps milliseconds.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use crate::error::{Error, in_range};
use crate::event::Event;
use crate::format::{u32_at, u64_at};
use crate::input::{Progress, events_of_reader, fill};

const RECORD_BYTES: usize = 24;
/// The place of `next` in a record.
const NEXT: usize = 16;

/// The `next` of an object that is not requested again.
const NEVER: i64 = -1;
/// The `next` of a request while later requests are not known. No reader takes it for a number.
const UNFINISHED: i64 = i64::MIN;

/// The latest time that fits: 136 years.
const LATEST_MS: u64 = u32::MAX as u64 * 1_000 + 999;

/// The number of records that are read back and written at once when a trace is finished.
const BLOCK_RECORDS: u64 = 2_730;

/// Returns the byte at which the record after so many events begins.
fn offset(events: u64) -> u64 {
    events * RECORD_BYTES as u64
}

/// A reader of requests as events from any input, in memory that does not depend on its length. It
/// buffers by itself.
///
/// The time is the request's, in milliseconds; a trace may count its seconds from any moment.
/// `returns_in_ms` is `None`: `next` is clairvoyance, which no client can announce.
/// `first_of_run` is false, which here means that it is not known.
///
/// It returns the events in order of time and stops at the first error. A trace that lost its tail
/// exactly between two records looks like a whole one.
#[derive(Debug)]
pub struct Reader<R> {
    input: BufReader<R>,
    progress: Progress,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Makes a reader. There is no header, so no error is possible yet.
    pub fn new(input: R) -> Self {
        Self { input: BufReader::new(input), progress: Progress::default(), done: false }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// Returns [`Error::Damaged`] if the input ends within a record, or was never finished;
    /// [`Error::BackInTime`] if it is not sorted; [`Error::Read`] if it fails.
    fn advance(&mut self) -> Result<Option<Event>, Error> {
        let events = self.progress.events;
        let byte = offset(events);
        let damaged = |what| Err(Error::Damaged { events, byte, what });
        let mut bytes = [0; RECORD_BYTES];
        match fill(&mut self.input, &mut bytes, events, byte)? {
            0 => return Ok(None),
            RECORD_BYTES => {}
            _ => return damaged("the input ends within a record"),
        }
        if next_of(&bytes) < NEVER {
            return damaged("no next request has such a number, the trace was never finished");
        }
        let event = Event {
            time_ms: u64::from(u32_at(&bytes, 0)) * 1_000,
            client: u64_at(&bytes, 4),
            first_of_run: false,
            returns_in_ms: None,
        };
        self.progress.accept(&event, byte)?;
        Ok(Some(event))
    }
}

events_of_reader!();

/// A writer of events as requests, to a file that can be read back.
///
/// The next request of an object is known only at the end, so the trace is written twice: as the
/// events come, and once more from its end to its beginning by [`Self::finish`]. That takes up to
/// 60 bytes for each *client*, and 64 KiB; nothing is kept for each event. For an output that
/// cannot be read back, such as a pipe, write to an [`io::Cursor`], at 24 bytes an event, and copy
/// that.
///
/// Until the trace is finished, a reader reports it as unfinished at its first record, whatever
/// happened in between.
#[derive(Debug)]
pub struct Writer<F: Read + Write + Seek> {
    file: BufWriter<F>,
    /// The byte of the file at which the trace begins.
    start: u64,
    progress: Progress,
}

impl<F: Read + Write + Seek> Writer<F> {
    /// Begins a trace at the file's position.
    ///
    /// # Errors
    /// Returns [`Error::Write`] if the file cannot tell its position.
    pub fn new(mut file: F) -> Result<Self, Error> {
        let start = file.stream_position().map_err(|cause| Error::Write { events: 0, cause })?;
        Ok(Self { file: BufWriter::new(file), start, progress: Progress::default() })
    }

    /// Adds an event, at the time of the one before it or later. The part of its time below a
    /// second is lost, and so is its announcement.
    ///
    /// # Errors
    /// Returns [`Error::BackInTime`] if it is earlier, [`Error::OutOfRange`] if it is after 136 years: it
    /// is not written, and the trace may go on. [`Error::Write`] if the file fails.
    pub fn write(&mut self, event: Event) -> Result<(), Error> {
        in_range("time_ms", event.time_ms, 0, LATEST_MS)?;
        let byte = offset(self.progress.events);
        self.progress.accept(&event, byte)?;
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&((event.time_ms / 1_000) as u32).to_le_bytes());
        bytes[4..12].copy_from_slice(&event.client.to_le_bytes());
        // All sessions have the same size; libCacheSim leaves out requests of size 0.
        bytes[12..NEXT].copy_from_slice(&1_u32.to_le_bytes());
        bytes[NEXT..].copy_from_slice(&UNFINISHED.to_le_bytes());
        let events = self.progress.events;
        self.file.write_all(&bytes).map_err(|cause| Error::Write { events, cause })
    }

    /// Returns how many events it was given.
    pub fn events(&self) -> u64 {
        self.progress.events
    }

    /// Completes the trace: writes the next requests, flushes, and returns the file, positioned at
    /// the end of the trace.
    ///
    /// # Errors
    /// Returns [`Error::Write`] if the file fails, or cannot be read back.
    pub fn finish(self) -> Result<F, Error> {
        let Self { file, start, progress: Progress { events, .. } } = self;
        let failed = |cause: io::Error| Error::Write { events, cause };
        let mut file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        link(&mut file, start, events).map_err(failed)?;
        Ok(file)
    }
}

/// Goes through the records block by block, from the last to the first, and sets each one's next.
fn link(file: &mut (impl Read + Write + Seek), start: u64, events: u64) -> io::Result<()> {
    let mut following = Following::default();
    let mut block = Vec::new();
    let mut end = events;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK_RECORDS);
        block.resize(offset(end - begin) as usize, 0);
        file.seek(SeekFrom::Start(start + offset(begin)))?;
        file.read_exact(&mut block)?;
        let numbers = (begin + 1..=end).rev();
        let records = block.chunks_exact_mut(RECORD_BYTES).rev();
        numbers.zip(records).for_each(|(number, record)| following.link(number, record));
        file.seek(SeekFrom::Start(start + offset(begin)))?;
        file.write_all(&block)?;
        end = begin;
    }
    file.seek(SeekFrom::Start(start + offset(events)))?;
    file.flush()
}

/// For each client, the number of the request that comes next.
///
/// The hasher has a fixed key, because nothing in this crate may be random.
#[derive(Default)]
struct Following(HashMap<u64, i64, BuildHasherDefault<DefaultHasher>>);

impl Following {
    fn link(&mut self, number: u64, record: &mut [u8]) {
        let next = self.0.insert(u64_at(record, 4), number as i64).unwrap_or(NEVER);
        record[NEXT..].copy_from_slice(&next.to_le_bytes());
    }
}

fn next_of(record: &[u8]) -> i64 {
    u64_at(record, NEXT) as i64
}
