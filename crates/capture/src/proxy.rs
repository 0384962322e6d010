//! The header with which a proxy names the client it passes on (the PROXY protocol, versions 1 and 2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bytes::Bytes;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header in text, in bytes.
const LONGEST_TEXT: usize = 107;

/// The result of checking the first bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    No,
    /// More bytes are needed.
    Unclear,
    /// A header of this many bytes; the client, unless the proxy speaks for itself.
    Found(usize, Option<SocketAddr>),
}

/// Checks for a header at the beginning of a stream.
pub(crate) fn header(bytes: &[u8]) -> Header {
    match bytes.first() {
        Some(b'\r') => binary(bytes),
        Some(b'P') => text(bytes),
        _ => Header::No,
    }
}

fn binary(bytes: &[u8]) -> Header {
    let start = bytes.get(..SIGNATURE.len()).unwrap_or(bytes);
    if !SIGNATURE.starts_with(start) {
        return Header::No;
    }
    let Some(&[command, family, high, low]) =
        bytes.get(SIGNATURE.len()..).and_then(|rest| rest.first_chunk())
    else {
        return Header::Unclear;
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let from = SIGNATURE.len() + 4;
    match (command, bytes.get(from..from + length)) {
        (0x21, Some(addresses)) => Header::Found(from + length, client(family, addresses)),
        (0x20, Some(_)) => Header::Found(from + length, None),
        (0x20 | 0x21, None) => Header::Unclear,
        _ => Header::No,
    }
}

/// The source in a binary header of TCP.
fn client(family: u8, addresses: &[u8]) -> Option<SocketAddr> {
    let mut bytes = Bytes(addresses);
    let ip = match family {
        0x11 => IpAddr::V4(Ipv4Addr::from(bytes.array::<4>()?)),
        0x21 => IpAddr::V6(Ipv6Addr::from(bytes.array::<16>()?)),
        _ => return None,
    };
    bytes.take(if ip.is_ipv4() { 4 } else { 16 })?;
    Some(SocketAddr::new(ip, bytes.u16()?))
}

fn text(bytes: &[u8]) -> Header {
    const WORD: &[u8] = b"PROXY ";
    let start = bytes.get(..WORD.len()).unwrap_or(bytes);
    if !WORD.starts_with(start) {
        return Header::No;
    }
    let line = bytes.get(..LONGEST_TEXT).unwrap_or(bytes);
    let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LONGEST_TEXT { Header::Unclear } else { Header::No };
    };
    Header::Found(end + 2, str::from_utf8(&line[..end]).ok().and_then(named_client))
}

/// The source in a line such as `PROXY TCP4 192.0.2.1 198.51.100.1 40000 443`.
fn named_client(line: &str) -> Option<SocketAddr> {
    let mut words = line.split(' ').skip(2);
    let (ip, _, port) = (words.next()?, words.next()?, words.next()?);
    Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_speaks_for_itself_names_nobody() {
        assert_eq!(header(b"PROXY UNKNOWN\r\n"), Header::Found(15, None));
        let local = [SIGNATURE, &[0x20, 0, 0, 0], b"\x16\x03"].concat();
        assert_eq!(header(&local), Header::Found(16, None));
    }

    #[test]
    fn what_is_no_header_is_not_waited_for() {
        for bytes in [&b"POST / HTTP/1.1\r\n"[..], b"\r\nHELO", &[b'P'; 200], b"\x16\x03\x01"] {
            assert_eq!(header(bytes), Header::No, "{bytes:?}");
        }
        let long = [b"PROXY ".to_vec(), vec![b'1'; 200]].concat();
        assert_eq!((header(&long), header(b"PRO")), (Header::No, Header::Unclear));
    }
}
