//! JA4: what the ClientHellos of one program have in common, in 36 characters.
//!
//! The form is that of FoxIO's specification: `t13d1516h2_8daaf6152771_02713d6af862` stands for TLS over TCP,
//! version 1.3, a server name, 15 ciphers, 16 extensions, the protocol `h2`, and two hashes: of the sorted
//! ciphers, and of the sorted extensions with the signature algorithms. Values that are reserved to keep
//! servers tolerant (GREASE, RFC 8701) do not count.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::digest::{hex, sha256};
use crate::handshake::Carrier;

const SERVER_NAME: u16 = 0;
const PROTOCOLS: u16 = 16;

/// The parts of a ClientHello that a fingerprint is made of, as numbers in their order.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// The highest version offered.
    pub(crate) version: u16,
    pub(crate) ciphers: Vec<u16>,
    pub(crate) extensions: Vec<u16>,
    pub(crate) signature_algorithms: Vec<u16>,
    /// The first protocol offered.
    pub(crate) protocol: Vec<u8>,
}

/// A JA4 fingerprint of a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ja4([u8; 36]);

impl Ja4 {
    pub(crate) fn of(shape: &Shape) -> Self {
        let Shape { version, ciphers, extensions, signature_algorithms, protocol } = shape;
        let known = |numbers: &[u16]| -> Vec<u16> {
            numbers.iter().copied().filter(|number| !is_grease(*number)).collect()
        };
        let (mut ciphers, mut extensions) = (known(ciphers), known(extensions));
        let name = if extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
        let counts = [ciphers.len(), extensions.len()].map(|count| count.min(99));
        ciphers.sort_unstable();
        extensions.retain(|kind| !matches!(*kind, SERVER_NAME | PROTOCOLS));
        extensions.sort_unstable();
        let mut hashed = listed(&extensions);
        if !signature_algorithms.is_empty() && !hashed.is_empty() {
            hashed = hashed + "_" + &listed(&known(signature_algorithms));
        }
        let text = format!(
            "t{}{name}{:02}{:02}{}_{}_{}",
            version_digits(*version),
            counts[0],
            counts[1],
            ends(protocol),
            short_hash(&listed(&ciphers)),
            short_hash(&hashed),
        );
        Self(text.as_bytes().first_chunk().copied().unwrap_or([b'?'; 36]))
    }

    /// The fingerprint over another carrier than TCP.
    pub(crate) fn over(mut self, carrier: Carrier) -> Self {
        self.0[0] = match carrier {
            Carrier::Tls => b't',
            Carrier::Quic => b'q',
            Carrier::Dtls => b'd',
        };
        self
    }
}

impl fmt::Display for Ja4 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(str::from_utf8(&self.0).unwrap_or_default())
    }
}

impl fmt::Debug for Ja4 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Ja4({self})")
    }
}

impl Serialize for Ja4 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns true for a value reserved for GREASE.
pub(crate) fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

fn version_digits(version: u16) -> &'static str {
    match version {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        0xfeff => "d1",
        0xfefd => "d2",
        0xfefc => "d3",
        _ => "00",
    }
}

/// The first and the last character of a protocol's name; digits where they are neither letters nor digits.
fn ends(protocol: &[u8]) -> String {
    let (Some(first), Some(last)) = (protocol.first(), protocol.last()) else {
        return "00".to_owned();
    };
    match first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        true => [*first, *last].map(char::from).iter().collect(),
        false => {
            let [first, last] = [first, last].map(|byte| hex(&[*byte]));
            format!("{}{}", &first[..1], &last[1..])
        }
    }
}

fn listed(numbers: &[u16]) -> String {
    let words: Vec<String> = numbers.iter().map(|number| format!("{number:04x}")).collect();
    words.join(",")
}

fn short_hash(text: &str) -> String {
    match text {
        "" => "000000000000".to_owned(),
        _ => hex(&sha256(text.as_bytes())[..6]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification: ciphers and extensions of a browser.
    #[test]
    fn the_specifications_example_has_its_fingerprint() {
        let shape = Shape {
            version: 0x0304,
            ciphers: vec![
                0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
                0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
            ],
            extensions: vec![
                0x1a1a, 0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005,
                0x0023, 0x0012, 0x002b, 0xff01, 0x000b, 0x000a, 0x0015,
            ],
            signature_algorithms: vec![
                0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601,
            ],
            protocol: b"h2".to_vec(),
        };
        assert_eq!(Ja4::of(&shape).to_string(), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    }

    #[test]
    fn what_is_missing_is_zeros() {
        let none = Ja4::of(&Shape { version: 0xfefd, ..Shape::default() }).over(Carrier::Dtls);
        assert_eq!(none.to_string(), "dd2i000000_000000000000_000000000000");
        assert_eq!(ends(&[0xab, 0xcd]), "ad");
    }
}
