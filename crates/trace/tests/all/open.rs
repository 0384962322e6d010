//! A trace in any format, told by its first bytes and its name.

use std::io::{self, Cursor, Read};

use rejoin_trace::{Error, Event, Format, Writer, csv, open, oracle_general};

use crate::arrivals;

/// Returns the same events in every format, each with a name.
fn written(events: &[Event]) -> [(&'static str, Vec<u8>); 3] {
    let mut own = Writer::new(Vec::new()).expect("memory");
    let mut text = csv::Writer::new(Vec::new()).expect("memory");
    let mut oracle = oracle_general::Writer::new(Cursor::new(Vec::new())).expect("memory");
    for event in events {
        own.write(*event).expect("in order");
        text.write(*event).expect("in order");
        oracle.write(*event).expect("in order");
    }
    [
        ("arrivals.trace", own.finish().expect("memory")),
        ("arrivals.csv", text.finish().expect("memory")),
        ("arrivals.oracleGeneral.bin", oracle.finish().expect("memory").into_inner()),
    ]
}

/// An input that yields one byte at a time, is interrupted before each, and then fails.
struct Slow<'a> {
    bytes: &'a [u8],
    interrupt: bool,
}

fn slow(bytes: &[u8]) -> Slow<'_> {
    Slow { bytes, interrupt: false }
}

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupt = !self.interrupt;
        if self.interrupt {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.bytes.is_empty() {
            return Err(io::Error::other("the disk is gone"));
        }
        let length = buffer.len().min(1);
        self.bytes.read(&mut buffer[..length])
    }
}

#[test]
fn every_format_is_read_by_one_call() {
    let events = arrivals(1, 1_000);
    let [own, text, oracle] = written(&events);
    for (name, bytes) in [own, text] {
        let read: Result<Vec<Event>, Error> = open(name, &bytes[..]).expect(name).collect();
        assert_eq!(read.expect(name), events);
    }
    let (name, bytes) = oracle;
    let read: Result<Vec<Event>, Error> = open(name, &bytes[..]).expect(name).collect();
    let clients = |events: &[Event]| -> Vec<u64> { events.iter().map(|e| e.client).collect() };
    assert_eq!(clients(&read.expect(name)), clients(&events));
}

#[test]
fn an_input_that_is_slow_and_fails() {
    for (name, bytes) in written(&arrivals(1, 1_000)) {
        let given: Vec<_> = open(name, slow(&bytes)).expect(name).collect();
        let (last, events) = given.split_last().expect("some");
        let last = last.as_ref().expect_err("fails").to_string();
        assert!(last.contains(&format!("(byte {})", grouped(bytes.len()))), "{last}");
        assert!(last.ends_with("the disk is gone"), "{last}");
        assert_eq!(events.len(), 1_000, "{name}");
        let told = open(name, slow(&bytes[..5])).err().map(|error| error.to_string());
        let expected = "reading failed after 0 whole events (byte 5): the disk is gone";
        assert_eq!(told.as_deref(), Some(expected));
    }
}

fn grouped(number: usize) -> String {
    format!("{},{:03}", number / 1_000, number % 1_000)
}

#[test]
fn bytes_are_believed_before_names() {
    let of = |name, first: &[u8]| Format::of(name, first).ok();
    let [(_, own), (_, text), (_, oracle)] = written(&arrivals(1, 1_000))
        .map(|(name, bytes)| (name, bytes[..Format::FIRST_BYTES].to_vec()));
    for name in ["a", "a.csv", "a.oracleGeneral"] {
        assert_eq!(of(name, &own), Some(Format::Rejoin));
    }
    for name in ["a", "-", "a.oracleGeneral"] {
        assert_eq!(of(name, &text), Some(Format::Csv));
        assert_eq!(of(name, b"\xef\xbb\xbftime_ms,clie"), Some(Format::Csv));
        assert_eq!(of(name, b"client,time_ms\n7"), Some(Format::Csv));
    }
    for name in ["a.oracleGeneral", "A.ORACLEGENERAL.BIN", "oracleGeneral/a"] {
        assert_eq!(of(name, &oracle), Some(Format::OracleGeneral));
        assert_eq!(of(name, b""), Some(Format::OracleGeneral));
    }
    assert_eq!(of("A.CSV", b"time;client"), Some(Format::Csv));
    assert_eq!(of("a", b"rejoin-tr"), Some(Format::Rejoin), "cut, which its reader says");
    assert_eq!(of("a", b""), Some(Format::Rejoin));
}

#[test]
fn what_is_no_trace_is_told_in_one_line() {
    let told = |name, bytes: &'static [u8]| open(name, bytes).err().expect("no trace").to_string();
    let expected = "\"a\\n.bin\" is in no format known here: give a trace that rejoin recorded, \
                    a .csv, or a file with oracleGeneral in its name";
    assert_eq!(told("a\n.bin", &[0; 48]), expected);
    let expected = "compressed with zstd: decompress it first, with zstd -d";
    assert_eq!(told("a.oracleGeneral.zst", b"\x28\xb5\x2f\xfd\x04\0\0"), expected);
    assert!(told("a.csv.gz", b"\x1f\x8b\x08\x00").starts_with("compressed with gzip"));
    assert!(told("a", b"\xfd7zXZ\0").starts_with("compressed with xz"));
    assert!(told("a", b"rejoin-tr").starts_with("cut after 0 whole events (byte 9)"));
    assert!(told("a.csv", b"").starts_with("line 1: nothing is there"));
}
