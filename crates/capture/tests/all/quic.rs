//! QUIC handshakes in captures made by hand: Initials under the keys of RFC 9001, 5.2.

use std::cell::Cell;
use std::io::{self, Read};
use std::iter;

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use rejoin_capture::{Analyser, Carrier, Class, Limits};
use rejoin_testkit::made_capture::*;

const ID: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const VERSION_1: u32 = 1;
const VERSION_2: u32 = 0x6b33_43cf;

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(secret: &Prk, label: &str) -> [u8; N] {
    let [size, label_size] = [N, label.len() + 6].map(|length| u8::try_from(length).unwrap());
    let info = [&[0, size, label_size][..], b"tls13 ", label.as_bytes(), &[0]];
    let mut key = [0; N];
    secret.expand(&info, Length(N)).unwrap().fill(&mut key).unwrap();
    key
}

/// The salt, the type of an Initial, and the prefix of the labels.
fn version_parameters(version: u32) -> ([u8; 20], u8, &'static str) {
    match version {
        VERSION_1 => (
            *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
            0xc0,
            "quic",
        ),
        _ => (
            *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
            0xd0,
            "quicv2",
        ),
    }
}

/// The parts of an Initial. Its keys derive from `origin`.
struct Initial<'a> {
    version: u32,
    label: &'a str,
    origin: &'a [u8],
    to: &'a [u8],
    from: &'a [u8],
}

const FROM_CLIENT: Initial<'_> =
    Initial { version: VERSION_1, label: "client in", origin: &ID, to: &ID, from: &[] };
const FROM_SERVER: Initial<'_> = Initial { label: "server in", to: &[], from: &ID, ..FROM_CLIENT };

impl Initial<'_> {
    /// The packet with a whole message.
    fn with(&self, message: &[u8]) -> Vec<u8> {
        self.part(0, message)
    }

    /// The packet with a part of a message.
    fn part(&self, offset: u16, part: &[u8]) -> Vec<u8> {
        let (salt, kind, prefix) = version_parameters(self.version);
        let label = |name: &str| format!("{prefix} {name}");
        let [high, low] = u16::try_from(part.len() | 0x4000).unwrap().to_be_bytes();
        let [first, second] = (offset | 0x4000).to_be_bytes();
        let mut plain = [&[6, first, second, high, low][..], part].concat();
        plain.resize(1_100, 0);
        let secret = Salt::new(HKDF_SHA256, &salt).extract(self.origin);
        let secret = Prk::new_less_safe(HKDF_SHA256, &expand::<32>(&secret, self.label));
        let length = u16::try_from(0x4000 | (plain.len() + 17)).unwrap().to_be_bytes();
        let mut packet = long_header(kind, self.version, self.to, self.from);
        packet.extend([&[0][..], &length, &[0]].concat());
        let number_at = packet.len() - 1;
        let key = UnboundKey::new(&AES_128_GCM, &expand::<16>(&secret, &label("key"))).unwrap();
        let nonce = Nonce::assume_unique_for_key(expand(&secret, &label("iv")));
        let aad = Aad::from(&packet[..]);
        LessSafeKey::new(key).seal_in_place_append_tag(nonce, aad, &mut plain).unwrap();
        packet.extend(plain);
        let header_key = expand::<16>(&secret, &label("hp"));
        let header_key = HeaderProtectionKey::new(&AES_128, &header_key).unwrap();
        let mask = header_key.new_mask(&packet[number_at + 4..number_at + 20]).unwrap();
        packet[0] ^= mask[0] & 0x0f;
        packet[number_at] ^= mask[1];
        packet
    }
}

/// The Initial with a client's hello.
pub(crate) fn hello() -> Vec<u8> {
    FROM_CLIENT.with(&client_hello(1, &[]))
}

fn long_header(first: u8, version: u32, to: &[u8], from: &[u8]) -> Vec<u8> {
    let [to_length, from_length] = [to, from].map(|id| u8::try_from(id.len()).unwrap());
    [&[first][..], &version.to_be_bytes(), &[to_length], to, &[from_length], from].concat()
}

/// The end of a source, at which something is looked at.
struct End<I>(I);

