//! Reading a trace, one event at a time.

use std::io::{BufReader, ErrorKind, Read};
use std::iter::FusedIterator;

use crate::error::Error;
use crate::event::Event;
use crate::format::{CHECKED_END_BYTES, HEADER_BYTES, RECORD_BYTES, Record, check_header, offset};

/// Reads a trace from any input, in memory that does not depend on its length. It buffers by
/// itself.
///
/// It gives the events in order of time and stops at the first error. The checksum is at the end
/// of the trace: a result is to be trusted only when the reader ended without an error. Nothing
/// may follow the trace in the input, so a reader waits for the end of a pipe.
#[derive(Debug)]
pub struct Reader<R> {
    input: BufReader<R>,
    checksum: crc32fast::Hasher,
    events: u64,
    last_ms: u64,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Error::NotATrace`], [`Error::AnotherVersion`], [`Error::Cut`] if the input ends within
    /// the header, [`Error::Read`] if it fails.
    pub fn new(input: R) -> Result<Self, Error> {
        let mut reader = Self {
            input: BufReader::new(input),
            checksum: crc32fast::Hasher::new(),
            events: 0,
            last_ms: 0,
            done: false,
        };
        let mut header = [0; HEADER_BYTES];
        let length = reader.fill(&mut header, 0)?;
        check_header(&header[..length])?;
        reader.checksum.update(&header);
        Ok(reader)
    }

    fn advance(&mut self) -> Result<Option<Event>, Error> {
        let at = offset(self.events);
        let mut bytes = [0; RECORD_BYTES];
        let length = self.fill(&mut bytes, at)?;
        if length < RECORD_BYTES {
            return Err(Error::Cut { events: self.events, byte: at + length as u64 });
        }
        match Record::decode(&bytes) {
            Record::Event(event) => {
                self.checksum.update(&bytes);
                self.accept(event).map(Some)
            }
            Record::End { events, checksum } => {
                self.checksum.update(&bytes[..CHECKED_END_BYTES]);
                self.close(events, checksum).map(|()| None)
            }
            Record::Unknown => Err(self.damaged("no event and no end mark has these bytes")),
        }
    }

    fn accept(&mut self, event: Event) -> Result<Event, Error> {
        if event.time_ms < self.last_ms {
            return Err(Error::BackInTime {
                event: self.events + 1,
                byte: offset(self.events),
                time_ms: event.time_ms,
                before_ms: self.last_ms,
            });
        }
        self.events += 1;
        self.last_ms = event.time_ms;
        Ok(event)
    }

    /// Holds the end mark against what was read.
    fn close(&mut self, events: u64, checksum: u32) -> Result<(), Error> {
        if events != self.events {
            return Err(self.damaged("the end mark counts another number of events"));
        }
        if checksum != self.checksum.clone().finalize() {
            return Err(self.damaged("the checksum of the end mark is another"));
        }
        let beyond = offset(self.events + 1);
        match self.fill(&mut [0], beyond)? {
            0 => Ok(()),
            _ => Err(self.damaged("the input goes on after the end mark")),
        }
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { events: self.events, byte: offset(self.events), what }
    }

    /// Reads until the buffer is full or the input ends, and says how much there was. Not
    /// `read_exact`, which does not tell.
    fn fill(&mut self, buffer: &mut [u8], at: u64) -> Result<usize, Error> {
        let mut length = 0;
        while length < buffer.len() {
            match self.input.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => {
                    let byte = at + length as u64;
                    return Err(Error::Read { events: self.events, byte, cause });
                }
            }
        }
        Ok(length)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let event = self.advance();
        self.done = !matches!(event, Ok(Some(_)));
        event.transpose()
    }
}

impl<R: Read> FusedIterator for Reader<R> {}
