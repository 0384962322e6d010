//! QUIC handshakes in captures made by hand: Initials under the keys of RFC 9001, 5.2.

use std::cell::Cell;
use std::io::{self, Read};
use std::iter;

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use rejoin_capture::{Analyser, Carrier, Class, Limits};
use rejoin_testkit::made_capture::*;

const SALT: [u8; 20] =
    *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
const ID: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

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

/// An Initial packet with one message in it.
fn initial(label: &str, message: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(message.len() | 0x4000).unwrap().to_be_bytes();
    let mut plain = [&[6, 0, high, low][..], message].concat();
    plain.resize(1_100, 0);
    let secret = Salt::new(HKDF_SHA256, &SALT).extract(&ID);
    let secret = Prk::new_less_safe(HKDF_SHA256, &expand::<32>(&secret, label));
    let length = u16::try_from(0x4000 | (plain.len() + 17)).unwrap().to_be_bytes();
    let mut packet = [&[0xc0, 0, 0, 0, 1, 8][..], &ID, &[0, 0], &length, &[0]].concat();
    let number_at = packet.len() - 1;
    let key = UnboundKey::new(&AES_128_GCM, &expand::<16>(&secret, "quic key")).unwrap();
    let nonce = Nonce::assume_unique_for_key(expand(&secret, "quic iv"));
    let aad = Aad::from(&packet[..]);
    LessSafeKey::new(key).seal_in_place_append_tag(nonce, aad, &mut plain).unwrap();
    packet.extend(plain);
    let header_key = HeaderProtectionKey::new(&AES_128, &expand::<16>(&secret, "quic hp")).unwrap();
    let mask = header_key.new_mask(&packet[number_at + 4..number_at + 20]).unwrap();
    packet[0] ^= mask[0] & 0x0f;
    packet[number_at] ^= mask[1];
    packet
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
fn handshake_packet() -> Vec<u8> {
    [&[0xe0, 0, 0, 0, 1, 8][..], &ID, &[0, 30], &[9; 30]].concat()
}

fn datagram(capture: &mut Capture, from: u16, payload: &[u8], captured: usize) {
    let to = if from == CLIENT { SERVER } else { CLIENT };
    let [[a, b], [c, d]] = [from, to].map(u16::to_be_bytes);
    let packet = ip(17, from, &[&[a, b, c, d, 0, 0, 0, 0][..], payload].concat());
    capture.packet(&packet[..packet.len() - (payload.len() - captured)]);
}

fn hellos(captured: usize) -> (Capture, usize) {
    let mut capture = Capture::new();
    let hello = initial("client in", &client_hello(1, &[]));
    datagram(&mut capture, CLIENT, &hello, captured.min(hello.len()));
    let answer = initial("server in", &tls_1_3(&extension(41, &[0, 0])));
    datagram(&mut capture, SERVER, &answer, answer.len());
    (capture, hello.len())
}

#[test]
fn a_handshake_is_given_once_both_sides_are_past_their_hellos() {
    let (mut capture, hello) = hellos(usize::MAX);
    for side in [SERVER, CLIENT, SERVER, CLIENT] {
        let packet = handshake_packet();
        datagram(&mut capture, side, &packet, packet.len());
    }
    // Told before the end of the capture, which is refused until then.
    let found = Cell::new(0);
    let end = iter::once_with(|| assert_eq!(found.get(), 1, "not given before the end"));
    let reader = capture.0[..].chain(End(end));
    Analyser::new(Limits::default()).read(reader, |_| found.set(found.get() + 1)).unwrap();
    let handshake = capture.handshake();
    assert_eq!((handshake.carrier, handshake.cls), (Carrier::Quic, Class::Resumed));
    assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"));
    assert_eq!(handshake.bytes_from_client, (hello + handshake_packet().len()) as u64);
    assert_eq!(handshake.bytes_from_server, (hello + handshake_packet().len()) as u64);
    assert_eq!((handshake.proof_frame, handshake.completed), (Some(2), true));
}

#[test]
fn an_answer_that_comes_first_waits_for_its_keys() {
    let mut capture = Capture::new();
    let answer = initial("server in", &tls_1_3(&extension(41, &[0, 0])));
    datagram(&mut capture, SERVER, &answer, answer.len());
    let hello = initial("client in", &client_hello(1, &[]));
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
