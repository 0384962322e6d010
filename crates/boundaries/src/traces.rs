//! Traces: what is read is in order and can be written and read again in every format, and memory does not depend on
//! the input.

use std::io::Cursor;

use rejoin_testkit::memory::peak_bytes;
use rejoin_trace::{Error, Event, Reader, Writer, csv, open, oracle_general};

/// The names that decide, if the first bytes do not.
const NAMES: [&str; 3] = ["trace", "trace.csv", "trace.oracleGeneral"];
const MOST_BYTES: usize = 1 << 20;
/// The latest time in libCacheSim's format, in seconds.
const LATEST_S: u64 = u32::MAX as u64;

pub(crate) fn check(bytes: &[u8]) {
    let Some(([name], trace)) = bytes.split_first_chunk() else { return };
    let (mut events, mut failed) = (Vec::with_capacity(trace.len()), None);
    let peak = peak_bytes(|| match open(NAMES[usize::from(*name) % NAMES.len()], trace) {
        Ok(read) => {
            for event in read {
                match event {
                    Ok(event) => events.push(event),
                    Err(error) => failed = Some(error),
                }
            }
        }
        Err(error) => failed = Some(error),
    });
    assert!(peak < MOST_BYTES, "{peak} bytes");
    let said = failed.map(|error| error.to_string()).unwrap_or_default();
    assert!(!said.contains('\n'), "{said:?}");
    assert!(events.is_sorted_by_key(|event: &Event| event.time_ms));
    write_again(&events).expect("they were read");
}

fn write_again(events: &[Event]) -> Result<(), Error> {
    let mut own = Writer::new(Vec::new())?;
    let mut text = csv::Writer::new(Vec::new())?;
    for event in events {
        own.write(*event)?;
        text.write(*event)?;
    }
    let all =
        |read: &mut dyn Iterator<Item = Result<Event, Error>>| read.collect::<Result<Vec<_>, _>>();
    assert_eq!(all(&mut Reader::new(&own.finish()?[..])?)?, events);
    assert_eq!(all(&mut csv::Reader::new(&text.finish()?[..])?)?, events);
    if events.last().is_some_and(|event| event.time_ms / 1_000 > LATEST_S) {
        return Ok(());
    }
    let mut general = oracle_general::Writer::new(Cursor::new(Vec::new()))?;
    events.iter().try_for_each(|event| general.write(*event))?;
    let general = general.finish()?.into_inner();
    let kept = events.iter().map(|event| Event {
        time_ms: event.time_ms / 1_000 * 1_000,
        client: event.client,
        first_of_run: false,
        returns_in_ms: None,
    });
    assert_eq!(all(&mut oracle_general::Reader::new(&general[..]))?, kept.collect::<Vec<_>>());
    Ok(())
}
