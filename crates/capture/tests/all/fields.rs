//! The fields of a handshake beside its class: tickets, session ids, certificates, bytes, moments.

use rejoin_capture::{Class, Digest, Handshake, Via, report};
use rejoin_testkit::made_capture::*;
use serde_json::Value;

/// SHA-256 of 32 bytes of value 4, and of 100 of value 5, as `sha256sum` gives them.
const SESSION_ID: &str = "9f4fb68f3e1dac82";
const TICKET: &str = "678cee05a3a5f51e";

/// A server's hello with a session id of 32 bytes.
fn server_hello_with_id() -> Vec<u8> {
    let body = [&[3, 3][..], &[9; 32], &[32], &[4; 32], &[0xc0, 0x2f], &[0]];
    message(2, &body.concat())
}

fn issued_ticket() -> Vec<u8> {
    message(4, &[&[0, 0, 0x1c, 0x20][..], &with_length(&[5; 100])].concat())
}

fn json(handshake: &Handshake) -> Value {
    serde_json::to_value(handshake).unwrap()
}

fn text(digest: Option<Digest>) -> String {
    digest.map(|digest| digest.to_string()).unwrap_or_default()
}

#[test]
fn session_ids_and_tickets_are_recognised_and_not_told() {
    let hello = record(22, &client_hello(1, &[5; 100]));
    let answer = [record(22, &[server_hello_with_id(), issued_ticket()].concat())];
    let mut capture = Capture::new();
    capture.client(0, &hello);
    capture.server(0, &[&answer.concat()[..], &change_cipher_spec()].concat());
    capture.client(hello.len(), &change_cipher_spec());
    let handshake = capture.handshake();
    assert_eq!(handshake.issued_sid_len, Some(32));
    assert_eq!(text(handshake.session_id_hash), SESSION_ID);
    assert_eq!(text(handshake.offered_ticket_hash), TICKET);
    assert_eq!(handshake.issued_ticket_hash, handshake.offered_ticket_hash);
    assert_eq!(handshake.issued_ticket_len, Some(100));
    assert_eq!(handshake.issued_ticket_lifetime_s, Some(7_200));
    assert_eq!(json(&handshake)["session_id_hash"], SESSION_ID);
}

#[test]
fn tls_1_3_issues_nothing_in_the_clear() {
    let mut capture = Capture::new();
    capture.client(0, &record(22, &client_hello(1, &[])));
    let body = [&[3, 3][..], &[9; 32], &[32], &[4; 32], &[0x13, 1], &[0]].concat();
    let extensions = with_length(&extension(43, &[3, 4]));
    capture.server(0, &record(22, &message(2, &[body, extensions].concat())));
    let handshake = capture.handshake();
    assert_eq!((handshake.issued_sid_len, handshake.session_id_hash), (None, None));
}

/// A certificate for two names; made with rcgen, valid until 2040-01-01.
fn certificate() -> Vec<u8> {
    let names = ["Rejoin.Example".to_owned(), "*.rejoin.example".to_owned()];
    let mut parameters = rcgen::CertificateParams::new(names).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2040, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    parameters.self_signed(&key).unwrap().der().to_vec()
}

fn chain(leaf: &[u8], rest: usize) -> Vec<u8> {
    let entry = |bytes: &[u8]| {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length[1..], bytes].concat()
    };
    message(11, &entry(&[entry(leaf), entry(&vec![7; rest])].concat()))
}

fn with_certificate(chain: &[u8], segment: usize) -> Handshake {
    let server = record(22, &[server_hello(&[]), chain.to_vec(), message(14, &[])].concat());
    let mut capture = Capture::new();
    capture.client(0, &record(22, &client_hello(1, &[])));
    for (place, piece) in server.chunks(segment).enumerate() {
        capture.server(place * segment, piece);
    }
    capture.handshake()
}

