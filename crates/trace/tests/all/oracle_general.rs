//! libCacheSim's format, written and read back.

use std::collections::HashMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};

use rejoin_trace::oracle_general::{Reader, Writer};
use rejoin_trace::{Error, Event};

use crate::{arrivals, at};

const RECORD_BYTES: usize = 24;

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new())).expect("memory");
    events.iter().for_each(|event| writer.write(*event).expect("in order"));
    writer.finish().expect("memory").into_inner()
}

fn read(bytes: &[u8]) -> Result<Vec<Event>, Error> {
    Reader::new(bytes).collect()
}

/// Returns the whole seconds and the client, the only data that the format keeps.
fn kept(event: &Event) -> Event {
    at(event.time_ms / 1_000 * 1_000, event.client)
}

#[test]
fn events_come_back_without_what_the_format_cannot_hold() {
    for (seed, count) in [(1, 0), (2, 1), (3, 2_730), (4, 2_731), (5, 20_000)] {
        let events = arrivals(seed, count);
        let expected: Vec<Event> = events.iter().map(kept).collect();
        assert_eq!(read(&written(&events)).expect("whole"), expected);
    }
    let latest = at(4_294_967_295_999, u64::MAX);
    assert_eq!(read(&written(&[latest])).expect("whole"), [kept(&latest)]);
}

/// The first records of `paper-000.oracleGeneral.bin`, which another program wrote and
/// libCacheSim read.
#[test]
fn another_programs_records() {
    let bytes = b"\0\0\0\0\x37\x20\0\0\0\0\0\0\x01\0\0\0\x11\x02\0\0\0\0\0\0\
                  \0\0\0\0\xf8\x3d\0\0\0\0\0\0\x01\0\0\0\x14\x02\0\0\0\0\0\0\
                  \0\0\0\0\x92\x32\0\0\0\0\0\0\x01\0\0\0\xf6\x5e\0\0\0\0\0\0";
    let expected = [at(0, 8_247), at(0, 15_864), at(0, 12_946)];
    assert_eq!(read(bytes).expect("whole"), expected);
}

/// Checks records made by hand: requests are numbered from 1.
#[test]
fn golden_bytes() {
    let bytes = written(&[at(1_999, 7), at(2_000, 258), at(2_000, 7), at(66_000, 7)]);
    let expected = [
        b"\x01\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\x03\0\0\0\0\0\0\0".as_slice(),
        b"\x02\0\0\0\x02\x01\0\0\0\0\0\0\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x02\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\0\0\0\0\0",
        b"\x42\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn next_is_the_next_request_of_the_same_client() {
    let events = arrivals(6, 20_000);
    let bytes = written(&events);
    let mut following: HashMap<u64, i64> = HashMap::new();
    let numbered = (1..).zip(events.iter().zip(bytes.chunks(RECORD_BYTES)));
    for (number, (event, record)) in numbered.collect::<Vec<_>>().into_iter().rev() {
        let next = i64::from_le_bytes(record[16..].try_into().expect("eight bytes"));
        assert_eq!(next, following.insert(event.client, number).unwrap_or(-1));
    }
}

#[test]
fn every_cut_within_a_record_is_noticed_and_placed() {
    let bytes = written(&arrivals(7, 20));
    for length in 0..bytes.len() {
        let (events, rest) = (length / RECORD_BYTES, length % RECORD_BYTES);
        match read(&bytes[..length]) {
            Ok(whole) => assert_eq!((whole.len(), rest), (events, 0)),
            Err(Error::Damaged { events: before, byte, .. }) => {
                assert_eq!((before, byte), (events as u64, (events * RECORD_BYTES) as u64));
                assert_ne!(rest, 0);
            }
            Err(error) => panic!("cut at {length} is called something else: {error}"),
        }
    }
    let told = read(&bytes[..30]).expect_err("cut").to_string();
    let expected = "damaged after 1 whole events (byte 24): the input ends within a record; \
                    copy it again or record it again";
    assert_eq!(told, expected);
}

#[test]
fn no_bytes_make_it_panic() {
    let mut bytes = written(&arrivals(8, 40));
    for round in 0..20_000_usize {
        let place = round * 7_919 % bytes.len();
        bytes[place] = bytes[place].wrapping_mul(31).wrapping_add(round as u8);
        let mut reader = Reader::new(&bytes[..bytes.len() - round % 50]);
        while let Some(Ok(_)) = reader.next() {}
        assert!(reader.next().is_none(), "an error is the end");
    }
}

#[test]
fn time_does_not_go_back() {
    let mut writer = Writer::new(Cursor::new(Vec::new())).expect("memory");
    writer.write(at(5_500, 1)).expect("first");
    let told = writer.write(at(5_499, 1)).expect_err("earlier").to_string();
    let expected = "event 2 (byte 24) is at 5,499 ms, the event before it at 5,500 ms: \
                    sort the events by time";
    assert_eq!(told, expected);
    let told = writer.write(at(4_294_967_296_000, 1)).expect_err("late").to_string();
    let expected = "time_ms is 4,294,967,296,000: it must be between 0 and 4,294,967,295,999";
    assert_eq!(told, expected);
    writer.write(at(5_500, 1)).expect("an event refused leaves the trace as it was");
    assert_eq!(writer.events(), 2);
    let mut bytes = writer.finish().expect("memory").into_inner();
    assert_eq!(read(&bytes).expect("whole").len(), 2);

    bytes[0] = 6;
    let expected = "event 2 (byte 24) is at 5,000 ms, the event before it at 6,000 ms: \
                    sort the events by time";
    assert_eq!(read(&bytes).expect_err("unsorted").to_string(), expected);
}

#[test]
fn a_trace_may_begin_within_a_file() {
    let mut file = Cursor::new(b"before".to_vec());
    file.seek(SeekFrom::End(0)).expect("memory");
    let events = arrivals(9, 3_000);
    let mut writer = Writer::new(&mut file).expect("memory");
    events.iter().for_each(|event| writer.write(*event).expect("in order"));
    let file = writer.finish().expect("memory");
    assert_eq!(file.position(), 6 + 3_000 * RECORD_BYTES as u64, "left at the end");
    assert_eq!(file.get_ref()[..6], *b"before");
    assert_eq!(file.get_ref()[6..], written(&events));
}

/// An output that takes so many bytes in all, and no more.
struct Full {
    file: Cursor<Vec<u8>>,
    left: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Full {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Seek for Full {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Checks that a trace that was cut anywhere is not taken for a whole one.
#[test]
fn what_was_not_finished_is_called_so() {
    let events = arrivals(10, 6_000);
    let whole = 2 * 6_000 * RECORD_BYTES;
    for left in [30_000, whole / 2, whole / 2 + 70_000, whole - 1] {
        let mut full = Full { file: Cursor::new(Vec::new()), left };
        let mut writer = Writer::new(&mut full).expect("nothing is written yet");
        let told = events.iter().find_map(|event| writer.write(*event).err());
        let told = told.or_else(|| writer.finish().err()).expect("full");
        assert!(matches!(told, Error::Write { .. }), "{told}");
        let told = read(full.file.get_ref()).expect_err("not finished").to_string();
        assert!(told.starts_with("damaged after 0 whole events (byte 0)"), "{told}");
        assert!(told.contains("never finished"), "{told}");
    }
}
