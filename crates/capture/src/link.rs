//! The IP packet in a link-layer frame.

use crate::bytes::Bytes;

/// The most tags and labels in one frame.
const MOST_TAGS: usize = 16;

/// Apple's header, and the number that it had before it was given one.
pub(crate) const PKTAP: i32 = 258;
pub(crate) const OLD_PKTAP: i32 = 149;

/// Returns true for a frame of a LINKTYPE that is looked into.
pub(crate) fn is_supported(link: i32, frame: &[u8]) -> bool {
    const SUPPORTED: [i32; 20] =
        [0, 1, 9, 10, 12, 14, 50, 51, 101, 104, 105, 108, 113, 117, 127, 228, 229, 239, 258, 276];
    SUPPORTED.contains(&link) || (link == OLD_PKTAP && pktap_length(frame).is_some())
}

/// Returns the IP packet in a frame of the given LINKTYPE.
pub(crate) fn ip_packet(link: i32, frame: &[u8]) -> Option<&[u8]> {
    let mut bytes = Bytes(frame);
    match link {
        // Loopback, with the address family in either byte order.
        0 | 108 => bytes.take(4).map(|_| bytes.0),
        1 => in_ethernet(frame),
        9 | 50 => in_ppp(frame),
        51 => in_pppoe(frame),
        12 | 14 | 101 | 228 | 229 => Some(frame),
        // Cisco HDLC: address, control, EtherType.
        104 => {
            bytes.take(2)?;
            let kind = bytes.u16()?;
            in_ethertype(kind, bytes.0)
        }
        // Linux cooked, versions 1 and 2.
        113 => {
            bytes.take(14)?;
            let kind = bytes.u16()?;
            in_ethertype(kind, bytes.0)
        }
        276 => {
            let kind = bytes.u16()?;
            bytes.take(18)?;
            in_ethertype(kind, bytes.0)
        }
        105 => in_wifi(frame),
        // FDDI: frame control and addresses, then the LLC header of an 802.3 frame.
        10 => in_ethertype(0, frame.get(13..)?),
        // OpenBSD's filter log; its length excludes the padding to whole words.
        117 => frame.get(usize::from(*frame.first()?).next_multiple_of(4)..),
        PKTAP | OLD_PKTAP => in_pktap(frame),
        // Radiotap in front of 802.11; its length is little-endian.
        127 => {
            let length = u16::from_le_bytes([*frame.get(2)?, *frame.get(3)?]);
            in_wifi(frame.get(usize::from(length)..)?)
        }
        239 => in_nflog(frame),
        _ => None,
    }
    .filter(|packet| matches!(packet.first().map(|first| first >> 4), Some(4 | 6)))
}

/// Returns the IP packet in an Ethernet frame.
pub(crate) fn in_ethernet(frame: &[u8]) -> Option<&[u8]> {
    let mut bytes = Bytes(frame);
    bytes.take(12)?;
    let kind = bytes.u16()?;
    in_ethertype(kind, bytes.0)
}

/// Returns the IP packet after an EtherType.
pub(crate) fn in_ethertype(kind: u16, payload: &[u8]) -> Option<&[u8]> {
    let mut bytes = Bytes(payload);
    let mut kind = kind;
    for _ in 0..MOST_TAGS {
        match kind {
            0x0800 | 0x86dd => return Some(bytes.0),
            // VLAN and the variants of QinQ.
            0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
                bytes.take(2)?;
                kind = bytes.u16()?;
            }
            // Cisco metadata: version, length, option, tag.
            0x8909 => {
                bytes.take(6)?;
                kind = bytes.u16()?;
            }
            0x8847 | 0x8848 => return in_mpls(bytes.0),
            0x8864 => return in_pppoe(bytes.0),
            0x6558 => return in_ethernet(bytes.0),
            0x880b => return in_ppp(bytes.0),
            // A length: 802.2 with SNAP.
            0..=1500 => {
                let [dsap, ssap, _, a, b, c] = bytes.array()?;
                if (dsap, ssap, a, b, c) != (0xaa, 0xaa, 0, 0, 0) {
                    return None;
                }
                kind = bytes.u16()?;
            }
            _ => return None,
        }
    }
    None
}

