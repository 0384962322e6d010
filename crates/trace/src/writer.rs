//! The writer of a trace, one event at a time.

use std::io::{self, BufWriter, Write};

use crate::error::Error;
use crate::event::Event;
use crate::format::{encode, encode_end, header, offset};
use crate::input::Progress;

/// A writer of a trace to any output. It buffers by itself and keeps nothing that it wrote.
///
/// A trace is whole once [`Self::finish`] has returned: until then, or if the writer is dropped
/// instead, a reader reports it as cut.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: BufWriter<W>,
    checksum: crc32fast::Hasher,
    progress: Progress,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// Returns [`Error::Write`] if the output fails.
    pub fn new(output: W) -> Result<Self, Error> {
        let (output, checksum) = (BufWriter::new(output), crc32fast::Hasher::new());
        let mut writer = Self { output, checksum, progress: Progress::default() };
        writer.append(&header())?;
        Ok(writer)
    }

    /// Adds an event, at the time of the one before it or later.
    ///
    /// # Errors
    /// Returns [`Error::BackInTime`] if it is earlier: it is not written, and the trace may go on.
    /// Returns [`Error::Write`] if the output fails.
    pub fn write(&mut self, event: Event) -> Result<(), Error> {
        self.progress.accept(&event, offset(self.progress.events))?;
        self.append(&encode(event))
    }

    /// Returns how many events it was given.
    pub fn events(&self) -> u64 {
        self.progress.events
    }

    /// Completes the trace: writes the end mark, flushes, and returns the output.
    ///
    /// # Errors
    /// Returns [`Error::Write`] if the output fails.
    pub fn finish(mut self) -> Result<W, Error> {
        let end = encode_end(self.events(), self.checksum.clone());
        self.append(&end)?;
        let Self { output, progress: Progress { events, .. }, .. } = self;
        let failed = |cause: io::Error| Error::Write { events, cause };
        let mut output = output.into_inner().map_err(|error| failed(error.into_error()))?;
        output.flush().map_err(failed)?;
        Ok(output)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let events = self.events();
        self.output.write_all(bytes).map_err(|cause| Error::Write { events, cause })?;
        self.checksum.update(bytes);
        Ok(())
    }
}
