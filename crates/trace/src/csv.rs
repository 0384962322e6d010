//! Traces as text: comma-separated values with a header.
//!
//! ```text
//! time_ms,client,first_of_run,returns_in_ms
//! 773,656,true,60000
//! 1644,228,false,
//! ```
//!
//! The columns may come in any order. The last two columns may be missing, and their fields may be
//! empty. `first_of_run` is `true` or `false`, `1` or `0`; if it is missing, it reads as false and
//! means that it is not known. A missing `returns_in_ms` means that the client announces nothing.
//!
//! There is no end mark and no checksum: a file that lost whole lines from its end looks like a
//! whole one. A file that lost part of a line does not, because every line must end.

use std::io::{self, BufWriter, Read, Write};

use ::csv::{ByteRecord, ErrorKind, Terminator, Trim};

use crate::error::Error;
use crate::event::Event;
use crate::input::{Progress, events_of_reader};

/// The longest line in bytes, give or take a buffer: whatever the input, a reader takes no more
/// memory than a few lines.
pub const LONGEST_LINE_BYTES: usize = 1 << 16;

const COLUMNS: [&str; 4] = ["time_ms", "client", "first_of_run", "returns_in_ms"];
const HEADER: &str = "time_ms,client,first_of_run,returns_in_ms\n";

const NO_END: &str = "it has no end, so the file may be cut: \
                      copy it again, or add the missing line feed";

/// The number of a field's characters that an error shows.
const SHOWN_CHARS: usize = 40;

/// A reader of a trace from any input, in memory that does not depend on its length. It buffers by
/// itself.
///
/// It returns the events in order of time and stops at the first error: [`Error::BadField`],
/// [`Error::BadLine`], [`Error::BackInTime`], [`Error::Read`].
#[derive(Debug)]
pub struct Reader<R> {
    input: ::csv::Reader<Bounded<R>>,
    record: ByteRecord,
    /// The place of each of [`COLUMNS`] in a line.
    places: [Option<usize>; 4],
    progress: Progress,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// Returns [`Error::BadHeader`], [`Error::BadLine`] if it does not end, [`Error::Read`] if the input
    /// fails.
    pub fn new(input: R) -> Result<Self, Error> {
        let mut builder = ::csv::ReaderBuilder::new();
        // Lines end at a line feed, so that they are counted alike with and without a carriage
        // return before it, which is trimmed.
        builder.has_headers(false).flexible(true).trim(Trim::All);
        builder.terminator(Terminator::Any(b'\n'));
        let mut reader = Self {
            input: builder.from_reader(Bounded { input, left: 0, bytes: 0, last: 0 }),
            record: ByteRecord::new(),
            places: [None; 4],
            progress: Progress::default(),
            done: false,
        };
        if !reader.read_line()? {
            return Err(Error::BadHeader { what: "nothing is there".to_owned() });
        }
        reader.places = places(&reader.record)?;
        Ok(reader)
    }

    fn advance(&mut self) -> Result<Option<Event>, Error> {
        if !self.read_line()? {
            return Ok(None);
        }
        let columns = self.places.iter().flatten().count();
        if self.record.len() != columns {
            return Err(self.bad_line("another number of fields than the first line names"));
        }
        let event = self.event()?;
        let byte = self.record.position().map_or(0, ::csv::Position::byte);
        self.progress.accept(&event, byte)?;
        Ok(Some(event))
    }

