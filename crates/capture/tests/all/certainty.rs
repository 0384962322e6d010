//! Evidence that is not whole: a capture with holes, cuts, one direction or two clocks gives the
//! right verdict, or none.

use rejoin_capture::{Class, Handshake, Method, Version, Via};
use rejoin_testkit::made_capture::*;

/// The two streams of a conversation, and the class of its handshake.
struct Talk {
    client: Vec<u8>,
    server: Vec<u8>,
    class: Class,
}

/// A resumption of TLS 1.2 by ticket, with a new ticket.
fn resumed_1_2() -> Talk {
    let answer = [server_hello(&[]), message(TICKET, &[6; 250])].concat();
    Talk {
        client: [record(22, &client_hello(1, &[5; 180])), change_cipher_spec()].concat(),
        server: [record(22, &answer), change_cipher_spec()].concat(),
        class: Class::Resumed,
    }
}

/// A full handshake of TLS 1.2 whose client offered a ticket, each message in a record of its own.
fn declined_1_2() -> Talk {
    let answer = [server_hello(&[]), message(CERTIFICATE, &[7; 1_500]), message(12, &[3; 300])];
    let rest = [message(SERVER_HELLO_DONE, &[]), message(TICKET, &[6; 200])];
    let [hello, certificate, exchange] = answer.map(|message| record(22, &message));
    let [done, ticket] = rest.map(|message| record(22, &message));
    Talk {
        client: [
            record(22, &client_hello(1, &[5; 180])),
            record(22, &message(CLIENT_KEY_EXCHANGE, &[8; 66])),
            change_cipher_spec(),
        ]
        .concat(),
        server: [hello, certificate, exchange, done, ticket, change_cipher_spec()].concat(),
        class: Class::Full,
    }
}

/// A handshake of TLS 1.3 with a large key share before the choice of a pre-shared key.
fn tls_1_3_talk(is_resumed: bool) -> Talk {
    let offers = [extension(51, &[1; 1_200]), extension(41, &[2; 240])].concat();
    let key = if is_resumed { extension(41, &[0, 0]) } else { Vec::new() };
    let answer = tls_1_3(&[extension(51, &[1; 1_100]), key].concat());
    Talk {
        client: [record(22, &offering(&offers)), record(20, &[1]), record(23, &[4; 80])].concat(),
        server: [record(22, &answer), record(20, &[1]), record(23, &[4; 900])].concat(),
        class: if is_resumed { Class::Resumed } else { Class::Full },
    }
}

/// A ClientHello with these extensions after the name.
fn offering(extensions: &[u8]) -> Vec<u8> {
    let name = with_length(&[&[0][..], &with_length(b"rejoin.example")].concat());
    let extensions = with_length(&[&extension(0, &name)[..], extensions].concat());
    let body =
        [&[3, 3][..], &[1; 32], &[4, 1, 2, 3, 4], &[0, 2, 0x13, 1], &[1, 0], &extensions].concat();
    message(CLIENT_HELLO, &body)
}

fn talks() -> [Talk; 4] {
    [resumed_1_2(), declined_1_2(), tls_1_3_talk(true), tls_1_3_talk(false)]
}

/// The segments of a conversation, in the order in which they are sent: each of `size` bytes, or of a
/// record if `size` is 0.
fn segments(talk: &Talk, size: usize) -> Vec<(bool, usize, &[u8])> {
    let hello = 5 + usize::from(u16::from_be_bytes([talk.client[3], talk.client[4]]));
    let flights = [
        (true, 0, &talk.client[..hello]),
        (false, 0, &talk.server),
        (true, hello, &talk.client[hello..]),
    ];
    let mut segments = Vec::new();
    for (is_client, from, bytes) in flights {
        let mut at = 0;
        while at < bytes.len() {
            let length = match size {
                0 => 5 + usize::from(u16::from_be_bytes([bytes[at + 3], bytes[at + 4]])),
                _ => size.min(bytes.len() - at),
            };
            segments.push((is_client, from + at, &bytes[at..at + length]));
            at += length;
        }
    }
    segments
}

