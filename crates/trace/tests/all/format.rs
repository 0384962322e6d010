//! Traces that read as they were written, and every error in them.

use std::io::{self, Read, Write};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rejoin_trace::{Error, Event, Reader, VERSION, Writer};

const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 24;

/// Returns events with small, large and extreme values in every field.
fn random_events(seed: u64, count: usize) -> Vec<Event> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut time_ms = 0_u64;
    let mut event = || {
        let bits = random.next_u32();
        time_ms = time_ms.saturating_add(random.next_u64() >> (8 + bits % 56));
        Event {
            time_ms,
            client: random.next_u64() >> (bits >> 8 & 63),
            first_of_run: bits & 1 << 16 != 0,
            returns_in_ms: (bits & 1 << 17 != 0).then(|| random.next_u32() >> (bits >> 20 & 31)),
        }
    };
    let mut events: Vec<Event> = (0..count).map(|_| event()).collect();
    let (time_ms, client) = (u64::MAX, u64::MAX);
    events.push(Event { time_ms, client, first_of_run: true, returns_in_ms: Some(u32::MAX) });
    events
}

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    events.iter().for_each(|event| writer.write(*event).expect("in order"));
    writer.finish().expect("memory")
}

fn read(bytes: &[u8]) -> Result<Vec<Event>, Error> {
    Reader::new(bytes)?.collect()
}

fn error(bytes: &[u8]) -> Error {
    read(bytes).expect_err("not a whole trace")
}

#[test]
fn events_come_back_as_they_were() {
    for (seed, count) in [(1, 0), (2, 1), (3, 1_000), (4, 20_000)] {
        let events = random_events(seed, count);
        assert_eq!(read(&written(&events)).expect("whole"), events);
    }
    assert_eq!(read(&written(&[])).expect("whole"), []);
}

/// The format is a promise: a trace of today must be read by the programs of tomorrow.
#[test]
fn golden_bytes() {
    let event = Event { time_ms: 258, client: 7, first_of_run: true, returns_in_ms: Some(60_000) };
    let silent = Event { first_of_run: false, returns_in_ms: None, ..event };
    let bytes = written(&[event, silent]);
    let expected = [
        b"rejoin-trace\r\n\x1a\n\x01\0\0\0\0\0\0\0".as_slice(),
        b"\x02\x01\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x60\xea\0\0\x03\0\0\0",
        b"\x02\x01\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"CRC.END.",
    ]
    .concat();
    assert_eq!(bytes[..88], expected[..88]);
    assert_eq!(bytes[92..], expected[92..]);
    assert_eq!(bytes[88..92], crc32_bit_by_bit(&bytes[..88]).to_le_bytes());
}

/// Calculates CRC-32 by its definition, so that the checksum does not depend on a crate.
fn crc32_bit_by_bit(bytes: &[u8]) -> u32 {
    let shift = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), shift);
    !bytes.iter().fold(!0, byte)
}

#[test]
fn every_cut_is_noticed_and_placed() {
    let bytes = written(&random_events(5, 20));
    for length in 0..bytes.len() {
        let Error::Cut { events, byte } = error(&bytes[..length]) else {
            panic!("cut at {length} is called something else");
        };
        assert_eq!(byte, length as u64);
        assert_eq!(events, (length.saturating_sub(HEADER_BYTES) / RECORD_BYTES) as u64);
    }
}

#[test]
fn the_events_before_a_cut_are_given() {
    let events = random_events(6, 10);
    let bytes = written(&events);
    let mut reader = Reader::new(&bytes[..HEADER_BYTES + 4 * RECORD_BYTES + 5]).expect("header");
    let given: Vec<Event> = reader.by_ref().map_while(Result::ok).collect();
    assert_eq!(given, events[..4]);
    assert!(reader.next().is_none(), "an error is the end");
}

#[test]
fn every_flipped_bit_and_replaced_byte_is_noticed() {
    let bytes = written(&random_events(7, 12));
    for place in 0..bytes.len() {
        let flips = (0..8).map(|bit| 1 << bit).chain([0xff, bytes[place]]);
        for flip in flips.filter(|flip| *flip != 0) {
            let mut damaged = bytes.clone();
            damaged[place] ^= flip;
            error(&damaged);
        }
    }
}

