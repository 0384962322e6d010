//! The memory that hostile captures take: never more than the limits promise.

use std::io::{self, Read};

use rejoin_capture::sharing::{Assumptions, Scope, Sharing};
use rejoin_capture::{Analyser, Digest, Handshake, Limits, Networks};
use rejoin_testkit::made_capture::*;
use rejoin_testkit::memory;

use crate::sharing::full;

/// A capture that is made while it is read: `frame` fills packet after packet.
struct Endless<F> {
    ready: Vec<u8>,
    given: usize,
    count: u32,
    packets: u32,
    frame: F,
}

impl<F: FnMut(u32, &mut Capture)> Read for Endless<F> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() && self.count < self.packets {
            let mut capture = Capture(std::mem::take(&mut self.ready));
            capture.0.clear();
            (self.frame)(self.count, &mut capture);
            (self.ready, self.given) = (capture.0, 0);
            self.count += 1;
        }
        let rest = &self.ready[self.given..];
        let length = rest.len().min(space.len());
        space[..length].copy_from_slice(&rest[..length]);
        self.given += length;
        Ok(length)
    }
}

/// The most memory, in bytes, that so many packets take.
fn peak_bytes(limits: Limits, packets: u32, frame: impl FnMut(u32, &mut Capture)) -> usize {
    memory::peak_bytes(|| {
        let ready = Capture::new().0;
        let reader = Endless { ready, given: 0, count: 0, packets, frame };
        Analyser::new(limits).read(reader, |_| {}).unwrap();
    })
}

/// The ends of connection `count`.
fn ports(count: u32) -> (u16, u16) {
    (u16::try_from(count % 50_000).unwrap(), u16::try_from(60_000 + count / 50_000).unwrap())
}

fn small() -> Limits {
    Limits { connections: 20_000, total_bytes: 16 << 20, ..Limits::default() }
}

#[test]
fn a_million_connections_take_less_than_300_mb() {
    let limits = Limits::default();
    let hello = record(22, &client_hello(1, &[]));
    let peak = peak_bytes(limits, 1_000_000, |count, capture| {
        // A part of a record, so that every connection is waited for.
        capture.segment(ports(count), 1, &hello[..40 + count as usize % 20]);
    });
    assert!(peak <= limits.most_bytes(), "{peak} of {}", limits.most_bytes());
    eprintln!("{peak} bytes, at most {}", limits.most_bytes());
    assert!(limits.most_bytes() < 300_000_000, "{}", limits.most_bytes());
    // The bound says something: a good part of it was needed.
    assert!(peak > limits.most_bytes() / 4, "{peak} of {}", limits.most_bytes());
}

#[test]
fn hellos_that_never_end_are_bounded() {
    // 64 KB are claimed, and 16 KB of them sent, on every connection.
    let start = [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xf0][..], &[3; 16_380]].concat();
    let limits = small();
    let peak = peak_bytes(limits, 20_000, |count, capture| {
        capture.segment(ports(count), 1, &start);
    });
    assert!(peak <= limits.most_bytes(), "{peak} of {}", limits.most_bytes());
    assert!(peak > limits.total_bytes, "{peak}");
}

#[test]
fn segments_that_wait_for_ever_are_bounded() {
    let limits = small();
    let payload = [9; 1_400];
    let peak = peak_bytes(limits, 60_000, |count, capture| {
        let (connection, place) = (count / 40, count % 40);
        capture.segment(ports(connection), if place == 0 { 1 } else { 10_000 * place }, &payload);
    });
    assert!(peak <= limits.most_bytes(), "{peak} of {}", limits.most_bytes());
    assert!(peak > limits.total_bytes, "{peak}");
}

#[test]
fn fragments_that_wait_for_ever_are_bounded() {
    let limits = Limits { fragment_bytes: 1 << 20, ..small() };
    let peak = peak_bytes(limits, 100_000, |count, capture| {
        let mut packet = ip(6, CLIENT, &[1; 8]);
        packet[4..6].copy_from_slice(&u16::try_from(count % 60_000).unwrap().to_be_bytes());
        packet[6] = 0x20;
        packet[12] = u8::try_from(count / 60_000).unwrap();
        capture.packet(&packet);
    });
    assert!(peak <= 4 * limits.fragment_bytes, "{peak}");
}

/// The most memory, in bytes, that a handshake takes until it is counted, of a capture with 65,536.
fn peak_bytes_each(change: impl Fn(u32, &mut Handshake)) -> usize {
    const HANDSHAKES: u32 = 1 << 16;
    let peak = memory::peak_bytes(|| {
        let mut sharing = Sharing::new(Scope::default(), Networks::default());
        sharing.begin("a capture");
        for number in 0..HANDSHAKES {
            let mut handshake = full(1, "192.0.2.1", "a.example");
            handshake.client_ip = (0x0a00_0000 + number).to_be_bytes().into();
            handshake.ch_random = Some([number.to_be_bytes(); 8].concat());
            change(number, &mut handshake);
            sharing.add(&handshake);
        }
        let findings = sharing.findings(&Assumptions::default(), 10);
        assert_eq!(findings.ideal.full_observed, u64::from(HANDSHAKES));
    });
    peak / HANDSHAKES as usize
}

#[test]
fn a_handshake_takes_few_bytes_until_it_is_counted() {
    let of_own_clients = peak_bytes_each(|_, _| {});
    let with_session_ids = peak_bytes_each(|number, handshake| {
        let [a, b, c, d] = number.to_be_bytes();
        handshake.session_id_hash = Some(Digest([1, 2, 3, 4, a, b, c, d]));
    });
    let of_own_servers = peak_bytes_each(|number, handshake| {
        handshake.server_ip = (0x0b00_0000 + number).to_be_bytes().into();
        handshake.sni = Some(format!("{number}.example"));
    });
    let each = [of_own_clients, with_session_ids, of_own_servers];
    eprintln!("{each:?}");
    assert!(each[0] < 84 && each[1] < 96 && each[2] < 240, "{each:?}");
}
