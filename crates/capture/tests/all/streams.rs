//! Handshakes in captures made by hand: what happens to segments on their way.

use rejoin_capture::{Analyser, Class, Evidence, Limits, Method, Stop, Version, Via};
use rejoin_testkit::made_capture::*;

#[test]
fn a_full_handshake_is_full() {
    let handshake = Capture::of_full_1_2().handshake();
    assert_eq!((handshake.cls, handshake.evidence), (Class::Full, Some(Evidence::KeyExchange)));
    assert_eq!(handshake.version, Some(Version::Tls12));
    assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"));
    assert_eq!((handshake.client_port, handshake.server_port), (CLIENT, SERVER));
    assert_eq!((handshake.frame_ch, handshake.frame_sh), (Some(1), Some(2)));
    assert!(handshake.completed && handshake.direct);
    assert_eq!(handshake.client_auth, Some(false));
}

#[test]
fn a_ticket_that_the_server_accepts_is_a_resumption() {
    for (ticket, method) in [(&[5; 100][..], Method::Ticket), (&[], Method::Id)] {
        let mut capture = Capture::new();
        let hello = record(22, &client_hello(1, ticket));
        let answer = [server_hello(&[]), message(TICKET, &[6; 50])].concat();
        capture.client(0, &hello);
        capture.server(0, &[record(22, &answer), change_cipher_spec()].concat());
        capture.client(hello.len(), &change_cipher_spec());
        let handshake = capture.handshake();
        assert_eq!((handshake.cls, handshake.method), (Class::Resumed, Some(method)));
        assert_eq!(handshake.offered_ticket_len, Some(ticket.len()));
        assert!(handshake.completed);
    }
}

#[test]
fn tls_1_3_is_resumed_when_a_key_is_accepted() {
    for (extensions, class) in [(extension(41, &[0, 0]), Class::Resumed), (Vec::new(), Class::Full)]
    {
        let mut capture = Capture::new();
        capture.client(0, &record(22, &client_hello(1, &[])));
        capture.server(0, &record(22, &tls_1_3(&extensions)));
        let handshake = capture.handshake();
        assert_eq!((handshake.cls, handshake.version), (class, Some(Version::Tls13)));
        assert!(!handshake.completed);
    }
}

#[test]
fn segments_may_come_in_any_order_and_twice() {
    let (client, server) = full_1_2();
    let hello = record(22, &client_hello(1, &[])).len();
    for size in [1, 2, 3, 7, 50, 500] {
        let mut capture = Capture::new();
        // The first byte tells where the stream begins; then every pair comes swapped, and each
        // segment overlaps the next.
        for (begin, stream, is_client) in
            [(0, &client[..hello], true), (0, &server[..], false), (hello, &client[hello..], true)]
        {
            let mut pieces: Vec<(usize, &[u8])> = stream
                .chunks(size)
                .enumerate()
                .map(|(place, _)| place * size)
                .map(|from| (from, &stream[from..stream.len().min(from + size + 2)]))
                .collect();
            pieces[1..].chunks_mut(2).for_each(<[_]>::reverse);
            for (offset, piece) in pieces {
                match is_client {
                    true => capture.client(begin + offset, piece),
                    false => capture.server(offset, piece),
                }
            }
        }
        let handshake = capture.handshake();
        assert_eq!((handshake.cls, handshake.completed), (Class::Full, true), "size {size}");
        assert!(handshake.direct);
    }
}

#[test]
fn hellos_may_be_split_over_records() {
    let mut capture = Capture::new();
    let records: Vec<u8> =
        client_hello(1, &[]).chunks(3).flat_map(|piece| record(22, piece)).collect();
    capture.client(0, &records);
    capture.server(0, &record(22, &server_hello(&[])));
    let handshake = capture.handshake();
    assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"));
    assert_eq!(handshake.cls, Class::Unknown);
}