impl<I: Iterator<Item = ()>> Read for End<I> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.next();
        Ok(0)
    }
}

/// A Handshake packet, as far as anybody can see.
fn handshake_to(to: &[u8], from: &[u8]) -> Vec<u8> {
    [&long_header(0xe0, VERSION_1, to, from)[..], &[30], &[9; 30]].concat()
}

fn datagram(capture: &mut Capture, from: u16, payload: &[u8], captured: usize) {
    let to = if from == CLIENT { SERVER } else { CLIENT };
    datagram_between(capture, (from, to), payload, captured);
}

fn datagram_between(
    capture: &mut Capture,
    (from, to): (u16, u16),
    payload: &[u8],
    captured: usize,
) {
    let [[a, b], [c, d]] = [from, to].map(u16::to_be_bytes);
    let sender = if to == SERVER { CLIENT } else { SERVER };
    let packet = ip(17, sender, &[&[a, b, c, d, 0, 0, 0, 0][..], payload].concat());
    capture.packet(&packet[..packet.len() - (payload.len() - captured)]);
}

/// Sends a datagram that is captured to its end.
fn send(capture: &mut Capture, from: u16, payload: &[u8]) {
    datagram(capture, from, payload, payload.len());
}

fn hellos(captured: usize) -> (Capture, usize) {
    let mut capture = Capture::new();
    let hello = FROM_CLIENT.with(&client_hello(1, &[]));
    datagram(&mut capture, CLIENT, &hello, captured.min(hello.len()));
    let answer = FROM_SERVER.with(&tls_1_3(&extension(41, &[0, 0])));
    datagram(&mut capture, SERVER, &answer, answer.len());
    (capture, hello.len())
}

#[test]
fn a_handshake_is_given_once_both_sides_are_past_their_hellos() {
    let (mut capture, hello) = hellos(usize::MAX);
    for side in [SERVER, CLIENT, SERVER, CLIENT] {
        let packet = if side == CLIENT { handshake_to(&ID, &[]) } else { handshake_to(&[], &ID) };
        send(&mut capture, side, &packet);
    }
    // Told before the end of the capture, which is refused until then.
    let found = Cell::new(0);
    let end = iter::once_with(|| assert_eq!(found.get(), 1, "not given before the end"));
    let reader = capture.0[..].chain(End(end));
    Analyser::new(Limits::default()).read(reader, |_| found.set(found.get() + 1)).unwrap();
    let handshake = capture.handshake();
    assert_eq!((handshake.carrier, handshake.cls), (Carrier::Quic, Class::Resumed));
    assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"));
    let both = hello + handshake_to(&ID, &[]).len();
    assert_eq!([handshake.bytes_from_client, handshake.bytes_from_server], [Some(both as u64); 2]);
    assert_eq!((handshake.proof_frame, handshake.completed), (Some(2), true));
}

/// Datagrams that were captured on two interfaces were sent once.
#[test]
fn bytes_of_datagrams_captured_twice_count_once() {
    let (hello, answer) = (hello(), FROM_SERVER.with(&accepting()));
    let (of_client, of_server) = (handshake_to(&ID, &[]), handshake_to(&[], &ID));
    let sent = [(CLIENT, hello), (SERVER, answer), (SERVER, of_server), (CLIENT, of_client)];
    for order in [vec![0, 1, 2, 3], vec![0, 0, 1, 1, 2, 2, 3, 3], vec![0, 0, 1, 2, 1, 2, 3, 3]] {
        let mut capture = Capture::new();
        order.iter().for_each(|place: &usize| send(&mut capture, sent[*place].0, &sent[*place].1));
        let handshake = capture.handshake();
        let bytes = [CLIENT, SERVER].map(|from| -> Option<u64> {
            Some(sent.iter().filter(|sent| sent.0 == from).map(|sent| sent.1.len() as u64).sum())
        });
        assert_eq!([handshake.bytes_from_client, handshake.bytes_from_server], bytes, "{order:?}");
    }
}