#[test]
fn records_lost_doubled_swapped_or_added_are_noticed() {
    let bytes = written(&random_events(8, 6));
    let records: Vec<&[u8]> = bytes[HEADER_BYTES..].chunks(RECORD_BYTES).collect();
    let whole = |records: &[&[u8]]| [&bytes[..HEADER_BYTES], &records.concat()].concat();
    for place in 0..records.len() - 1 {
        let (before, after) = (&records[..place], &records[place + 1..]);
        for records in [[before, after], [&records[..=place], &records[place..]]] {
            let told = error(&whole(&records.concat())).to_string();
            assert!(told.contains("counts another number of events"), "{told}");
        }
        let mut swapped = records.clone();
        swapped.swap(place, place + 1);
        error(&whole(&swapped));
    }
    let twice = [&bytes[..], &bytes[..]].concat();
    assert!(error(&twice).to_string().contains("goes on after the end mark"));
}

#[test]
fn no_bytes_make_it_panic() {
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let header = &written(&[])[..HEADER_BYTES];
    for round in 0..20_000 {
        let mut bytes = vec![0; round % 200];
        random.fill_bytes(&mut bytes);
        read(&bytes).ok();
        // Kinds that exist, so that the reader gets beyond the first record.
        bytes.chunks_exact_mut(RECORD_BYTES).for_each(|record| {
            record[20..].copy_from_slice(&(random.next_u32() % 5).to_le_bytes());
            record[..8].rotate_left(round % 8);
        });
        error(&[header, &bytes].concat());
    }
}

#[test]
fn other_files_are_called_so() {
    for bytes in [&b"hello"[..], b"rejoin-trace\n\x1a\n and more text than a header", &[0; 100]] {
        assert!(matches!(error(bytes), Error::NotATrace), "{bytes:?}");
    }
    let mut bytes = written(&[]);
    bytes[16..20].copy_from_slice(&(VERSION + 6).to_le_bytes());
    let told = error(&bytes).to_string();
    assert_eq!(told, "a trace of version 7, where this program reads version 1: record it again");
}

#[test]
fn time_does_not_go_back() {
    let at = |time_ms| Event { time_ms, client: 0, first_of_run: false, returns_in_ms: None };
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer.write(at(1_500)).expect("first");
    let told = writer.write(at(1_499)).expect_err("earlier").to_string();
    let expected = "event 2 (byte 48) is at 1,499 ms, the event before it at 1,500 ms: \
                    sort the events by time";
    assert_eq!(told, expected);
    writer.write(at(1_500)).expect("an event refused leaves the trace as it was");
    assert_eq!(writer.events(), 2);
    let bytes = writer.finish().expect("memory");
    assert_eq!(read(&bytes).expect("whole").len(), 2);

    let mut unsorted = bytes;
    unsorted[HEADER_BYTES + 1] = 0xff;
    let expected = "event 2 (byte 48) is at 1,500 ms, the event before it at 65,500 ms: \
                    sort the events by time";
    assert_eq!(error(&unsorted).to_string(), expected);
}

#[test]
fn a_writer_that_is_dropped_leaves_a_trace_that_is_cut() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).expect("memory");
    random_events(10, 3).into_iter().for_each(|event| writer.write(event).expect("in order"));
    drop(writer);
    assert!(matches!(error(&bytes), Error::Cut { events: 4, byte: 120 }));
}

/// An input that yields one byte at a time, is interrupted before each, and fails where told.
struct Awkward<'a> {
    bytes: &'a [u8],
    interrupt: bool,
    fails: bool,
}

impl Read for Awkward<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupt = !self.interrupt;
        if self.interrupt {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.bytes.is_empty() && self.fails {
            return Err(io::Error::other("the disk is gone"));
        }
        let length = buffer.len().min(1);
        self.bytes.read(&mut buffer[..length])
    }
}

#[test]
fn an_awkward_input_is_read_all_the_same() {
    let events = random_events(11, 50);
    let bytes = written(&events);
    let awkward = Awkward { bytes: &bytes, interrupt: false, fails: false };
    let read: Result<Vec<Event>, Error> = Reader::new(awkward).expect("header").collect();
    assert_eq!(read.expect("whole"), events);

    let awkward = Awkward { bytes: &bytes[..100], interrupt: false, fails: true };
    let told = Reader::new(awkward).expect("header").find_map(Result::err).expect("fails");
    let expected = "reading failed after 3 whole events (byte 100): the disk is gone";
    assert_eq!(told.to_string(), expected);
}

/// An output that takes so many bytes and no more.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let mut writer = Writer::new(Full(10_000)).expect("buffered");
    let told = random_events(12, 2_000).into_iter().find_map(|event| writer.write(event).err());
    assert!(matches!(told, Some(Error::Write { events: 340.., .. })), "{told:?}");
    assert!(Writer::new(Full(30)).expect("buffered").finish().is_err());
}