/// Adds a segment of which `captured` bytes of payload are there.
fn add(capture: &mut Capture, (is_client, offset, payload): (bool, usize, &[u8]), captured: usize) {
    let (ports, begin) = match is_client {
        true => ((CLIENT, SERVER), CLIENT_BEGIN),
        false => ((SERVER, CLIENT), SERVER_BEGIN),
    };
    capture.cut(ports, at(begin, offset), payload, captured.min(payload.len()));
}

/// The class is right or unknown, and so is each offer.
fn assert_not_wrong(found: &[Handshake], talk: &Talk, what: &str) {
    for handshake in found {
        let is_known = matches!(handshake.cls, Class::Full | Class::Resumed);
        assert!(!is_known || handshake.cls == talk.class, "{what}: {handshake:?}");
        let offers_key = talk.client.windows(4).any(|bytes| bytes == [0, 41, 0, 240]);
        assert_ne!(handshake.psk_offered, Some(!offers_key), "{what}: {handshake:?}");
        assert_ne!(handshake.early_data_offered, Some(true), "{what}");
        assert!(matches!(handshake.sni.as_deref(), None | Some("rejoin.example")), "{what}");
        let ticket = if offers_key { 0 } else { 180 };
        assert!(handshake.offered_ticket_len.is_none_or(|length| length == ticket), "{what}");
        assert!(handshake.offered_sid_len.is_none_or(|length| length == 4), "{what}");
        let is_tls_1_3 = handshake.version == Some(Version::Tls13);
        assert!(handshake.version.is_none() || is_tls_1_3 == offers_key, "{what}: {handshake:?}");
    }
}

#[test]
fn a_snap_length_makes_no_verdict_wrong() {
    for talk in talks() {
        let mut known = 0;
        for size in [250, 700, 1_460] {
            for snap in 0..1_460 {
                let mut capture = Capture::new();
                for segment in segments(&talk, size) {
                    add(&mut capture, segment, snap);
                }
                let found = capture.handshakes();
                assert_not_wrong(&found, &talk, &format!("snap length {snap} of {size}"));
                known += found.iter().filter(|found| found.cls == talk.class).count();
            }
        }
        assert!(known > 1_460, "{:?}: {known} are known", talk.class);
    }
}

#[test]
fn lost_segments_make_no_verdict_wrong() {
    for talk in talks() {
        for size in [0, 90, 150, 400] {
            let segments = segments(&talk, size);
            for first in 0..segments.len() {
                for count in 1..=segments.len() - first {
                    let mut capture = Capture::new();
                    for (place, segment) in segments.iter().enumerate() {
                        if !(first..first + count).contains(&place) {
                            add(&mut capture, *segment, usize::MAX);
                        }
                    }
                    let what = format!("{count} of {size} from {first}");
                    assert_not_wrong(&capture.handshakes(), &talk, &what);
                }
            }
        }
    }
}

#[test]
fn a_lost_direction_makes_no_verdict_wrong() {
    for talk in talks() {
        for lost in [true, false] {
            let mut capture = Capture::new();
            for segment in segments(&talk, 500).into_iter().filter(|segment| segment.0 != lost) {
                add(&mut capture, segment, usize::MAX);
            }
            assert_not_wrong(&capture.handshakes(), &talk, &format!("{lost}"));
        }
    }
    // What the server sent is all that its answer rests on.
    let talk = resumed_1_2();
    let mut capture = Capture::new();
    capture.server(0, &talk.server);
    let handshake = capture.handshake();
    assert_eq!((handshake.cls, handshake.method), (Class::Resumed, Some(Method::Unknown)));
}

