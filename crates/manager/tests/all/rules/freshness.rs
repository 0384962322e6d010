//! The age limits of sessions.

use std::sync::Arc;
use std::time::Duration;

use rustls::server::ProducesTickets;
use serde_json::{Value, json};

use super::{get, visit};
use crate::server::{Server, house_and_server};
use rejoin_testkit::house::House;
use rejoin_testkit::house::rustls_server::RustlsServer;

const HOUR: Duration = Duration::from_secs(3_600);

/// A manager whose certificates may be old, and an `nginx` whose sessions last that long.
fn with_lifetime(of: &str, session_lifetime_s: u64) -> (House, Server) {
    let house = House::with(|settings| {
        settings.verified_within_s = 7 * 24 * 3_600;
        settings.session_lifetime_s = session_lifetime_s;
    });
    house.certify("server", &["server.test"]);
    let inside = format!("ssl_session_timeout {of};");
    let port = rejoin_testkit::port::reserve();
    let server = Server::nginx(port, &house.folder, "server", &inside);
    (house, server)
}

fn why(house: &House, server: &Server) -> Value {
    get(house, server.port, json!({}))["why"].take()
}

#[test]
fn rule_02_no_ticket_outlives_what_its_server_said_or_the_cap() {
    let (house, server) = with_lifetime("2h", 7 * 24 * 3_600);
    assert_eq!(why(&house, &server), "no_session");
    house.clock.pass(HOUR);
    assert_eq!(why(&house, &server), "resumed");
    house.clock.pass(HOUR + HOUR);
    assert_ne!(why(&house, &server), "resumed");
    // A calendar that is set back makes nothing young, and one set forward nothing old.
    house.clock.step(-86_400);
    house.clock.pass(3 * HOUR);
    assert_ne!(why(&house, &server), "resumed");
    house.clock.step(2 * 86_400);
    assert_eq!(why(&house, &server), "resumed");
    // The manager's own cap.
    let (house, server) = with_lifetime("2h", 600);
    assert_eq!(why(&house, &server), "no_session");
    house.clock.pass(Duration::from_secs(601));
    assert_ne!(why(&house, &server), "resumed");
}

/// Tickets of rustls that say to live so long.
#[derive(Debug)]
struct Lives(u32, Arc<dyn ProducesTickets>);

impl ProducesTickets for Lives {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.0
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.1.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.1.decrypt(cipher)
    }
}

#[test]
fn rule_02_seven_days_are_the_most_and_zero_is_none() {
    let house = House::with(|settings| settings.verified_within_s = 7 * 24 * 3_600);
    let pair = house.certify("server", &["server.test"]);
    let ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
    let living = |lifetime_s| {
        let ticketer = Arc::new(Lives(lifetime_s, Arc::clone(&ticketer)));
        RustlsServer::start(&pair, |config| config.ticketer = ticketer)
    };
    let why = |server: &RustlsServer| house.program().visit("server.test", server.port, json!({}));
    let none = living(0);
    assert_eq!(why(&none), "no_session");
    assert_eq!(house.program().stats()["sessions"], 0);
    let eight_days = living(8 * 24 * 3_600);
    assert_eq!(why(&eight_days), "no_session");
    house.clock.pass(6 * 24 * HOUR);
    assert_eq!(why(&eight_days), "resumed");
    // The other of its first tickets; and the certificates, which are as old.
    house.clock.pass(24 * HOUR + Duration::from_secs(1));
    assert_ne!(why(&eight_days), "resumed");
}

#[test]
fn rule_03_a_verification_does_not_last_for_ever() {
    for version in ["-tls1_2", "-tls1_3"] {
        let house = House::with(|settings| settings.verified_within_s = 3_600);
        house.certify("server", &["server.test"]);
        let server = Server::openssl(&house.folder, "server", &[version]);
        assert_eq!(visit(&house, &server), "no_session");
        // Resumptions do not make it younger.
        house.clock.pass(HOUR / 2);
        assert_eq!(visit(&house, &server), "resumed");
        house.clock.pass(HOUR / 2 + Duration::from_secs(1));
        assert_eq!(visit(&house, &server), "too_old", "{version}");
        assert_eq!(visit(&house, &server), "resumed");
    }
}

#[test]
fn rule_03_never_past_the_certificates_end() {
    let house = House::new();
    let pair = house.authority.issue_with(&["server.test"], |params| {
        let now = std::time::SystemTime::now();
        params.not_after = (now + Duration::from_secs(1_800)).into();
    });
    pair.write(&house.file("server"));
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    assert_eq!(visit(&house, &server), "no_session");
    assert_eq!(visit(&house, &server), "resumed");
    house.clock.step(1_900);
    // Nothing is offered, and in full the certificate is refused.
    assert_eq!(house.program().kind("server.test", server.port, json!({})), "certificate_expired");
}

#[test]
fn rule_16_tls12_needs_an_extended_master_secret() {
    let (house, server) = house_and_server(&["-tls1_2"]);
    visit(&house, &server);
    assert_eq!(visit(&house, &server), "resumed");
    let none = house.file("openssl.cnf");
    let text = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = sect\n\
                [sect]\nOptions = -ExtendedMasterSecret\n";
    std::fs::write(&none, text).unwrap();
    let without = Server::openssl_with(
        &house.folder,
        "server",
        &["-tls1_2"],
        &[("OPENSSL_CONF", none.as_os_str())],
    );
    for _ in 0..3 {
        assert_eq!(visit(&house, &without), "no_session");
    }
}
