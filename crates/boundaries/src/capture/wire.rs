//! Captures built around bytes of the fuzzer, and the properties that every capture must have.

use rejoin_capture::{Analyser, Class, Handshake, Limits, Version, Via};
use rejoin_testkit::memory::peak_bytes;

/// The limits, small so that every bound is met.
const LIMITS: Limits = Limits {
    connections: 5,
    quic_connections: 3,
    waiting_bytes: 8 << 10,
    waiting_segments: 8,
    total_bytes: 64 << 10,
    quic_bytes: 16 << 10,
    dtls_associations: 3,
    dtls_bytes: 8 << 10,
    tunnels: 3,
    tunnel_bytes: 8 << 10,
    search_bytes: 4 << 10,
    fragment_bytes: 16 << 10,
    named_connections: 3,
    certificate_bytes: 4 << 10,
    hash_seed: 7,
};

/// Reads a capture twice, at rest and live: nothing panics, memory is bounded, the answers agree and make sense.
pub(crate) fn check(capture: &[u8]) {
    for (limits, is_live) in [(LIMITS, false), (Limits { search_bytes: 64 << 10, ..LIMITS }, true)]
    {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let peak = peak_bytes(|| {
            let mut analyser = Analyser::new(limits);
            analyser.set_live(is_live);
            first = read(&mut analyser, capture);
            second = read(&mut analyser, capture);
        });
        let given: usize = first.iter().chain(&second).map(handshake_bytes).sum();
        assert!(peak <= limits.most_bytes() + 8 * given + (1 << 20), "{peak} bytes");
        assert_eq!(first, second);
        first.iter().for_each(make_sense);
    }
}

fn read(analyser: &mut Analyser, capture: &[u8]) -> Vec<Handshake> {
    let mut found = Vec::new();
    if let Ok(summary) = analyser.read(capture, |handshake| found.push(handshake)) {
        assert_eq!(summary.handshakes, found.len() as u64);
    }
    found
}

fn handshake_bytes(handshake: &Handshake) -> usize {
    let names = handshake.certificate.as_ref().map_or(0, |certificate| {
        certificate.names.iter().map(|name| name.len() + 16).sum::<usize>()
    });
    size_of::<Handshake>() + handshake.sni.as_ref().map_or(0, String::len) + 64 + names
}

fn make_sense(handshake: &Handshake) {
    let is_tls_1_3 = handshake.version == Some(Version::Tls13);
    assert_eq!(handshake.direct, matches!(handshake.via, None | Some(Via::Socks | Via::Proxy)));
    // A simple packet of a pcapng has no time.
    assert!(handshake.completed || handshake.t_done.is_none());
    assert_eq!(handshake.cls == Class::Resumed, handshake.method.is_some());
    assert_eq!(handshake.cls == Class::NoServerhello, handshake.frame_sh.is_none());
    assert_eq!(handshake.cls == Class::NoServerhello, handshake.proof_frame.is_none());
    assert_eq!(handshake.ch_random.is_some(), handshake.frame_ch.is_some());
    assert!(handshake.ch_random.is_some() || handshake.frame_sh.is_some());
    assert!(!is_tls_1_3 || handshake.issued_sid_len.is_none());
    assert!(handshake.session_id_hash.is_none() || handshake.issued_sid_len > Some(0));
    assert!(handshake.issued_ticket_hash.is_none() || handshake.issued_ticket_len > Some(0));
    assert!(handshake.offered_ticket_hash.is_none() || handshake.offered_ticket_len > Some(0));
    // The bytes of a handshake may come from one side alone.
    assert!(handshake.bytes_from_client.is_some() || handshake.bytes_from_server.is_some());
}

/// A pcap with frames of a LINKTYPE, a millisecond apart.
pub(crate) fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let header = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 1 << 18, link];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (place, frame) in (0u32..).zip(frames) {
        let length = frame.len() as u32;
        for word in [1_700_000_000 + place / 1_000, place % 1_000 * 1_000, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

/// An IPv4 packet between two hosts.
pub(crate) fn ip(protocol: u8, from_client: bool, payload: &[u8]) -> Vec<u8> {
    let [high, low] = ((payload.len() + 20).min(0xffff) as u16).to_be_bytes();
    let (client, server) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    let [source, destination] = if from_client { [client, server] } else { [server, client] };
    let header = [0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0];
    [&header[..], &source, &destination, payload].concat()
}

fn ports(from_client: bool, [client, server]: [u16; 2]) -> Vec<u8> {
    let [source, destination] = if from_client { [client, server] } else { [server, client] };
    [source.to_be_bytes(), destination.to_be_bytes()].concat()
}

/// A TCP segment in its packet.
pub(crate) fn tcp(from_client: bool, flags: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let head =
        [&ports(from_client, [40_000, 443])[..], &sequence.to_be_bytes(), &[0; 4], &[0x50, flags]];
    ip(6, from_client, &[&head.concat()[..], &[1, 0, 0, 0, 0, 0], payload].concat())
}

/// A UDP datagram in its packet, between the ports of the client and of the server.
pub(crate) fn udp(from_client: bool, ends: [u16; 2], payload: &[u8]) -> Vec<u8> {
    ip(17, from_client, &[&ports(from_client, ends)[..], &[0; 4], payload].concat())
}
