use serde_json::json;

use super::*;

fn request(value: &serde_json::Value) -> Result<Request, Malformed> {
    read_request(value.to_string().as_bytes())
}

fn connect(field: &str, value: serde_json::Value) -> Result<Request, Malformed> {
    let mut connect = json!({"host": "example.com", "port": 443});
    connect[field] = value;
    request(&json!({"rejoin": 1, "connect": connect}))
}

#[test]
fn a_request_says_what_it_leaves_out() {
    let Ok(Request::Connect(connect)) =
        request(&json!({"rejoin": 1, "connect": {"host": "Example.COM.", "port": 443}}))
    else {
        panic!("the least request is one");
    };
    let expected = Connect::new("example.com".parse().unwrap(), 443.try_into().unwrap());
    assert_eq!(*connect, expected);
}

#[test]
fn records_are_of_an_address_and_trust_nobody_unless_told() {
    let records = |wish: serde_json::Value| request(&json!({"rejoin": 1, "records": wish}));
    let wish = json!({"host": "example.com", "port": 443, "address": "192.0.2.1"});
    let Ok(Request::Records(least)) = records(wish.clone()) else { panic!("the least is one") };
    assert_eq!(least.trust, Trust::None);
    let plain = Connect::new("example.com".parse().unwrap(), 443.try_into().unwrap());
    let addresses = vec!["192.0.2.1".parse().unwrap()];
    assert_eq!(least.wish(), Connect { addresses, ..plain });
    for (field, value) in [
        ("address", json!(null)),
        ("address", json!("example.com")),
        ("addresses", json!(["192.0.2.1"])),
        ("socket", json!(true)),
        ("identity", json!({"chain": "", "key": ""})),
        ("early_data", json!("AA==")),
        ("trust", json!("all")),
        ("known", json!(vec!["0".repeat(64); FINGERPRINTS + 1])),
        ("alpn", json!(vec!["h2"; PROTOCOLS + 1])),
        ("offers", json!({"suites": [0x1301], "groups": [29]})),
        ("offers", json!({"suites": [65_536], "groups": [29], "signatures": []})),
        ("offers", json!({"suites": [], "groups": vec![29; OFFERED + 1], "signatures": []})),
    ] {
        let mut wish = wish.clone();
        wish[field] = value.clone();
        let read = records(wish);
        assert!(matches!(read, Err(Malformed::Text(_))), "{field} = {value}: {read:?}");
    }
    assert!(records(json!({"host": "example.com", "port": 443})).is_err());
}

#[test]
fn a_frame_is_a_word_and_a_length_within_its_bounds() {
    for (head, expected) in [
        (*b"r\0\0\0", (Turn::Records, 0)),
        (*b"r\x01\0\0", (Turn::Records, FRAME_BYTES)),
        (*b"p\0\x01\x02", (Turn::Plaintext, 258)),
        (*b"c\0\0\0", (Turn::Done, 0)),
        (*b"e\0\0\0", (Turn::Ended, 0)),
        (*b"v\0\0\0", (Turn::Verified, 0)),
        (*b"a\0\0\0", (Turn::Accepted, 0)),
    ] {
        assert_eq!(Turn::read(head), Ok(expected));
    }
    for head in [*b"r\x01\0\x01", *b"p\xff\xff\xff", *b"c\0\0\x01", *b"v\0\x01\0"] {
        assert!(matches!(Turn::read(head), Err(Malformed::Text(_))), "{head:?}");
    }
    for word in 0..=u8::MAX {
        assert_eq!(Turn::read([word, 0, 0, 0]).is_ok(), b"rpceva".contains(&word), "{word}");
    }
    for (reply, bytes, head) in [
        (Reply::Records, FRAME_BYTES, *b"r\x01\0\0"),
        (Reply::Plaintext, 258, *b"p\0\x01\x02"),
        (Reply::Message, ANSWER_BYTES, *b"j\x10\0\0"),
        (Reply::Done, 0, *b"c\0\0\0"),
        (Reply::Over, 0, *b".\0\0\0"),
    ] {
        assert_eq!(reply.head(bytes), head);
    }
}

