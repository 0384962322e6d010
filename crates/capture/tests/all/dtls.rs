//! DTLS handshakes in captures made by hand, record by record.

use rejoin_capture::{Analyser, Carrier, Class, Evidence, Handshake, Limits, Version};
use rejoin_testkit::made_capture::*;

const DTLS_1_2: [u8; 2] = [0xfe, 0xfd];

/// A record of epoch 0, or of epoch 1.
fn dtls_record(kind: u8, epoch: u8, number: u8, body: &[u8]) -> Vec<u8> {
    let header = [kind, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, number];
    [&header[..], &with_length(body)].concat()
}

/// A part of a message: its number, and the place of the part.
fn part(message: &[u8], number: u8, from: usize, to: usize) -> Vec<u8> {
    let three = |length: usize| u32::try_from(length).unwrap().to_be_bytes()[1..].to_vec();
    let body = &message[4..][from..to];
    [&message[..4], &[0, number], &three(from), &three(body.len()), body].concat()
}

fn whole(message: &[u8], number: u8) -> Vec<u8> {
    part(message, number, 0, message.len() - 4)
}

/// A ClientHello as TLS has it, with the version and the cookie of DTLS.
fn dtls_client_hello(random: u8, cookie: &[u8], ticket: &[u8]) -> Vec<u8> {
    let hello = client_hello(random, ticket);
    let (before, after) = hello[6..].split_at(32 + 5);
    let cookie = [&[u8::try_from(cookie.len()).unwrap()][..], cookie].concat();
    message(CLIENT_HELLO, &[&DTLS_1_2[..], before, &cookie, after].concat())
}

fn dtls_server_hello(extensions: &[u8]) -> Vec<u8> {
    let hello = server_hello(extensions);
    message(SERVER_HELLO, &[&DTLS_1_2[..], &hello[6..]].concat())
}

/// The datagrams of a handshake: who sends, and what.
pub(crate) type Datagrams = Vec<(u16, Vec<u8>)>;

fn captured(datagrams: &[(u16, Vec<u8>)]) -> Capture {
    let mut capture = Capture::new();
    for (from, payload) in datagrams {
        let to = if *from == CLIENT { SERVER } else { CLIENT };
        let [[a, b], [c, d]] = [*from, to].map(u16::to_be_bytes);
        capture.packet(&ip(17, *from, &[&[a, b, c, d, 0, 0, 0, 0][..], payload].concat()));
    }
    capture
}

fn hello_and_request(ticket: &[u8]) -> Datagrams {
    let request = message(3, &[0xfe, 0xff, 4, 9, 9, 9, 9]);
    vec![
        (CLIENT, dtls_record(22, 0, 0, &whole(&dtls_client_hello(1, &[], ticket), 0))),
        (SERVER, dtls_record(22, 0, 0, &whole(&request, 0))),
        (CLIENT, dtls_record(22, 0, 1, &whole(&dtls_client_hello(1, &[9; 4], ticket), 1))),
    ]
}

/// The second flights: ChangeCipherSpec as record `number`, and what is encrypted.
fn finished(number: u8) -> Vec<u8> {
    [dtls_record(20, 0, number, &[1]), dtls_record(22, 1, 0, &[0x55; 40])].concat()
}

fn data(from: u16) -> (u16, Vec<u8>) {
    (from, dtls_record(23, 1, 1, &[0x66; 100]))
}

pub(crate) fn full() -> Datagrams {
    let flight =
        [dtls_server_hello(&[]), message(CERTIFICATE, &[7; 900]), message(SERVER_HELLO_DONE, &[])];
    let mut datagrams = hello_and_request(&[]);
    for (number, message) in (1..).zip(flight) {
        datagrams.push((SERVER, dtls_record(22, 0, number, &whole(&message, number))));
    }
    let exchange = whole(&message(CLIENT_KEY_EXCHANGE, &[8; 66]), 2);
    datagrams.push((CLIENT, [dtls_record(22, 0, 2, &exchange), finished(3)].concat()));
    let ticket = message(TICKET, &[&[0, 0, 28, 32][..], &with_length(&[5; 160])].concat());
    let last = dtls_record(22, 0, 4, &whole(&ticket, 4));
    datagrams.push((SERVER, [last, finished(5)].concat()));
    datagrams.extend([data(CLIENT), data(SERVER)]);
    datagrams
}

