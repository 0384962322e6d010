//! A live source: a few bytes at a time, and none before the last were looked at.

use std::cell::Cell;
use std::io::{self, Read};

use rejoin_capture::{Analyser, Limits};
use rejoin_testkit::made_capture::*;

/// Gives a capture in pieces, and refuses to be asked for more than there is while a handshake
/// that is complete was not given.
struct Live<'a> {
    bytes: &'a [u8],
    piece: usize,
    found: &'a Cell<usize>,
}

impl Read for Live<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            assert_eq!(self.found.get(), 1, "asked for more before the handshake was given");
            return Ok(0);
        }
        let length = space.len().min(self.piece).min(self.bytes.len());
        let (piece, rest) = self.bytes.split_at(length);
        space[..length].copy_from_slice(piece);
        self.bytes = rest;
        Ok(length)
    }
}

fn assert_given_at_once(capture: &[u8]) {
    for piece in [1, 7, 300, 1 << 20] {
        let found = Cell::new(0);
        let live = Live { bytes: capture, piece, found: &found };
        let mut analyser = Analyser::new(Limits::default());
        analyser.read(live, |_| found.set(found.get() + 1)).unwrap();
        assert_eq!(found.get(), 1);
    }
}

#[test]
fn a_handshake_is_given_as_soon_as_its_packets_were_read() {
    let (client, server) = full_1_2();
    let hello = record(22, &client_hello(1, &[])).len();
    let mut capture = Capture::new();
    capture.client(0, &client[..hello]);
    capture.server(0, &server);
    capture.client(hello, &client[hello..]);
    assert_given_at_once(&capture.0);
}

#[test]
fn so_is_one_of_tls_1_3() {
    let hello = record(22, &client_hello(1, &[]));
    let mut capture = Capture::new();
    capture.client(0, &hello);
    capture.server(0, &[record(22, &tls_1_3(&[])), record(23, &[3; 700])].concat());
    capture.client(hello.len(), &record(23, &[4; 53]));
    assert_given_at_once(&capture.0);
}

#[test]
fn and_one_in_a_pcapng() {
    let (client, server) = full_1_2();
    let hello = record(22, &client_hello(1, &[])).len();
    let mut bytes = section();
    for (port, sequence, payload) in [
        (CLIENT, CLIENT_BEGIN, &client[..hello]),
        (SERVER, SERVER_BEGIN, &server),
        (CLIENT, CLIENT_BEGIN + u32::try_from(hello).unwrap(), &client[hello..]),
    ] {
        let mut capture = Capture(Vec::new());
        let to = if port == CLIENT { SERVER } else { CLIENT };
        capture.segment((port, to), sequence, payload);
        bytes.extend(enhanced_packet(&capture.0[16..]));
    }
    assert_given_at_once(&bytes);
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let length = u32::try_from(12 + body.len() + padding.len()).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &padding, &length].concat()
}

fn section() -> Vec<u8> {
    let header = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    [block(0x0a0d_0d0a, &header), block(1, &[101, 0, 0, 0, 0, 0, 0, 0])].concat()
}

fn enhanced_packet(packet: &[u8]) -> Vec<u8> {
    let length = u32::try_from(packet.len()).unwrap();
    let words = [0, 0, 0, length, length].map(u32::to_le_bytes).concat();
    block(6, &[&words, packet].concat())
}
