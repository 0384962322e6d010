//! A live source: a few bytes at a time, and none before the last were looked at.

use std::cell::Cell;
use std::io::{self, Read};

use rejoin_capture::{Analyser, Class, Limits};
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

/// The flags of TCP.
const FIN: u8 = 1;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A capture whose packets have times.
#[derive(Default)]
struct Timed(Vec<u8>);

impl Timed {
    /// A datagram.
    fn datagram(&mut self, from: u16, second: u32, payload: &[u8]) {
        let to = if from == CLIENT { SERVER } else { CLIENT };
        let ports = [from, to].map(u16::to_be_bytes).concat();
        self.record(second, &ip(17, from, &[&ports[..], &[0; 4], payload].concat()));
    }

    fn packet(&mut self, from: u16, second: u32, sequence: u32, flags: u8, payload: &[u8]) {
        let (to, begin) = if from == CLIENT { (SERVER, 1_000) } else { (CLIENT, 2_000) };
        let tcp = [
            &from.to_be_bytes()[..],
            &to.to_be_bytes(),
            &(begin + sequence).to_be_bytes(),
            &[0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0],
            payload,
        ];
        self.record(second, &ip(6, from, &tcp.concat()));
    }

    fn record(&mut self, second: u32, packet: &[u8]) {
        let length = u32::try_from(packet.len()).unwrap();
        for word in [1_700_000_000 + second, 0, length, length] {
            self.0.extend(word.to_le_bytes());
        }
        self.0.extend(packet);
    }

    /// The classes of all handshakes, which are the same live and at rest.
    fn classes(self) -> Vec<Class> {
        let [at_rest, live] = [false, true].map(|is_live| self.classes_if(is_live));
        assert_eq!(at_rest, live);
        live
    }

    fn classes_if(&self, is_live: bool) -> Vec<Class> {
        let mut found = Vec::new();
        let capture = [&Capture::new().0[..], &self.0].concat();
        let mut analyser = Analyser::new(Limits::default());
        analyser.set_live(is_live);
        analyser.read(&capture[..], |it| found.push(it.cls)).unwrap();
        found
    }

    /// The handshakes that are given before the capture ends, after something else came in these seconds.
    fn given_by(mut self, seconds: &[u32]) -> usize {
        for second in seconds {
            self.packet(CLIENT + 1, *second, 0, ACK, b"x");
        }
        self.given()
    }

    /// The same after datagrams alone.
    fn given_by_datagrams(mut self, seconds: &[u32]) -> usize {
        for second in seconds {
            self.datagram(CLIENT + 1, *second, b"x");
        }
        self.given()
    }

    fn given(self) -> usize {
        let capture = [Capture::new().0, self.0].concat();
        let mut analyser = Analyser::new(Limits::default());
        analyser.set_live(true);
        let part = analyser.read_part(&capture[..], |_| {}).unwrap();
        assert_eq!(part.handshakes + analyser.finish(|_| {}), 1);
        usize::try_from(part.handshakes).unwrap()
    }
}

/// A ClientHello in second 0, and no answer but these packets: who, when, at what place, and the flags.
fn failed(packets: &[(u16, u32, u32, u8)]) -> Timed {
    let mut capture = Timed::default();
    let hello = record(22, &client_hello(1, &[]));
    capture.packet(CLIENT, 0, 0, ACK, &hello);
    for (from, second, sequence, flags) in packets {
        let sent = if *from == CLIENT { u32::try_from(hello.len()).unwrap() } else { 0 };
        capture.packet(*from, *second, sent + sequence, *flags, b"");
    }
    capture
}

#[test]
fn a_handshake_that_fails_is_given_when_its_connection_ends() {
    let alert = |capture: &mut Timed| {
        capture.packet(SERVER, 0, 0, ACK, &record(21, &[2, 70]));
    };
    let mut closed = failed(&[]);
    alert(&mut closed);
    closed.packet(SERVER, 0, 7, FIN | ACK, b"");
    let hello = u32::try_from(record(22, &client_hello(1, &[])).len()).unwrap();
    closed.packet(CLIENT, 0, hello, FIN | ACK, b"");
    assert_eq!(closed.given_by(&[3, 3]), 1);
    // A RST of either side, also of one that has said nothing, or behind its FIN.
    let rst = |packets: &[(u16, u32, u32, u8)]| failed(packets).given_by(&[3, 3]);
    assert_eq!(rst(&[(SERVER, 0, 0, RST | ACK)]), 1);
    assert_eq!(rst(&[(CLIENT, 0, 0, RST)]), 1);
    assert_eq!(rst(&[(CLIENT, 0, 0, FIN | ACK), (CLIENT, 0, 1, RST)]), 1);
    // One side alone, a RST far ahead, or one so late that more may come.
    assert_eq!(rst(&[(CLIENT, 0, 0, FIN | ACK)]), 0);
    assert_eq!(rst(&[(CLIENT, 0, 9_000, RST)]), 0);
    assert_eq!(rst(&[(CLIENT, 2, 0, RST)]), 0);
}

#[test]
fn a_handshake_that_pauses_for_minutes_is_given() {
    assert_eq!(failed(&[]).given_by(&[301, 301]), 1);
    assert_eq!(failed(&[]).given_by(&[299, 299]), 0);
    assert_eq!(failed(&[(CLIENT, 200, 0, ACK)]).given_by(&[301, 301]), 0);
    // A hello with a hole.
    let mut begun = Timed::default();
    begun.packet(CLIENT, 0, 0, ACK, &record(22, &client_hello(1, &[]))[..70]);
    begun.packet(CLIENT, 0, 900, ACK, b"x");
    assert_eq!(begun.given_by(&[301, 301]), 1);
    // A single time that is wrong.
    assert_eq!(failed(&[]).given_by(&[1, 4_000, 1, 1]), 0);
}

