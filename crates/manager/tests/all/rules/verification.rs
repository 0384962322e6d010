//! The verification of certificates before each resumption.

use serde_json::json;

use super::{get, visit};
use crate::server::{Server, house_and_server};
use rejoin_manager::protocol::Fingerprint;
use rejoin_testkit::certificates::Authority;
use rejoin_testkit::house::House;

#[test]
fn rule_08_every_resumption_is_judged_by_the_program_that_asks() {
    for version in ["-tls1_2", "-tls1_3"] {
        let (house, server) = house_and_server(&[version]);
        assert_eq!(visit(&house, &server), "no_session");
        // Another program, which trusts somebody else: it is not let in by the first's session.
        let stranger = json!({"trust": {"bundle": Authority::new().pem()}});
        let kind = |wishes| house.program().kind("server.test", server.port, wishes);
        assert_eq!(kind(stranger), "certificate_unknown_issuer");
        let other_pin = json!({"trust": {"pins": ["00".repeat(32)]}});
        assert_eq!(kind(other_pin), "certificate_pin_mismatch");
        // Who trusts it in its own way resumes.
        let bundle = json!({"trust": {"bundle": house.authority.pem()}});
        let why = house.program().visit("server.test", server.port, bundle);
        assert_eq!(why, "resumed", "{version}");
    }
}

#[test]
fn rule_08_a_program_that_trusts_another_certificate_gets_a_full_handshake() {
    // Two servers behind one port, one after the other, with keys of tickets in common.
    let house = House::new();
    house.certify("server", &["server.test"]);
    let other = Authority::new();
    other.issue(&["server.test"]).write(&house.file("other"));
    let keys = house.file("ticket.key");
    std::fs::write(&keys, [7; 80]).unwrap();
    let inside = format!("ssl_session_ticket_key {};", keys.display());
    let port = rejoin_testkit::port::reserve();
    let server = Server::nginx(port, &house.folder, "server", &inside);
    let why = |wishes| get(&house, port, wishes)["why"].take();
    assert_eq!(why(json!({})), "no_session");
    drop(server);
    let _server = Server::nginx(port, &house.folder, "other", &inside);
    // Its session would be resumed; but the certificate it stands for is not what it trusts.
    let bundle = json!({"trust": {"bundle": other.pem()}});
    assert_eq!(why(bundle.clone()), "not_trusted");
    assert_eq!(why(bundle), "resumed");
}

#[test]
fn rule_09_nothing_stays_of_what_was_not_verified() {
    for version in ["-tls1_2", "-tls1_3"] {
        let (house, server) = house_and_server(&[version]);
        let program = house.program();
        let blind = || json!({"trust": "none"});
        for _ in 0..3 {
            let why = program.visit("server.test", server.port, blind());
            assert_eq!(why, "not_verified");
        }
        let stranger = json!({"trust": {"bundle": Authority::new().pem()}});
        program.kind("server.test", server.port, stranger);
        assert_eq!(program.stats()["sessions"], 0);
        assert_eq!(visit(&house, &server), "no_session");
        // Nor does it use what others verified.
        assert_eq!(program.visit("server.test", server.port, blind()), "not_verified");
    }
}

#[test]
fn rule_10_and_15_no_request_plants_a_session_and_no_answer_shows_one() {
    let (house, server) = house_and_server(&["-tls1_3"]);
    visit(&house, &server);
    let program = house.program();
    for request in [
        json!({"rejoin": 1, "store": {"ticket": "AAAA"}}),
        json!({"rejoin": 1, "connect": {"host": "server.test", "port": 1, "session": "AAAA"}}),
        json!({"rejoin": 1, "connect": {"host": "server.test", "port": 1, "psk": "AAAA"}}),
        json!({"rejoin": 1, "sessions": {}}),
        json!({"rejoin": 1, "stats": {"sessions": true}}),
    ] {
        let (_, answer) = program.ask(&request);
        assert_eq!(answer["error"]["kind"], "bad_request", "{request}");
    }
    // What is said of a connection is a closed list.
    let connection = program.connect("server.test", server.port, json!({})).unwrap();
    let mut said: Vec<_> = connection.facts.as_object().unwrap().keys().cloned().collect();
    said.sort();
    let expected = [
        "chain",
        "cipher",
        "connection",
        "early_data",
        "group",
        "peer",
        "resumed",
        "version",
        "why",
    ];
    assert_eq!(said, expected);
    let mut counted: Vec<_> = program.stats().as_object().unwrap().keys().cloned().collect();
    counted.sort();
    let expected =
        ["directly", "handshakes", "open", "programs", "services", "session_bytes", "sessions"];
    assert_eq!(counted, expected);
}

