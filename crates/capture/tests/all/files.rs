//! The same ClientHello in every kind of file, and under every kind of link.

use std::io::Write as _;
use std::slice;

use flate2::Compression;
use flate2::write::GzEncoder;
use rejoin_capture::{Analyser, Error, Handshake, Limits, Stop, Unsupported};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::pcapng::{ETHERNET, RAW, block, interface, packet, section};

/// Seconds and microseconds of the one frame.
const TIME: (u32, u32) = (1_600_000_000, 250_000);

/// A ClientHello without extensions, in its record.
fn hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    let length = u8::try_from(body.len()).unwrap();
    [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &body].concat()
}

fn tcp() -> Vec<u8> {
    let header = [0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
    [&header[..], &hello()].concat()
}

fn ip_v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    fragment(protocol, payload, 0)
}

fn fragment(protocol: u8, payload: &[u8], place: u16) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 20).unwrap().to_be_bytes();
    let [high, low] = place.to_be_bytes();
    let header = [0x45, 0, length[0], length[1], 0, 9, high, low, 64, protocol, 0, 0];
    [&header[..], &[10, 0, 0, 1], &[192, 0, 2, 1], payload].concat()
}

fn ip_v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let header = [0x60, 0, 0, 0, length[0], length[1], next, 64];
    [&header[..], &[0x20; 16], &[0x30; 16], payload].concat()
}

fn udp(destination: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = destination.to_be_bytes();
    [&[0xff, 0xff, high, low, 0, 0, 0, 0][..], payload].concat()
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &kind.to_be_bytes(), payload].concat()
}

/// A pcap with a magic number, in a byte order, with so many bytes more in each record's header.
fn pcap(magic: u32, big_endian: bool, more: usize, link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let half = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut bytes = [word(magic), [0; 4], word(0), word(0), word(65_535), word(link)].concat();
    bytes[4..6].copy_from_slice(&half(2));
    bytes[6..8].copy_from_slice(&half(4));
    let fraction = if magic == 0xa1b2_3c4d { TIME.1 * 1_000 } else { TIME.1 };
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap();
        bytes.extend([word(TIME.0), word(fraction), word(length), word(length)].concat());
        // Interface 2, IPv4, sent to us.
        bytes.extend([word(2), [8, 0, 0, 0]].concat().get(..more).unwrap());
        bytes.extend(frame);
    }
    bytes
}