pub(crate) fn in_mpls(payload: &[u8]) -> Option<&[u8]> {
    let mut bytes = Bytes(payload);
    for _ in 0..MOST_TAGS {
        let bottom_of_stack = bytes.u32()? & 0x100 != 0;
        if bottom_of_stack {
            return match bytes.0.first()? >> 4 {
                4 | 6 => Some(bytes.0),
                // A pseudowire with its control word.
                0 => in_ethernet(bytes.0.get(4..)?),
                _ => in_ethernet(bytes.0),
            };
        }
    }
    None
}

fn in_pppoe(payload: &[u8]) -> Option<&[u8]> {
    in_ppp(payload.get(6..)?)
}

/// Returns the IP packet in a PPP frame, with or without address and control fields.
pub(crate) fn in_ppp(payload: &[u8]) -> Option<&[u8]> {
    let mut bytes = Bytes(payload);
    if payload.starts_with(&[0xff, 0x03]) {
        bytes.take(2)?;
    }
    match bytes.u8()? {
        // A one-byte protocol number.
        0x21 | 0x57 => Some(bytes.0),
        0x00 => match bytes.u8()? {
            0x21 | 0x57 => Some(bytes.0),
            _ => None,
        },
        0x02 if bytes.u8()? == 0x81 => in_mpls(bytes.0),
        _ => None,
    }
}

/// Returns the IP packet in an unencrypted 802.11 data frame.
pub(crate) fn in_wifi(frame: &[u8]) -> Option<&[u8]> {
    let mut bytes = Bytes(frame);
    let [mut control, mut flags] = bytes.array()?;
    // Some access points tunnel frames with these two bytes swapped; the version bits show it.
    if control & 3 != 0 && flags & 0x0f == 0x08 {
        (control, flags) = (flags, control);
    }
    let (is_data, has_data) = (control & 0x0c == 0x08, control & 0x40 == 0);
    let protected = flags & 0x40 != 0;
    if !is_data || !has_data || protected {
        return None;
    }
    bytes.take(22)?;
    if flags & 3 == 3 {
        bytes.take(6)?;
    }
    let quality_of_service = control & 0x80 != 0;
    if quality_of_service {
        bytes.take(2)?;
    }
    // The LLC header equals that of an 802.3 frame with a length field.
    in_ethertype(0, bytes.0)
}

/// Returns the packet behind Apple's header, which states its length and the kind of frame.
fn in_pktap(frame: &[u8]) -> Option<&[u8]> {
    let packet = frame.get(pktap_length(frame)?..)?;
    let link = i32::from_le_bytes(*frame.get(8..)?.first_chunk()?);
    if matches!(link, PKTAP | OLD_PKTAP) { None } else { ip_packet(link, packet) }
}

/// The length of Apple's header, which also states that a packet follows. The header is little-endian.
pub(crate) fn pktap_length(frame: &[u8]) -> Option<usize> {
    const PACKET_FOLLOWS: u32 = 1;
    let [length, next] = [0, 4].map(|at| frame.get(at..).and_then(|rest| rest.first_chunk()));
    let [length, next] = [*length?, *next?].map(u32::from_le_bytes);
    let length = usize::try_from(length).ok().filter(|length| *length <= frame.len())?;
    (next == PACKET_FOLLOWS).then_some(length)
}

/// Returns the packet in a Linux netfilter log, whose attributes use the byte order of the
/// capturing machine; little-endian is assumed.
fn in_nflog(frame: &[u8]) -> Option<&[u8]> {
    const PAYLOAD: u16 = 9;
    let mut bytes = Bytes(frame.get(4..)?);
    loop {
        let [length_low, length_high, kind_low, kind_high] = bytes.array()?;
        let length = usize::from(u16::from_le_bytes([length_low, length_high])).checked_sub(4)?;
        let value = bytes.take_up_to(length);
        if u16::from_le_bytes([kind_low, kind_high]) == PAYLOAD {
            return Some(value);
        }
        bytes.take(length.next_multiple_of(4) - length)?;
    }
}
