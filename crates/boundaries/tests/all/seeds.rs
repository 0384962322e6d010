//! Captures in which TLS follows another protocol, or lies in one: the seeds of `capture_file`, without which a fuzzer would
//! have to find whole exchanges.

use std::fs;
use std::path::Path;

use rejoin_capture::{Analyser, Carrier, Handshake, Limits, Version, Via};
use rejoin_testkit::made_capture::*;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/capture_file");

/// The analyser reaches TLS in each seed by the parser that the seed is for. `REJOIN_BLESS=1` writes them.
#[test]
fn the_kept_captures_reach_their_parsers() {
    let prefaces = PREFACES.iter().map(|&(name, via, said)| {
        let proof: Proof = Box::new(move |it| it.via == Some(via));
        (name, after(said), proof)
    });
    for (name, capture, is_reached) in prefaces.chain(others()) {
        let path = Path::new(CORPUS).join(name);
        if std::env::var_os("REJOIN_BLESS").is_some() {
            fs::write(&path, &capture).expect("a file");
        }
        assert!(fs::read(&path).is_ok_and(|kept| kept == capture), "{name}: REJOIN_BLESS=1");
        let mut found = Vec::new();
        let read = Analyser::new(Limits::default()).read(&capture[..], |it| found.push(it));
        assert!(read.is_ok_and(|read| read.stop.is_none()), "{name}");
        assert!(found.len() == 1 && found.iter().all(is_reached), "{name}: {found:?}");
    }
}

/// Tells if a handshake was found by the parser that a seed is for.
type Proof = Box<dyn Fn(&Handshake) -> bool>;
/// The lines of the client (true) and the server before TLS.
type Said = &'static [(bool, &'static [u8])];

