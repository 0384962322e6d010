//! The IP packet in a link-layer frame.

use crate::bytes::Bytes;
use crate::unsupported::Unsupported;

/// The most tags and labels in one frame.
const MOST_TAGS: usize = 16;
/// The most frames in each other: Ethernet in MPLS or in Ethernet, and the like.
const MOST_LAYERS: usize = 16;

/// Apple's header, and the number that it had before it was given one.
pub(crate) const PKTAP: i32 = 258;
pub(crate) const OLD_PKTAP: i32 = 149;

/// The EtherType of MPLS.
const MPLS: u16 = 0x8847;
/// Ethernet that is bridged.
pub(crate) const ETHERNET: u16 = 0x6558;

/// The IP packet in a frame, or else the kind of what may hide one. `Err(None)`: there is none.
pub(crate) type Inside<'a> = Result<&'a [u8], Option<Unsupported>>;

/// Finds the IP packet in a frame of the given LINKTYPE.
pub(crate) fn ip_packet(link: i32, frame: &[u8]) -> Inside<'_> {
    let from = |place: usize| frame.get(place..).ok_or(None);
    match link {
        // Loopback, with the address family in either byte order.
        0 | 108 => from(4),
        9 | 50 => in_ppp(frame),
        51 => in_ppp(from(PPPOE_BYTES)?),
        12 | 14 | 101 | 228 | 229 => Ok(frame),
        // OpenBSD's filter log; its length excludes the padding to whole words.
        117 => from(usize::from(*frame.first().ok_or(None)?).next_multiple_of(4)),
        PKTAP | OLD_PKTAP if link == PKTAP || pktap_length(frame).is_some() => {
            let (link, packet) = in_pktap(frame).ok_or(None)?;
            ip_packet(link, packet)
        }
        239 => in_nflog(frame).ok_or(None),
        1 | 10 | 104 | 105 | 113 | 127 | 276 => in_frame(link, frame, MOST_LAYERS),
        _ => Err(Some(Unsupported::LinkType(link))),
    }
    .and_then(may_be_ip)
}

/// Passes on what begins as an IP packet does.
pub(crate) fn may_be_ip(packet: &[u8]) -> Inside<'_> {
    let is_ip = matches!(packet.first().map(|first| first >> 4), Some(4 | 6));
    is_ip.then_some(packet).ok_or(None)
}

/// Smaller numbers are lengths (IEEE 802.3, 3.2.6).
const LEAST_ETHERTYPE: u16 = 0x600;
/// Protocols of the link itself, and others that carry no IP.
const WITHOUT_IP: [&[u16]; 9] = [
    // ARP, RARP, NHRP, wake on LAN, AppleTalk and its ARP, IPX.
    &[0x0806, 0x8035, 0x2001, 0x0842, 0x809b, 0x80f3, 0x8137],
    // DECnet: its dump, console, routing and terminals.
    &[0x6001, 0x6002, 0x6003, 0x6004],
    // AVTP, and the reservations and registrations of bridges: MSRP, MVRP, MMRP.
    &[0x22f0, 0x22ea, 0x88f5, 0x88f6],
    // Pauses, slow protocols, discovery of PPPoE, EAPOL and its pre-authentication, LLDP, LLTD.
    &[0x8808, 0x8809, 0x8863, 0x888e, 0x88c7, 0x88cc, 0x88d9],
    // Powerline and IEEE 1905.
    &[0x887b, 0x88e1, 0x8912, 0x893a],
    // Clocks, faults, rings, redundancy.
    &[0x88f7, 0x8902, 0x88e3, 0x88fb],
    // PROFINET, EtherCAT, POWERLINK, GOOSE and its kin, sampled values, SERCOS.
    &[0x8892, 0x88a4, 0x88ab, 0x88b8, 0x88b9, 0x88ba, 0x88cd],
    // Storage: ATA, Fibre Channel and its set-up.
    &[0x88a2, 0x8906, 0x8914],
    // Tests for loops.
    &[0x8899, 0x9000],
];

