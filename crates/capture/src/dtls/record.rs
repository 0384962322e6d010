//! The records in a datagram (RFC 6347, 4.1; RFC 9147, 4), and the fragments of messages in them.

use crate::bytes::Bytes;
use crate::tls::{CLIENT_HELLO, HANDSHAKE, SERVER_HELLO};

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
const ACKNOWLEDGEMENT: u8 = 26;
/// A record with a connection ID, of unknown length (RFC 9146, 4).
pub(super) const WITH_CONNECTION_ID: u8 = 25;
const LARGEST_RECORD: usize = (1 << 14) + 2048;
const LARGEST_MESSAGE: u32 = 1 << 18;

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Plain(Plain<'a>),
    /// A record under keys: its type, which DTLS 1.3 hides.
    Encrypted(Option<u8>),
}

/// A record of epoch 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plain<'a> {
    pub(super) kind: u8,
    pub(super) number: u64,
    /// The captured part.
    pub(super) body: &'a [u8],
    pub(super) is_whole: bool,
}

impl<'a> Record<'a> {
    /// Parses the first record. Returns it with the bytes that follow.
    pub(super) fn parse(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        match datagram.first()? {
            first @ 0x20..=0x3f => Some((Self::Encrypted(None), after_short(*first, datagram))),
            CHANGE_CIPHER_SPEC..=ACKNOWLEDGEMENT => Self::parse_long(datagram),
            _ => None,
        }
    }

    fn parse_long(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut bytes = Bytes(datagram);
        let [kind, major, minor] = bytes.array()?;
        // The last is the number of an early implementation, still in use.
        if !matches!((major, minor), (0xfe, 0xfc..=0xff) | (1, 0)) {
            return None;
        }
        let epoch = bytes.u16()?;
        let [a, b, c, d, e, f] = bytes.array()?;
        let number = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        if kind == WITH_CONNECTION_ID {
            return (epoch > 0).then_some((Self::Encrypted(Some(kind)), &[]));
        }
        let length = usize::from(bytes.u16()?);
        let body = bytes.take_up_to(length);
        if length > LARGEST_RECORD {
            return None;
        }
        let is_whole = body.len() == length;
        let record = match epoch {
            0 => Self::Plain(Plain { kind, number, body, is_whole }),
            _ => Self::Encrypted(Some(kind)),
        };
        Some((record, bytes.0))
    }
}

/// The bytes after a record with the short header of DTLS 1.3, as far as it tells its length.
fn after_short(first: u8, datagram: &[u8]) -> &[u8] {
    const CONNECTION_ID: u8 = 0x10;
    const LONG_NUMBER: u8 = 0x08;
    const LENGTH: u8 = 0x04;
    if first & CONNECTION_ID != 0 || first & LENGTH == 0 {
        return &[];
    }
    let mut bytes = Bytes(datagram);
    let number_length = if first & LONG_NUMBER != 0 { 2 } else { 1 };
    let rest = bytes.take(1 + number_length).and_then(|_| bytes.u16());
    rest.and_then(|length| bytes.take(usize::from(length))).map_or(&[], |_| bytes.0)
}

/// A part of a handshake message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment<'a> {
    pub(super) kind: u8,
    /// The length of the whole message.
    pub(super) length: u32,
    /// The number of the message among those of its sender.
    pub(super) message: u16,
    pub(super) offset: u32,
    /// The captured part.
    pub(super) body: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Parses the first fragment in the body of a record.
    pub(super) fn parse(bytes: &mut Bytes<'a>) -> Option<Self> {
        let kind = bytes.u8()?;
        let length = three_bytes(bytes)?;
        let message = bytes.u16()?;
        let (offset, fragment_length) = (three_bytes(bytes)?, three_bytes(bytes)?);
        let fits = length <= LARGEST_MESSAGE && offset.checked_add(fragment_length)? <= length;
        let body = bytes.take_up_to(fragment_length as usize);
        fits.then_some(Self { kind, length, message, offset, body })
    }
}

fn three_bytes(bytes: &mut Bytes<'_>) -> Option<u32> {
    let [high, middle, low] = bytes.array()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}

/// Returns true if a datagram begins with a hello, as the first one of an association does.
pub(crate) fn begins_with_hello(datagram: &[u8]) -> bool {
    let Some((Record::Plain(Plain { kind: HANDSHAKE, body, .. }), _)) = Record::parse(datagram)
    else {
        return false;
    };
    let Some(fragment) = Fragment::parse(&mut Bytes(body)) else { return false };
    let version = fragment.body.first_chunk();
    let is_version = matches!(version, Some([0xfe, 0xfc..=0xff] | [1, 0]));
    match fragment.kind {
        CLIENT_HELLO | SERVER_HELLO => is_version && fragment.offset == 0 && fragment.length >= 38,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_header_tells_where_its_record_ends() {
        let datagram = [&[0x2c, 0, 1, 0, 3, 9, 9, 9][..], &[0x2c]].concat();
        let (record, rest) = Record::parse(&datagram).unwrap();
        assert_eq!((record, rest), (Record::Encrypted(None), &[0x2c][..]));
        // Without a length it fills the datagram, and a connection ID has no known end.
        for first in [0x20, 0x3c] {
            assert_eq!(Record::parse(&[first, 0, 1, 0, 0, 9]).unwrap().1, &[] as &[u8]);
        }
    }

    #[test]
    fn fragments_lie_within_their_message() {
        let header = |length: u8, offset: u8, part: u8| {
            [1, 0, 0, length, 0, 0, 0, 0, offset, 0, 0, part, 7, 7, 7]
        };
        assert!(Fragment::parse(&mut Bytes(&header(9, 6, 3))).is_some());
        assert_eq!(Fragment::parse(&mut Bytes(&header(9, 7, 3))), None);
    }
}