#[test]
fn after_a_gap_the_next_segment_with_a_record_counts() {
    let (client, server) = full_1_2();
    let change = server.len() - change_cipher_spec().len();
    let mut capture = Capture::new();
    capture.client(0, &client);
    capture.server(0, &server[..500]);
    capture.server(1500, &server[1500..change]);
    capture.server(change, &server[change..]);
    let handshake = capture.handshake();
    // The record of the ServerHello is not whole, but the ServerHello is.
    assert_eq!((handshake.cls, handshake.completed), (Class::Full, true));
    assert_eq!((handshake.frame_sh, handshake.version), (Some(3), Some(Version::Tls12)));
}

#[test]
fn a_cut_hello_tells_what_is_left_of_it() {
    let hello = record(22, &client_hello(3, &[]));
    let mut capture = Capture::new();
    capture.cut((CLIENT, SERVER), CLIENT_BEGIN, &hello, 60);
    capture.server(0, &record(22, &server_hello(&[])));
    let handshake = capture.handshake();
    assert_eq!(handshake.ch_random, Some(vec![3; 32]));
    assert_eq!((handshake.sni, handshake.cls), (None, Class::Unknown));
}

/// The capture ends behind the first segment of a hello, or its connection does.
#[test]
fn a_hello_whose_end_never_comes_tells_what_is_there() {
    let hello = record(22, &client_hello(3, &[]));
    for sent in [60, hello.len() - 1] {
        let mut capture = Capture::new();
        capture.client(0, &hello[..sent]);
        let handshake = capture.handshake();
        assert_eq!(handshake.ch_random, Some(vec![3; 32]), "{sent}");
        assert_eq!((handshake.cls, handshake.frame_ch), (Class::NoServerhello, Some(1)), "{sent}");
        assert!(handshake.ch_whole == Some(false) && handshake.psk_offered.is_none(), "{sent}");
        // An answer shows that it was whole, and that it was not captured.
        capture.server(0, &record(22, &server_hello(&[])));
        assert_eq!(capture.handshake().cls, Class::Unknown, "{sent}");
    }
    // In two segments, of which the second one ends it no more than the first.
    let mut capture = Capture::new();
    capture.client(0, &hello[..50]);
    capture.client(50, &hello[50..60]);
    assert_eq!(capture.handshake().frame_ch, Some(2));
    // The head of a message tells nothing of it.
    let mut capture = Capture::new();
    capture.client(0, &hello[..9]);
    assert_eq!(capture.handshakes(), []);
}

#[test]
fn one_direction_is_enough() {
    let (client, server) = full_1_2();
    let mut capture = Capture::new();
    capture.client(0, &client);
    assert_eq!(capture.handshake().cls, Class::NoServerhello);
    let mut capture = Capture::new();
    capture.server(0, &server);
    let handshake = capture.handshake();
    assert_eq!((handshake.cls, handshake.ch_random), (Class::Full, None));
    // Whoever was not captured may have sent any number of bytes.
    assert_eq!(handshake.bytes_from_client, None);
    assert_eq!(handshake.bytes_from_server, Some(server.len() as u64));
    assert_eq!((handshake.client_port, handshake.server_port), (CLIENT, SERVER));
}

#[test]
fn tls_after_other_bytes_is_not_direct() {
    let (client, server) = full_1_2();
    let mut capture = Capture::new();
    capture.server(0, b"220 ready\r\n");
    capture.client(0, b"STARTTLS\r\n");
    capture.server(11, b"220 go ahead\r\n");
    capture.client(10, &client);
    capture.server(25, &server);
    let handshake = capture.handshake();
    assert_eq!((handshake.cls, handshake.direct), (Class::Full, false));
}