fn resumed() -> Datagrams {
    let mut datagrams = hello_and_request(&[5; 160]);
    let answer = dtls_record(22, 0, 1, &whole(&dtls_server_hello(&[]), 1));
    datagrams.push((SERVER, [answer, finished(2)].concat()));
    datagrams.push((CLIENT, finished(2)));
    datagrams.extend([data(CLIENT), data(SERVER)]);
    datagrams
}

fn handshake(datagrams: &[(u16, Vec<u8>)]) -> Handshake {
    captured(datagrams).handshake()
}

#[test]
fn a_full_handshake_is_full() {
    let handshake = handshake(&full());
    assert_eq!((handshake.carrier, handshake.version), (Carrier::Dtls, Some(Version::Dtls12)));
    assert_eq!((handshake.cls, handshake.evidence), (Class::Full, Some(Evidence::KeyExchange)));
    assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"));
    assert_eq!((handshake.completed, handshake.ch_whole), (true, Some(true)));
    assert_eq!((handshake.issued_ticket_len, handshake.client_auth), (Some(160), Some(false)));
    assert_eq!((handshake.frame_ch, handshake.frame_sh), (Some(1), Some(4)));
}

#[test]
fn a_ticket_that_the_server_accepts_is_a_resumption() {
    let handshake = handshake(&resumed());
    assert_eq!(handshake.cls, Class::Resumed);
    assert_eq!(handshake.evidence, Some(Evidence::ServerCcsFirstNoCert));
    assert_eq!((handshake.offered_ticket_len, handshake.completed), (Some(160), true));
}

/// The server alone sends data, as a sensor's peer may do, or nobody does.
#[test]
fn a_handshake_is_over_with_its_finished_messages() {
    for (datagrams, class) in [(full(), Class::Full), (resumed(), Class::Resumed)] {
        let handshake_only = &datagrams[..datagrams.len() - 2];
        let bytes = |from: u16| -> u64 {
            let lengths = handshake_only.iter().filter(|sent| sent.0 == from);
            lengths.map(|(_, payload)| payload.len() as u64).sum()
        };
        for data_of_server in [0, 1, 300] {
            let mut datagrams = handshake_only.to_vec();
            datagrams.extend(vec![data(SERVER); data_of_server]);
            let found = handshake(&datagrams);
            assert_eq!((found.cls, found.completed), (class, true));
            let counted = [found.bytes_from_client, found.bytes_from_server];
            assert_eq!(counted, [CLIENT, SERVER].map(|from| Some(bytes(from))), "{data_of_server}");
            // It is given before the capture ends.
            let mut analyser = Analyser::new(Limits::default());
            let part = analyser.read_part(&captured(&datagrams).0[..], |_| {}).unwrap();
            assert_eq!(part.handshakes, 1);
        }
    }
}

/// Datagrams that were captured on two interfaces were sent once.
#[test]
fn bytes_of_datagrams_captured_twice_count_once() {
    for datagrams in [full(), resumed()] {
        let once = handshake(&datagrams);
        let twice: Datagrams =
            datagrams.iter().flat_map(|sent| [sent.clone(), sent.clone()]).collect();
        // All that one interface shows of a flight may come before what the other one shows.
        let flights = datagrams.chunk_by(|one, other| one.0 == other.0);
        let in_flights: Datagrams = flights.flat_map(|flight| [flight, flight].concat()).collect();
        for copied in [twice, in_flights] {
            let found = handshake(&copied);
            assert_eq!(found.cls, once.cls);
            assert_eq!(found.bytes_from_client, once.bytes_from_client);
            assert_eq!(found.bytes_from_server, once.bytes_from_server);
        }
    }
}