#[test]
fn an_answer_that_comes_first_waits_for_its_keys() {
    let mut capture = Capture::new();
    let answer = FROM_SERVER.with(&tls_1_3(&extension(41, &[0, 0])));
    datagram(&mut capture, SERVER, &answer, answer.len());
    let hello = FROM_CLIENT.with(&client_hello(1, &[]));
    datagram(&mut capture, CLIENT, &hello, hello.len());
    let handshake = capture.handshake();
    assert_eq!((handshake.cls, handshake.psk_offered), (Class::Resumed, Some(false)));
    assert_eq!((handshake.frame_ch, handshake.frame_sh), (Some(2), Some(1)));
    assert_eq!(handshake.client_port, CLIENT);
}

#[test]
fn the_keys_follow_from_an_initial_that_the_capture_cut() {
    let (capture, _) = hellos(200);
    let handshake = capture.handshake();
    assert_eq!((handshake.ch_random.as_ref(), handshake.cls), (None, Class::Resumed));
    assert_eq!((handshake.client_port, handshake.frame_sh), (CLIENT, Some(2)));
}

/// The IDs of connection `number`: the first one, the client's and the server's.
fn ids(number: u8) -> [[u8; 8]; 3] {
    [[number; 8], [0x40 | number; 8], [0x80 | number; 8]]
}

fn accepting() -> Vec<u8> {
    tls_1_3(&extension(41, &[0, 0]))
}

#[test]
fn nine_connections_share_a_socket() {
    let mut capture = Capture::new();
    for number in 1..=9 {
        let [origin, client, _] = ids(number);
        let from_client = Initial { origin: &origin, to: &origin, from: &client, ..FROM_CLIENT };
        send(&mut capture, CLIENT, &from_client.with(&client_hello(number, &[])));
    }
    for number in (1..=9).rev() {
        let [origin, client, server] = ids(number);
        let from_server = Initial { origin: &origin, to: &client, from: &server, ..FROM_SERVER };
        let answer = if number % 2 == 0 { accepting() } else { tls_1_3(&[]) };
        send(
            &mut capture,
            SERVER,
            &[from_server.with(&answer), handshake_to(&client, &server)].concat(),
        );
    }
    for number in 1..=9 {
        let [_, client, server] = ids(number);
        send(&mut capture, CLIENT, &handshake_to(&server, &client));
    }
    let mut found = capture.handshakes();
    found.sort_by_key(|handshake| handshake.ch_random.clone());
    assert_eq!(found.len(), 9);
    for (number, handshake) in (1..).zip(found) {
        assert_eq!(handshake.ch_random, Some(vec![number; 32]));
        let class = if number % 2 == 0 { Class::Resumed } else { Class::Full };
        assert_eq!((handshake.cls, handshake.completed), (class, true), "{number}");
    }
}

/// A client's hello, a Retry, and the hello again, with which of them captured.
fn retried([hello_seen, retry_seen]: [bool; 2]) -> Capture {
    let ([origin, client, server], retry) = (ids(1), [0x70; 8]);
    let mut capture = Capture::new();
    let hello = client_hello(1, &[]);
    if hello_seen {
        let first = Initial { origin: &origin, to: &origin, from: &client, ..FROM_CLIENT };
        send(&mut capture, CLIENT, &first.with(&hello));
    }
    if retry_seen {
        let packet = [long_header(0xf0, VERSION_1, &client, &retry), vec![7; 40]].concat();
        send(&mut capture, SERVER, &packet);
    }
    let again = Initial { origin: &retry, to: &retry, from: &client, ..FROM_CLIENT };
    send(&mut capture, CLIENT, &again.with(&hello));
    let answer = Initial { origin: &retry, to: &client, from: &server, ..FROM_SERVER };
    send(&mut capture, SERVER, &answer.with(&accepting()));
    capture
}

#[test]
fn a_retry_begins_the_same_handshake_anew() {
    for seen in [[true, true], [true, false], [false, true], [false, false]] {
        let handshake = retried(seen).handshake();
        assert_eq!(handshake.cls, Class::Resumed, "{seen:?}");
        let [hello_seen, retry_seen] = seen;
        let first = if hello_seen || !retry_seen { 1 } else { 2 };
        assert_eq!(handshake.frame_ch, Some(first), "{seen:?}");
    }
}

