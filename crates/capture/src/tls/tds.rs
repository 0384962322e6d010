//! The packets of TDS, in which the handshake of SQL Server's clients lies (MS-TDS, 2.2.6.5). What follows it
//! is TLS without them.

use super::begin::{Verdict, is_first_record};
use super::{CHANGE_CIPHER_SPEC, HEARTBEAT, collect};

const PRELOGIN: u8 = 0x12;
const HEADER_BYTES: usize = 8;

/// Takes the headers of packets out of a stream.
#[derive(Debug, Default)]
pub(super) struct Packets {
    header: [u8; HEADER_BYTES],
    header_length: u8,
    left: u16,
}

/// The next part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Bytes of TLS, and what follows them.
    Tls(&'a [u8], &'a [u8]),
    /// From here on there are no packets.
    Over(&'a [u8]),
    /// The packet is none.
    Broken,
    /// More bytes are needed.
    None,
}

/// Returns true if a packet begins with a hello.
pub(super) fn wraps_hello(bytes: &[u8]) -> bool {
    let Some((&[PRELOGIN, 0 | 1, high, low, ..], inner)) =
        bytes.split_first_chunk::<HEADER_BYTES>()
    else {
        return false;
    };
    usize::from(u16::from_be_bytes([high, low])) > HEADER_BYTES
        && is_first_record(inner) == Verdict::Record
}

impl Packets {
    pub(super) fn next<'a>(&mut self, mut bytes: &'a [u8]) -> Part<'a> {
        if self.left == 0 {
            let is_between = self.header_length == 0;
            if is_between && matches!(bytes.first(), Some(CHANGE_CIPHER_SPEC..=HEARTBEAT)) {
                return Part::Over(bytes);
            }
            bytes = collect(&mut self.header, &mut self.header_length, bytes);
            if usize::from(self.header_length) < HEADER_BYTES {
                return Part::None;
            }
            let [kind, _, high, low, ..] = self.header;
            let length = u16::from_be_bytes([high, low]).checked_sub(HEADER_BYTES as u16);
            let Some(length) = length.filter(|_| kind == PRELOGIN) else { return Part::Broken };
            (self.left, self.header_length) = (length, 0);
        }
        let (part, rest) = bytes.split_at(bytes.len().min(self.left.into()));
        self.left -= u16::try_from(part.len()).unwrap_or(self.left);
        if part.is_empty() && rest.is_empty() { Part::None } else { Part::Tls(part, rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_may_come_in_pieces() {
        let mut packets = Packets::default();
        assert_eq!(packets.next(&[PRELOGIN, 1, 0]), Part::None);
        let rest = [11, 0, 0, 0, 0, 1, 2, 3, PRELOGIN, 1];
        let Part::Tls(part, rest) = packets.next(&rest) else { panic!("no part") };
        assert_eq!((part, rest), (&[1, 2, 3][..], &[PRELOGIN, 1][..]));
        assert_eq!(packets.next(rest), Part::None);
        assert_eq!(packets.next(&[0, 7, 0, 0, 0, 0]), Part::Broken);
    }
}
