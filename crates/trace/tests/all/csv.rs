//! Traces as text: written and read back, and every error in them.

use std::io::{self, Read};

use rejoin_trace::csv::{LONGEST_LINE_BYTES, Reader, Writer};
use rejoin_trace::{Error, Event};

use crate::{arrivals, at};

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    events.iter().for_each(|event| writer.write(*event).expect("in order"));
    writer.finish().expect("memory")
}

fn read(text: impl AsRef<[u8]>) -> Result<Vec<Event>, Error> {
    Reader::new(text.as_ref())?.collect()
}

fn told(text: impl AsRef<[u8]>) -> String {
    let told = read(text).expect_err("not a trace").to_string();
    assert!(!told.contains('\n'), "{told}");
    told
}

#[test]
fn events_come_back_as_they_were() {
    for (seed, count) in [(1, 0), (2, 1), (3, 20_000)] {
        let events = arrivals(seed, count);
        assert_eq!(read(written(&events)).expect("whole"), events);
    }
    let largest = Event {
        time_ms: u64::MAX,
        client: u64::MAX,
        first_of_run: true,
        returns_in_ms: Some(Event::NOT_BACK_MS),
    };
    let events = [at(0, 0), largest];
    assert_eq!(read(written(&events)).expect("whole"), events);
}

#[test]
fn golden_text() {
    let event = Event { first_of_run: true, returns_in_ms: Some(60_000), ..at(773, 656) };
    let expected = "time_ms,client,first_of_run,returns_in_ms\n773,656,true,60000\n\
                    1644,228,false,\n";
    assert_eq!(written(&[event, at(1_644, 228)]), expected.as_bytes());
}

#[test]
fn other_peoples_tables() {
    let expected = [at(1, 7), at(20, 8)];
    for text in [
        "time_ms,client\n1,7\n20,8\n",
        "client,time_ms\n7,1\n8,20\n",
        "time_ms,client\r\n1,7\r\n20,8\r\n",
        "\u{feff}time_ms,client\n1,7\n20,8\n",
        "\n\ntime_ms, client\n\n1, 7\n 20 ,8\n\n",
        "\r\n\r\ntime_ms,client\r\n\r\n1,7\r\n20,8\r\n\r\n",
        "\"time_ms\",\"client\"\r\n\"1\",\"7\"\r\n\"20\",\"8\"\r\n",
        "returns_in_ms,client,first_of_run,time_ms\n,7,0,1\n,8,,20\n",
    ] {
        assert_eq!(read(text).expect(text), expected);
    }
    let event = Event { first_of_run: true, returns_in_ms: Some(0), ..at(1, 7) };
    assert_eq!(read("time_ms,client,first_of_run,returns_in_ms\n1,7,1,0\n").expect("one"), [event]);
}

#[test]
fn a_bad_header_is_told_with_the_right_one() {
    let remedy = ": begin with time_ms,client or with time_ms,client,first_of_run,returns_in_ms";
    for (text, what) in [
        ("", "nothing is there"),
        ("\n\n", "nothing is there"),
        ("time_ms,client,size\n", "\"size\" is no column of a trace"),
        ("1,7\n", "\"1\" is no column of a trace"),
        ("time_ms,client,time_ms\n", "time_ms is there twice"),
        ("client\n", "no column is called time_ms"),
        ("time_ms,returns_in_ms\n", "no column is called client"),
        ("time_ms;client\n", "\"time_ms;client\" is no column of a trace"),
    ] {
        assert_eq!(told(text), format!("line 1: {what}{remedy}"));
    }
}