#[test]
fn two_clocks_change_no_verdict() {
    for talk in talks() {
        let mut both = Vec::new();
        for client_first in [true, false] {
            let mut capture = Capture::new();
            for turn in [client_first, !client_first] {
                for segment in segments(&talk, 500).into_iter().filter(|segment| segment.0 == turn)
                {
                    add(&mut capture, segment, usize::MAX);
                }
            }
            both.push(capture.handshake());
        }
        for handshake in &both {
            assert_eq!(handshake.cls, talk.class, "{handshake:?}");
        }
        let [first, second] = [&both[0], &both[1]];
        assert_eq!(first.psk_offered, second.psk_offered);
        assert_eq!(first.client_auth, second.client_auth);
        assert_eq!(first.completed, second.completed);
    }
}

#[test]
fn a_client_certificate_that_may_be_missing_is_not_denied() {
    let (client, _) = full_1_2();
    let hello = record(22, &client_hello(1, &[])).len();
    let certificate = record(22, &message(CERTIFICATE, &[9; 600]));
    let exchange = &client[hello..];
    let answer = [server_hello(&[]), message(CERTIFICATE, &[7; 900]), message(13, &[1; 20])];
    let server = record(22, &[&answer.concat()[..], &message(SERVER_HELLO_DONE, &[])].concat());
    // In any order of the directions it is seen.
    for client_first in [true, false] {
        let mut capture = Capture::new();
        for turn in [client_first, !client_first] {
            match turn {
                true => capture.client(0, &[&client[..hello], &certificate, exchange].concat()),
                false => capture.server(0, &server),
            }
        }
        let handshake = capture.handshake();
        assert_eq!((handshake.cls, handshake.client_auth), (Class::Full, Some(true)));
    }
    // The server asked for it, and where it would be is a hole.
    let mut capture = Capture::new();
    capture.client(0, &client[..hello]);
    capture.server(0, &server);
    capture.client(hello + certificate.len(), exchange);
    let handshake = capture.handshake();
    assert_eq!((handshake.cls, handshake.client_auth), (Class::Full, None));
    // The request may be in a hole.
    let mut capture = Capture::new();
    capture.client(0, &client[..hello]);
    capture.server(0, &server[..300]);
    assert_eq!(capture.handshakes()[0].client_auth, None);
}

#[test]
fn a_cut_name_is_no_name() {
    let hello = record(22, &client_hello(1, &[]));
    let name = hello.windows(6).position(|bytes| bytes == b"rejoin").unwrap();
    for captured in 50..hello.len() {
        let mut capture = Capture::new();
        add(&mut capture, (true, 0, &hello), captured);
        let sni = capture.handshakes().first().and_then(|handshake| handshake.sni.clone());
        let is_whole = captured >= name + "rejoin.example".len();
        assert_eq!(sni.is_some(), is_whole, "{captured}");
    }
}

#[test]
fn an_unknown_version_has_no_verdict() {
    for version in [[3, 5], [3, 0x7f], [0x1a, 0x2a]] {
        let answer = server_hello(&extension(43, &version));
        let mut capture = Capture::new();
        capture.client(0, &record(22, &client_hello(1, &[5; 20])));
        capture.server(0, &[record(22, &answer), change_cipher_spec()].concat());
        let handshake = capture.handshake();
        assert_eq!(handshake.cls, Class::Unknown, "{handshake:?}");
    }
}

/// The extension with an encrypted ClientHello (RFC 9849), or one made up.
fn encrypted_hello() -> Vec<u8> {
    extension(
        0xfe0d,
        &[&[0, 0, 1, 0, 1, 7][..], &with_length(&[8; 32]), &with_length(&[9; 240])].concat(),
    )
}