#[test]
fn a_client_that_moves_goes_on_with_its_handshake() {
    const ELSEWHERE: u16 = 41_000;
    let [origin, client, server] = ids(1);
    let mut capture = Capture::new();
    let first = Initial { origin: &origin, to: &origin, from: &client, ..FROM_CLIENT };
    send(&mut capture, CLIENT, &first.with(&client_hello(1, &[])));
    let answer = Initial { origin: &origin, to: &client, from: &server, ..FROM_SERVER };
    for payload in [answer.with(&accepting()), handshake_to(&client, &server)] {
        datagram_between(&mut capture, (SERVER, ELSEWHERE), &payload, payload.len());
    }
    let payload = handshake_to(&server, &client);
    datagram_between(&mut capture, (ELSEWHERE, SERVER), &payload, payload.len());
    let handshake = capture.handshake();
    assert_eq!((handshake.client_port, handshake.cls), (CLIENT, Class::Resumed));
    assert!(handshake.completed);
}

#[test]
fn a_hello_in_several_packets_may_come_in_any_order() {
    let hello = client_hello(1, &[3; 100]);
    let parts: Vec<_> = hello.chunks(60).zip((0..).step_by(60)).collect();
    let mut capture = Capture::new();
    for (part, offset) in parts.iter().rev() {
        send(&mut capture, CLIENT, &FROM_CLIENT.part(*offset, part));
    }
    send(&mut capture, SERVER, &FROM_SERVER.with(&accepting()));
    let handshake = capture.handshake();
    assert_eq!((handshake.ch_whole, handshake.cls), (Some(true), Class::Resumed));
    assert_eq!(handshake.offered_ticket_len, Some(100));
}

#[test]
fn a_hello_without_its_end_is_known_so_far() {
    let hello = client_hello(1, &[3; 100]);
    let mut capture = Capture::new();
    send(&mut capture, CLIENT, &FROM_CLIENT.part(0, &hello[..90]));
    send(&mut capture, SERVER, &FROM_SERVER.with(&accepting()));
    let handshake = capture.handshake();
    assert_eq!((handshake.ch_whole, handshake.cls), (Some(false), Class::Resumed));
    assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"));
    assert_eq!((handshake.psk_offered, handshake.offered_ticket_len), (None, Some(100)));
}

#[test]
fn the_server_may_answer_in_another_version() {
    let [origin, client, server] = ids(1);
    let mut capture = Capture::new();
    let first = Initial { origin: &origin, to: &origin, from: &client, ..FROM_CLIENT };
    send(&mut capture, CLIENT, &first.with(&client_hello(1, &[])));
    let answer =
        Initial { version: VERSION_2, origin: &origin, to: &client, from: &server, ..FROM_SERVER };
    send(&mut capture, SERVER, &answer.with(&accepting()));
    let handshake = capture.handshake();
    assert_eq!((handshake.cls, handshake.frame_sh), (Class::Resumed, Some(2)));
    assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"));
}

/// A client whose first version the server refuses begins anew in the other, with the same first ID or
/// another.
#[test]
fn a_version_that_is_refused_is_no_handshake() {
    let [origin, client, server] = ids(1);
    for second in [origin, [0x33; 8]] {
        let mut capture = Capture::new();
        let first = Initial { origin: &origin, to: &origin, from: &client, ..FROM_CLIENT };
        send(&mut capture, CLIENT, &first.with(&client_hello(1, &[])));
        let supported = VERSION_2.to_be_bytes();
        let refusal = [long_header(0xc0, 0, &client, &origin), supported.to_vec()].concat();
        send(&mut capture, SERVER, &refusal);
        let first =
            Initial { version: VERSION_2, origin: &second, to: &second, from: &client, ..first };
        send(&mut capture, CLIENT, &first.with(&client_hello(2, &[])));
        let answer = Initial { label: "server in", to: &client, from: &server, ..first };
        send(&mut capture, SERVER, &answer.with(&tls_1_3(&[])));
        let handshake = capture.handshake();
        assert_eq!((handshake.cls, handshake.ch_random), (Class::Full, Some(vec![2; 32])));
    }
}