#[test]
fn certificates_are_refused_for_what_is_wrong_with_them() {
    let pair_of = Authority::new().issue(&["server.test"]);
    let house = House::with(|settings| settings.revoked = vec![Fingerprint::of(&pair_of.der)]);
    let cases = [
        (house.authority.expired(&["server.test"]), json!({}), "certificate_expired"),
        (
            house.authority.issue_with(&["server.test"], |params| {
                params.not_before = rcgen::date_time_ymd(2120, 1, 1);
                params.not_after = rcgen::date_time_ymd(2121, 1, 1);
            }),
            json!({}),
            "certificate_not_yet_valid",
        ),
        (house.authority.issue(&["other.test"]), json!({}), "certificate_wrong_name"),
        (Authority::new().issue(&["server.test"]), json!({}), "certificate_unknown_issuer"),
        (pair_of, json!({}), "certificate_revoked"),
    ];
    for (pair, wishes, expected) in cases {
        pair.write(&house.file("wrong"));
        let server = Server::openssl(&house.folder, "wrong", &[]);
        assert_eq!(house.program().kind("server.test", server.port, wishes), expected);
    }
    assert_eq!(house.program().stats()["sessions"], 0);
}

#[test]
fn pins_are_believed_for_their_name_and_time() {
    let house = House::new();
    let authority = Authority::new();
    let pair = authority.issue(&["server.test"]);
    pair.write(&house.file("server"));
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    let pinned = json!({"trust": {"pins": [Fingerprint::of(&pair.der).to_string()]}});
    let program = house.program();
    assert_eq!(program.visit("server.test", server.port, pinned.clone()), "no_session");
    assert_eq!(program.visit("server.test", server.port, pinned.clone()), "resumed");
    let kind = |name: &str, wishes| program.kind(name, server.port, wishes);
    assert_eq!(kind("other.test", pinned.clone()), "certificate_wrong_name");
    // An issuer's pin: the rest is verified up to it.
    std::fs::write(house.file("chain.pem"), [&*pair.certificate, &authority.pem()].concat())
        .unwrap();
    pair.write_key(&house.file("chain"));
    let chained = Server::openssl(&house.folder, "chain", &["-cert_chain", "chain.pem"]);
    let issuer = json!({"trust": {"pins": [Fingerprint::of(authority.der()).to_string()]}});
    assert_eq!(program.visit("server.test", chained.port, issuer.clone()), "no_session");
    assert_eq!(program.kind("other.test", chained.port, issuer), "certificate_wrong_name");
    let known =
        json!({"trust": pinned["trust"], "known": [Fingerprint::of(&pair.der).to_string()]});
    let facts = program.connect("server.test", server.port, known).unwrap().facts;
    assert_eq!(facts["chain"], json!([{"sha256": Fingerprint::of(&pair.der).to_string()}]));
    // The same pin, when the certificate is over.
    house.clock.step(3_000 * 365 * 86_400);
    assert_eq!(kind("server.test", pinned), "certificate_expired");
}

#[test]
fn of_two_pinned_issuers_one_is_enough() {
    let house = House::new();
    let good = Authority::new();
    let over = Authority::with(|params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    let pair = good.issue(&["server.test"]);
    pair.write(&house.file("server"));
    std::fs::write(house.file("chain.pem"), [over.pem(), good.pem()].concat()).unwrap();
    let server = Server::openssl(&house.folder, "server", &["-cert_chain", "chain.pem"]);
    let pinned = |pins: &[&Authority]| {
        let pins: Vec<_> = pins.iter().map(|of| Fingerprint::of(of.der()).to_string()).collect();
        json!({"trust": {"pins": pins}})
    };
    let program = house.program();
    let why = program.visit("server.test", server.port, pinned(&[&over, &good]));
    assert_eq!(why, "no_session");
    let kind = program.kind("server.test", server.port, pinned(&[&over]));
    assert_eq!(kind, "certificate_expired");
}