#[test]
fn the_certificate_of_the_server_is_read() {
    let leaf = certificate();
    for segment in [100, 1_400, 1 << 15] {
        // Longer than what is kept: the leaf comes first.
        for rest in [10, 15_000] {
            let chain = chain(&leaf, rest);
            let found = with_certificate(&chain, segment).certificate.unwrap();
            let names = ["rejoin.example", "*.rejoin.example"].map(Box::<str>::from);
            assert_eq!(&*found.names, names);
            assert_eq!(found.not_after_s, Some(2_208_988_800));
            assert_eq!(found.message_bytes as usize, chain.len());
        }
    }
    let handshake = json(&with_certificate(&chain(&leaf, 10), 1_000));
    assert_eq!(handshake["certificate"]["names"][0], "rejoin.example");
    assert_eq!(handshake["certificate"]["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn a_certificate_that_cannot_be_parsed_has_no_names() {
    let found = with_certificate(&chain(&[0x30, 0x80, 1, 2, 3], 10), 1_000).certificate.unwrap();
    assert!(found.names.is_empty() && found.not_after_s.is_none());
    let nothing = with_certificate(&message(11, &[0, 0, 0]), 1_000);
    assert_eq!((nothing.cls, nothing.certificate), (Class::Full, None));
}

#[test]
fn bytes_are_those_of_the_handshake() {
    let (client, server) = full_1_2();
    let hello = record(22, &client_hello(1, &[])).len();
    let data = record(23, &[1; 500]);
    let mut capture = Capture::new();
    capture.client(0, &client[..hello]);
    capture.server(0, &server);
    capture.server(0, &server);
    capture.client(hello, &[&client[hello..], &data].concat());
    capture.server(server.len(), &data);
    let handshake = capture.handshake();
    assert_eq!(handshake.bytes_from_client, Some(client.len() as u64));
    assert_eq!(handshake.bytes_from_server, Some(server.len() as u64));
}

#[test]
fn bytes_of_tls_1_3_go_to_the_clients_first_encrypted_record() {
    let hello = record(22, &client_hello(1, &[]));
    let answer = [record(22, &tls_1_3(&[])), record(20, &[1]), record(23, &[3; 700])].concat();
    let finished = [record(20, &[1]), record(23, &[4; 53])].concat();
    let data = record(23, &[5; 300]);
    let mut capture = Capture::new();
    capture.client(0, &hello);
    capture.server(0, &answer);
    capture.client(hello.len(), &[&finished[..], &data].concat());
    capture.server(answer.len(), &data);
    let handshake = capture.handshake();
    assert_eq!(handshake.bytes_from_client, Some((hello.len() + finished.len()) as u64));
    assert_eq!(handshake.bytes_from_server, Some(answer.len() as u64));
    assert_eq!((handshake.proof_frame, handshake.t_done), (Some(2), handshake.t_sh));
}

#[test]
fn the_proof_is_the_message_that_decided() {
    let (client, _) = full_1_2();
    let mut capture = Capture::new();
    capture.client(0, &client[..record(22, &client_hello(1, &[])).len()]);
    let parts = [record(22, &server_hello(&[])), record(22, &message(12, &[1; 30]))];
    capture.server(0, &parts[0]);
    capture.server(parts[0].len(), &parts[1]);
    let handshake = capture.handshake();
    assert_eq!((handshake.frame_sh, handshake.proof_frame), (Some(2), Some(3)));
}

/// A conversation: each side in turn, and its words.
type Talk<'a> = &'a [(&'a str, &'a [u8])];

/// The protocol that is recognised in the words before TLS.
fn via(talk: Talk<'_>) -> Option<Via> {
    let mut capture = Capture::new();
    let mut sent = [0; 2];
    for (who, words) in talk {
        match *who {
            "client" => capture.client(sent[0], words),
            _ => capture.server(sent[1], words),
        }
        sent[usize::from(*who != "client")] += words.len();
    }
    let (client, server) = full_1_2();
    capture.client(sent[0], &client);
    capture.server(sent[1], &server);
    let handshake = capture.handshake();
    let is_direct = matches!(handshake.via, None | Some(Via::Socks));
    assert_eq!((handshake.cls, handshake.direct), (Class::Full, is_direct));
    handshake.via
}

#[test]
fn what_stood_before_tls_is_recognised() {
    let ldap = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";
    let rdp = b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x0b\0\0\0";
    let mysql = b"\x4a\0\0\0\x0a8.0.1\0";
    let talks: [(Option<Via>, Talk<'_>); 17] = [
        (None, &[]),
        (Some(Via::Smtp), &[("server", b"220 mail\r\n"), ("client", b"EHLO me\r\n")]),
        (Some(Via::Smtp), &[("server", b"220 mail ESMTP\r\n"), ("client", b"\r\n")]),
        (Some(Via::Imap), &[("server", b"* OK ready\r\n"), ("client", b"a1 STARTTLS\r\n")]),
        (Some(Via::Imap), &[("client", b"a1 STARTTLS\r\n"), ("server", b"a1 OK\r\n")]),
        (Some(Via::Pop3), &[("server", b"+OK ready\r\n"), ("client", b"STLS\r\n")]),
        (Some(Via::Ftp), &[("server", b"220 ready\r\n"), ("client", b"AUTH TLS\r\n")]),
        (Some(Via::Ldap), &[("client", ldap), ("server", b"\x30\x0c\x02\x01\x01")]),
        (Some(Via::Postgresql), &[("client", b"\0\0\0\x08\x04\xd2\x16\x2f"), ("server", b"S")]),
        (Some(Via::Xmpp), &[("client", b"<?xml version='1.0'?>"), ("server", b"<proceed/>")]),
        (Some(Via::Connect), &[("client", b"CONNECT a:443 HTTP/1.1\r\n\r\n"), ("server", b"HTTP")]),
        (Some(Via::Socks), &[("client", &[5, 1, 0]), ("server", &[5, 0])]),
        (Some(Via::Socks), &[("client", &[4, 1, 1, 187, 1, 2, 3, 4, 0]), ("server", &[0, 90])]),
        (Some(Via::Mysql), &[("server", mysql), ("client", b"\x20\0\0\x01")]),
        (Some(Via::Rdp), &[("client", rdp), ("server", b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34")]),
        (Some(Via::Nntp), &[("client", b"STARTTLS\r\n"), ("server", b"382 go\r\n")]),
        (Some(Via::Other), &[("server", b"hello"), ("client", b"hello")]),
    ];
    for (expected, talk) in talks {
        assert_eq!(via(talk), expected, "{talk:?}");
    }
}

#[test]
fn noise_of_one_side_is_no_upgrade() {
    assert_eq!(via(&[("client", &[0xde, 0xad, 0xbe, 0xef])]), None);
}

#[test]
fn a_handshake_is_named_in_full() {
    let protocols = with_length(b"\x02h2\x08http/1.1");
    let more = [extension(16, &protocols), extension(0xfe0d, &[0; 20])].concat();
    let hello = client_hello_with(1, &[], &more);
    let mut capture = Capture::new();
    capture.client(0, &record(22, &hello));
    let key_share = extension(51, &[&[0x11, 0xec][..], &with_length(&[7; 40])].concat());
    capture.server(0, &record(22, &tls_1_3(&key_share)));
    let handshake = capture.handshake();
    let named = serde_json::to_value(&handshake).unwrap();
    assert_eq!(named["cipher"], "TLS_AES_128_GCM_SHA256");
    assert_eq!(named["group"], "X25519MLKEM768");
    assert_eq!(
        (&named["alpn_offered"], named["ech_offered"].as_bool()),
        (&"h2,http/1.1".into(), Some(true))
    );
    // TLS 1.2, a name, one cipher, four extensions, h2.
    let ja4 = named["ja4"].as_str().unwrap();
    assert!(ja4.starts_with("t12d0104h2_"), "{ja4}");
    let line = report::line(&named);
    assert!(line.ends_with(&format!("TLS_AES_128_GCM_SHA256  h2,http/1.1  {ja4}  ECH")), "{line}");
    let row = report::fields(&named);
    let columns: Vec<_> =
        report::COLUMNS.iter().zip(&row).filter(|(_, text)| !text.is_empty()).collect();
    assert!(columns.contains(&(&"group", &"X25519MLKEM768".to_owned())), "{columns:?}");
}

/// Each field of a handshake has a column.
#[test]
fn csv_has_all_fields() {
    let record = serde_json::to_value(Capture::of_full_1_2().handshake()).unwrap();
    for field in record.as_object().unwrap().keys().filter(|field| *field != "certificate") {
        assert!(report::COLUMNS.contains(&field.as_str()), "{field}");
    }
}
