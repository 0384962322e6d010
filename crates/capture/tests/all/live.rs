//! A live source: a few bytes at a time, and none before the last were looked at.

use std::cell::Cell;
use std::io::{self, Read};

use rejoin_capture::{Analyser, Limits};
use rejoin_testkit::made_capture::*;

use crate::pcapng::{RAW, packet, section};

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
    assert_given_at_once(&Capture::of_full_1_2().0);
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
    let mut bytes = section(RAW);
    for frame in Capture::of_full_1_2().packets() {
        bytes.extend(packet(0, 0, frame));
    }
    assert_given_at_once(&bytes);
}