/// Returns the EtherType of a frame of a LINKTYPE that has one, and what follows. 0 stands before an LLC header.
fn ethertype(link: i32, frame: &[u8]) -> Option<(u16, &[u8])> {
    let mut bytes = Bytes(frame);
    match link {
        1 => {
            bytes.take(12)?;
            Some((bytes.u16()?, bytes.0))
        }
        // Cisco HDLC: address, control, EtherType.
        104 => {
            bytes.take(2)?;
            Some((bytes.u16()?, bytes.0))
        }
        // Linux cooked, versions 1 and 2.
        113 => {
            bytes.take(14)?;
            Some((bytes.u16()?, bytes.0))
        }
        276 => {
            let kind = bytes.u16()?;
            bytes.take(18)?;
            Some((kind, bytes.0))
        }
        // FDDI: frame control and addresses, then the LLC header of an 802.3 frame.
        10 => Some((0, frame.get(13..)?)),
        _ => {
            let data = WifiData::of(wifi_frame(link, frame)?)?;
            (!data.is_protected).then_some((0, data.payload?))
        }
    }
}

/// Finds the IP packet in an Ethernet frame.
pub(crate) fn in_ethernet(frame: &[u8]) -> Inside<'_> {
    in_frame(1, frame, MOST_LAYERS)
}

fn in_frame(link: i32, frame: &[u8], layers: usize) -> Inside<'_> {
    let wifi = wifi_frame(link, frame).and_then(WifiData::of);
    if wifi.is_some_and(|data| data.is_protected) {
        return Err(Some(Unsupported::ProtectedWifi));
    }
    let (kind, payload) = ethertype(link, frame).ok_or(None)?;
    ethertype_within(kind, payload, layers)
}

/// Finds the IP packet after an EtherType.
pub(crate) fn in_ethertype(kind: u16, payload: &[u8]) -> Inside<'_> {
    ethertype_within(kind, payload, MOST_LAYERS)
}

/// The same, with at most so many layers. Each way from one frame into another leads through here.
fn ethertype_within(kind: u16, payload: &[u8], layers: usize) -> Inside<'_> {
    let layers = layers.checked_sub(1).ok_or(Some(Unsupported::TooDeep))?;
    match untagged(kind, payload)? {
        (0x0800 | 0x86dd, payload) => Ok(payload),
        (MPLS | 0x8848, payload) => mpls_within(payload, layers),
        (0x8864, payload) => ppp_within(payload.get(PPPOE_BYTES..).ok_or(None)?, layers),
        (ETHERNET, payload) => in_frame(1, payload, layers),
        (0x880b, payload) => ppp_within(payload, layers),
        (kind, _) => {
            let is_without_ip = WITHOUT_IP.iter().any(|kinds| kinds.contains(&kind));
            let may_hide = kind >= LEAST_ETHERTYPE && !is_without_ip;
            Err(may_hide.then_some(Unsupported::EtherType(kind)))
        }
    }
}

/// Passes over tags, and returns the EtherType behind them and what follows.
fn untagged(kind: u16, payload: &[u8]) -> Result<(u16, &[u8]), Option<Unsupported>> {
    let mut bytes = Bytes(payload);
    let mut kind = kind;
    for _ in 0..MOST_TAGS {
        match kind {
            // VLAN and the variants of QinQ.
            0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
                bytes.take(2).ok_or(None)?;
                kind = bytes.u16().ok_or(None)?;
            }
            // Cisco metadata: version, length, option, tag.
            0x8909 => {
                bytes.take(6).ok_or(None)?;
                kind = bytes.u16().ok_or(None)?;
            }
            // A length: 802.2 with SNAP.
            0..=1500 => {
                let [dsap, ssap, _, a, b, c] = bytes.array().ok_or(None)?;
                if (dsap, ssap, a, b, c) != (0xaa, 0xaa, 0, 0, 0) {
                    return Err(None);
                }
                kind = bytes.u16().ok_or(None)?;
            }
            _ => return Ok((kind, bytes.0)),
        }
    }
    Err(Some(Unsupported::TooDeep))
}

pub(crate) fn in_mpls(payload: &[u8]) -> Inside<'_> {
    mpls_within(payload, MOST_LAYERS)
}

fn mpls_within(payload: &[u8], layers: usize) -> Inside<'_> {
    let mut bytes = Bytes(payload);
    for _ in 0..MOST_TAGS {
        let bottom_of_stack = bytes.u32().ok_or(None)? & 0x100 != 0;
        if bottom_of_stack {
            let frame = match bytes.0.first().ok_or(None)? >> 4 {
                4 | 6 => return Ok(bytes.0),
                // A pseudowire with its control word.
                0 => bytes.0.get(4..).ok_or(None)?,
                _ => bytes.0,
            };
            // Only the far end of a pseudowire knows what it carries.
            return in_frame(1, frame, layers).map_err(|kind| match kind {
                Some(Unsupported::EtherType(_)) => Some(Unsupported::EtherType(MPLS)),
                kind => kind,
            });
        }
    }
    Err(Some(Unsupported::TooDeep))
}

