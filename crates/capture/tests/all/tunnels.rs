//! The headers of the tunnels that are looked into, for the packets of real captures.

use crate::damage::{Frame, ip_at};

const ETHERNET: u32 = 1;
const RAW: u32 = 101;
/// Packets that are nearly as long as a length can say stay as they are.
const LONGEST: usize = 65_000;

/// A tunnel: its name, the link type of its packets, and what comes before a packet that begins with a byte, and is so long.
pub(crate) type Tunnel = (&'static str, u32, fn(u8, usize) -> Vec<u8>);

pub(crate) const TUNNELS: [Tunnel; 20] = [
    ("VLAN", ETHERNET, |first, _| [&MAC[..], &[0x81, 0, 0, 1], &kind(first)].concat()),
    ("QinQ", ETHERNET, |first, _| {
        [&MAC[..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2], &kind(first)].concat()
    }),
    ("MPLS", ETHERNET, |_, _| [&MAC[..], &[0x88, 0x47, 0, 1, 0, 64], &LABEL].concat()),
    ("PPPoE", ETHERNET, |first, length| {
        let header = [0x88, 0x64, 0x11, 0, 0, 1];
        [&MAC[..], &header, &word(length + 2), &ppp(first)].concat()
    }),
    ("IP in IP", RAW, |first, length| ip(if first >> 4 == 4 { 4 } else { 41 }, length)),
    ("GRE", RAW, |first, length| in_ip(47, &[&[0, 0][..], &kind(first)].concat(), length)),
    ("GRE with a key", RAW, |first, length| {
        in_ip(47, &[&[0x30, 0][..], &kind(first), &[7; 8]].concat(), length)
    }),
    ("bridged GRE", RAW, |first, length| {
        in_ip(47, &[&[0, 0, 0x65, 0x58][..], &ethernet(first)].concat(), length)
    }),
    ("ERSPAN II", RAW, |first, length| {
        let header = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 1, 0, 0, 0, 0];
        in_ip(47, &[&header[..], &ethernet(first)].concat(), length)
    }),
    ("ERSPAN III", RAW, |first, length| {
        let header = [0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        in_ip(47, &[&header[..], &ethernet(first)].concat(), length)
    }),
    ("MPLS in GRE", RAW, |_, length| {
        in_ip(47, &[&[0, 0, 0x88, 0x47][..], &LABEL].concat(), length)
    }),
    ("MPLS in IP", RAW, |_, length| in_ip(137, &LABEL, length)),
    ("MPLS in UDP", RAW, |_, length| in_udp(6_635, &LABEL, length)),
    ("VXLAN", RAW, |first, length| {
        in_udp(4_789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &ethernet(first)].concat(), length)
    }),
    ("VXLAN GPE", RAW, |first, length| {
        in_udp(4_790, &[12, 0, 0, if first >> 4 == 4 { 1 } else { 2 }, 0, 0, 1, 0], length)
    }),
    ("Geneve", RAW, |first, length| {
        let header = [&[1, 0, 0x65, 0x58, 0, 0, 1, 0, 9, 9, 9, 0][..], &ethernet(first)].concat();
        in_udp(6_081, &header, length)
    }),
    ("GTP-U", RAW, |_, length| {
        in_udp(2_152, &[&[0x30, 255][..], &word(length), &[0, 0, 0, 1]].concat(), length)
    }),
    ("CAPWAP", RAW, |first, length| {
        in_udp(5_247, &[&[0, 2 << 3, 0, 0, 0, 0, 0, 0][..], &ethernet(first)].concat(), length)
    }),
    ("L2TP", RAW, |first, length| {
        in_udp(1_701, &[&[0, 2, 0, 1, 0, 1, 0xff, 3][..], &ppp(first)].concat(), length)
    }),
    ("Teredo", RAW, |first, length| match first >> 4 {
        6 => in_udp(3_544, &[], length),
        // It carries IPv6 alone.
        _ => Vec::new(),
    }),
];

/// The addresses of an Ethernet header.
const MAC: [u8; 12] = [2; 12];
/// The last label of a stack.
const LABEL: [u8; 4] = [0, 2, 1, 64];

/// Puts each frame's packet into a tunnel.
pub(crate) fn tunnelled(frames: &[Frame], (_, link, header): Tunnel) -> Vec<Frame> {
    let within = |frame: &Frame| {
        let at = ip_at(frame)?;
        let length = (frame.length as usize).checked_sub(at).filter(|length| *length < LONGEST)?;
        let header = header(frame.data[at], length);
        let data = [&header[..], &frame.data[at..]].concat();
        let length = u32::try_from(header.len() + length).unwrap();
        (!header.is_empty()).then_some(Frame { link, length, data, ..*frame })
    };
    frames.iter().map(|frame| within(frame).unwrap_or_else(|| frame.clone())).collect()
}

fn word(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap().to_be_bytes()
}

fn kind(first: u8) -> [u8; 2] {
    if first >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] }
}

fn ppp(first: u8) -> [u8; 2] {
    if first >> 4 == 4 { [0, 0x21] } else { [0, 0x57] }
}

fn ethernet(first: u8) -> Vec<u8> {
    [&MAC[..], &kind(first)].concat()
}

fn ip(protocol: u8, length: usize) -> Vec<u8> {
    let [high, low] = word(20 + length);
    let header = [0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0];
    [&header[..], &[198, 51, 100, 1, 198, 51, 100, 2]].concat()
}

fn in_ip(protocol: u8, header: &[u8], length: usize) -> Vec<u8> {
    [&ip(protocol, header.len() + length)[..], header].concat()
}

fn in_udp(port: u16, header: &[u8], length: usize) -> Vec<u8> {
    let length = 8 + header.len() + length;
    let udp = [[0xc0, 0], port.to_be_bytes(), word(length), [0, 0]].concat();
    [&ip(17, length)[..], &udp, header].concat()
}
