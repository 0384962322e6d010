//! Packets with a long header, still protected (RFC 9000, 17.2; RFC 8999, 5.1).

use super::keys::VersionParameters;
use crate::bytes::Bytes;

const LONG_HEADER: u8 = 0x80;
const LONGEST_ID: usize = 20;

/// A packet with a long header.
pub(super) struct Packet<'a> {
    /// The destination connection ID.
    pub(super) to: Id<'a>,
    /// The source connection ID.
    pub(super) from: Id<'a>,
    pub(super) content: Content<'a>,
}

/// A connection ID. It may be empty.
pub(super) type Id<'a> = &'a [u8];

pub(super) enum Content<'a> {
    Initial(VersionParameters, Initial<'a>),
    /// A truncated Initial: only the connection IDs are captured, which determine the keys.
    CutInitial(VersionParameters),
    EarlyData,
    Handshake,
    Retry,
    VersionNegotiation,
}

/// An Initial packet, still protected.
pub(super) struct Initial<'a> {
    /// The entire packet.
    pub(super) bytes: &'a [u8],
    /// The offset of its packet number.
    pub(super) number_at: usize,
}

impl<'a> Packet<'a> {
    /// Parses the first packet of a datagram. Returns it with the bytes that follow.
    pub(super) fn parse(datagram: &'a [u8], is_cut: bool) -> Option<(Self, &'a [u8])> {
        let mut bytes = Bytes(datagram);
        let first = bytes.u8()?;
        if first & LONG_HEADER == 0 {
            return None;
        }
        let version = bytes.u32()?;
        let parameters = VersionParameters::of(version);
        if parameters.is_none() && version != 0 {
            return None;
        }
        let [to, from] = [connection_id(&mut bytes)?, connection_id(&mut bytes)?];
        let with = |content| Self { to, from, content };
        let Some(parameters) = parameters else {
            return Some((with(Content::VersionNegotiation), &[]));
        };
        let kind = first >> 4 & 3;
        // Version 2 shifts the type codes by one.
        let kind = if parameters.is_v2 { kind.wrapping_sub(1) & 3 } else { kind };
        match kind {
            0 => {
                let token_length = usize::try_from(variable(&mut bytes)?).ok()?;
                bytes.take(token_length)?;
            }
            3 => return Some((with(Content::Retry), &[])),
            _ => {}
        }
        let length = usize::try_from(variable(&mut bytes)?).ok()?;
        let number_at = datagram.len() - bytes.0.len();
        let end = number_at.checked_add(length)?;
        if kind == 0 && is_cut && end > datagram.len() {
            return Some((with(Content::CutInitial(parameters)), &[]));
        }
        let (packet, rest) = datagram.split_at_checked(end)?;
        let content = match kind {
            0 => Content::Initial(parameters, Initial { bytes: packet, number_at }),
            1 => Content::EarlyData,
            _ => Content::Handshake,
        };
        Some((with(content), rest))
    }
}

fn connection_id<'a>(bytes: &mut Bytes<'a>) -> Option<Id<'a>> {
    let length = usize::from(bytes.u8()?);
    bytes.take(length).filter(|_| length <= LONGEST_ID)
}

/// Reads a variable-length integer (RFC 9000, 16).
pub(super) fn variable(bytes: &mut Bytes<'_>) -> Option<u64> {
    let first = bytes.u8()?;
    let rest = bytes.take((1 << (first >> 6)) - 1)?;
    Some(rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_four_lengths() {
        let read = |bytes: &[u8]| variable(&mut Bytes(bytes));
        assert_eq!(read(&[0x25]), Some(37));
        assert_eq!(read(&[0x7b, 0xbd]), Some(15_293));
        assert_eq!(read(&[0x9d, 0x7f, 0x3e, 0x7d]), Some(494_878_333));
        assert_eq!(read(&[0xc0, 0]), None);
    }
}