#[test]
fn a_bad_field_is_told_with_line_and_column() {
    let header = "time_ms,client,first_of_run,returns_in_ms\n";
    for (line, expected) in [
        ("x,7,,", "time_ms: \"x\" is not a whole number of milliseconds"),
        ("-1,7,,", "time_ms: \"-1\" is not a whole number of milliseconds"),
        ("1.5,7,,", "time_ms: \"1.5\" is not a whole number of milliseconds"),
        (",7,,", "time_ms: \"\" is not a whole number of milliseconds"),
        ("5,bob,,", "client: \"bob\" is not a number: number the clients, from 0 to 2⁶⁴ − 1"),
        ("5,7,yes,", "first_of_run: \"yes\" is not true or false, 1 or 0, or empty"),
        (
            "5,7,,4294967296",
            "returns_in_ms: \"4294967296\" is not a whole number of milliseconds below 2³², \
             or empty",
        ),
    ] {
        for (before, place) in [("", 2), ("5,7,,\n5,7,,\n", 4), ("\n5,7,,\n\n\n", 6)] {
            for feed in ["\n", "\r\n"] {
                let text = format!("{header}{before}{line}\n5,7,,\n").replace('\n', feed);
                assert_eq!(told(&text), format!("line {place}, column {expected}"));
            }
        }
    }
    let long = format!("{header}{},7,,\n", "9".repeat(1_000));
    assert!(told(&long).len() < 120, "{}", told(&long));
    let escaped = told(b"time_ms,client\n1,\x1b[31m\xff\n");
    assert!(escaped.contains("\\u{1b}[31m"), "{escaped}");
}

#[test]
fn a_bad_line_is_told() {
    let fields = "another number of fields than the first line names";
    assert_eq!(told("time_ms,client\n1,7\n1\n"), format!("line 3: {fields}"));
    assert_eq!(told("time_ms,client\n1,7,1\n"), format!("line 2: {fields}"));
    let expected = "event 2 (byte 21) is at 19 ms, the event before it at 20 ms: \
                    sort the events by time";
    assert_eq!(told("time_ms,client\n20,77\n19,8\n"), expected);
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer.write(at(20, 77)).expect("first");
    let refused = writer.write(at(19, 8)).expect_err("earlier");
    assert!(matches!(refused, Error::BackInTime { event: 2, byte: 55, .. }), "{refused:?}");
    assert_eq!(writer.events(), 1);
}

#[test]
fn every_cut_within_a_line_is_noticed_and_placed() {
    let bytes = written(&arrivals(4, 20));
    for length in 0..bytes.len() {
        let whole_lines = bytes[..length].iter().filter(|byte| **byte == b'\n').count();
        let within = length > 0 && bytes[length - 1] != b'\n';
        match read(&bytes[..length]) {
            Ok(events) => assert_eq!((events.len() + 1, within), (whole_lines, false)),
            Err(Error::BadHeader { .. }) => assert_eq!(length, 0),
            Err(Error::BadLine { line, what }) => {
                assert_eq!((line, within), (whole_lines as u64 + 1, true));
                assert!(what.contains("add the missing line feed"));
            }
            Err(error) => panic!("cut at {length} is called something else: {error}"),
        }
    }
}

/// An input that yields a line feed only at the end, if ever.
#[derive(Debug)]
struct Endless(u64);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0 += buffer.len() as u64;
        buffer.fill(b'7');
        Ok(buffer.len())
    }
}

#[test]
fn no_line_takes_all_memory() {
    let mut endless = Endless(0);
    let told = Reader::new(b"time_ms,client\n1,7\n\"".chain(&mut endless)).expect("header");
    let told = told.last().expect("an error").expect_err("too long").to_string();
    assert_eq!(told, "line 3: longer than 64 KiB: give one event a line");
    assert!(endless.0 < 2 * LONGEST_LINE_BYTES as u64, "{}", endless.0);
    let told = Reader::new(Endless(0)).expect_err("no header").to_string();
    assert_eq!(told, "line 1: longer than 64 KiB: give one event a line");
}

#[test]
fn no_bytes_make_it_panic() {
    let mut bytes = written(&arrivals(5, 30));
    let replacements = b"\n\r,\"\0\xff9 -te\xef\xbb\xbf";
    for round in 0..20_000_usize {
        let place = round * 7_919 % bytes.len();
        let before = bytes[place];
        bytes[place] = replacements[round % replacements.len()];
        read(&bytes[..bytes.len() - round % 50]).ok();
        if round % 3 != 0 {
            bytes[place] = before;
        }
    }
}
