//! Access logs, compressed or not: each line is a request, is without TLS, or has a reason; times stay within the years
//! that are allowed; memory is bounded.

use std::fs::File;

use rejoin_logs::{Collector, Parser};
use rejoin_testkit::memory::peak_bytes;

/// The window of a frame of zstd may have 100 MiB.
const MOST_BYTES: usize = 256 << 20;
/// The years 2000 to 2099, and a day for zones.
const TIMES_MS: std::ops::Range<u64> = 946_598_400_000..4_102_531_200_000;

pub(crate) fn check(bytes: &[u8]) {
    let parser = Parser::new([7; 16]);
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Ok(entry) = parser.parse(line) {
            assert!(TIMES_MS.contains(&entry.time_ms), "{entry:?}");
        }
    }
    // Few records are never written.
    let nowhere = File::open("/dev/null").expect("a device");
    let mut collector = Collector::new([7; 16], nowhere);
    let mut read = Ok(());
    let peak = peak_bytes(|| read = collector.read("a log", bytes, || false));
    assert!(peak < MOST_BYTES, "{peak} bytes");
    let facts = collector.facts();
    assert_eq!(facts.lines, facts.requests + facts.without_tls + facts.malformed());
    assert!(facts.span_ms.is_none_or(|(first, last)| first <= last));
    if let Err(error) = read {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}