/// A pcapng with two interfaces, the second with a resolution of 10^-3 seconds.
fn pcapng(frame: &[u8]) -> Vec<u8> {
    let milliseconds = interface(RAW, &[9, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let time = u64::from(TIME.0) * 1_000 + u64::from(TIME.1 / 1_000);
    let unknown = block(0x0bad, &[1, 2, 3]);
    [section(ETHERNET), milliseconds, unknown, packet(1, time, frame)].concat()
}

/// A pcapng in a byte order, whose interface has this resolution, and times that count from this second on.
fn pcapng_with(big_endian: bool, resolution: u8, offset_s: i64, time: u64) -> Vec<u8> {
    let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let half = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let block = |kind: u32, body: Vec<u8>| {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = word(u32::try_from(12 + body.len() + padding.len()).unwrap());
        [&word(kind)[..], &length, &body, &padding, &length].concat()
    };
    let header = [&word(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat();
    let offset = if big_endian { offset_s.to_be_bytes() } else { offset_s.to_le_bytes() };
    let options = [
        [half(9), half(1)].concat(),
        vec![resolution, 0, 0, 0],
        [half(14), half(8)].concat(),
        offset.to_vec(),
        vec![0; 4],
    ];
    let raw = half(u16::try_from(RAW).unwrap());
    let interface = [&raw[..], &[0; 6], &options.concat()].concat();
    let frame = ip_v4(6, &tcp());
    let length = u32::try_from(frame.len()).unwrap();
    let halves = [(time >> 32) as u32, time as u32];
    let words = [0, halves[0], halves[1], length, length].map(word).concat();
    [block(0x0a0d_0d0a, header), block(1, interface), block(6, [words, frame].concat())].concat()
}

/// A quarter of a second after some second.
#[test]
fn times_of_any_resolution_and_offset_are_read() {
    let seconds = u64::from(TIME.0);
    for big_endian in [false, true] {
        for (resolution, time) in [
            (6, seconds * 1_000_000 + 250_000),
            (9, seconds * 1_000_000_000 + 250_000_000),
            (0x80 | 2, seconds * 4 + 1),
            (0x80 | 20, (seconds << 20) + (1 << 18)),
            (0x80 | 32, (seconds << 32) + (1 << 30)),
        ] {
            let capture = pcapng_with(big_endian, resolution, 0, time);
            assert_found(&format!("{resolution:#x}"), &capture);
        }
        for offset in [1_600_000_000, 1_700_000_000, -1] {
            let time = u64::try_from(1_600_000_000_250 - offset * 1_000).unwrap_or(0);
            let (found, _) = read(&pcapng_with(big_endian, 3, offset, time));
            let expected = if offset > 1_600_000_000 { 1.7e9 } else { 1_600_000_000.25 };
            assert_eq!(found[0].t_ch, Some(expected), "{offset}");
        }
        // A unit so small that all times are the offset.
        for (resolution, after) in [(20, 0.184_467), (40, 0.0), (0x80 | 100, 0.0), (0xff, 0.0)] {
            let (found, _) = read(&pcapng_with(big_endian, resolution, 1_000, u64::MAX));
            assert_eq!(found[0].t_ch, Some(1_000.0 + after), "{resolution}");
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn read(capture: &[u8]) -> (Vec<Handshake>, Option<Stop>) {
    let mut found = Vec::new();
    let summary =
        Analyser::new(Limits::default()).read(capture, |handshake| found.push(handshake)).unwrap();
    (found, summary.stop)
}

fn assert_found(name: &str, capture: &[u8]) {
    let (found, stop) = read(capture);
    assert!(stop.is_none(), "{name}: {stop:?}");
    assert_eq!(found.len(), 1, "{name}");
    assert_eq!(found[0].ch_random, Some(vec![7; 32]), "{name}");
    assert_eq!(found[0].t_ch, Some(1_600_000_000.25), "{name}");
}

#[test]
fn every_kind_of_file_is_read() {
    let frames = vec![ip_v4(6, &tcp())];
    for big_endian in [false, true] {
        for (name, magic, more) in [
            ("microseconds", 0xa1b2_c3d4, 0),
            ("nanoseconds", 0xa1b2_3c4d, 0),
            ("modified", 0xa1b2_cd34, 8),
            ("Red Hat 6.1", 0xa1b2_c3d4, 8),
        ] {
            // The variant of Red Hat shows from the second record on.
            let frames =
                if name.starts_with("Red") { vec![frames[0].clone(); 3] } else { frames.clone() };
            let capture = pcap(magic, big_endian, more, RAW, &frames);
            assert_found(name, &capture);
            assert_found(name, &gzip(&capture));
            assert_found(name, &zstd(&capture));
        }
    }
    assert_found("pcapng", &pcapng(&frames[0]));
    assert_found("pcapng in gzip", &gzip(&pcapng(&frames[0])));
}

#[test]
fn every_kind_of_link_is_looked_into() {
    let v4 = ip_v4(6, &tcp());
    let in_ethernet = ethernet(0x0800, &v4);
    let v6 =
        ip_v6(0, &[&[43, 0, 0, 0, 0, 0, 0, 0][..], &[6, 0, 0, 0, 0, 0, 0, 0], &tcp()].concat());
    let vlan = ethernet(0x88a8, &[&[0, 1, 0x81, 0, 0, 2, 0x08, 0][..], &v4].concat());
    let mpls = ethernet(0x8847, &[&[0, 0, 0, 64, 0, 0, 1, 64][..], &v4].concat());
    let pppoe = ethernet(0x8864, &[&[0x11, 0, 0, 1, 0, 0, 0, 0x21][..], &v4].concat());
    let vxlan = udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &in_ethernet].concat());
    let erspan = [&[0, 0, 0x22, 0xeb][..], &[0; 11], &[1], &[0; 8], &in_ethernet].concat();
    let gpe = udp(4790, &[&[0x0c, 0, 0, 3, 0, 0, 1, 0][..], &in_ethernet].concat());
    let pktap = [&[12, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0][..], &in_ethernet].concat();
    let fddi = [&[0x50][..], &[2; 12], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &v4].concat();
    let l2tp = udp(1701, &[&[0x40, 2, 0, 60, 0, 1, 0, 2, 0xff, 3, 0, 0x21][..], &v4].concat());
    let teredo = [&[0, 1, 0, 0][..], &[0; 9], &[0, 0], &[0; 6], &ip_v6(6, &tcp())].concat();
    let gre = [&[0x20, 0, 8, 0, 0, 0, 0, 1][..], &v4].concat();
    for (name, link, frame) in [
        ("ethernet", ETHERNET, in_ethernet.clone()),
        ("IPv6 with extensions", RAW, v6.clone()),
        ("QinQ", ETHERNET, vlan),
        ("MPLS", ETHERNET, mpls),
        ("PPPoE", ETHERNET, pppoe),
        ("PPP", 9, [&[0xff, 3, 0, 0x21][..], &v4].concat()),
        ("cooked", 113, [&[0; 14][..], &[8, 0], &v4].concat()),
        ("cooked, version 2", 276, [&[0x86, 0xdd][..], &[0; 18], &v6].concat()),
        ("loopback", 0, [&[2, 0, 0, 0][..], &v4].concat()),
        ("GRE with a key", RAW, ip_v4(47, &gre)),
        ("VXLAN", RAW, ip_v4(17, &vxlan)),
        ("IP in IPv6", RAW, ip_v6(4, &v4)),
        ("loopback of OpenBSD", 108, [&[0, 0, 0, 2][..], &v4].concat()),
        ("IPv4 without a link", 228, v4.clone()),
        ("IPv6 without a link", 229, v6),
        ("802.11", 105, wifi(&v4)),
        ("802.11 with radiotap", 127, [&[0, 0, 8, 0, 0, 0, 0, 0][..], &wifi(&v4)].concat()),
        ("CAPWAP", RAW, ip_v4(17, &udp(5247, &capwap(&wifi(&v4))))),
        ("CAPWAP, control swapped", RAW, ip_v4(17, &udp(5247, &capwap(&swapped(wifi(&v4)))))),
        ("GRE with Ethernet", RAW, ip_v4(47, &[&[0, 0, 0x65, 0x58][..], &in_ethernet].concat())),
        ("PPTP", RAW, ip_v4(47, &pptp(&v4))),
        ("Geneve", RAW, ip_v4(17, &udp(6081, &[&[0, 0, 8, 0, 0, 0, 1, 0][..], &v4].concat()))),
        ("ERSPAN III", RAW, ip_v4(47, &erspan)),
        ("VXLAN-GPE", RAW, ip_v4(17, &gpe)),
        ("pktap", 258, pktap),
        ("PFLOG", 117, [&[61][..], &[0; 63], &v4].concat()),
        ("FDDI", 10, fddi),
        ("L2TP", RAW, ip_v4(17, &l2tp)),
        ("Teredo", RAW, ip_v4(17, &udp(3544, &teredo))),
        ("MPLS over UDP", RAW, ip_v4(17, &udp(6635, &[&[0, 0, 1, 64][..], &v4].concat()))),
        ("MPLS over IP", RAW, ip_v4(137, &[&[0, 0, 1, 64][..], &v4].concat())),
        ("GTP-U", RAW, ip_v4(17, &udp(2152, &[&[0x30, 255, 0, 0, 0, 0, 0, 1][..], &v4].concat()))),
    ] {
        assert_found(name, &pcap(0xa1b2_c3d4, false, 0, link, &[frame]));
    }
}

/// A data frame to a station, not encrypted.
fn wifi(packet: &[u8]) -> Vec<u8> {
    let header = [&[0x08, 0x02][..], &[2; 22]].concat();
    [&header[..], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], packet].concat()
}

fn swapped(mut frame: Vec<u8>) -> Vec<u8> {
    // Version bits that no frame has.
    frame[..2].copy_from_slice(&[0x11, 0x08]);
    frame
}

fn capwap(frame: &[u8]) -> Vec<u8> {
    [&[0, 0x10, 0x03, 0, 0, 0, 0, 0][..], frame].concat()
}

/// CAPWAP with an Ethernet frame, which its header tells.
fn capwap_ethernet(frame: &[u8]) -> Vec<u8> {
    [&[0, 0x10, 0x02, 0, 0, 0, 0, 0][..], frame].concat()
}

/// Enhanced GRE, with a sequence number and an acknowledgement.
fn pptp(packet: &[u8]) -> Vec<u8> {
    let header = [0x30, 0x81, 0x88, 0x0b, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    [&header[..], &[0xff, 3, 0, 0x21], packet].concat()
}

/// Encrypted links and tunnels may hide handshakes; the own protocols of a link hide none.
#[test]
fn links_and_tunnels_that_are_encrypted_are_counted() {
    let protected = |mut frame: Vec<u8>| {
        frame[1] |= 0x40;
        frame
    };
    let in_udp = |port, payload: &[u8]| ip_v4(17, &udp(port, payload));
    let cell = |begin: [u8; 4], length: usize| [&begin[..], &vec![0xa5; length - 4]].concat();
    // The receiver's index, and a counter.
    let data = [&[4, 0, 0, 0, 0xa5, 0xa5, 0xa5, 0xa5, 9, 1, 0, 0, 0, 0, 0, 0][..], &[0xa5; 1_436]];
    let (esp, ike) = (cell([0x5a, 1, 2, 3], 100), cell([0; 4], 100));
    let initial = [&[0xc3, 0, 0, 0, 1][..], &[8; 1_195]].concat();
    let tagged = [&[0, 5, 0x88, 0xe5][..], &[0; 60]].concat();
    let cases: [(&str, u32, Vec<u8>, Option<Unsupported>); 22] = [
        ("MACsec", 1, ethernet(0x88e5, &[0; 60]), Some(Unsupported::EtherType(0x88e5))),
        ("MACsec behind VLAN", 1, ethernet(0x8100, &tagged), Some(Unsupported::EtherType(0x88e5))),
        ("unknown", 1, ethernet(0x1234, &[0; 60]), Some(Unsupported::EtherType(0x1234))),
        ("ARP", 1, ethernet(0x0806, &[0; 60]), None),
        ("LLDP", 1, ethernet(0x88cc, &[0; 60]), None),
        ("EAPOL", 1, ethernet(0x888e, &[0; 60]), None),
        ("a length", 1, ethernet(60, &[0x42; 60]), None),
        ("IP that is none", 1, ethernet(0x0800, &[0; 60]), None),
        ("802.11", 105, protected(wifi(&[0; 60])), Some(Unsupported::ProtectedWifi)),
        (
            "802.11 with radiotap",
            127,
            [&[0, 0, 8, 0, 0, 0, 0, 0][..], &protected(wifi(&[0; 60]))].concat(),
            Some(Unsupported::ProtectedWifi),
        ),
        ("802.11 in the clear", 105, wifi(&ip_v4(6, &tcp())), None),
        ("a beacon", 105, [&[0x80, 0][..], &[0; 60]].concat(), None),
        ("ESP in UDP", RAW, in_udp(4500, &esp), Some(Unsupported::EspInUdp)),
        ("IKE", RAW, in_udp(4500, &ike), None),
        ("a sign of life", RAW, in_udp(4500, &[0xff]), None),
        ("QUIC at 4500", RAW, in_udp(4500, &initial), None),
        ("ESP at another port", RAW, in_udp(4501, &esp), None),
        (
            "WireGuard, begin",
            RAW,
            in_udp(51_820, &cell([1, 0, 0, 0], 148)),
            Some(Unsupported::WireGuard),
        ),
        (
            "WireGuard, answer",
            RAW,
            in_udp(51_820, &cell([2, 0, 0, 0], 92)),
            Some(Unsupported::WireGuard),
        ),
        ("WireGuard, data", RAW, in_udp(9, &data.concat()), Some(Unsupported::WireGuard)),
        ("no counter", RAW, in_udp(51_820, &cell([4, 0, 0, 0], 96)), None),
        ("another type", RAW, in_udp(51_820, &cell([5, 0, 0, 0], 96)), None),
    ];
    for (name, link, frame, unsupported) in cases {
        assert_counted(name, link, frame, unsupported);
    }
}

fn assert_counted(name: &str, link: u32, frame: Vec<u8>, unsupported: Option<Unsupported>) {
    let capture = pcap(0xa1b2_c3d4, false, 0, link, &[frame]);
    let summary = Analyser::new(Limits::default()).read(&capture[..], |_| {}).unwrap();
    let counts = unsupported.map(|kind| (kind, 1));
    assert_eq!(summary.unsupported, Vec::from_iter(counts), "{name}");
}

#[test]
fn what_gre_hides_is_counted() {
    let tagged = [&[0, 5, 0x88, 0xe5][..], &[0; 60]].concat();
    let gre = |kind: [u8; 2], payload: &[u8]| ip_v4(47, &[&[0, 0], &kind[..], payload].concat());
    let deep = [&[2; 12][..], &[0x65, 0x58]].concat().repeat(99);
    let sequenced = [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1][..], &[0; 8]].concat();
    let mirrored = ip_v4(47, &[&sequenced[..], &ethernet(0x88e5, &[0; 60])].concat());
    let cases = [
        ("unknown in GRE", gre([0x89, 0x4f], &[0; 60]), Some(Unsupported::EtherType(0x894f))),
        (
            "unknown in bridged GRE",
            gre([0x65, 0x58], &ethernet(0x8100, &tagged)),
            Some(Unsupported::EtherType(0x88e5)),
        ),
        ("too much in GRE", gre([0x65, 0x58], &deep), Some(Unsupported::TooDeep)),
        ("MACsec in ERSPAN", mirrored, Some(Unsupported::EtherType(0x88e5))),
        ("ARP in bridged GRE", gre([0x65, 0x58], &ethernet(0x0806, &[0; 60])), None),
        ("next hops in GRE", gre([0x20, 0x01], &[0; 60]), None),
        ("a sign of life in GRE", gre([0, 0], &[]), None),
    ];
    for (name, frame, unsupported) in cases {
        assert_counted(name, RAW, frame, unsupported);
    }
}

/// PPP compresses and encrypts what it carries, such as PPTP, whose packets are IP packets no more.
#[test]
fn what_ppp_hides_is_counted() {
    const PPP: u32 = 9;
    let hidden = |protocol| Some(Unsupported::PppProtocol(protocol));
    let with = |head: &[u8]| [head, &[0xa5; 60]].concat();
    let mut encrypted = pptp(&[0xa5; 60]);
    encrypted[18..20].copy_from_slice(&[0, 0xfd]);
    let session = |protocol| ethernet(0x8864, &with(&[0x11, 0, 0, 1, 0, 62, 0, protocol]));
    for (name, link, frame, unsupported) in [
        ("encrypted", RAW, ip_v4(47, &encrypted), hidden(0xfd)),
        ("compressed", PPP, with(&[0xff, 3, 0, 0xfd]), hidden(0xfd)),
        ("a protocol of one byte", PPP, with(&[0xfd]), hidden(0xfd)),
        ("Multilink", ETHERNET, session(0x3d), hidden(0x3d)),
        ("compressed headers", 51, with(&[0x11, 0, 0, 1, 0, 62, 0, 0x2d]), hidden(0x2d)),
        ("IPX", ETHERNET, session(0x2b), None),
        ("the set-up of the link", PPP, with(&[0xff, 3, 0xc0, 0x21]), None),
        ("nothing", PPP, vec![0xff, 3], None),
    ] {
        assert_counted(name, link, frame, unsupported);
    }
}

/// Tunnels of UDP, and labels and links within them, hide as much as frames do.
#[test]
fn what_other_tunnels_hide_is_counted() {
    let in_udp = |port, head: &[u8], inner: &[u8]| ip_v4(17, &udp(port, &[head, inner].concat()));
    let (vxlan, geneve) =
        ([8, 0, 0, 0, 0, 0, 1, 0], |kind: [u8; 2]| [0, 0, kind[0], kind[1], 0, 0, 1, 0]);
    let gpe = |next| [0x0c, 0, 0, next, 0, 0, 1, 0];
    let (macsec, arp) = (ethernet(0x88e5, &[0; 60]), ethernet(0x0806, &[0; 60]));
    let l2tp = |protocol: u8| [&[0, 2, 0, 1, 0, 1, 0xff, 3, 0, protocol][..], &[0xa5; 60]].concat();
    let label = [0, 0, 1, 64];
    let kind = |kind| Some(Unsupported::EtherType(kind));
    let bridged = |frame: &[u8]| ethernet(0x8847, &[&label[..], &[0; 4], frame].concat());
    let mut protected = wifi(&[0; 60]);
    protected[1] |= 0x40;
    let pktap_in = |link: u32, frame: &[u8]| {
        let mut head = [0; 108];
        head[..4].copy_from_slice(&108_u32.to_le_bytes());
        head[4] = 1;
        head[8..12].copy_from_slice(&link.to_le_bytes());
        [&head[..], frame].concat()
    };
    for (name, link, frame, unsupported) in [
        ("MACsec in VXLAN", RAW, in_udp(4789, &vxlan, &macsec), kind(0x88e5)),
        ("ARP in VXLAN", RAW, in_udp(4789, &vxlan, &arp), None),
        ("MACsec in VXLAN-GPE", RAW, in_udp(4790, &gpe(3), &macsec), kind(0x88e5)),
        ("service chains in VXLAN-GPE", RAW, in_udp(4790, &gpe(4), &[0; 60]), kind(0x894f)),
        ("unknown in Geneve", RAW, in_udp(6081, &geneve([0x89, 0x4f]), &[0; 60]), kind(0x894f)),
        ("MACsec in Geneve", RAW, in_udp(6081, &geneve([0x65, 0x58]), &macsec), kind(0x88e5)),
        ("MACsec in CAPWAP", RAW, ip_v4(17, &udp(5247, &capwap_ethernet(&macsec))), kind(0x88e5)),
        (
            "encrypted 802.11 in CAPWAP",
            RAW,
            ip_v4(17, &udp(5247, &capwap(&protected))),
            Some(Unsupported::ProtectedWifi),
        ),
        (
            "encrypted in L2TP",
            RAW,
            in_udp(1701, &[], &l2tp(0xfd)),
            Some(Unsupported::PppProtocol(0xfd)),
        ),
        (
            "the set-up in L2TP",
            RAW,
            in_udp(1701, &[], &[0xc8, 2, 0, 12, 0, 1, 0, 0, 0, 0, 0, 0]),
            None,
        ),
        // What a pseudowire carries is not told by it.
        ("MACsec in MPLS", ETHERNET, bridged(&macsec), kind(0x8847)),
        ("ARP in MPLS", ETHERNET, bridged(&arp), None),
        (
            "MACsec in MPLS over IP",
            RAW,
            ip_v4(137, &[&label[..], &[0; 4], &macsec].concat()),
            kind(0x8847),
        ),
        (
            "no link that is known in pktap",
            258,
            pktap_in(147, &[0; 60]),
            Some(Unsupported::LinkType(147)),
        ),
        // QUIC may be spoken at any port.
        ("QUIC at the port of VXLAN", RAW, in_udp(4789, &[0xc8, 0, 0, 0, 1], &[0x77; 1_195]), None),
    ] {
        assert_counted(name, link, frame, unsupported);
    }
}

/// The most frames in each other, tags and labels are bounds of ours: what lies behind them is not looked into.
#[test]
fn what_lies_in_too_many_layers_is_counted() {
    let tcp = ip_v4(6, &tcp());
    let wire = |frame: &[u8]| ethernet(0x8847, &[&[0, 0, 1, 64, 0, 0, 0, 0][..], frame].concat());
    let session = |frame: &[u8]| {
        let stack = [&[0x11, 0, 0, 1, 0, 62, 2, 0x81, 0, 0, 1, 64, 0, 0, 0, 0][..], frame].concat();
        ethernet(0x8864, &stack)
    };
    let bridged = |frame: &[u8]| ethernet(0x6558, frame);
    type In<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    for (name, put) in [("MPLS", &wire as In<'_>), ("PPP", &session), ("Ethernet", &bridged)] {
        let within = |count| (0..count).fold(ethernet(0x0800, &tcp), |frame, _| put(&frame));
        assert_found(name, &pcap(0xa1b2_c3d4, false, 0, ETHERNET, &[within(15)]));
        assert_counted(name, ETHERNET, within(16), Some(Unsupported::TooDeep));
    }
    let tagged = [&[0, 5, 0x81, 0][..]; 20].concat();
    let labels = [0, 0, 0, 64].repeat(20);
    assert_counted("tags", ETHERNET, ethernet(0x8100, &tagged), Some(Unsupported::TooDeep));
    assert_counted("labels", ETHERNET, ethernet(0x8847, &labels), Some(Unsupported::TooDeep));
}

/// Each kind has a place of its own up to a number; those of more kinds are counted together.
#[test]
fn frames_of_many_kinds_are_all_counted() {
    let frames: Vec<_> = (0..40).map(|kind| ethernet(0x9a00 + kind, &[0; 60])).collect();
    let capture = pcap(0xa1b2_c3d4, false, 0, ETHERNET, &frames);
    let summary = Analyser::new(Limits::default()).read(&capture[..], |_| {}).unwrap();
    let counted: u64 = summary.unsupported.iter().map(|(_, count)| count).sum();
    assert_eq!((summary.frames, counted), (40, 40), "{:?}", summary.unsupported);
    assert_eq!(summary.unsupported.last(), Some(&(Unsupported::Others, 24)));
}

#[test]
fn a_packet_in_too_many_tunnels_is_counted() {
    let tunnelled = |count| (0..count).fold(ip_v4(6, &tcp()), |packet, _| ip_v4(4, &packet));
    for (tunnels, handshakes, unsupported) in
        [(8, 1, vec![]), (9, 0, vec![(Unsupported::TooDeep, 1)])]
    {
        let capture = pcap(0xa1b2_c3d4, false, 0, RAW, &[tunnelled(tunnels)]);
        let summary = Analyser::new(Limits::default()).read(&capture[..], |_| {}).unwrap();
        assert_eq!((summary.handshakes, summary.unsupported), (handshakes, unsupported));
    }
}

/// Ethernet in Ethernet, over and over, in a frame as long as a block may be.
#[test]
fn frames_in_frames_are_looked_into_so_far() {
    let bridged = [&[2; 12][..], &[0x65, 0x58]].concat();
    for inner in
        [bridged.clone(), [&bridged[..12], &[0x88, 0x47, 0, 0, 1, 64, 0, 0, 0, 0]].concat()]
    {
        let frame = inner.repeat((15 << 20) / inner.len());
        let (found, stop) = read(&pcap(0xa1b2_c3d4, false, 0, ETHERNET, &[frame]));
        assert!(found.is_empty() && stop.is_none(), "{stop:?}");
    }
}

/// Blocks that hold no packets are not read, and may hold what they like.
#[test]
fn a_block_without_packets_may_hold_anything() {
    const NAMES: u32 = 4;
    const SECRETS: u32 = 10;
    const JOURNAL: u32 = 9;
    let name = [&[1, 0, 9, 0, 10, 0, 0, 1][..], b"host\0", &[0; 3]].concat();
    let frame = ip_v4(6, &tcp());
    let time = u64::from(TIME.0) * 1_000_000 + u64::from(TIME.1);
    for (kind, body) in [
        (NAMES, [&name[..], &[0; 4]].concat()),
        (NAMES, name.clone()),
        (NAMES, vec![]),
        (NAMES, [&name[..], &[1, 0, 0xff, 0xff]].concat()),
        (NAMES, vec![2, 0, 1, 0, 7, 7, 7, 7]),
        (SECRETS, vec![1; 4]),
        (SECRETS, [&[0x4b, 0x53, 0x4c, 0x54][..], &[0xff; 4]].concat()),
        (JOURNAL, b"A=b\n".to_vec()),
        (0x0bad, vec![]),
        (77, vec![]),
    ] {
        let block = block(kind, &body);
        let capture = [section(RAW), block.clone(), packet(0, time, &frame)].concat();
        assert_found(&format!("{kind}: {body:?}"), &capture);
        // Its length is to be sound.
        let mut other = block.clone();
        *other.last_mut().unwrap() = 1;
        let capture = [section(RAW), other, packet(0, time, &frame)].concat();
        assert!(matches!(read(&capture).1, Some(Stop::Corrupt { frames: 0 })), "{kind}");
        let capture = [section(RAW), block[..block.len() - 1].to_vec()].concat();
        assert!(matches!(read(&capture).1, Some(Stop::Truncated { frames: 0 })), "{kind}");
    }
}

#[test]
fn a_simple_packet_has_no_time() {
    let frame = ip_v4(6, &tcp());
    let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
    let blocks = [section(RAW), block(3, &[&length, &frame[..]].concat())];
    let (found, stop) = read(&blocks.concat());
    assert!(stop.is_none());
    assert_eq!((found.len(), found[0].t_ch, found[0].frame_ch), (1, None, Some(1)));
}

/// The body of a packet of the type that enhanced ones replaced: interface and drops are halves of a word.
fn old_packet(big_endian: bool, [interface, drops]: [u16; 2], frame: &[u8]) -> Vec<u8> {
    let half = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let time = u64::from(TIME.0) * 1_000_000 + u64::from(TIME.1);
    let length = u32::try_from(frame.len()).unwrap();
    let words = [(time >> 32) as u32, time as u32, length, length].map(word).concat();
    [&half(interface)[..], &half(drops), &words, frame].concat()
}

#[test]
fn packets_of_the_old_type_are_read() {
    let frame = ip_v4(6, &tcp());
    let little = block(2, &old_packet(false, [0, 0xffff], &frame));
    assert_found("little-endian", &[section(RAW), little].concat());
    let block = |kind: u32, body: &[u8]| {
        let body = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
        let length = u32::try_from(12 + body.len()).unwrap().to_be_bytes();
        [&kind.to_be_bytes()[..], &length, &body, &length].concat()
    };
    let header = [&0x1a2b_3c4du32.to_be_bytes()[..], &[0, 1, 0, 0], &[0xff; 8]].concat();
    let interface = [&[0, 101][..], &[0; 6]].concat();
    let big = block(2, &old_packet(true, [0, 0xffff], &frame));
    assert_found("big-endian", &[block(0x0a0d_0d0a, &header), block(1, &interface), big].concat());
}

#[test]
fn packets_of_an_interface_that_is_not_described_are_counted() {
    let frame = ip_v4(6, &tcp());
    let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
    let time = u64::from(TIME.0) * 1_000_000;
    let undescribed = [
        packet(3, time, &frame),
        block(2, &old_packet(false, [7, 0], &frame)),
        packet(1, time, &frame),
    ];
    let header_alone = section(RAW)[..28].to_vec();
    let simple = block(3, &[&length, &frame[..]].concat());
    for (capture, frames) in
        [([section(RAW), undescribed.concat()].concat(), 3), ([header_alone, simple].concat(), 1)]
    {
        let summary = Analyser::new(Limits::default()).read(&capture[..], |_| {}).unwrap();
        assert_eq!(summary.unsupported, [(Unsupported::NoInterface, frames)]);
        assert_eq!(summary.frames, frames);
    }
}

/// Statistics, which count from the beginning, or packets tell of others that were dropped.
#[test]
fn packets_that_were_dropped_are_counted() {
    let option = |code: u16, value: u64| {
        [&code.to_le_bytes()[..], &[8, 0], &value.to_le_bytes(), &[0; 4]].concat()
    };
    let statistics = |interface: u32, code, dropped| {
        block(5, &[&interface.to_le_bytes()[..], &[0; 8], &option(code, dropped)].concat())
    };
    let frame = ip_v4(6, &tcp());
    let enhanced = |dropped| {
        let words = [0u32, 0, 0, 64, 64].map(u32::to_le_bytes).concat();
        block(6, &[&words[..], &[0; 64], &option(4, dropped)].concat())
    };
    let old = |drops| block(2, &old_packet(false, [0, drops], &frame));
    let cases = [
        (vec![], 0),
        (vec![statistics(0, 5, 17), statistics(0, 5, 40)], 40),
        (vec![statistics(0, 5, 17), interface(RAW, &[]), statistics(1, 7, 3)], 20),
        (vec![enhanced(2), enhanced(5)], 7),
        (vec![old(2), old(0xffff), old(5)], 7),
        // The statistics count what the packets told.
        (vec![old(2), enhanced(5), statistics(0, 5, 9)], 9),
        (vec![statistics(0, 5, 9), section(RAW), statistics(0, 5, 9)], 18),
        (vec![statistics(9, 5, 9)], 0),
        (vec![enhanced(u64::MAX), statistics(0, 5, u64::MAX), section(RAW), old(1)], u64::MAX),
    ];
    for (blocks, dropped) in cases {
        let capture = [section(RAW), blocks.concat()].concat();
        let summary = Analyser::new(Limits::default()).read(&capture[..], |_| {}).unwrap();
        assert_eq!(summary.dropped, dropped, "{capture:?}");
    }
}

/// An identification is used again while a part of an earlier packet still waits.
#[test]
fn fragments_of_an_earlier_packet_are_not_taken() {
    let (tcp, other) = (tcp(), [0xee; 16]);
    // Each of 16 bytes, in units of 8, and the rest.
    let parts = [(0, 0..16, 0x2000), (2, 16..32, 0x2000), (4, 32..tcp.len(), 0)]
        .map(|(place, bytes, more)| fragment(6, &tcp[bytes], place | more));
    let found = |stale: &[u8], older_s: u32, order: [usize; 3]| {
        let frames = [&[stale.to_vec()][..], &order.map(|at| parts[at].clone())].concat();
        let mut capture = pcap(0xa1b2_c3d4, false, 0, RAW, &frames);
        capture[24..28].copy_from_slice(&(TIME.0 - older_s).to_le_bytes());
        read(&capture).0.first().is_some_and(|found| found.ch_random == Some(vec![7; 32]))
    };
    // Other bytes in the same place tell, at the beginning or at the end.
    assert!(found(&fragment(6, &other, 0x2000), 0, [0, 1, 2]));
    assert!(found(&fragment(6, &other, 4), 0, [2, 1, 0]));
    // Of others only the age does.
    let between = fragment(6, &other, 0x2000 | 1);
    assert!(found(&between, 31, [0, 1, 2]) && !found(&between, 29, [0, 1, 2]));
}

#[test]
fn fragments_are_put_together_in_any_order() {
    let tcp = tcp();
    let first = fragment(6, &tcp[..32], 0x2000);
    let last = fragment(6, &tcp[32..], 4);
    for frames in [[first.clone(), last.clone()], [last, first]] {
        assert_found("fragments", &pcap(0xa1b2_c3d4, false, 0, RAW, &frames));
    }
}

#[test]
fn what_an_error_message_quotes_is_no_connection() {
    let quoted = [&[3, 4, 0, 0, 0, 0, 0, 0][..], &ip_v4(6, &tcp())].concat();
    let (found, stop) = read(&pcap(0xa1b2_c3d4, false, 0, RAW, &[ip_v4(1, &quoted)]));
    assert!(found.is_empty() && stop.is_none());
}

#[test]
fn what_is_no_capture_is_named() {
    let read = |bytes: &[u8]| Analyser::new(Limits::default()).read(bytes, |_| {});
    assert!(matches!(read(b""), Err(Error::Empty)));
    assert!(matches!(read(b"GIF"), Err(Error::NotACapture)));
    assert!(matches!(read(b"# a text\n"), Err(Error::NotACapture)));
    assert!(matches!(read(&gzip(b"a text")), Err(Error::NotACapture)));
    let whole = gzip(&pcapng(&ip_v4(6, &tcp())));
    let cut = read(&whole[..whole.len() - 12]).unwrap();
    assert!(matches!(cut.stop, Some(Stop::Read { .. } | Stop::Truncated { .. })));
    let mut endless = pcapng(&ip_v4(6, &tcp()));
    endless.extend([6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(matches!(read(&endless).unwrap().stop, Some(Stop::Corrupt { frames: 1 })));
}

#[test]
fn captures_may_stand_one_behind_the_other() {
    let frame = ip_v4(6, &tcp());
    let micro = pcap(0xa1b2_c3d4, false, 0, RAW, slice::from_ref(&frame));
    let nano = pcap(0xa1b2_3c4d, true, 0, RAW, slice::from_ref(&frame));
    let new = pcapng(&frame);
    for [one, other] in [[&micro, &nano], [&nano, &new], [&new, &micro], [&new, &new]] {
        let gzipped = [gzip(one), gzip(other)].concat();
        // A frame that is to be skipped.
        let skipped = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9];
        let compressed = [zstd(one), skipped, zstd(other)].concat();
        for capture in [[&one[..], other].concat(), gzipped, compressed] {
            let read = Analyser::new(Limits::default()).read(&capture[..], |_| {}).unwrap();
            assert!(read.stop.is_none(), "{:?}", read.stop);
            assert_eq!((read.frames, read.handshakes), (2, 1));
        }
    }
}
