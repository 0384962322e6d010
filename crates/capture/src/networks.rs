//! Autonomous systems: the operators of servers, from a table of address ranges.
//!
//! The user supplies the table: lines of `start,end,asn,org` or `prefix,asn,org`, separated by
//! commas or tabs, also in gzip. If several ranges contain an address, the narrowest counts, as in
//! routing.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::net::IpAddr;

use flate2::read::MultiGzDecoder;

use crate::error::Error;

/// Address ranges and the autonomous systems they belong to.
#[derive(Debug, Default)]
pub struct Networks {
    /// Disjoint and sorted, with IPv4 mapped into IPv6.
    ranges: Vec<Range>,
}

/// The most ranges that are read; the Internet has about a million prefixes.
const MOST_RANGES: usize = 1 << 24;
/// The longest line, in bytes.
const LONGEST_LINE_BYTES: usize = 1 << 16;
/// The number that stands for no autonomous system (RFC 7607): the range is not routed.
const NOT_ROUTED: u32 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u128,
    end: u128,
    asn: u32,
}

impl Networks {
    /// Parses a table. Lines that begin with `#` are comments; a first line without an address is a
    /// header. Fields after the AS number are ignored. Addresses of AS 0 are in no system.
    ///
    /// # Errors
    /// [`Error::Networks`] with the first invalid line, or if the table has no range.
    pub fn parse(input: impl Read) -> Result<Self, Error> {
        let failed = |line, what: String| Error::Networks { line, what };
        let mut input = plain(input).map_err(|error| failed(1, error.to_string()))?;
        let mut bytes = Vec::new();
        let mut ranges = Vec::new();
        for line in 1.. {
            let read = next_line(&mut input, &mut bytes);
            if !read.map_err(|error| failed(line, error.to_string()))? {
                break;
            }
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() || text.starts_with('#') || (line == 1 && is_head(text)) {
                continue;
            }
            ranges.push(range(text).map_err(|what| failed(line, what))?);
            if ranges.len() > MOST_RANGES {
                return Err(failed(line, format!("more than {MOST_RANGES} ranges")));
            }
        }
        if ranges.is_empty() {
            return Err(failed(
                1,
                "no range: write start,end,asn,org or prefix,asn,org".to_owned(),
            ));
        }
        Ok(Self { ranges: disjoint(ranges) })
    }

    /// The number of the autonomous system that contains an address.
    pub fn asn(&self, address: IpAddr) -> Option<u32> {
        let address = number(address);
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address <= range.end && range.asn != NOT_ROUTED).then_some(range.asn)
    }

    /// Returns true if the table has no ranges.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// Returns the text of a table that may be in gzip.
fn plain<'r>(mut input: impl Read + 'r) -> io::Result<BufReader<Box<dyn Read + 'r>>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let mut start = Vec::new();
    input.by_ref().take(2).read_to_end(&mut start)?;
    let is_gzip = start == GZIP;
    let whole = Cursor::new(start).chain(input);
    let plain: Box<dyn Read> =
        if is_gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
    Ok(BufReader::new(plain))
}

/// Reads a line. Returns false at the end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    input.by_ref().take(LONGEST_LINE_BYTES as u64).read_until(b'\n', line)?;
    match line.len() < LONGEST_LINE_BYTES {
        true => Ok(!line.is_empty()),
        false => Err(io::Error::other(format!("longer than {LONGEST_LINE_BYTES} bytes"))),
    }
}

/// Returns true for a header line: every address contains a dot or a colon.
fn is_head(line: &str) -> bool {
    !field(line, 0).contains(['.', ':'])
}

/// A field of a line; the separator is the tab if the line contains one.
fn field(line: &str, at: usize) -> &str {
    let separator = if line.contains('\t') { '\t' } else { ',' };
    line.split(separator).nth(at).unwrap_or_default().trim().trim_matches('"')
}