/// Whatever is lost, and whatever comes late, a verdict is right or unknown.
#[test]
fn what_is_lost_or_late_makes_nothing_wrong() {
    for (datagrams, truth) in [(full(), Class::Full), (resumed(), Class::Resumed)] {
        let mut known = 0;
        for lost in 0..1_u32 << datagrams.len() {
            let kept: Vec<_> = (0..datagrams.len())
                .filter(|place| lost >> place & 1 == 0)
                .map(|place| datagrams[place].clone())
                .collect();
            for turned in 0..kept.len().min(4) {
                let mut kept = kept.clone();
                kept.rotate_left(turned);
                for found in captured(&kept).handshakes() {
                    assert!(
                        found.cls == truth
                            || matches!(found.cls, Class::Unknown | Class::NoServerhello),
                        "{lost:b} {turned}: {found:?}"
                    );
                    known += u32::from(found.cls == truth);
                }
            }
        }
        assert!(known > 100, "{known}");
    }
}

#[test]
fn a_hello_in_fragments_is_put_together() {
    let hello = dtls_client_hello(1, &[], &[5; 160]);
    let length = hello.len() - 4;
    let parts = [(100, length), (0, 60), (50, 120)];
    let mut datagrams: Datagrams = (0..)
        .zip(parts)
        .map(|(number, (from, to))| {
            (CLIENT, dtls_record(22, 0, number, &part(&hello, 0, from, to)))
        })
        .collect();
    // The first datagram of an association begins with the beginning of a hello.
    datagrams.swap(0, 1);
    datagrams.push((SERVER, dtls_record(22, 0, 0, &whole(&dtls_server_hello(&[]), 0))));
    let whole = handshake(&datagrams);
    assert_eq!((whole.ch_whole, whole.offered_ticket_len), (Some(true), Some(160)));
    datagrams.remove(2);
    let begun = handshake(&datagrams);
    assert_eq!((begun.ch_whole, begun.offered_ticket_len), (Some(false), None));
}

#[test]
fn dtls_1_3_is_resumed_when_a_key_is_accepted() {
    for (extensions, class) in [
        (extension(43, &[0xfe, 0xfc]), Class::Full),
        ([extension(43, &[0xfe, 0xfc]), extension(41, &[0, 0])].concat(), Class::Resumed),
    ] {
        let encrypted = [&[0x2e, 1, 2, 0, 4][..], &[9; 4]].concat();
        let answer = dtls_record(22, 0, 0, &whole(&dtls_server_hello(&extensions), 0));
        let handshake = handshake(&[
            (CLIENT, dtls_record(22, 0, 0, &whole(&dtls_client_hello(1, &[], &[]), 0))),
            (SERVER, [answer, encrypted.clone()].concat()),
            (CLIENT, encrypted),
        ]);
        assert_eq!((handshake.cls, handshake.version), (class, Some(Version::Dtls13)));
        assert!(handshake.completed);
    }
}

#[test]
fn the_same_ports_may_be_used_again() {
    let (mut datagrams, again) = (full(), resumed());
    datagrams.extend(again.into_iter().map(|(from, mut payload)| {
        // Another random in the hellos.
        if from == CLIENT && payload[0] == 22 && payload[13] == CLIENT_HELLO {
            payload[27..59].fill(2);
        }
        if from == SERVER && payload[0] == 22 && payload[13] == SERVER_HELLO {
            payload[27..59].fill(8);
        }
        (from, payload)
    }));
    let classes: Vec<_> = captured(&datagrams).handshakes().iter().map(|found| found.cls).collect();
    assert_eq!(classes, [Class::Full, Class::Resumed]);
}
