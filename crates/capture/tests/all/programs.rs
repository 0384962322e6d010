//! The programs that frames name, at the ends of connections.

use rejoin_capture::{Analyser, Handshake, Limits};
use rejoin_testkit::made_capture::*;

use crate::pcapng::{RAW, block, section};

const ETHERNET: u32 = 1;
const PKTAP: u32 = 258;
const IN: u32 = 1;
const OUT: u32 = 2;

fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut capture = Capture::new();
    capture.0[20..24].copy_from_slice(&link.to_le_bytes());
    frames.iter().for_each(|frame| capture.packet(frame));
    capture.0
}

fn analyse(capture: &[u8], limits: Limits) -> Vec<Handshake> {
    let mut found = Vec::new();
    let mut analyser = Analyser::new(limits);
    let summary = analyser.read(capture, |handshake| found.push(handshake)).unwrap();
    assert!(summary.stop.is_none() && summary.unsupported.is_empty(), "{summary:?}");
    found
}

/// A name, and the number of a process.
type Program = (String, Option<u32>);

/// The programs of each handshake's client and server.
fn programs(capture: &[u8]) -> Vec<[Option<Program>; 2]> {
    let of = |found: Handshake| {
        [(found.program, found.process), (found.server_program, found.server_process)]
            .map(|(name, process)| name.map(|name| (name, process)))
    };
    analyse(capture, Limits::default()).into_iter().map(of).collect()
}

fn known(name: &str, process: u32) -> Option<Program> {
    Some((name.to_owned(), Some(process)))
}