/// The length of the header of a session of PPPoE.
const PPPOE_BYTES: usize = 6;

/// Finds the IP packet in a PPP frame, with or without address and control fields.
pub(crate) fn in_ppp(payload: &[u8]) -> Inside<'_> {
    ppp_within(payload, MOST_LAYERS)
}

fn ppp_within(payload: &[u8], layers: usize) -> Inside<'_> {
    match ppp_protocol(payload).ok_or(None)? {
        (0x21 | 0x57, packet) => Ok(packet),
        (0x281, stack) => mpls_within(stack, layers),
        (protocol, _) => {
            Err(HIDING.contains(&protocol).then_some(Unsupported::PppProtocol(protocol)))
        }
    }
}

/// Protocols of PPP that may carry an IP packet which cannot be read.
const HIDING: [u16; 15] = [
    // Compressed headers: ROHC, and those of RFC 1144 and RFC 2507.
    0x03, 0x05, 0x2d, 0x2f, 0x61, 0x63, 0x65, 0x67, 0x69,
    // Bridged frames, and parts of packets (RFC 3518, RFC 1990).
    0x31, 0x3d, //
    // Encrypted and compressed packets (RFC 1968, RFC 1962; MPPE, RFC 3078).
    0x53, 0x55, 0xfb, 0xfd,
];

/// Returns the protocol in a PPP frame, with or without address and control fields, and what follows.
fn ppp_protocol(payload: &[u8]) -> Option<(u16, &[u8])> {
    let mut bytes = Bytes(payload.strip_prefix(&[0xff, 0x03]).unwrap_or(payload));
    let first = bytes.u8()?;
    // The second byte of a number is odd, and the first one even. A first byte of 0 may be missing (RFC 1661, 6.5).
    let number = match first & 1 {
        0 => u16::from_be_bytes([first, bytes.u8()?]),
        _ => u16::from(first),
    };
    Some((number, bytes.0))
}

/// Finds the IP packet in an 802.11 frame.
pub(crate) fn in_wifi(frame: &[u8]) -> Inside<'_> {
    in_frame(105, frame, MOST_LAYERS)
}

/// Returns the 802.11 frame in a frame of a LINKTYPE that has one.
fn wifi_frame(link: i32, frame: &[u8]) -> Option<&[u8]> {
    match link {
        105 => Some(frame),
        // Radiotap in front of it; its length is little-endian.
        127 => {
            let length = u16::from_le_bytes([*frame.get(2)?, *frame.get(3)?]);
            frame.get(usize::from(length)..)
        }
        _ => None,
    }
}

/// An 802.11 frame with data.
struct WifiData<'a> {
    is_protected: bool,
    /// The data from its LLC header on, which equals that of an 802.3 frame with a length field.
    payload: Option<&'a [u8]>,
}

impl<'a> WifiData<'a> {
    fn of(frame: &'a [u8]) -> Option<Self> {
        let mut bytes = Bytes(frame);
        let [mut control, mut flags] = bytes.array()?;
        // Some access points tunnel frames with these two bytes swapped; the version bits show it.
        if control & 3 != 0 && flags & 0x0f == 0x08 {
            (control, flags) = (flags, control);
        }
        let (is_data, has_data) = (control & 0x0c == 0x08, control & 0x40 == 0);
        let has_fourth_address = flags & 3 == 3;
        let has_quality_of_service = control & 0x80 != 0;
        let header =
            22 + 6 * usize::from(has_fourth_address) + 2 * usize::from(has_quality_of_service);
        let payload = bytes.take(header).map(|_| bytes.0);
        (is_data && has_data).then_some(Self { is_protected: flags & 0x40 != 0, payload })
    }
}

/// Returns the packet behind Apple's header, which states its length and the kind of frame, with its LINKTYPE.
fn in_pktap(frame: &[u8]) -> Option<(i32, &[u8])> {
    let packet = frame.get(pktap_length(frame)?..)?;
    let link = i32::from_le_bytes(*frame.get(8..)?.first_chunk()?);
    (!matches!(link, PKTAP | OLD_PKTAP)).then_some((link, packet))
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
