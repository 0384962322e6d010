//! Programs and servers that do not behave. The manager answers, shares nothing of it, and stays.

mod memory;
mod process;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rejoin_manager::AcrossNames;
use serde_json::json;

use crate::server::{Server, house_and_server};
use rejoin_testkit::house::House;
use rejoin_testkit::house::program::{answer, send};
use rejoin_testkit::house::rustls_server::RustlsServer;
use rejoin_testkit::port::reserve;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::proxy::{call, extension, rogue, silent_to};

/// The manager still does what it is for.
fn still_serves(house: &House) {
    house.certify("good", &["good.test"]);
    let server = Server::openssl(&house.folder, "good", &["-tls1_3"]);
    let why = || house.program().visit("good.test", server.port, json!({}));
    assert_eq!(why(), "no_session");
    assert_eq!(why(), "resumed");
}

#[test]
fn requests_that_are_none_are_answered() {
    let house = House::new();
    let said = |bytes: &[u8]| {
        let mut stream = house.program().dial();
        stream.write_all(bytes).unwrap();
        answer(&mut stream)["error"]["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(said(&[0, 0, 0, 0]), "bad_request");
    assert_eq!(said(&[0xff; 4]), "too_large");
    assert_eq!(said(&[0, 4, 0, 1]), "too_large");
    assert_eq!(said(b"\0\0\0\x02{}"), "bad_request");
    assert_eq!(said(b"\0\0\0\x0c{\"rejoin\":2}"), "unsupported_version");
    assert_eq!(said(b"\0\0\0\x04\xff\xff\xff\xff"), "bad_request");
    let mut deep = vec![b'['; 200_000];
    deep.splice(..0, (200_000_u32).to_be_bytes());
    assert_eq!(said(&deep), "bad_request");
    let bundle = json!({"trust": {"bundle": "no PEM"}});
    assert_eq!(house.program().kind("a.test", 1, bundle), "bad_request");
    // Programs that leave in the middle of everything.
    for part in [&b""[..], b"\0\0", b"\0\0\x01\0", b"\0\0\x01\0{\"rejoin\""] {
        house.program().dial().write_all(part).unwrap();
    }
    still_serves(&house);
}

#[test]
fn servers_that_are_none_are_named() {
    let house = House::new();
    let kind = |port, deadline_ms: u64| {
        house.program().kind("server.test", port, json!({"deadline_ms": deadline_ms}))
    };
    assert_eq!(kind(reserve(), 5_000), "refused");
    let silent = rogue(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let since = Instant::now();
    assert_eq!(kind(silent, 300), "timeout");
    assert!(since.elapsed() >= Duration::from_millis(300));
    let garbage = rogue(|mut stream| {
        let _ = stream.write_all(&[0x47; 4_096]);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert_eq!(kind(garbage, 5_000), "tls_failed");
    let gone = rogue(|mut stream| {
        let _ = stream.read(&mut [0; 100]);
        let _ = stream.shutdown(Shutdown::Both);
    });
    assert_eq!(kind(gone, 5_000), "tls_failed");
    let slow = rogue(|mut stream| {
        // A record of handshake messages that takes for ever.
        let _ = stream.write_all(&[22, 3, 3, 0x40, 0]);
        while stream.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(kind(slow, 500), "timeout");
    let wish = json!({"host": "no-such-name.invalid", "port": 443});
    let (_, answer) = house.program().ask(&json!({"rejoin": 1, "connect": wish}));
    assert_eq!(answer["error"]["kind"], "name_not_found");
    assert_eq!(house.program().stats()["sessions"], 0);
    assert_eq!(house.program().stats()["handshakes"]["failed"], 6);
    still_serves(&house);
}

#[test]
fn a_flood_of_tickets_takes_no_room() {
    let house = House::with(|settings| settings.session_bytes = 64 * 1024);
    let pair = house.certify("server", &["server.test"]);
    for tickets in [500, 20_000] {
        let server = RustlsServer::start(&pair, |config| config.send_tls13_tickets = tickets);
        let mut connection =
            house.program().connect("server.test", server.port, json!({})).unwrap();
        // The word is answered, or the connection ends: neither is the manager's end.
        connection.stream.write_all(b"hello\n").unwrap();
        let read = connection.stream.read(&mut [0; 16]);
        assert!(tickets > 500 || read.unwrap() == 6);
        let stats = house.program().stats();
        assert!(stats["sessions"].as_u64().unwrap() <= 2 * 8, "{stats}");
        assert!(stats["session_bytes"].as_u64().unwrap() <= 64 * 1024, "{stats}");
    }
    still_serves(&house);
}

#[test]
fn sessions_of_many_servers_stay_within_their_bytes() {
    let house = House::with(|settings| {
        settings.session_bytes = 64 * 1024;
        settings.across_names = AcrossNames::Never;
    });
    house.certify("server", &["*.server.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    for number in 0..150 {
        let name = format!("n{number}.server.test");
        house.program().visit(&name, server.port, json!({}));
        let bytes = house.program().stats()["session_bytes"].as_u64().unwrap();
        assert!(bytes <= 64 * 1024, "{bytes} at {number}");
    }
    assert!(house.program().stats()["sessions"].as_u64().unwrap() > 10);
}

#[test]
fn a_server_that_breaks_over_a_session_is_called_again_without() {
    let (house, server) = house_and_server(&["-tls1_3"]);
    let to = server.port;
    // Hangs up on every hello with a pre-shared key.
    let port = rogue(move |mut client| {
        let mut hello = vec![0; 16 * 1024];
        let Ok(read) = client.read(&mut hello) else { return };
        if extension(&hello[..read], 41).is_some() {
            return;
        }
        let mut server = call(to, &client);
        let _ = server.write_all(&hello[..read]);
        let _ = std::io::copy(&mut client, &mut server);
        let _ = server.shutdown(Shutdown::Both);
    });
    let why = || house.program().visit("server.test", port, json!({}));
    assert_eq!(why(), "no_session");
    assert_eq!(why(), "refused");
}

#[test]
fn a_server_that_is_silent_about_certificates_is_waited_for_once() {
    let house = House::new();
    house.certify("server", &["server.test"]);
    // It asks for a certificate, does without, and issues no tickets.
    let arguments = ["-tls1_3", "-verify", "1", "-num_tickets", "0", "-CAfile", "authority.pem"];
    let server = Server::openssl(&house.folder, "server", &arguments);
    let own = house.authority.issue(&["one.test"]);
    let own = json!({"identity": {"chain": own.certificate, "key": own.key}});
    for wishes in [json!({}), own, json!({"share": false})] {
        let visit = |_| {
            let since = Instant::now();
            house.program().visit("server.test", server.port, wishes.clone());
            since.elapsed()
        };
        let fastest = (0..20).map(visit).min().unwrap();
        assert!(fastest < Duration::from_millis(300), "each is waited for");
    }
}

/// A server of TLS 1.2 that answers who has no session, and says nothing to one; a program has been
/// there.
fn silent_about_sessions(house: &House) -> (Server, u16, Receiver<Vec<u8>>) {
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_2"]);
    let offers = |flight: &[u8]| extension(flight, 35).is_some_and(|ticket| !ticket.is_empty());
    let (port, told) = silent_to(offers, server.port);
    assert_eq!(house.program().visit("server.test", port, json!({})), "no_session");
    told.recv().unwrap();
    (server, port, told)
}

#[test]
fn a_server_that_is_silent_about_a_session_is_not_shown_it_again() {
    let house = House::new();
    let (_server, port, _told) = silent_about_sessions(&house);
    assert_eq!(house.program().kind("server.test", port, json!({"deadline_ms": 500})), "timeout");
    assert_eq!(house.program().visit("server.test", port, json!({})), "all_used");
}

#[test]
fn a_program_that_gives_up_first_takes_the_session_along() {
    let house = House::new();
    let (_server, port, told) = silent_about_sessions(&house);
    let wish = json!({"host": "server.test", "port": port, "addresses": ["127.0.0.1"]});
    let gives_up = || {
        let mut stream = house.program().dial();
        send(&mut stream, &json!({"rejoin": 1, "connect": wish}));
        std::thread::sleep(Duration::from_millis(100));
        drop(stream);
        // A busy manager may not have come as far as to offer it.
        told.recv_timeout(Duration::from_secs(5)).is_ok()
    };
    assert!((0..10).any(|_| gives_up()));
    assert_eq!(house.program().visit("server.test", port, json!({})), "all_used");
}

#[test]
fn there_is_room_for_so_many_and_others_are_told() {
    let house = House::with(|settings| settings.connections_per_user = 2);
    let kind = || {
        let mut stream = house.program().dial();
        let _ = stream.write_all(&[0; 4]);
        answer(&mut stream)["error"]["kind"].clone()
    };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        // They are let in at some time, and are not waited for on end.
        let _silent = [house.program().dial(), house.program().dial()];
        if kind() == "busy" {
            break;
        }
        assert!(Instant::now() < until);
    }
    while kind() != "bad_request" {
        assert!(Instant::now() < until);
    }
    let house = House::with(|settings| settings.users = vec![4_294_967_000]);
    let mut stream = house.program().dial();
    assert_eq!(answer(&mut stream)["error"]["kind"], "not_permitted");
}

#[test]
fn programs_that_die_leave_no_connection_behind() {
    let (house, server) = House::with_rustls(|_| {});
    let one = house.program().connect("server.test", server.port, json!({})).unwrap();
    let two = house.program().connect("server.test", server.port, json!({})).unwrap();
    // The manager counts a connection just after it has answered.
    wait_until("two open connections", || house.program().stats()["open"] == 2);
    drop(one);
    two.stream.shutdown(Shutdown::Write).unwrap();
    drop(two);
    wait_until("no open connection", || house.program().stats()["open"] == 0);
}
