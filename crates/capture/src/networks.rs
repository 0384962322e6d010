//! Who runs a server: autonomous systems, from a table of address ranges.
//!
//! The table is the user's: lines of `start,end,asn,org` or of `prefix,asn,org`, separated by
//! commas or tabs. Of ranges that contain an address the narrowest counts, as in routing.

use std::io::Read;
use std::net::IpAddr;

use csv::{ReaderBuilder, StringRecord};

use crate::error::Error;

/// Address ranges and the autonomous systems they belong to.
#[derive(Debug, Default)]
pub struct Networks {
    /// Apart from each other and in order, IPv4 mapped into IPv6.
    ranges: Vec<Range>,
}

/// Ranges that are read: there are about a million prefixes in the world.
const MOST_RANGES: usize = 1 << 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u128,
    end: u128,
    asn: u32,
}

impl Networks {
    /// Reads a table. Lines that begin with `#` are comments; a first line without an address
    /// is a head.
    ///
    /// # Errors
    /// [`Error::Networks`] with the line that is no range.
    pub fn parse(mut input: impl Read) -> Result<Self, Error> {
        let failed = |line, what: String| Error::Networks { line, what };
        let mut text = Vec::new();
        input.read_to_end(&mut text).map_err(|error| failed(1, error.to_string()))?;
        let has_tabs = text.iter().take_while(|byte| **byte != b'\n').any(|byte| *byte == b'\t');
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .comment(Some(b'#'))
            .delimiter(if has_tabs { b'\t' } else { b',' })
            .from_reader(&text[..]);
        let (mut ranges, mut record) = (Vec::new(), StringRecord::new());
        while reader.read_record(&mut record).map_err(|error| failed(1, error.to_string()))? {
            let line = record.position().map_or(1, csv::Position::line);
            match range(&record) {
                Ok(range) => ranges.push(range),
                Err(_) if line == 1 => {}
                Err(what) => return Err(failed(line, what)),
            }
            if ranges.len() > MOST_RANGES {
                return Err(failed(line, format!("more than {MOST_RANGES} ranges")));
            }
        }
        Ok(Self { ranges: apart(ranges) })
    }

    /// The number of the autonomous system that an address belongs to.
    pub fn asn(&self, address: IpAddr) -> Option<u32> {
        let address = number(address);
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address <= range.end).then_some(range.asn)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

fn range(record: &StringRecord) -> Result<Range, String> {
    let field = |at: usize| record.get(at).unwrap_or_default().trim();
    let asn = |at| {
        let digits = field(at).trim_start_matches("AS");
        digits.parse().map_err(|_| format!("{:?} is no number of an autonomous system", field(at)))
    };
    if let Some((address, length)) = field(0).split_once('/') {
        let (start, end) = prefix(parsed(address)?, length)?;
        return Ok(Range { start, end, asn: asn(1)? });
    }
    let (start, end) = (parsed(field(0))?, parsed(field(1))?);
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

/// The same ranges without overlap: the narrower ones cut into the wider.
fn apart(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let (mut done, mut open): (Vec<Range>, Vec<Range>) = (Vec::new(), Vec::new());
    let close = |done: &mut Vec<Range>, open: &mut Vec<Range>, before: Option<u128>| {
        while let Some(range) = open.last().copied() {
            if before.is_some_and(|before| range.end >= before) {
                return;
            }
            open.pop();
            done.push(range);
            // The wider range goes on behind the narrower one.
            let next = range.end.checked_add(1);
            while let Some(outer) = open.last_mut() {
                match next {
                    Some(next) if outer.end >= next => {
                        outer.start = next;
                        break;
                    }
                    _ => drop(open.pop()),
                }
            }
        }
    };
    for range in ranges {
        close(&mut done, &mut open, Some(range.start));
        if let Some(outer) = open.last().copied().filter(|outer| outer.start < range.start) {
            done.push(Range { end: range.start - 1, ..outer });
        }
        open.push(range);
    }
    close(&mut done, &mut open, None);
    done
}

#[cfg(test)]
mod tests {
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
    fn every_nesting_gives_what_a_search_gives() {
        // A small generator of its own: no dependence on anybody's.
        let mut state = 7_u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for _ in 0..300 {
            let prefixes: Vec<(u32, u32, u32)> = (0..12)
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
        ] {
            assert!(refused(table).contains(what), "{table}: {}", refused(table));
        }
    }
}
