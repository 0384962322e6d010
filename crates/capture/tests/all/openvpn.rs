//! TLS in the control packets of OpenVPN.

use rejoin_capture::{Carrier, Class, Handshake, Via};
use rejoin_testkit::made_capture::*;

/// The bytes of a control packet that carry TLS.
const PAYLOAD_BYTES: usize = 100;
/// An HMAC of SHA-1, a number and a time.
const AUTH: [u8; 28] = [9; 28];

/// The packets of one side: its reset, and those that carry its stream.
fn packets(from: u16, key: u8, auth: &[u8], stream: &[u8]) -> Vec<Vec<u8>> {
    let (reset, session) = if from == CLIENT { (7, [1; 8]) } else { (8, [2; 8]) };
    let packet = |kind: u8, acknowledged: &[u8], number: u32, payload: &[u8]| {
        let head = [&[kind << 3 | key][..], &session, auth].concat();
        [head, acknowledged.to_vec(), number.to_be_bytes().to_vec(), payload.to_vec()].concat()
    };
    let of_other = [&[1, 0, 0, 0, 0][..], &[if from == CLIENT { 2 } else { 1 }; 8]].concat();
    let acknowledged = if from == CLIENT { &[0][..] } else { &of_other };
    let reset = if key == 0 { reset } else { 3 };
    let first = packet(reset, acknowledged, 0, &[]);
    let pieces = (1..).zip(stream.chunks(PAYLOAD_BYTES));
    let rest = pieces.map(|(number, piece)| {
        // Some acknowledge something.
        packet(4, if number % 3 == 0 { &of_other } else { &[0] }, number, piece)
    });
    [first].into_iter().chain(rest).collect()
}

fn datagram(capture: &mut Capture, from: u16, payload: &[u8]) {
    let to = if from == CLIENT { SERVER } else { CLIENT };
    let ports = [from, to].map(u16::to_be_bytes).concat();
    capture.packet(&ip(17, from, &[&ports[..], &[0; 4], payload].concat()));
}

/// The datagrams of a client's hello that nobody answers.
pub(crate) fn begun() -> Vec<(u16, Vec<u8>)> {
    let hello = record(22, &client_hello(1, &[]));
    packets(CLIENT, 0, &[], &hello).into_iter().map(|packet| (CLIENT, packet)).collect()
}

/// A tunnel over UDP whose packets `change` may reorder, or lose.
fn over_udp(auth: &[u8], change: impl Fn(&mut Vec<(u16, Vec<u8>)>)) -> Vec<Handshake> {
    let mut sent = Vec::new();
    for key in [0, 1] {
        let (client, server) = full_1_2();
        let of = |from, stream: &[u8]| {
            packets(from, key, auth, stream).into_iter().map(move |packet| (from, packet))
        };
        sent.extend(of(CLIENT, &client));
        sent.extend(of(SERVER, &server));
        // Data, which nobody reads.
        sent.push((CLIENT, [&[0x48 | key][..], &[7; 200]].concat()));
    }
    change(&mut sent);
    let mut capture = Capture::new();
    sent.iter().for_each(|(from, packet)| datagram(&mut capture, *from, packet));
    capture.handshakes()
}

fn assert_full(handshake: &Handshake) {
    assert_eq!((handshake.cls, handshake.completed), (Class::Full, true), "{handshake:?}");
    assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"));
    assert_eq!((handshake.via, handshake.direct), (Some(Via::Tunnel), false));
}

#[test]
fn each_handshake_of_a_tunnel_over_udp_is_found() {
    for auth in [&[][..], &AUTH] {
        let found = over_udp(auth, |_| {});
        assert_eq!(found.len(), 2, "{found:?}");
        found.iter().for_each(assert_full);
    }
}

#[test]
fn packets_may_overtake_each_other_and_come_twice() {
    let found = over_udp(&AUTH, |sent| {
        // Neither the resets nor what follows the second one.
        for place in (2..20).step_by(2) {
            sent.swap(place, place + 1);
        }
        let again = sent[3].clone();
        sent.insert(9, again);
    });
    assert_eq!(found.len(), 2, "{found:?}");
    found.iter().for_each(assert_full);
}

#[test]
fn what_a_lost_packet_held_is_not_known() {
    // A part of the server's certificate: what follows may hide anything, and what came before shows enough.
    let found = over_udp(&AUTH, |sent| {
        let place = sent.iter().rposition(|(from, packet)| *from == SERVER && packet.len() > 100);
        sent.remove(place.expect("a long packet") - 9);
    });
    assert_eq!(found.len(), 2);
    assert_ne!(found[1].cls, Class::Resumed);
    // The ClientHello: then it is not made up, either.
    let found = over_udp(&[], |sent| {
        sent.remove(1);
    });
    assert_eq!(found[0].sni, None, "{:?}", found[0]);
    assert_ne!(found[0].cls, Class::Resumed);
}

#[test]
fn so_is_one_over_tcp() {
    for auth in [&[][..], &AUTH] {
        let (client, server) = full_1_2();
        let framed = |from, stream: &[u8]| -> Vec<Vec<u8>> {
            let packets = packets(from, 0, auth, stream).into_iter();
            packets.map(|packet| with_length(&packet)).collect()
        };
        let (client, server) = (framed(CLIENT, &client), framed(SERVER, &server));
        let mut capture = Capture::new();
        capture.client(0, &client[0]);
        capture.server(0, &server[0]);
        // The first message, then all the server's, in segments that do not end with packets.
        let (hello, rest) = client[1..].split_at(2);
        capture.client(client[0].len(), &hello.concat());
        let mut offset = server[0].len();
        for piece in server[1..].concat().chunks(333) {
            capture.server(offset, piece);
            offset += piece.len();
        }
        let begun = client[0].len() + hello.concat().len();
        let data = with_length(&[&[0x48][..], &[7; 2_000]].concat());
        capture.client(begun, &[rest.concat(), data].concat());
        assert_full(&capture.handshake());
    }
}

/// A datagram that looks like the first one of a tunnel hides no other protocol that the same ends speak later.
#[test]
fn what_only_looks_like_a_tunnel_hides_nothing() {
    let tunnel = [&[0x38][..], &[1; 8], &[0; 5]].concat();
    let mut capture = Capture::new();
    datagram(&mut capture, CLIENT, &tunnel);
    crate::dtls::full().iter().for_each(|(from, payload)| datagram(&mut capture, *from, payload));
    let found = capture.handshake();
    assert_eq!((found.carrier, found.cls), (Carrier::Dtls, Class::Full));
    let mut capture = Capture::new();
    datagram(&mut capture, CLIENT, &tunnel);
    datagram(&mut capture, CLIENT, &crate::quic::hello());
    assert_eq!(capture.handshake().carrier, Carrier::Quic);
}