/// The protocols that begin without TLS, with their lines before it.
const PREFACES: &[(&str, Via, Said)] = &[
    (
        "smtp",
        Via::Smtp,
        &[(false, b"220 a ESMTP\r\n"), (true, b"STARTTLS\r\n"), (false, b"220 go\r\n")],
    ),
    (
        "imap",
        Via::Imap,
        &[(false, b"* OK ready\r\n"), (true, b"a STARTTLS\r\n"), (false, b"a OK\r\n")],
    ),
    ("pop3", Via::Pop3, &[(false, b"+OK ready\r\n"), (true, b"STLS\r\n"), (false, b"+OK\r\n")]),
    (
        "nntp",
        Via::Nntp,
        &[(false, b"200 news\r\n"), (true, b"STARTTLS\r\n"), (false, b"382 go\r\n")],
    ),
    ("irc", Via::Irc, &[(true, b"STARTTLS\r\n"), (false, b":a 670 * :go\r\n")]),
    (
        "sieve",
        Via::Sieve,
        &[(false, b"\"IMPLEMENTATION\" \"a\"\r\n"), (true, b"STARTTLS\r\n"), (false, b"OK\r\n")],
    ),
    ("ftp", Via::Ftp, &[(false, b"220 FTP\r\n"), (true, b"AUTH TLS\r\n"), (false, b"234 go\r\n")]),
    ("xmpp", Via::Xmpp, &[(true, b"<starttls/>"), (false, b"<proceed/>")]),
    (
        "ldap",
        Via::Ldap,
        &[
            (true, b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"),
            (false, b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\0\x04\0\x04\0"),
        ],
    ),
    ("postgresql", Via::Postgresql, &[(true, b"\0\0\0\x08\x04\xd2\x16\x2f"), (false, b"S")]),
    (
        "mysql",
        Via::Mysql,
        &[
            (false, b"\x09\0\0\0\x0a8.4.0\0\0\0"),
            (true, b"\x20\0\0\x01\x85\xae\xff\x19\0\0\0\x01\xff\0\0\0"),
        ],
    ),
    (
        "rdp",
        Via::Rdp,
        &[
            (true, b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0"),
            (false, b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x02\0\x08\0\x02\0\0\0"),
        ],
    ),
    (
        "connect",
        Via::Connect,
        &[(true, b"CONNECT a:443 HTTP/1.1\r\n\r\n"), (false, b"HTTP/1.1 200 OK\r\n\r\n")],
    ),
    (
        "socks",
        Via::Socks,
        &[
            (true, b"\x05\x01\0"),
            (false, b"\x05\0"),
            (true, b"\x05\x01\0\x01\xc0\0\x02\x01\x01\xbb"),
            (false, b"\x05\0\0\x01\0\0\0\0\0\0"),
        ],
    ),
    ("proxy", Via::Proxy, &[(true, b"PROXY TCP4 10.0.0.9 192.0.2.1 7 443\r\n")]),
    (
        "proxy-binary",
        Via::Proxy,
        &[(true, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x09\xc0\0\x02\x01\0\x07\x01\xbb")],
    ),
];

/// Messages of TLS, packets of TDS and OpenVPN, DTLS, tunnels, and the forms of files.
fn others() -> Vec<(&'static str, Vec<u8>, Proof)> {
    let tunnel: fn(&Handshake) -> bool = |it| it.via == Some(Via::Tunnel);
    let direct: fn(&Handshake) -> bool = |it| it.via.is_none() && it.carrier == Carrier::Tls;
    let named: fn(&Handshake) -> bool = |it| it.program.as_deref() == Some("app");
    let inner = [CLIENT, SERVER].map(|from| ip(6, from, &segment(from)));
    let in_udp = |port, head: &[u8], packet: &[u8]| {
        ip(17, CLIENT, &datagram([5, port], &[head, packet].concat()))
    };
    let behind =
        |port, head: &[u8]| captured(&inner.each_ref().map(|packet| in_udp(port, head, packet)));
    let ethernet = [&[0x0c, 0, 0, 3, 0, 0, 1, 0][..], &[2; 12], &[8, 0]].concat();
    vec![
        ("tds", in_tds(), Box::new(|it| it.via == Some(Via::Tds))),
        ("openvpn", in_openvpn(), Box::new(tunnel)),
        ("openvpn-tcp", in_openvpn_over_tcp(), Box::new(tunnel)),
        ("dtls", dtls(&[]), Box::new(|it| it.version == Some(Version::Dtls12))),
        (
            "dtls-1.3",
            dtls(&extension(43, &[0xfe, 0xfc])),
            Box::new(|it| it.version == Some(Version::Dtls13)),
        ),
        ("vxlan-gpe", behind(4790, &ethernet), Box::new(direct)),
        ("l2tp", behind(1701, &[0, 2, 0, 1, 0, 2, 0xff, 3, 0, 0x21]), Box::new(direct)),
        ("mpls-udp", behind(6635, &[0, 0, 1, 64]), Box::new(direct)),
        ("pcapng", pcapng(&inner), Box::new(direct)),
        ("zstd", zstd(&captured(&inner)), Box::new(direct)),
        ("several", several(&inner), Box::new(direct)),
        ("pktap", pktap(&inner), Box::new(named)),
        ("pcapdroid", pcapdroid(&inner), Box::new(named)),
        ("pcapng-process", pcapng_with(&inner, &process()), Box::new(named)),
    ]
}

fn hello() -> Vec<u8> {
    record(22, &client_hello(1, &[]))
}

fn answer() -> Vec<u8> {
    record(22, &[server_hello(&[]), message(SERVER_HELLO_DONE, &[])].concat())
}

/// A capture of an exchange, and of hellos behind it.
fn after(said: Said) -> Vec<u8> {
    let mut capture = Capture::new();
    let mut offsets = [0; 2];
    let tls = [(true, hello()), (false, answer())];
    let said = said.iter().map(|(is_client, bytes)| (*is_client, bytes.to_vec()));
    for (is_client, bytes) in said.chain(tls) {
        let offset = &mut offsets[usize::from(is_client)];
        match is_client {
            true => capture.client(*offset, &bytes),
            false => capture.server(*offset, &bytes),
        }
        *offset += bytes.len();
    }
    capture.0
}

fn captured(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut capture = Capture::new();
    packets.iter().for_each(|packet| capture.packet(packet));
    capture.0
}

fn datagram(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 8).unwrap().to_be_bytes();
    [&ports.map(u16::to_be_bytes).concat()[..], &length, &[0; 2], payload].concat()
}

fn ports(from: u16) -> [u16; 2] {
    if from == CLIENT { [CLIENT, SERVER] } else { [SERVER, CLIENT] }
}

/// A segment with a side's hello.
fn segment(from: u16) -> Vec<u8> {
    let hello = if from == CLIENT { hello() } else { answer() };
    let ports = ports(from).map(u16::to_be_bytes).concat();
    [&ports[..], &[0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0], &hello].concat()
}

fn in_tds() -> Vec<u8> {
    let packet = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len() + 8).unwrap().to_be_bytes();
        [&[0x12, 1][..], &length, &[0; 4], bytes].concat()
    };
    let prelogin = packet(&[0, 0, 6, 0, 6, 0xff, 11, 0, 0, 0, 0, 0]);
    let mut capture = Capture::new();
    capture.client(0, &prelogin);
    capture.server(0, &prelogin);
    capture.client(prelogin.len(), &packet(&hello()));
    capture.server(prelogin.len(), &packet(&answer()));
    capture.0
}

/// The resets of both sides, then their hellos.
fn openvpn_packets() -> [(u16, Vec<u8>); 4] {
    let head = |kind: u8, session: u8| [&[kind << 3][..], &[session; 8]].concat();
    let first = [head(7, 1), vec![0; 5]].concat();
    let second = [&head(8, 2)[..], &[1, 0, 0, 0, 0], &[1; 8], &[0; 4]].concat();
    let control = |session, tls: Vec<u8>| [head(4, session), vec![0, 0, 0, 0, 1], tls].concat();
    let (hello, answer) = (control(1, hello()), control(2, answer()));
    [(CLIENT, first), (SERVER, second), (CLIENT, hello), (SERVER, answer)]
}

fn in_openvpn() -> Vec<u8> {
    let packet = |(from, payload): (u16, Vec<u8>)| ip(17, from, &datagram(ports(from), &payload));
    captured(&openvpn_packets().map(packet))
}

fn in_openvpn_over_tcp() -> Vec<u8> {
    let [reset, other_reset, hello, answer] =
        openvpn_packets().map(|(_, packet)| with_length(&packet));
    let mut capture = Capture::new();
    capture.client(0, &reset);
    capture.server(0, &other_reset);
    capture.client(reset.len(), &hello);
    capture.server(other_reset.len(), &answer);
    capture.0
}

/// The hellos of DTLS, the server's with these extensions.
fn dtls(extensions: &[u8]) -> Vec<u8> {
    let record = |message: &[u8]| {
        let (head, body) = message.split_at(4);
        let fragment = [head, &[0; 5], &head[1..], body].concat();
        let head = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0];
        [&head[..], &with_length(&fragment)].concat()
    };
    let client = client_hello(1, &[]);
    let (random_and_session, rest) = client[6..].split_at(32 + 5);
    let client = [&[0xfe, 0xfd][..], random_and_session, &[0], rest].concat();
    let server = [&[0xfe, 0xfd][..], &server_hello(extensions)[6..]].concat();
    let hellos = [(CLIENT, message(CLIENT_HELLO, &client)), (SERVER, message(2, &server))];
    let packet =
        |(from, hello): (u16, Vec<u8>)| ip(17, from, &datagram(ports(from), &record(&hello)));
    let mut packets = hellos.map(packet).to_vec();
    // What shows a version up to 1.2.
    if extensions.is_empty() {
        let done = record(&message(SERVER_HELLO_DONE, &[]));
        packets.push(ip(17, SERVER, &datagram(ports(SERVER), &done)));
    }
    captured(&packets)
}

/// A block of a pcapng, padded to whole words.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let length = u32::try_from(12 + body.len() + padding.len()).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &padding, &length].concat()
}

/// Apple's block of a process.
fn process() -> Vec<u8> {
    block(0x8000_0001, &[&[77, 0, 0, 0, 2, 0, 3, 0][..], b"app\0", &[0; 4]].concat())
}

/// The packets in blocks of a pcapng.
fn pcapng(packets: &[Vec<u8>]) -> Vec<u8> {
    pcapng_with(packets, &[])
}

/// The same behind another block; each packet is of the first process, the first of them going out.
fn pcapng_with(packets: &[Vec<u8>], more: &[u8]) -> Vec<u8> {
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let packet = |(frame, direction): (&Vec<u8>, u8)| {
        let length = u32::try_from(frame.len()).unwrap();
        let words = [0, 0, 5, length, length].map(u32::to_le_bytes).concat();
        let padding = vec![0; frame.len().next_multiple_of(4) - frame.len()];
        let flags = [2, 0, 4, 0, direction, 0, 0, 0];
        let process = [1, 0x80, 4, 0, 0, 0, 0, 0];
        block(6, &[&words, &frame[..], &padding, &flags, &process, &[0; 4]].concat())
    };
    let blocks = packets.iter().zip([2, 1]).map(packet);
    let head = [block(0x0a0d_0d0a, &section), block(1, &[101, 0, 0, 0, 0, 0, 0, 0]), more.to_vec()];
    head.into_iter().chain(blocks).collect::<Vec<_>>().concat()
}

/// The packets of a link type.
fn of_link(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut capture = captured(frames);
    capture[20..24].copy_from_slice(&link.to_le_bytes());
    capture
}

/// The packets behind Apple's header, which names a process.
fn pktap(packets: &[Vec<u8>]) -> Vec<u8> {
    let frame = |(packet, direction): (&Vec<u8>, u8)| {
        let mut head = [0; 156];
        for (at, byte) in [(0, 156), (4, 1), (8, 101), (36, direction), (52, 77)] {
            head[at] = byte;
        }
        head[56..59].copy_from_slice(b"app");
        [&head[..], packet].concat()
    };
    of_link(258, &packets.iter().zip([2, 1]).map(frame).collect::<Vec<_>>())
}

/// The packets before a trailer, which names an app.
fn pcapdroid(packets: &[Vec<u8>]) -> Vec<u8> {
    let trailer = [&[1, 7, 0x20, 0x21, 0, 0, 0, 9][..], b"app", &[0; 17], &[9; 4]].concat();
    let frame = |packet: &Vec<u8>| [&[2; 12][..], &[8, 0], packet, &trailer].concat();
    of_link(1, &packets.iter().map(frame).collect::<Vec<_>>())
}

/// A frame of zstd with one block that is not compressed (RFC 8878, 3.1.1).
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    let size = u16::try_from(length - 256).unwrap().to_le_bytes();
    let block = (length << 3 | 1).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x60][..], &size, &block[..3], bytes].concat()
}

/// A pcap for each direction, and between them a pcapng of nothing.
fn several(packets: &[Vec<u8>]) -> Vec<u8> {
    let [client, server] = [0, 1].map(|side| captured(&packets[side..=side]));
    [client, pcapng(&[]), server].concat()
}
