//! QUIC connections that share sockets, move, are asked to begin again, and have each other's connection IDs.

use arbitrary::Arbitrary;

use super::initial::{Ends, V1, V2, sealed};
use super::wire;
use crate::structured;

/// The connection IDs, of which several connections may have the same.
const IDS: [&[u8]; 6] = [&[], &[1], &[2; 8], &[3; 8], &[4; 20], &[5; 12]];

#[derive(Debug, Arbitrary)]
struct Datagram {
    from_client: bool,
    /// The client's port, and the server's.
    ports: [u8; 2],
    packets: Vec<Packet>,
    captured: Option<u16>,
}

#[derive(Debug, Arbitrary)]
struct Packet {
    is_v2: bool,
    to: u8,
    from: u8,
    kind: Kind,
}

#[derive(Debug, Arbitrary)]
enum Kind {
    /// A hello of this random byte, or another message, with the keys of an ID.
    Hello(u8, u8, bool),
    /// Any frames, with the keys of an ID.
    Frames(u8, Vec<u8>),
    Handshake,
    Retry,
    VersionNegotiation,
    Short,
}

pub(crate) fn check(bytes: &[u8]) {
    let Some(datagrams) = structured::<Vec<Datagram>>(bytes) else { return };
    let frames: Vec<Vec<u8>> = datagrams.iter().map(frame).collect();
    wire::check(&wire::pcap(101, &frames));
}

fn frame(datagram: &Datagram) -> Vec<u8> {
    let packets = datagram.packets.iter().take(4);
    let payload = packets.filter_map(|packet| bytes(datagram.from_client, packet));
    let payload: Vec<u8> = payload.flatten().collect();
    let [client, server] = datagram.ports.map(|port| 40_000 + u16::from(port % 2));
    let mut frame = wire::udp(datagram.from_client, [client, server], &payload);
    if let Some(captured) = datagram.captured {
        frame.truncate(usize::from(captured).max(28));
    }
    frame
}

fn bytes(from_client: bool, packet: &Packet) -> Option<Vec<u8>> {
    let [to, from] = [packet.to, packet.from].map(id);
    let version = if packet.is_v2 { V2 } else { V1 };
    let initial = |keys_of: u8, frames: &[u8]| {
        sealed(version, Ends { from_client, keys_of: id(keys_of), to, from }, frames)
    };
    // The types of version 2 go round.
    let first = |kind: u8| 0xc0 | (version.first.wrapping_add(kind << 4) & 0x30);
    let long = |kind, rest: &[u8]| Some(long(first(kind), version.number, [to, from], rest));
    match &packet.kind {
        Kind::Hello(keys_of, random, is_resumed) => {
            let hello = hello(from_client, *random, *is_resumed);
            let head = [6, 0, 0x40, hello.len() as u8];
            initial(*keys_of, &[&head[..], &hello].concat())
        }
        Kind::Frames(keys_of, frames) => initial(*keys_of, frames),
        Kind::Handshake => {
            long(2, &[0x40, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        }
        Kind::Retry => long(3, &[7; 24]),
        Kind::VersionNegotiation => {
            Some(self::long(0xc0, [0; 4], [to, from], &[V1.number, V2.number].concat()))
        }
        Kind::Short => Some([&[0x40][..], to, &[9; 24]].concat()),
    }
}

fn id(number: u8) -> &'static [u8] {
    IDS[usize::from(number) % IDS.len()]
}

/// A packet with a long header.
fn long(first: u8, version: [u8; 4], [to, from]: [&[u8]; 2], rest: &[u8]) -> Vec<u8> {
    let ids = [&[to.len() as u8][..], to, &[from.len() as u8], from].concat();
    [&[first][..], &version, &ids, rest].concat()
}

/// A ClientHello or a ServerHello of TLS 1.3, with a pre-shared key or without.
fn hello(from_client: bool, random: u8, is_resumed: bool) -> Vec<u8> {
    let key: &[u8] = match (from_client, is_resumed) {
        (_, false) => &[],
        (true, true) => &[0, 41, 0, 10, 0, 7, 0, 1, 7, 0, 0, 0, 0, 0],
        (false, true) => &[0, 41, 0, 2, 0, 0],
    };
    let version: &[u8] = if from_client { &[0, 43, 0, 3, 2, 3, 4] } else { &[0, 43, 0, 2, 3, 4] };
    let suites: &[u8] = if from_client { &[0, 2, 0x13, 1, 1, 0] } else { &[0x13, 1, 0] };
    let extensions = [version, key].concat();
    let length = [0, extensions.len() as u8];
    let body = [&[3, 3][..], &[random; 32], &[0], suites, &length, &extensions].concat();
    let kind = if from_client { 1 } else { 2 };
    [&[kind, 0, 0, body.len() as u8][..], &body].concat()
}

#[cfg(test)]
mod tests {
    use rejoin_capture::{Analyser, Class, Limits};

    use super::*;

    /// The builder makes what the analyser reads, or the target would test little.
    #[test]
    fn a_handshake_that_is_built_is_found() {
        for (is_v2, is_resumed) in [(false, false), (false, true), (true, false), (true, true)] {
            let datagram = |from_client: bool, [to, from]: [u8; 2]| Datagram {
                from_client,
                ports: [0, 1],
                packets: vec![Packet { is_v2, to, from, kind: Kind::Hello(2, 7, is_resumed) }],
                captured: None,
            };
            let frames = [datagram(true, [2, 3]), datagram(false, [3, 4])];
            let capture = wire::pcap(101, &frames.each_ref().map(frame));
            let mut found = Vec::new();
            let mut analyser = Analyser::new(Limits::default());
            analyser.read(&capture[..], |it| found.push(it.cls)).expect("a capture");
            assert_eq!(found, [if is_resumed { Class::Resumed } else { Class::Full }]);
        }
    }
}
