//! IPv4 and IPv6 packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::Bytes;

/// The most extension headers in one packet.
const MOST_EXTENSIONS: usize = 16;

/// One packet, or one fragment of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    /// The captured part of the payload.
    pub(crate) payload: &'a [u8],
    /// The payload's length on the wire, in bytes.
    pub(crate) length: usize,
    pub(crate) fragment: Option<Fragment>,
}

/// The position of a fragment in its packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment {
    pub(crate) id: u32,
    /// The offset in bytes.
    pub(crate) offset: usize,
    pub(crate) more: bool,
}

/// Parses a packet of either version.
pub(crate) fn parse(bytes: &[u8]) -> Option<Packet<'_>> {
    match bytes.first()? >> 4 {
        4 => parse_v4(bytes),
        6 => parse_v6(bytes),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Packet<'_>> {
    let header = packet.first_chunk::<20>()?;
    let header_length = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // Segmentation offload leaves the length field at 0.
    let total = if total == 0 { packet.len() } else { total };
    let length = total.checked_sub(header_length)?;
    let captured = packet.get(header_length..)?;
    let payload = captured.get(..length).unwrap_or(captured);
    let flags = u16::from_be_bytes([header[6], header[7]]);
    let (offset, more) = (usize::from(flags & 0x1fff) * 8, flags & 0x2000 != 0);
    let id = u32::from(u16::from_be_bytes([header[4], header[5]]));
    Some(Packet {
        source: IpAddr::V4(Ipv4Addr::new(header[12], header[13], header[14], header[15])),
        destination: IpAddr::V4(Ipv4Addr::new(header[16], header[17], header[18], header[19])),
        protocol: header[9],
        payload,
        length,
        fragment: (offset > 0 || more).then_some(Fragment { id, offset, more }),
    })
}

fn parse_v6(packet: &[u8]) -> Option<Packet<'_>> {
    let mut bytes = Bytes(packet);
    bytes.take(4)?;
    let length = usize::from(bytes.u16()?);
    let mut protocol = bytes.u8()?;
    bytes.take(1)?;
    let source = IpAddr::V6(Ipv6Addr::from(bytes.array::<16>()?));
    let destination = IpAddr::V6(Ipv6Addr::from(bytes.array::<16>()?));
    let mut length = if length == 0 { bytes.0.len() } else { length };
    let captured = bytes.0.get(..length).unwrap_or(bytes.0);
    let mut rest = Bytes(captured);
    let mut fragment = None;
    for _ in 0..MOST_EXTENSIONS {
        let before = rest.0.len();
        match protocol {
            // Hop-by-hop, routing, destination, mobility, HIP, shim6.
            0 | 43 | 60 | 135 | 139 | 140 => {
                protocol = rest.u8()?;
                let units = usize::from(rest.u8()?);
                rest.take(units * 8 + 6)?;
            }
            // The authentication header counts in words of 4 bytes.
            51 => {
                protocol = rest.u8()?;
                let words = usize::from(rest.u8()?);
                rest.take(words * 4 + 6)?;
            }
            44 => {
                protocol = rest.u8()?;
                rest.take(1)?;
                let place = rest.u16()?;
                let (offset, more) = (usize::from(place & 0xfff8), place & 1 != 0);
                let id = rest.u32()?;
                fragment = (offset > 0 || more).then_some(Fragment { id, offset, more });
            }
            _ => break,
        }
        length = length.saturating_sub(before - rest.0.len());
        if fragment.is_some_and(|fragment| fragment.offset > 0) {
            break;
        }
    }
    Some(Packet { source, destination, protocol, payload: rest.0, length, fragment })
}
