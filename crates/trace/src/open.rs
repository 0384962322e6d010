//! Traces in any format.

use std::io::{Cursor, Read};

use crate::error::Error;
use crate::event::Event;
use crate::format::MAGIC;
use crate::input::fill;
use crate::{csv, oracle_general, reader};

/// The format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Our own format: complete, with a checksum.
    Rejoin,
    /// Text: [`crate::csv`].
    Csv,
    /// libCacheSim's: [`crate::oracle_general`].
    OracleGeneral,
}

impl Format {
    /// The number of first bytes that decide.
    pub const FIRST_BYTES: usize = MAGIC.len();

    /// Recognises a format by the first bytes ([`Self::FIRST_BYTES`] of them, or all if there are
    /// fewer) or else by the name, because libCacheSim's format has no mark: a name that ends in
    /// `.csv` or contains `oracleGeneral`, in capitals or not.
    ///
    /// # Errors
    /// Returns [`Error::Compressed`] or [`Error::UnknownFormat`].
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
        // The trace is cut within the header, which its reader reports.
        if MAGIC.starts_with(first) {
            return Ok(Self::Rejoin);
        }
        Err(Error::UnknownFormat { name: name.to_owned() })
    }
}

/// The events of a trace in any format, in order of time, up to its end or the first error.
pub type Events<'a> = Box<dyn Iterator<Item = Result<Event, Error>> + Send + 'a>;

/// Reads a trace in any format, one event at a time. `name` is the input's name, by which the
/// format may be recognised ([`Format::of`]); no file is opened. It buffers by itself.
///
/// # Errors
/// Returns the errors of [`Format::of`], and those of the format's reader at the beginning.
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

/// Returns true if a text begins with the names of columns, in any order, with or without a byte
/// order mark.
fn begins_as_csv(first: &[u8]) -> bool {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
    [&b"time_ms"[..], b"client,", b"first_of_run,", b"returns_in_ms"]
        .iter()
        .any(|column| text.starts_with(column))
}

fn compressed_with(first: &[u8]) -> Option<&'static str> {
    let begins = [
        (&b"\x28\xb5\x2f\xfd"[..], "zstd"),
        // The method counts too: two bytes alone may be the seconds of a request.
        (b"\x1f\x8b\x08", "gzip"),
        (b"\xfd7zXZ\0", "xz"),
    ];
    begins.iter().find(|(begin, _)| first.starts_with(begin)).map(|(_, with)| *with)
}