/// A client that does not wait for the answer to its request sends its hello right behind it, and so may the other end.
#[test]
fn tls_in_one_segment_with_what_asks_for_it_is_found() {
    const POSTGRESQL: [u8; 8] = [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f];
    let mysql = [&[32, 0, 0, 1, 5, 0xae, 0xff, 1][..], &[0; 28]].concat();
    let greeting = [&[74, 0, 0, 0, 10][..], b"8.0.36\0", &[0; 66]].concat();
    let connect = b"CONNECT rejoin.example:443 HTTP/1.1\r\nHost: rejoin.example\r\n\r\n";
    let proxy = b"PROXY TCP4 192.0.2.9 192.0.2.8 4000 5432\r\n";
    let (client, server) = full_1_2();
    let hello = record(22, &client_hello(1, &[])).len();
    for (via, greeting, request, answer) in [
        (Via::Connect, &[][..], &connect[..], &b"HTTP/1.1 200 OK\r\n\r\n"[..]),
        (Via::Postgresql, &[], &POSTGRESQL, b"S"),
        (Via::Mysql, &greeting, &mysql, b""),
        (Via::Postgresql, &[], &[&proxy[..], &POSTGRESQL].concat(), b"S"),
    ] {
        let with_request = [request, &client[..hello]].concat();
        let with_answer = [answer, &server].concat();
        // The answer may also come alone, and so may any part of the hello.
        for (cut, is_alone) in [(0, false), (0, true), (1, false), (5, true), (9, true)] {
            let mut capture = Capture::new();
            if !greeting.is_empty() {
                capture.server(0, greeting);
            }
            let (first, rest) = with_request.split_at(with_request.len() - hello + cut);
            match cut {
                0 => capture.client(0, &with_request),
                _ => {
                    capture.client(0, first);
                    capture.client(first.len(), rest);
                }
            }
            let begun = greeting.len();
            match is_alone && !answer.is_empty() {
                true => {
                    capture.server(begun, answer);
                    capture.server(begun + answer.len(), &server);
                }
                false => capture.server(begun, &with_answer),
            }
            capture.client(with_request.len(), &client[hello..]);
            let found = capture.handshakes();
            assert_eq!(found.len(), 1, "{via:?} {cut} {is_alone}");
            assert_eq!((found[0].cls, found[0].via), (Class::Full, Some(via)), "{cut} {is_alone}");
            assert_eq!((found[0].ch_whole, found[0].completed), (Some(true), true));
            assert!(!found[0].direct);
        }
    }
}

/// A SYN before the byte with this sequence number; the server's has an ACK.
fn syn(from: u16, begin: u32) -> Vec<u8> {
    let to = if from == CLIENT { SERVER } else { CLIENT };
    let mut syn = ip(6, from, &[0; 20]);
    syn[20..22].copy_from_slice(&from.to_be_bytes());
    syn[22..24].copy_from_slice(&to.to_be_bytes());
    syn[24..28].copy_from_slice(&begin.wrapping_sub(1).to_be_bytes());
    syn[32..34].copy_from_slice(&[0x50, if from == CLIENT { 2 } else { 18 }]);
    syn
}

#[test]
fn what_is_left_of_an_earlier_connection_hides_none() {
    let (client, server) = full_1_2();
    let hello = record(22, &client_hello(1, &[])).len();
    for is_whole in [false, true] {
        let mut capture = Capture::new();
        // The capture begins in an earlier connection of the same ports: late data of the server, or a
        // whole handshake without its SYNs.
        if is_whole {
            let first = [&record(22, &client_hello(9, &[]))[..], &client[hello..]].concat();
            capture.segment((CLIENT, SERVER), 0x7000_0000, &first);
            capture.segment((SERVER, CLIENT), 0x6000_0000, &server);
        } else {
            capture.segment((SERVER, CLIENT), 0x6000_0000, &record(23, &[3; 200]));
        }
        capture.packet(&syn(CLIENT, CLIENT_BEGIN));
        capture.packet(&syn(SERVER, SERVER_BEGIN));
        capture.client(0, &client[..hello]);
        capture.server(0, &server);
        capture.client(hello, &client[hello..]);
        let found = capture.handshakes();
        let last = found.last().unwrap();
        assert_eq!(last.ch_random, Some(vec![1; 32]), "{is_whole}");
        assert_eq!((last.cls, found.len()), (Class::Full, 1 + usize::from(is_whole)));
    }
}