fn range(line: &str) -> Result<Range, String> {
    let asn = |at| {
        let digits = field(line, at).trim_start_matches("AS");
        let what = "is no number of an autonomous system";
        digits.parse().map_err(|_| format!("{:?} {what}", field(line, at)))
    };
    if let Some((address, length)) = field(line, 0).split_once('/') {
        let (start, end) = prefix(parsed(address)?, length)?;
        return Ok(Range { start, end, asn: asn(1)? });
    }
    let (start, end) = (parsed(field(line, 0))?, parsed(field(line, 1))?);
    if start.is_ipv4() != end.is_ipv4() || start > end {
        return Err(format!("{start} to {end} is no range"));
    }
    Ok(Range { start: number(start), end: number(end), asn: asn(2)? })
}

fn parsed(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is no address: write start,end,asn,org"))
}

fn prefix(address: IpAddr, length: &str) -> Result<(u128, u128), String> {
    let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
    let length = length.parse::<u32>().ok().filter(|length| *length <= bits);
    let free =
        bits - length.ok_or_else(|| format!("no prefix has this length; {bits} bits are all"))?;
    let host = 1_u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
    let start = number(address) & !host;
    Ok((start, start | host))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Splits ranges so that they do not overlap; where several cover a part, the narrowest wins.
fn disjoint(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_by_key(|range| range.start);
    let ends = ranges.iter().filter_map(|range| range.end.checked_add(1));
    let mut places: Vec<u128> = ranges.iter().map(|range| range.start).chain(ends).collect();
    places.sort_unstable();
    places.dedup();
    let (mut disjoint, mut open, mut next) = (Vec::new(), BTreeSet::new(), 0);
    for (at, place) in places.iter().enumerate() {
        while let Some(range) = ranges.get(next).filter(|range| range.start <= *place) {
            open.insert((range.end - range.start, next));
            next += 1;
        }
        while let Some(over) = open.first().filter(|(_, at)| ranges[*at].end < *place).copied() {
            open.remove(&over);
        }
        if let Some((_, narrowest)) = open.first() {
            let end = places.get(at + 1).map_or(u128::MAX, |next| next - 1);
            disjoint.push(Range { start: *place, end, asn: ranges[*narrowest].asn });
        }
    }
    disjoint
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn asns(table: &str, addresses: &[&str]) -> Vec<Option<u32>> {
        let networks = Networks::parse(table.as_bytes()).unwrap();
        addresses.iter().map(|address| networks.asn(address.parse().unwrap())).collect()
    }

    #[test]
    fn an_address_is_in_its_range() {
        let table = "start,end,asn,org\n1.0.0.0,1.0.0.255,13335,\"Cloudflare, Inc.\"\n\
                     2a00:1450::,2a00:1450:ffff:ffff:ffff:ffff:ffff:ffff,15169,Google LLC\n";
        let found =
            asns(table, &["1.0.0.0", "1.0.0.255", "1.0.1.0", "0.255.255.255", "2a00:1450::1"]);
        assert_eq!(found, [Some(13335), Some(13335), None, None, Some(15169)]);
    }

    /// A table as iptoasn.com publishes it, plain and in gzip.
    #[test]
    fn a_table_of_iptoasn_is_read_as_it_is() {
        let table = "1.0.0.0\t1.0.0.255\t13335\tUS\tCLOUDFLARENET\n\
                     1.0.1.0\t1.0.3.255\t0\tNone\tNot routed\n\
                     1.0.4.0\t1.0.7.255\t38803\tAU\tGTELECOM-AS, \"Gtelecom\" Pty Ltd\n\
                     2001:200::\t2001:200:5ff:ffff:ffff:ffff:ffff:ffff\t2500\tJP\tWIDE-BB\n";
        let addresses = ["1.0.0.9", "1.0.2.0", "1.0.7.255", "2001:200::1", "2001:201::"];
        let expected = [Some(13335), None, Some(38803), Some(2500), None];
        assert_eq!(asns(table, &addresses), expected);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(table.as_bytes()).unwrap();
        let networks = Networks::parse(&encoder.finish().unwrap()[..]).unwrap();
        let found = addresses.map(|address| networks.asn(address.parse().unwrap()));
        assert_eq!(found, expected);
    }

    /// A range that is not routed is in no system, also within one that is.
    #[test]
    fn as_0_is_no_system() {
        let table = "10.0.0.0/8,7\n10.1.0.0/16,0\n";
        assert_eq!(asns(table, &["10.0.0.1", "10.1.0.1"]), [Some(7), None]);
    }

    #[test]
    fn the_narrowest_range_counts() {
        let table = "10.0.0.0/8\t1\n10.1.0.0/16\t2\n10.1.2.0/24\t3\n10.255.0.0/16\t4\n";
        let addresses = [
            "10.0.0.1",
            "10.1.0.0",
            "10.1.2.3",
            "10.1.3.0",
            "10.2.0.0",
            "10.255.255.255",
            "11.0.0.0",
        ];
        let found = asns(table, &addresses);
        assert_eq!(found, [Some(1), Some(2), Some(3), Some(2), Some(1), Some(4), None]);
    }

    #[test]
    fn ranges_may_cross() {
        let table = "10.0.0.0,10.0.0.100,1,a\n10.0.0.50,10.0.0.250,2,b\n";
        let found = asns(table, &["10.0.0.80", "10.0.0.101", "10.0.0.250", "10.0.0.251"]);
        assert_eq!(found, [Some(1), Some(2), Some(2), None]);
    }

    #[test]
    fn odd_lines_are_read() {
        let table = "\u{feff}# from somewhere\r\n10.0.0.0/8\t1\t\"Foo\r\n\n11.0.0.0/8\t2\tBar";
        assert_eq!(asns(table, &["10.0.0.1", "11.0.0.1"]), [Some(1), Some(2)]);
        let latin = b"10.0.0.0/8,7,Caf\xe9\n";
        let networks = Networks::parse(&latin[..]).unwrap();
        assert_eq!(networks.asn("10.0.0.1".parse().unwrap()), Some(7));
    }

    #[test]
    fn every_nesting_gives_what_a_search_gives() {
        // A local generator, so that the test depends on no other crate.
        let mut state = 7_u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for _ in 0..300 {
            let prefixes: Vec<(u32, u32, u32)> = (1..=12)
                .map(|asn| {
                    let length = 24 + draw(9);
                    (0x0a00_0000 | (draw(256) & !((1_u32 << (32 - length)) - 1)), length, asn)
                })
                .collect();
            let line = |(start, length, asn): &(u32, u32, u32)| {
                format!("{}/{length},{asn}\n", std::net::Ipv4Addr::from(*start))
            };
            let table: String = prefixes.iter().map(line).collect();
            let networks = Networks::parse(table.as_bytes()).unwrap();
            for host in 0..256_u32 {
                let address = 0x0a00_0000 | host;
                let holds = |(start, length, _): &&(u32, u32, u32)| {
                    (u64::from(address ^ start) >> (32 - length)) == 0
                };
                let longest = prefixes.iter().filter(holds).map(|(_, length, _)| length).max();
                let found = networks.asn(IpAddr::V4(address.into()));
                let allowed = prefixes.iter().filter(holds).filter(|p| Some(&p.1) == longest);
                let allowed: Vec<_> = allowed.map(|(_, _, asn)| Some(*asn)).collect();
                let fits =
                    if allowed.is_empty() { found.is_none() } else { allowed.contains(&found) };
                assert!(fits, "{table}: {host} is in {found:?}");
            }
        }
    }

    #[test]
    fn a_wrong_line_is_named() {
        let refused = |table: &str| Networks::parse(table.as_bytes()).unwrap_err().to_string();
        for (table, what) in [
            ("1.0.0.0,1.0.0.1,1\n1.0.0.9,1.0.0.1,1\n", "line 2"),
            ("1.0.0.0,1.0.0.1,1\nx,y,1\n", "no address"),
            ("1.0.0.0/8,1\n1.0.0.0/33,1\n", "line 2"),
            ("1.0.0.0/8,1\n1.0.0.0/8,Google\n", "autonomous system"),
            ("10.0.0.0/88,2,Bar\n", "line 1"),
            ("start,end,asn,org\n", "no range"),
        ] {
            assert!(refused(table).contains(what), "{table}: {}", refused(table));
        }
        let endless = format!("10.0.0.0/8,1\n{}", "1".repeat(LONGEST_LINE_BYTES));
        assert!(refused(&endless).contains("line 2: longer"), "{}", refused(&endless));
        let cut = Networks::parse(&[0x1f, 0x8b, 8][..]).unwrap_err();
        assert!(cut.to_string().contains("line 1"), "{cut}");
    }
}