#[test]
fn what_an_encrypted_hello_offers_is_unknown() {
    let hello = record(22, &offering(&encrypted_hello()));
    let answer = tls_1_3(&[extension(51, &[1; 36]), extension(41, &[0, 0])].concat());
    let answer = record(22, &answer);
    // Its choice of a key comes last.
    for (captured, cls) in [(answer.len(), Class::Resumed), (90, Class::Unknown)] {
        let mut capture = Capture::new();
        capture.client(0, &hello);
        add(&mut capture, (false, 0, &answer), captured);
        let found = capture.handshake();
        assert_eq!((found.cls, found.ch_whole), (cls, Some(true)), "{captured}: {found:?}");
        assert_eq!((found.psk_offered, found.early_data_offered), (None, None));
    }
    // A whole answer without a key is full, whichever hello it answers.
    let mut capture = Capture::new();
    capture.client(0, &hello);
    capture.server(0, &record(22, &tls_1_3(&extension(51, &[1; 36]))));
    let found = capture.handshake();
    assert_eq!((found.cls, found.psk_offered), (Class::Full, None));
    // Beside one that is made up is a key that counts.
    let mut capture = Capture::new();
    let offers = [encrypted_hello(), extension(42, &[]), extension(41, &[2; 240])].concat();
    capture.client(0, &record(22, &offering(&offers)));
    let found = &capture.handshakes()[0];
    assert_eq!((found.psk_offered, found.early_data_offered), (Some(true), Some(true)));
}

#[test]
fn a_server_before_1_3_reads_no_encrypted_hello() {
    let mut capture = Capture::new();
    capture.client(0, &record(22, &offering(&encrypted_hello())));
    capture.server(0, &record(22, &[server_hello(&[]), message(CERTIFICATE, &[7; 90])].concat()));
    let found = capture.handshake();
    assert_eq!((found.cls, found.psk_offered), (Class::Full, Some(false)));
}

/// A client that sends early data sends its ChangeCipherSpec at once (RFC 8446, D.4), also to a server that then chooses an
/// earlier version.
#[test]
fn a_change_before_early_data_shows_no_resumption() {
    let hello = |early: &[u8]| record(22, &offering(&[early, &extension(35, &[])].concat()));
    for (early, cls) in [(extension(42, &[]), Class::Unknown), (vec![], Class::Resumed)] {
        let mut capture = Capture::new();
        let hello = hello(&early);
        capture.client(0, &[&hello[..], &record(20, &[1]), &record(23, &[4; 80])].concat());
        // What follows the ServerHello was lost.
        capture.server(0, &record(22, &server_hello(&[])));
        let found = capture.handshake();
        assert_eq!(found.cls, cls, "{found:?}");
    }
}

/// The PROXY headers of a client at 203.0.113.9:5555.
fn proxy_headers() -> [Vec<u8>; 2] {
    let text = b"PROXY TCP4 203.0.113.9 192.0.2.1 5555 443\r\n".to_vec();
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let addresses = [203, 0, 113, 9, 192, 0, 2, 1, 0x15, 0xb3, 1, 0xbb];
    [text, [&signature[..], &[0x21, 0x11, 0, 12], &addresses].concat()]
}

#[test]
fn the_hello_behind_a_proxy_header_is_read() {
    let (client, server) = full_1_2();
    for header in proxy_headers() {
        for size in [1, 20, header.len(), 1_400] {
            let stream = [&header[..], &client].concat();
            let mut capture = Capture::new();
            for (place, piece) in stream.chunks(size).enumerate() {
                capture.client(place * size, piece);
            }
            capture.server(0, &server);
            let handshake = capture.handshake();
            assert_eq!(handshake.sni.as_deref(), Some("rejoin.example"), "{size}");
            assert_eq!(handshake.ch_random, Some(vec![1; 32]));
            assert_eq!((handshake.via, handshake.direct), (Some(Via::Proxy), true));
            let client = handshake.proxied_client.map(|client| client.to_string());
            assert_eq!(client.as_deref(), Some("203.0.113.9:5555"), "{size}");
            assert_eq!(handshake.client().to_string(), "203.0.113.9");
        }
    }
}
