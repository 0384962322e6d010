//! Traces in any format.

use std::io::{Cursor, Read};

use crate::error::Error;
use crate::event::Event;
use crate::format::MAGIC;
use crate::input::fill;
use crate::{csv, oracle_general, reader};

/// How a trace is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Our own: complete, and checked.
    Rejoin,
    /// Text: [`crate::csv`].
    Csv,
    /// libCacheSim's: [`crate::oracle_general`].
    OracleGeneral,
}

impl Format {
    /// As many of the first bytes as decide.
    pub const FIRST_BYTES: usize = MAGIC.len();

    /// By its first bytes ([`Self::FIRST_BYTES`] of them, or all if there are fewer) and, as
    /// libCacheSim's format has nothing to know it by, its name: one that ends in `.csv` or
    /// contains `oracleGeneral`, in capitals or not. The bytes are believed first.
    ///
    /// # Errors
    /// [`Error::Compressed`] or [`Error::UnknownFormat`].
    pub fn of(name: &str, first: &[u8]) -> Result<Self, Error> {
        let lower_case = name.to_ascii_lowercase();
        if first.starts_with(&MAGIC) {
            return Ok(Self::Rejoin);
        }
        if let Some(with) = compressed_with(first) {
            return Err(Error::Compressed { with });
        }
        if lower_case.ends_with(".csv") || begins_as_csv(first) {
            return Ok(Self::Csv);
        }
        if lower_case.contains("oraclegeneral") {
            return Ok(Self::OracleGeneral);
        }
        // Cut within the header, which its reader will say.
        if MAGIC.starts_with(first) {
            return Ok(Self::Rejoin);
        }
        Err(Error::UnknownFormat { name: name.to_owned() })
    }
}

/// The events of a trace in any format, in order of time, up to its end or the first error.
pub type Events<'a> = Box<dyn Iterator<Item = Result<Event, Error>> + Send + 'a>;

/// Reads a trace in the format that it is in, one event at a time. `name` is the input's, to tell
/// the format by ([`Format::of`]); nothing is opened. It buffers by itself.
///
/// # Errors
/// Those of [`Format::of`] and of the format's reader about its beginning.
pub fn open<'a>(name: &str, mut input: impl Read + Send + 'a) -> Result<Events<'a>, Error> {
    let mut first = [0; Format::FIRST_BYTES];
    let length = fill(&mut input, &mut first, 0, 0)?;
    let format = Format::of(name, &first[..length])?;
    let input = Cursor::new(first).take(length as u64).chain(input);
    Ok(match format {
        Format::Rejoin => Box::new(reader::Reader::new(input)?),
        Format::Csv => Box::new(csv::Reader::new(input)?),
        Format::OracleGeneral => Box::new(oracle_general::Reader::new(input)),
    })
}

/// The names of its columns, in any order, after a byte order mark or not.
fn begins_as_csv(first: &[u8]) -> bool {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
    [&b"time_ms"[..], b"client,", b"first_of_run,", b"returns_in_ms"]
        .iter()
        .any(|column| text.starts_with(column))
}

fn compressed_with(first: &[u8]) -> Option<&'static str> {
    let begins = [
        (&b"\x28\xb5\x2f\xfd"[..], "zstd"),
        // With its method: two bytes alone may be the seconds of a request.
        (b"\x1f\x8b\x08", "gzip"),
        (b"\xfd7zXZ\0", "xz"),
    ];
    begins.iter().find(|(begin, _)| first.starts_with(begin)).map(|(_, with)| *with)
}