/// A packet behind Apple's header, as it is since macOS 10.10.
fn pktap(direction: u32, process: u32, name: &str, packet: &[u8]) -> Vec<u8> {
    let mut head = [0; 156];
    let words = [(0, 156), (4, 1), (8, RAW), (36, direction), (52, process), (84, 999)];
    for (at, word) in words {
        head[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    head[56..56 + name.len()].copy_from_slice(name.as_bytes());
    head[88..93].copy_from_slice(b"other");
    [&head[..], packet].concat()
}

/// The packets of a full handshake, and true for those of the client.
fn packets() -> Vec<(bool, Vec<u8>)> {
    let capture = Capture::of_full_1_2();
    let is_client = |packet: &[u8]| packet[12..16] == [10, 0, 0, 1];
    capture.packets().map(|packet| (is_client(packet), packet.to_vec())).collect()
}

/// Returns the direction, process and name of a packet, by its place and whether it is of the client.
type Process = fn(usize, bool) -> (u32, u32, &'static str);

fn through_pktap(process: impl Fn(usize, bool) -> (u32, u32, &'static str)) -> Vec<Vec<u8>> {
    let packets = packets().into_iter().enumerate();
    let each = packets.map(|(at, (is_client, packet))| {
        let (direction, process, name) = process(at, is_client);
        pktap(direction, process, name, &packet)
    });
    each.collect()
}

#[test]
fn apples_header_names_the_process_of_the_own_end() {
    let of_client = through_pktap(|_, is_client| (if is_client { OUT } else { IN }, 77, "curl"));
    for link in [PKTAP, 149] {
        assert_eq!(programs(&pcap(link, &of_client)), [[known("curl", 77), None]], "{link}");
    }
    let of_server = through_pktap(|_, is_client| (if is_client { IN } else { OUT }, 88, "nginx"));
    assert_eq!(programs(&pcap(PKTAP, &of_server)), [[None, known("nginx", 88)]]);
    // On loopback each end sends.
    let both = through_pktap(|_, is_client| match is_client {
        true => (OUT, 77, "curl"),
        false => (OUT, 88, "nginx"),
    });
    assert_eq!(programs(&pcap(PKTAP, &both)), [[known("curl", 77), known("nginx", 88)]]);
}

#[test]
fn what_is_not_certain_is_not_named() {
    // Two processes at one end, no direction, no process, no name.
    let cases: [Process; 3] = [
        |at, is_client| (if is_client { OUT } else { IN }, [77, 78][at % 2], "curl"),
        |_, _| (0, 77, "curl"),
        |_, is_client| (if is_client { OUT } else { IN }, 77, ""),
    ];
    for (case, process) in cases.into_iter().enumerate() {
        assert_eq!(programs(&pcap(PKTAP, &through_pktap(process))), [[None, None]], "{case}");
    }
    let unnumbered = through_pktap(|_, is_client| (if is_client { OUT } else { IN }, 0, "curl"));
    let name = Some(("curl".to_owned(), None));
    assert_eq!(programs(&pcap(PKTAP, &unnumbered)), [[name, None]]);
}

#[test]
fn what_a_tunnel_carries_is_not_the_tunnels_program() {
    let frames: Vec<Vec<u8>> = packets()
        .into_iter()
        .map(|(is_client, packet)| {
            let from = if is_client { CLIENT } else { SERVER };
            let direction = if is_client { OUT } else { IN };
            pktap(direction, 66, "tunnel", &ip(4, from, &packet))
        })
        .collect();
    assert_eq!(programs(&pcap(PKTAP, &frames)), [[None, None]]);
}

#[test]
fn ports_that_are_used_again_are_of_the_next_program() {
    let mut capture = Capture::new();
    for random in [1, 2] {
        let begin = CLIENT_BEGIN + u32::from(random) * 1_000_000;
        let mut syn = ip(6, CLIENT, &[0; 20]);
        syn[20..22].copy_from_slice(&CLIENT.to_be_bytes());
        syn[22..24].copy_from_slice(&SERVER.to_be_bytes());
        syn[24..28].copy_from_slice(&begin.wrapping_sub(1).to_be_bytes());
        syn[32..34].copy_from_slice(&[0x50, 2]);
        capture.packet(&syn);
        capture.segment((CLIENT, SERVER), begin, &record(22, &client_hello(random, &[])));
    }
    let frames: Vec<Vec<u8>> = (0..4)
        .zip(capture.packets())
        .map(|(at, packet)| pktap(OUT, 70 + at / 2, ["one", "two"][at as usize / 2], packet))
        .collect();
    let expected = [[known("one", 70), None], [known("two", 71), None]];
    assert_eq!(programs(&pcap(PKTAP, &frames)), expected);
}

#[test]
fn blocks_of_pcapng_describe_processes() {
    let option = |code: u16, value: &[u8]| {
        let length = u16::try_from(value.len()).unwrap().to_le_bytes();
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        [&code.to_le_bytes()[..], &length, value, &padding].concat()
    };
    let process = |id: u32, name: &str| {
        block(0x8000_0001, &[&id.to_le_bytes()[..], &option(2, name.as_bytes()), &[0; 4]].concat())
    };
    let mut capture = [section(RAW), process(5, "kernel"), process(77, "Safari")].concat();
    for (is_client, packet) in packets() {
        let length = u32::try_from(packet.len()).unwrap();
        let words = [0, 0, 5, length, length].map(u32::to_le_bytes).concat();
        let padding = vec![0; packet.len().next_multiple_of(4) - packet.len()];
        let flags = if is_client { OUT } else { IN };
        let options = [option(2, &flags.to_le_bytes()), option(0x8001, &1_u32.to_le_bytes())];
        capture.extend(block(6, &[words, packet, padding, options.concat(), vec![0; 4]].concat()));
    }
    assert_eq!(programs(&capture), [[known("Safari", 77), None]]);
}

#[test]
fn a_trailer_names_the_app() {
    let frames: Vec<Vec<u8>> = packets()
        .into_iter()
        .map(|(_, packet)| {
            let mut name = [0; 20];
            // Cut within a character.
            name.copy_from_slice(&"Ein langer Name: 12é".as_bytes()[..20]);
            let head = [&[2; 12][..], &[8, 0]].concat();
            let trailer = [&[1, 7, 0x20, 0x21][..], &[0, 0, 0x27, 0x10], &name, &[9; 4]].concat();
            [head, packet, trailer].concat()
        })
        .collect();
    let name = Some(("Ein langer Name: 12".to_owned(), None));
    assert_eq!(programs(&pcap(ETHERNET, &frames)), [[name, None]]);
    // The same bytes at the end of what a client sends.
    let trailer = &frames[0][frames[0].len() - 32..];
    let mut capture = Capture::new();
    let hello = record(22, &client_hello(1, &[]));
    capture.client(0, &[&hello[..], &record(23, &[0; 8]), trailer].concat());
    let head = [&[2; 12][..], &[8, 0]].concat();
    let frames: Vec<Vec<u8>> =
        capture.packets().map(|packet| [&head[..], packet].concat()).collect();
    assert_eq!(programs(&pcap(ETHERNET, &frames)), [[None, None]]);
}

#[test]
fn a_full_table_forgets_the_oldest() {
    let mut capture = Capture::new();
    for port in 0..9 {
        let hello = record(22, &client_hello(u8::try_from(port).unwrap(), &[]));
        capture.segment((CLIENT, 1_000 + port), 1, &hello);
    }
    let frames: Vec<Vec<u8>> =
        capture.packets().map(|packet| pktap(OUT, 77, "curl", packet)).collect();
    let limits = Limits { named_connections: 2, ..Limits::default() };
    let found = analyse(&pcap(PKTAP, &frames), limits);
    let named = |found: &Handshake| found.program.is_some();
    let named: Vec<u16> = found.iter().filter(|it| named(it)).map(|it| it.server_port).collect();
    assert!((2..=4).contains(&named.len()) && named.contains(&1_008), "{named:?}");
}