    /// Reads the next line that is not empty; false at the end of the input.
    fn read_line(&mut self) -> Result<bool, Error> {
        loop {
            self.input.get_mut().left = LONGEST_LINE_BYTES;
            match self.input.read_byte_record(&mut self.record) {
                Ok(false) => return Ok(false),
                // A line that held a carriage return only.
                Ok(true) if self.record.len() == 1 && self.record[0].is_empty() => {}
                Ok(true) if self.ended() => return Ok(true),
                Ok(true) => return Err(self.bad_line(NO_END)),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Returns true if the line that was read has an end of its own, not just that of the input.
    fn ended(&self) -> bool {
        let input = self.input.get_ref();
        self.input.position().byte() < input.bytes || input.last == b'\n'
    }

    fn failed(&self, error: ::csv::Error) -> Error {
        let byte = self.input.position().byte();
        let cause = match error.into_kind() {
            ErrorKind::Io(_) if self.input.get_ref().left == 0 => {
                let line = self.input.position().line();
                return Error::BadLine { line, what: "longer than 64 KiB: give one event a line" };
            }
            ErrorKind::Io(cause) => cause,
            kind => io::Error::other(format!("{kind:?}")),
        };
        Error::Read { events: self.progress.events, byte, cause }
    }

    fn event(&self) -> Result<Event, Error> {
        Ok(Event {
            time_ms: self.number(0, "a whole number of milliseconds")?,
            client: self.number(1, "a number: number the clients, from 0 to 2⁶⁴ − 1")?,
            first_of_run: match self.text(2) {
                b"true" | b"1" => true,
                b"false" | b"0" | b"" => false,
                _ => return Err(self.bad_field(2, "true or false, 1 or 0, or empty")),
            },
            returns_in_ms: match self.text(3) {
                b"" => None,
                _ => Some(self.number(3, "a whole number of milliseconds below 2³², or empty")?),
            },
        })
    }

    fn number<N: std::str::FromStr>(
        &self,
        column: usize,
        expected: &'static str,
    ) -> Result<N, Error> {
        let number = str::from_utf8(self.text(column)).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| self.bad_field(column, expected))
    }

    /// Returns a field's text; empty if there is no such column.
    fn text(&self, column: usize) -> &[u8] {
        self.places[column].and_then(|place| self.record.get(place)).unwrap_or_default()
    }

    fn bad_field(&self, column: usize, expected: &'static str) -> Error {
        let text = shortened(self.text(column));
        Error::BadField { line: self.line(), column: COLUMNS[column], text, expected }
    }

    fn bad_line(&self, what: &'static str) -> Error {
        Error::BadLine { line: self.line(), what }
    }

    /// Returns the line that was read. (A record's own position is that of the empty lines before it.)
    fn line(&self) -> u64 {
        self.input.position().line() - u64::from(self.ended())
    }
}

events_of_reader!();

/// A writer of a trace to any output. It buffers by itself and keeps nothing that it wrote.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: BufWriter<W>,
    bytes: u64,
    progress: Progress,
}

impl<W: Write> Writer<W> {
    /// Begins a trace, with all four columns.
    ///
    /// # Errors
    /// Returns [`Error::Write`] if the output fails.
    pub fn new(output: W) -> Result<Self, Error> {
        let output = BufWriter::new(output);
        let mut writer = Self { output, bytes: 0, progress: Progress::default() };
        writer.append(HEADER)?;
        Ok(writer)
    }

    /// Adds an event, at the time of the one before it or later.
    ///
    /// # Errors
    /// Returns [`Error::BackInTime`] if it is earlier: it is not written, and the trace may go on.
    /// Returns [`Error::Write`] if the output fails.
    pub fn write(&mut self, event: Event) -> Result<(), Error> {
        self.progress.accept(&event, self.bytes)?;
        let Event { time_ms, client, first_of_run, returns_in_ms } = event;
        // Numbers need no quotes.
        let returns_in_ms = returns_in_ms.map(|ms| ms.to_string()).unwrap_or_default();
        self.append(&format!("{time_ms},{client},{first_of_run},{returns_in_ms}\n"))
    }

    /// Returns how many events it was given.
    pub fn events(&self) -> u64 {
        self.progress.events
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// Returns [`Error::Write`] if the output fails.
    pub fn finish(self) -> Result<W, Error> {
        let Self { output, progress: Progress { events, .. }, .. } = self;
        let failed = |cause: io::Error| Error::Write { events, cause };
        let mut output = output.into_inner().map_err(|error| failed(error.into_error()))?;
        output.flush().map_err(failed)?;
        Ok(output)
    }

    fn append(&mut self, line: &str) -> Result<(), Error> {
        let events = self.progress.events;
        self.output.write_all(line.as_bytes()).map_err(|cause| Error::Write { events, cause })?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

/// An input that yields a bounded number of bytes per line, and remembers how it ended.
#[derive(Debug)]
struct Bounded<R> {
    input: R,
    /// The number of bytes that it may still yield for this line.
    left: usize,
    bytes: u64,
    last: u8,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let length = read_some(&mut self.input, buffer)?;
        self.left = self.left.saturating_sub(length);
        self.bytes += length as u64;
        self.last = buffer[..length].last().copied().unwrap_or(self.last);
        Ok(length)
    }
}

/// Reads once, and again if it is interrupted, which the parser would take for a failure.
fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Finds the place of each column in the header.
fn places(header: &ByteRecord) -> Result<[Option<usize>; 4], Error> {
    let bad = |what| Err(Error::BadHeader { what });
    let mut places = [None; 4];
    for (place, name) in header.iter().enumerate() {
        let Some(column) = COLUMNS.iter().position(|column| column.as_bytes() == name) else {
            return bad(format!("{:?} is no column of a trace", shortened(name)));
        };
        if places[column].replace(place).is_some() {
            return bad(format!("{} is there twice", COLUMNS[column]));
        }
    }
    match places {
        [None, ..] => bad("no column is called time_ms".to_owned()),
        [_, None, ..] => bad("no column is called client".to_owned()),
        places => Ok(places),
    }
}

fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN_CHARS)]);
    text.chars().take(SHOWN_CHARS).collect()
}