/// Handshakes in datagrams, whose ends are not seen, and whatever it is that shows how time passes.
#[test]
fn so_is_one_in_datagrams() {
    let of = |datagrams: &[(u16, Vec<u8>)]| {
        let mut capture = Timed::default();
        datagrams.iter().for_each(|(from, payload)| capture.datagram(*from, 0, payload));
        capture
    };
    let hellos = [
        ("QUIC", vec![(CLIENT, crate::quic::hello())]),
        ("DTLS", crate::dtls::full()[..1].to_vec()),
        ("OpenVPN", crate::openvpn::begun()),
    ];
    for (name, datagrams) in hellos {
        assert_eq!(of(&datagrams).given_by_datagrams(&[299, 299]), 0, "{name}");
        assert_eq!(of(&datagrams).given_by_datagrams(&[301, 301]), 1, "{name}");
        assert_eq!(of(&datagrams).given_by(&[301, 301]), 1, "{name}");
        // What comes later is of no other handshake.
        let mut later = of(&datagrams);
        later.datagram(CLIENT + 1, 301, b"x");
        later.datagram(CLIENT + 1, 301, b"x");
        datagrams.iter().for_each(|(from, payload)| later.datagram(*from, 302, payload));
        assert_eq!(later.given_by_datagrams(&[603, 603]), 1, "{name}");
    }
    assert_eq!(failed(&[]).given_by_datagrams(&[301, 301]), 1);
}

/// Packets that come late, in the order of the capture, still count.
#[test]
fn a_handshake_behind_its_end_is_known() {
    let mut capture = failed(&[(CLIENT, 0, 0, RST)]);
    capture.packet(SERVER, 1, 0, ACK, &record(22, &tls_1_3(&[])));
    assert_eq!(capture.classes()[0], Class::Full);
}

#[test]
fn and_one_in_a_pcapng() {
    let mut bytes = section(RAW);
    for frame in Capture::of_full_1_2().packets() {
        bytes.extend(packet(0, 0, frame));
    }
    assert_given_at_once(&bytes);
}

/// Frames of another kind may come from an interface with another clock.
#[test]
fn what_is_no_packet_of_tcp_or_udp_ends_nothing() {
    let mut capture = Timed::default();
    for (from, payload) in crate::dtls::full() {
        capture.datagram(from, 0, &payload);
        (0..2).for_each(|_| capture.record(3_600, &[0; 28]));
    }
    assert_eq!(capture.classes(), [Class::Full]);
}

/// Two interfaces in one file may have two clocks. Once the time has gone back, nothing is ended for a while.
#[test]
fn packets_with_another_clock_end_nothing() {
    let mut capture = Timed::default();
    let other = |capture: &mut Timed, second| capture.datagram(CLIENT + 1, second, b"x");
    [3_600, 3_600, 0].into_iter().for_each(|second| other(&mut capture, second));
    for (from, payload) in crate::dtls::full() {
        capture.datagram(from, 0, &payload);
        (0..2).for_each(|_| other(&mut capture, 3_600));
    }
    assert_eq!(capture.classes(), [Class::Full]);
}

/// Two interfaces with two clocks, of which the second one is behind, or ahead from the first packet on.
#[test]
fn times_of_a_capture_at_rest_end_nothing() {
    for apart in [301, 3_600] {
        let mut capture = Timed::default();
        for (from, payload) in crate::dtls::full() {
            capture.datagram(from, 0, &payload);
            (0..2).for_each(|_| capture.datagram(CLIENT + 1, apart, b"x"));
        }
        assert_eq!(capture.classes_if(false), [Class::Full], "{apart} s");
    }
}

/// The server's direction was captured first, and the client's begins with the same times.
#[test]
fn directions_one_behind_the_other_are_put_together_at_rest() {
    for first in [SERVER, CLIENT] {
        let mut capture = Timed::default();
        let hellos =
            [(CLIENT, record(22, &client_hello(1, &[]))), (SERVER, record(22, &tls_1_3(&[])))];
        for from in [first, CLIENT + SERVER - first] {
            let sent = hellos.iter().find(|(side, _)| *side == from).map(|(_, sent)| &sent[..]);
            capture.packet(from, 0, 0, ACK, sent.unwrap());
            (0..2).for_each(|_| capture.packet(from + 1, 900, 0, ACK, b"x"));
        }
        assert_eq!(capture.classes_if(false), [Class::Full]);
    }
}

/// The setting holds for the next capture, too.
#[test]
fn a_live_source_stays_live() {
    let mut capture = failed(&[]);
    (0..2).for_each(|_| capture.packet(CLIENT + 1, 301, 0, ACK, b"x"));
    let capture = [Capture::new().0, capture.0].concat();
    let mut analyser = Analyser::new(Limits::default());
    let mut given = |is_live| {
        analyser.set_live(is_live);
        [(); 2].map(|()| {
            let part = analyser.read_part(&capture[..], |_| {}).unwrap();
            (part.handshakes, analyser.finish(|_| {}))
        })
    };
    assert_eq!(given(true), [(1, 0); 2]);
    assert_eq!(given(false), [(0, 1); 2]);
}
