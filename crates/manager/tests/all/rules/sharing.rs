//! The choice and use of tickets, and the end of their families.

use rejoin_testkit::port::reserve;
use std::collections::HashSet;
use std::io::Read;
use std::net::{Ipv4Addr, Shutdown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use rejoin_manager::AcrossNames;
use serde_json::json;

use super::{get, visit};
use crate::server::{Server, house_and_server};
use rejoin_testkit::house::House;
use rejoin_testkit::house::rustls_server::RustlsServer;
use rejoin_testkit::proxy::{call, extension, rogue, tapped, ticket};

const PSK_MODES: u16 = 45;
const TICKET_REQUEST: u16 = 58;

#[test]
fn twenty_programs_need_one_full_handshake() {
    for version in ["-tls1_2", "-tls1_3"] {
        let (mut house, server) = house_and_server(&[version]);
        assert_eq!(visit(&house, &server), "no_session");
        for _ in 1..20 {
            assert_eq!(visit(&house, &server), "resumed", "{version}");
        }
        let done = house.stop();
        assert_eq!((done.handshakes.full, done.handshakes.resumed), (1, 19));
    }
}

#[test]
fn rule_01_a_ticket_goes_out_once() {
    let (house, server) = house_and_server(&["-tls1_3"]);
    let (port, told) = tapped(server.port);
    let programs = 200;
    house.program().visit("server.test", port, json!({}));
    let threads: Vec<_> = (0..programs)
        .map(|_| {
            let program = house.program();
            // The server takes one after the other.
            let patient = json!({"deadline_ms": 60_000});
            std::thread::spawn(move || program.visit("server.test", port, patient))
        })
        .collect();
    let why: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let tickets: Vec<_> = told.try_iter().filter_map(|flight| ticket(&flight)).collect();
    let different: HashSet<_> = tickets.iter().collect();
    assert_eq!(different.len(), tickets.len());
    let resumed = why.iter().filter(|why| *why == "resumed").count();
    assert_eq!(resumed, tickets.len());
    assert!(resumed > 1, "{why:?}");
}

#[test]
fn rule_04_only_keys_that_stay_fresh_and_of_the_same_hash() {
    let house = House::new();
    house.certify("server", &["server.test"]);
    std::fs::write(house.file("ticket.key"), [7; 80]).unwrap();
    let keys = format!("ssl_session_ticket_key {};", house.file("ticket.key").display());
    let nginx = |port, cipher: &str| {
        let inside =
            format!("{keys} ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites {cipher};");
        Server::nginx(port, &house.folder, "server", &inside)
    };
    let get = |port| get(&house, port, json!({}));
    let port = reserve();
    let (tap, told) = tapped(port);
    let server = nginx(port, "TLS_AES_256_GCM_SHA384");
    assert_eq!(get(tap)["why"], "no_session");
    assert_eq!(get(tap)["why"], "resumed");
    drop(server);
    // The same keys, another hash: the server cannot resume, and the connection stands.
    let _server = nginx(port, "TLS_AES_128_GCM_SHA256");
    let facts = get(tap);
    assert_eq!(
        (&facts["why"], &facts["cipher"]),
        (&json!("refused"), &json!("TLS13_AES_128_GCM_SHA256"))
    );
    // psk_dhe_ke and nothing else, in every hello.
    let flights: Vec<_> = told.try_iter().filter(|flight| flight[0] == 22).collect();
    assert_eq!(flights.len(), 3);
    for flight in flights {
        assert_eq!(extension(&flight, PSK_MODES), Some(vec![1, 1]));
    }
}

#[test]
fn rule_05_another_name_needs_its_certificate_and_the_settings_and_tls13() {
    let two = |house: &House| {
        house.certify("server", &["a.test", "b.test"]);
        house.certify("alone", &["a.test"]);
    };
    let seen = |house: &House, server: &Server| {
        let program = house.program();
        program.visit("a.test", server.port, json!({}));
        let connection = program.connect("b.test", server.port, json!({})).unwrap();
        let of = connection.facts["session_of"].clone();
        (connection.talk(), of)
    };
    let house = House::new();
    two(&house);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    assert_eq!(seen(&house, &server), ("resumed_other_name".to_owned(), json!("a.test")));
    // Never on TLS 1.2, although nginx would.
    let older = Server::openssl(&house.folder, "server", &["-tls1_2"]);
    assert_eq!(seen(&house, &older), ("no_session".to_owned(), json!(null)));
    // Not if the certificate is not for the name: then the connection fails as it should.
    let alone = Server::openssl(&house.folder, "alone", &["-tls1_3"]);
    house.program().visit("a.test", alone.port, json!({}));
    assert_eq!(house.program().kind("b.test", alone.port, json!({})), "certificate_wrong_name");
    // By policy.
    for (mode, names, expected) in [
        (AcrossNames::Never, vec!["a.test", "b.test"], "no_session"),
        (AcrossNames::Listed, vec!["a.test", "c.test"], "no_session"),
        (AcrossNames::Listed, vec!["a.test", "b.test"], "resumed_other_name"),
    ] {
        let house = House::with(|settings| {
            settings.across_names = mode;
            settings.names = vec![names.iter().map(|name| name.parse().unwrap()).collect()];
        });
        two(&house);
        let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
        assert_eq!(seen(&house, &server).0, expected, "{mode:?} {names:?}");
    }
}

/// Certificates that the program does not believe hide none that it does.
#[test]
fn rule_05_one_name_that_does_not_do_is_not_the_only_one() {
    let house = House::new();
    house.certify("server", &["c.test", "b.test"]);
    let other = rejoin_testkit::certificates::Authority::new();
    let names: Vec<_> = (0..20).map(|number| format!("a{number}.test")).collect();
    let covered: Vec<_> = names.iter().map(String::as_str).chain(["b.test", "c.test"]).collect();
    other.issue(&covered).write(&house.file("other"));
    let bundle = json!({"trust": {"bundle": other.pem()}});
    let here = Ipv4Addr::new(127, 0, 0, 2);
    let foreign = Server::openssl(&house.folder, "other", &["-tls1_3"]);
    let port = foreign.port;
    let _server = Server::openssl_on(here, port, &house.folder, "server", &["-tls1_3"]);
    for name in &names {
        house.program().visit(name, port, bundle.clone());
    }
    let why = |name| house.program().visit(name, port, json!({"addresses": [here]}));
    assert_eq!(why("c.test"), "no_session");
    assert_eq!(why("b.test"), "resumed_other_name");
}

#[test]
fn rule_06_a_trial_takes_no_last_ticket_and_its_failure_is_remembered() {
    // One ticket: a.test keeps it.
    let house = House::new();
    house.certify("server", &["a.test", "b.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3", "-num_tickets", "1"]);
    let why = |name: &str| house.program().visit(name, server.port, json!({}));
    assert_eq!(why("a.test"), "no_session");
    assert_eq!(why("b.test"), "no_session");
    assert_eq!(why("a.test"), "resumed");
    // A server that resumes under the same name only, as rustls does.
    let house = House::new();
    let pair = house.certify("server", &["a.test", "b.test"]);
    let server = RustlsServer::start(&pair, |config| config.send_tls13_tickets = 4);
    let why = |name: &str| house.program().visit(name, server.port, json!({}));
    assert_eq!(why("a.test"), "no_session");
    assert_eq!(why("b.test"), "refused");
    // Its own tickets are as good as before.
    assert_eq!(why("a.test"), "resumed");
    // One that has lost its keys and issues no tickets: tried once for each name, with one ticket.
    let house = House::new();
    house.certify("server", &["a.test", "b.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3", "-num_tickets", "4"]);
    let (tap, told) = tapped(server.port);
    let why = |name: &str| house.program().visit(name, tap, json!({}));
    assert_eq!(why("a.test"), "no_session");
    let port = server.port;
    drop(server);
    let none = ["-tls1_3", "-num_tickets", "0"];
    let _server = Server::openssl_at(port, &house.folder, "server", &none);
    told.try_iter().count();
    assert_eq!(why("b.test"), "refused");
    assert_eq!(why("b.test"), "no_session");
    assert_eq!(why("b.test"), "no_session");
    assert_eq!(told.try_iter().filter(|flight| ticket(flight).is_some()).count(), 1);
}

#[test]
fn rule_12_a_trial_in_one_partition_says_nothing_to_another() {
    let house = House::new();
    house.certify("server", &["a.test", "b.test"]);
    // Two servers with one certificate, behind one port; neither resumes what the other issued.
    let servers = [(); 2].map(|()| Server::openssl(&house.folder, "server", &["-tls1_3"]));
    let to = Arc::new(AtomicU16::new(servers[0].port));
    let at = Arc::clone(&to);
    let port = rogue(move |client| {
        let server = call(at.load(Ordering::SeqCst), &client);
        let _ = std::io::copy(&mut &client, &mut &server);
        let _ = server.shutdown(Shutdown::Write);
    });
    let why = |name: &str, label| house.program().visit(name, port, json!({"label": label}));
    assert_eq!(why("a.test", "one"), "no_session");
    to.store(servers[1].port, Ordering::SeqCst);
    assert_eq!(why("b.test", "one"), "refused");
    to.store(servers[0].port, Ordering::SeqCst);
    assert_eq!(why("a.test", "two"), "no_session");
    assert_eq!(why("b.test", "two"), "resumed_other_name");
}

#[test]
fn rule_07_a_refused_ticket_takes_its_family_along() {
    for version in ["-tls1_2", "-tls1_3"] {
        let (house, server) = house_and_server(&[version]);
        let (tap, told) = tapped(server.port);
        let why = || house.program().visit("server.test", tap, json!({}));
        assert_eq!(why(), "no_session");
        let port = server.port;
        drop(server);
        // Its keys are gone. The first program finds out; those that come before the new
        // server has issued anything are not sent the way of the first.
        let issuing: &[&str] = match version {
            "-tls1_3" => &[version, "-num_tickets", "0"],
            _ => &[version, "-no_ticket", "-no_cache"],
        };
        let server = Server::openssl_at(port, &house.folder, "server", issuing);
        told.try_iter().count();
        assert_eq!(why(), "refused", "{version}");
        assert_eq!(why(), "all_used", "{version}");
        if version == "-tls1_3" {
            let tickets = told.try_iter().filter(|flight| ticket(flight).is_some()).count();
            assert_eq!(tickets, 1);
        }
        drop(server);
    }
}

/// A connection that breaks is no answer: the network may have done it.
#[test]
fn rule_07_a_reset_costs_a_ticket_and_no_family() {
    let (house, server) = house_and_server(&["-tls1_3"]);
    let (to, resets) = (server.port, Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&resets);
    let port = rogue(move |mut client| {
        if told.swap(false, Ordering::SeqCst) {
            let _ = client.read(&mut [0; 1]);
            // What was not read makes the end a reset.
            return;
        }
        let server = call(to, &client);
        let _ = std::io::copy(&mut client, &mut &server);
        let _ = server.shutdown(Shutdown::Write);
    });
    let why = || house.program().visit("server.test", port, json!({}));
    assert_eq!(why(), "no_session");
    assert_eq!(house.program().stats()["sessions"], 2);
    resets.store(true, Ordering::SeqCst);
    // It is called again, without a session, and issues two more tickets.
    assert_eq!(why(), "refused");
    assert_eq!(house.program().stats()["sessions"], 3);
}

#[test]
fn rule_14_tickets_are_bounded_and_asked_for_by_number() {
    let house = House::with(|settings| settings.tickets = 3);
    let server = house.rustls(|config| config.send_tls13_tickets = 60);
    let (tap, told) = tapped(server.port);
    let why = || house.program().visit("server.test", tap, json!({}));
    assert_eq!(why(), "no_session");
    assert!(house.program().stats()["sessions"].as_u64().unwrap() <= 3);
    assert_eq!(why(), "resumed");
    assert_eq!(house.program().stats()["sessions"], 3);
    let asked: Vec<_> = told
        .try_iter()
        .map(|flight| extension(&flight, TICKET_REQUEST).expect("asked for"))
        .collect();
    assert_eq!(asked, [vec![3, 0], vec![3, 1]]);
    // Who does not share asks for none.
    house.program().visit("server.test", tap, json!({"share": false}));
    assert_eq!(extension(&told.recv().unwrap(), TICKET_REQUEST), None);
}
