//! The reader of a trace, one event at a time.

use std::io::{BufReader, Read};

use crate::error::Error;
use crate::event::Event;
use crate::format::{CHECKED_END_BYTES, HEADER_BYTES, RECORD_BYTES, Record, check_header, offset};
use crate::input::{Progress, events_of_reader, fill};

/// A reader of a trace from any input, in memory that does not depend on its length. It buffers by
/// itself.
///
/// It returns the events in order of time and stops at the first error. The checksum is at the end
/// of the trace: trust a result only if the reader ended without an error. Nothing may follow the
/// trace in the input, so a reader waits for the end of a pipe.
#[derive(Debug)]
pub struct Reader<R> {
    input: BufReader<R>,
    checksum: crc32fast::Hasher,
    progress: Progress,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// Returns [`Error::NotATrace`], [`Error::AnotherVersion`], [`Error::Cut`] if the input ends within
    /// the header, [`Error::Read`] if it fails.
    pub fn new(input: R) -> Result<Self, Error> {
        let mut reader = Self {
            input: BufReader::new(input),
            checksum: crc32fast::Hasher::new(),
            progress: Progress::default(),
            done: false,
        };
        let mut header = [0; HEADER_BYTES];
        let length = fill(&mut reader.input, &mut header, 0, 0)?;
        check_header(&header[..length])?;
        reader.checksum.update(&header);
        Ok(reader)
    }

    fn advance(&mut self) -> Result<Option<Event>, Error> {
        let (events, at) = (self.progress.events, offset(self.progress.events));
        let mut bytes = [0; RECORD_BYTES];
        let length = fill(&mut self.input, &mut bytes, events, at)?;
        if length < RECORD_BYTES {
            return Err(Error::Cut { events, byte: at + length as u64 });
        }
        match Record::decode(&bytes) {
            Record::Event(event) => {
                self.checksum.update(&bytes);
                self.progress.accept(&event, at)?;
                Ok(Some(event))
            }
            Record::End { events, checksum } => {
                self.checksum.update(&bytes[..CHECKED_END_BYTES]);
                self.close(events, checksum).map(|()| None)
            }
            Record::Unknown => Err(self.damaged("no event and no end mark has these bytes")),
        }
    }

    /// Compares the end mark with the events that were read.
    fn close(&mut self, events: u64, checksum: u32) -> Result<(), Error> {
        if events != self.progress.events {
            return Err(self.damaged("the end mark counts another number of events"));
        }
        if checksum != self.checksum.clone().finalize() {
            return Err(self.damaged("the checksum of the end mark is another"));
        }
        match fill(&mut self.input, &mut [0], events, offset(events + 1))? {
            0 => Ok(()),
            _ => Err(self.damaged("the input goes on after the end mark")),
        }
    }

    fn damaged(&self, what: &'static str) -> Error {
        let events = self.progress.events;
        Error::Damaged { events, byte: offset(events), what }
    }
}

events_of_reader!();