#[test]
fn ports_may_be_used_again() {
    let mut capture = Capture::new();
    for random in [1, 2] {
        let begin = CLIENT_BEGIN + u32::from(random) * 1_000_000;
        capture.packet(&syn(CLIENT, begin));
        capture.segment((CLIENT, SERVER), begin, &record(22, &client_hello(random, &[])));
    }
    let randoms: Vec<_> =
        capture.handshakes().into_iter().map(|found| found.ch_random.unwrap()[0]).collect();
    assert_eq!(randoms, [1, 2]);
}

#[test]
fn a_table_that_is_full_reports_the_oldest() {
    let mut capture = Capture::new();
    for port in 0..100 {
        let hello = record(22, &client_hello(u8::try_from(port).unwrap(), &[]));
        capture.segment((CLIENT, 1_000 + port), 1, &hello);
    }
    let limits = Limits { connections: 3, ..Limits::default() };
    let mut ports = Vec::new();
    Analyser::new(limits).read(&capture.0[..], |found| ports.push(found.server_port)).unwrap();
    assert!(ports.into_iter().eq(1_000..1_100));
}

#[test]
fn every_truncation_and_corruption_is_survived() {
    let (client, server) = full_1_2();
    let mut capture = Capture::new();
    capture.client(0, &client[..150]);
    capture.server(0, &server[..1000]);
    let mut analyser = Analyser::new(Limits::default());
    for length in 24..capture.0.len() {
        let summary = analyser.read(&capture.0[..length], |_| {}).unwrap();
        let is_whole = length == 24 || length == 24 + 16 + 40 + 150;
        assert_eq!(summary.stop.is_none(), is_whole, "{length}");
    }
    for place in 24..capture.0.len() {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = capture.0.clone();
            bytes[place] = value;
            let _ = analyser.read(&bytes[..], |_| {});
        }
    }
    capture.0.extend_from_slice(&[0xff; 16]);
    let summary = analyser.read(&capture.0[..], |_| {}).unwrap();
    assert!(matches!(summary.stop, Some(Stop::TooLong { frames: 2, .. })));
}

/// Bytes in packets of TDS, of 50 bytes at most.
fn in_packets(bytes: &[u8]) -> Vec<u8> {
    let packet = |part: &[u8]| {
        let length = u8::try_from(part.len() + 8).unwrap();
        [&[0x12, 1, 0, length, 0, 0, 0, 0][..], part].concat()
    };
    bytes.chunks(50).flat_map(packet).collect()
}

#[test]
fn tls_in_packets_of_tds_is_found() {
    let hello = record(22, &client_hello(1, &[7; 100]));
    let prelogin = in_packets(&[0, 0, 6, 0, 6, 0xff, 11, 0, 0, 0, 0, 0]);
    let exchange = record(22, &message(CLIENT_KEY_EXCHANGE, &[8; 66]));
    let certificate = message(CERTIFICATE, &[7; 300]);
    for (is_full, class) in [(true, Class::Full), (false, Class::Resumed)] {
        let messages = if is_full {
            [server_hello(&[]), certificate.clone(), message(SERVER_HELLO_DONE, &[])].concat()
        } else {
            server_hello(&[])
        };
        let answer = in_packets(&[record(22, &messages), change_cipher_spec()].concat());
        let last = if is_full { exchange.clone() } else { Vec::new() };
        let last = in_packets(&[last, change_cipher_spec()].concat());
        let mut capture = Capture::new();
        capture.client(0, &prelogin);
        capture.server(0, &prelogin);
        let first = in_packets(&hello);
        capture.client(prelogin.len(), &first);
        capture.server(prelogin.len(), &answer);
        capture.client(prelogin.len() + first.len(), &last);
        // What follows the handshake is in no packets.
        capture.client(prelogin.len() + first.len() + last.len(), &record(23, &[6; 40]));
        capture.server(prelogin.len() + answer.len(), &record(23, &[6; 40]));
        let handshake = capture.handshake();
        assert_eq!((handshake.cls, handshake.via), (class, Some(Via::Tds)));
        assert_eq!(handshake.offered_ticket_len, Some(100));
        assert!(handshake.completed && !handshake.direct);
    }
}
