//! The common parts of all readers of traces.

use std::io::{ErrorKind, Read};

use crate::error::Error;
use crate::event::Event;

/// Reads until the buffer is full or the input ends, and returns the number of bytes read, which
/// `read_exact` does not tell. `events` and `at` are its place in the trace, for the error.
pub(crate) fn fill(
    input: &mut impl Read,
    buffer: &mut [u8],
    events: u64,
    at: u64,
) -> Result<usize, Error> {
    let mut length = 0;
    while length < buffer.len() {
        match input.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(Error::Read { events, byte: at + length as u64, cause }),
        }
    }
    Ok(length)
}

/// The number of events so far, and the time of the last: events are in order of time.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) events: u64,
    last_ms: u64,
}

impl Progress {
    /// Counts an event whose record begins at `byte`.
    pub(crate) fn accept(&mut self, event: &Event, byte: u64) -> Result<(), Error> {
        if event.time_ms < self.last_ms {
            return Err(Error::BackInTime {
                event: self.events + 1,
                byte,
                time_ms: event.time_ms,
                before_ms: self.last_ms,
            });
        }
        self.events += 1;
        self.last_ms = event.time_ms;
        Ok(())
    }
}

/// Makes a `Reader` an iterator over its events, up to the end or the first error. It needs a
/// method `advance`, which reads an event, and a field `done`.
macro_rules! events_of_reader {
    () => {
        impl<R: Read> Iterator for Reader<R> {
            type Item = Result<Event, Error>;

            fn next(&mut self) -> Option<Self::Item> {
                let event = (!self.done).then(|| self.advance())?;
                self.done = !matches!(event, Ok(Some(_)));
                event.transpose()
            }
        }

        impl<R: Read> std::iter::FusedIterator for Reader<R> {}
    };
}

pub(crate) use events_of_reader;