#[test]
fn requests_and_answers_come_back_as_they_were_written() {
    let mut asked = Connect::new("192.0.2.1".parse().unwrap(), 8443.try_into().unwrap());
    asked.addresses = vec!["::1".parse().unwrap()];
    asked.socket = true;
    asked.alpn = vec!["h2".parse().unwrap()];
    asked.trust = Trust::Pins(vec![Fingerprint::of(b"certificate")]);
    asked.identity = Some(Identity { chain: "c".to_owned(), key: "k".to_owned().into() });
    asked.share = false;
    asked.label = "work".parse().unwrap();
    asked.early_data = Some(Base64(b"GET /\r\n".to_vec().into()));
    asked.known = vec![Fingerprint::of(b"other")];
    asked.min_version = Some(MinVersion::Tls13);
    asked.server_name = false;
    let records = Records {
        host: asked.host.clone(),
        port: asked.port,
        address: "2001:db8::1".parse().unwrap(),
        alpn: asked.alpn.clone(),
        label: asked.label.clone(),
        known: asked.known.clone(),
        min_version: asked.min_version,
        offers: Some(Offers { suites: vec![0x1301], groups: vec![29], signatures: vec![] }),
        server_name: asked.server_name,
        trust: Trust::Bundle("b".to_owned()),
    };
    assert!(!records.wish().server_name);
    for request in [
        Request::Connect(Box::new(asked)),
        Request::Records(Box::new(records)),
        Request::End { connection: Token([7; 16]) },
        Request::Stats {},
    ] {
        let written = write_request(&request).unwrap();
        let (prefix, message) = written.split_at(LENGTH_BYTES);
        assert_eq!(length(prefix.try_into().unwrap(), REQUEST_BYTES).unwrap(), message.len());
        assert_eq!(read_request(message).unwrap(), request);
    }
    let answer = Answer::Error(Problem {
        kind: ErrorKind::CertificateWrongName,
        detail: "d".to_owned(),
        remedy: "r".to_owned(),
        early_data: Some(EarlyData::Sent),
    });
    for answer in [answer, Answer::End(End::Clean), Answer::Stats(Box::default())] {
        let written = write_answer(&answer).unwrap();
        assert_eq!(read_answer(&written[LENGTH_BYTES..]).unwrap(), answer);
    }
    let written = write_answer(&Answer::End(End::Clean)).unwrap();
    assert_eq!(&written[LENGTH_BYTES..], br#"{"rejoin":1,"end":"clean"}"#);
}

#[test]
fn wishes_that_are_not_understood_are_not_ignored() {
    for (field, value) in [
        ("trsut", json!("system")),
        ("session", json!("AAAA")),
        ("trust", json!("all")),
        ("trust", json!({"bundle": "", "pins": []})),
        ("trust", json!({"pins": ["00"]})),
        ("trust", json!(null)),
        ("identity", json!({"chain": ""})),
        ("host", json!("")),
        ("host", json!("[::1]")),
        ("host", json!("a b")),
        ("host", json!("*.example.com")),
        ("host", json!("a".repeat(300))),
        ("host", json!("exa\u{0}mple.com")),
        ("port", json!(0)),
        ("port", json!(65_536)),
        ("port", json!("443")),
        ("deadline_ms", json!(0)),
        ("deadline_ms", json!(MOST_DEADLINE_MS + 1)),
        ("deadline_ms", json!(-1)),
        ("deadline_ms", json!(1.5)),
        ("label", json!("a\nb")),
        ("label", json!("a".repeat(LABEL_BYTES + 1))),
        ("alpn", json!([""])),
        ("alpn", json!(["a".repeat(256)])),
        ("alpn", json!(vec!["h2"; PROTOCOLS + 1])),
        ("alpn", json!("h2")),
        ("addresses", json!(["localhost"])),
        ("addresses", json!(vec!["::1"; ADDRESSES + 1])),
        ("known", json!(vec!["0".repeat(64); FINGERPRINTS + 1])),
        ("early_data", json!("A")),
        ("early_data", json!("A".repeat(4 * EARLY_DATA_BYTES))),
        ("min_version", json!("1.1")),
        ("share", json!("no")),
        ("server_name", json!("example.com")),
    ] {
        let read = connect(field, value.clone());
        assert!(matches!(read, Err(Malformed::Text(_))), "{field} = {value}: {read:?}");
    }
}

#[test]
fn a_request_is_one_of_a_version() {
    let of = |value| request(&value);
    assert!(of(json!({"rejoin": 1})).is_err());
    assert!(of(json!({"rejoin": 1, "stats": {}, "end": {"connection": "0".repeat(32)}})).is_err());
    assert!(of(json!({"rejoin": 1, "stats": {"all": true}})).is_err());
    assert!(of(json!({"rejoin": 1, "store": {}})).is_err());
    assert!(of(json!({"stats": {}})).is_err());
    assert_eq!(of(json!({"rejoin": 2, "new": []})), Err(Malformed::Version { version: 2 }));
}

#[test]
fn hostile_bytes_are_errors() {
    let deep = "[".repeat(100_000);
    let nested = format!("{{\"rejoin\":1,\"x\":{deep}");
    let twice = r#"{"rejoin":1,"connect":{"host":"a","port":1,"host":"b"}}"#;
    for bytes in [
        &b""[..],
        b"{",
        b"null",
        b"\xff\xfe",
        b"{\"rejoin\":1e400}",
        b"{\"rejoin\":-1}",
        deep.as_bytes(),
        nested.as_bytes(),
        twice.as_bytes(),
        b"{\"rejoin\":1,\"stats\":{}} {}",
    ] {
        assert!(read_request(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        assert!(read_answer(bytes).is_err());
    }
    let enormous = vec![b' '; REQUEST_BYTES + 1];
    assert!(matches!(read_request(&enormous), Err(Malformed::TooLarge { .. })));
    assert!(matches!(length([0xff; 4], REQUEST_BYTES), Err(Malformed::TooLarge { .. })));
    assert!(matches!(length([0; 4], REQUEST_BYTES), Err(Malformed::Text(_))));
    assert_eq!(length([0, 4, 0, 0], REQUEST_BYTES), Ok(REQUEST_BYTES));
}

#[test]
fn answers_may_grow() {
    let kind = br#"{"rejoin":1,"error":{"kind":"moon_phase","detail":"","remedy":"","more":1}}"#;
    let Ok(Answer::Error(problem)) = read_answer(kind) else { panic!("an unknown kind is one") };
    assert_eq!(problem.kind, ErrorKind::Other);
}

#[test]
fn debug_shows_no_key_and_no_data() {
    let key = Secret::from("PRIVATE".to_owned());
    let identity = Identity { chain: String::new(), key };
    assert!(!format!("{identity:?}").contains("PRIVATE"));
    assert!(!format!("{:?}", Base64(b"cookie".to_vec().into())).contains("cookie"));
}

#[test]
fn reasons_are_named_as_they_are_written() {
    for why in [Why::Resumed, Why::ResumedOtherName, Why::NoSession, Why::AllUsed, Why::TooOld]
        .into_iter()
        .chain([Why::NotTrusted, Why::Version, Why::Refused, Why::NotWanted, Why::NotShared])
        .chain([Why::NotVerified, Why::Other])
    {
        assert_eq!(serde_json::to_value(why).unwrap(), why.name());
    }
}

#[test]
fn an_error_does_not_say_what_a_request_had() {
    for identity in [r#""-BEGIN \"SECRET""#, r#"{"chain": "", "key": ["SECRET"]}"#] {
        let wish = format!(r#"{{"host": "a", "port": 1, "identity": {identity}}}"#);
        let request = format!(r#"{{"rejoin": 1, "connect": {wish}}}"#);
        let refused = read_request(request.as_bytes()).unwrap_err().to_string();
        assert!(!refused.contains("SECRET") && refused.contains("expected"), "{refused}");
    }
    let long = format!(r#"{{"rejoin": 1, "{}": 1}}"#, "x".repeat(100_000));
    assert!(read_request(long.as_bytes()).unwrap_err().to_string().len() <= TEXT_CHARACTERS);
}

#[test]
fn secrets_are_read_as_json_has_them() {
    let key = |json: &str| {
        let identity = format!(r#"{{"chain": "", "key": {json}}}"#);
        serde_json::from_str::<Identity>(&identity).ok().map(|own| own.key.expose().to_owned())
    };
    let is = |text: &str| Some(text.to_owned());
    for json in [r#""a\nb\\c\"\/\t\u0041\u00e9é""#, r#""""#, r#""\r\b\f""#] {
        assert_eq!(key(json), is(&serde_json::from_str::<String>(json).unwrap()), "{json}");
    }
    for json in ["1", "null", r#"["a"]"#, r#""\ud83d\ude00""#, r#""\u12""#] {
        assert_eq!(key(json), None, "{json}");
    }
}
