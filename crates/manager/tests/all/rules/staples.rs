//! The OCSP responses that servers staple: a hop that asks for one resumes only while the response of the full handshake
//! stands, and gets that.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rejoin_client::Manager;
use rejoin_client::hop::Sockets;
use rejoin_client::protocol::{Connected, Hop, Offers, Token, Why};
use rejoin_testkit::house::House;
use rejoin_testkit::port::reserve;
use rejoin_testkit::staples::{GOOD, REVOKED, staple};
use rustix::net::{AddressFamily, SocketType, socket};
use serde_json::json;

use super::get;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3_600);

/// A connection that the manager made for a program with a TLS library of its own, which has not judged the server yet.
struct Made {
    found: Connected,
    _open: (UnixStream, rejoin_client::hop::Hop),
}

impl Made {
    /// Returns why it was resumed or not, and true if it shows this response. `None`: it shows none.
    fn shows(&self, response: &[u8]) -> (Why, Option<bool>) {
        let staple = self.found.staple.as_ref();
        (self.found.why, staple.map(|staple| staple.0[..] == *response))
    }
}

/// Makes a connection for a program that can fall back.
fn hop(house: &House, port: u16, asks_for_staple: bool) -> Made {
    let spare = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    made(house, port, asks_for_staple, Some(spare.as_fd())).expect("taken")
}

fn made(
    house: &House,
    port: u16,
    asks_for_staple: bool,
    spare: Option<BorrowedFd<'_>>,
) -> Result<Made, rejoin_client::Error> {
    let (mut own, line) = UnixStream::pair().expect("a pair");
    let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server");
    let wanted = Hop {
        host: "server.test".parse().expect("a name"),
        port: port.try_into().expect("a port"),
        alpn: Vec::new(),
        label: String::new().parse().expect("a label"),
        min_version: None,
        offers: Offers {
            suites: vec![0x1302, 0x1301],
            groups: vec![0x1d, 0x17],
            signatures: vec![0x403, 0x804],
        },
        staple: asks_for_staple,
        identity: Token([7; 16]),
        key: zeroize::Zeroizing::new([7; 32]).into(),
    };
    let sockets = Sockets { line: line.as_fd(), tcp: tcp.as_fd(), spare };
    let hop = Manager::at(house.socket()).hop(&wanted, sockets, PATIENCE)?;
    own.write_all(&[22]).expect("open");
    Ok(Made { found: hop.described(PATIENCE).expect("described"), _open: (own, hop) })
}

/// Returns nginx, which staples this response, and has ticket keys that outlive it.
fn stapling(house: &House, port: u16, response: &str) -> Server {
    let key = house.file("ticket.key");
    fs::write(&key, [7; 80]).expect("a file");
    let inside = format!(
        "ssl_protocols TLSv1.3; ssl_session_timeout 1d; ssl_session_ticket_key {}; \
         ssl_stapling on; ssl_stapling_file {response};",
        key.display()
    );
    Server::nginx(port, &house.folder, "server", &inside)
}

/// Returns a house, and a response that says this about its server's certificate.
fn house_and_response(says: (&str, &[&str])) -> (House, String) {
    let house = House::new();
    house.certify("server", &["server.test"]);
    let response = response(&house, says);
    (house, response)
}

fn response(house: &House, says: (&str, &[&str])) -> String {
    let certificate = house.file("server.pem").display().to_string();
    staple(&house.folder, &house.authority, &certificate, says)
}

#[test]
fn a_hop_that_asks_gets_the_response_of_the_full_handshake_for_an_hour() {
    let (house, response) = house_and_response((GOOD, &["-ndays", "2"]));
    let port = reserve();
    let _server = stapling(&house, port, &response);
    let response = fs::read(response).expect("a file");
    assert_eq!(get(&house, port, json!({}))["why"], "no_session");
    let cannot_fall_back = |asks| made(&house, port, asks, None);
    let asks = cannot_fall_back(true).expect("taken");
    assert_eq!(asks.shows(&response), (Why::Resumed, Some(true)));
    // Earlier versions of the libraries do not ask, and take no response with a resumption.
    let asks_not = hop(&house, port, false);
    assert_eq!(asks_not.shows(&response), (Why::Resumed, None));
    assert_eq!(get(&house, port, json!({}))["why"], "all_used");
    house.clock.pass(HOUR);
    // What it would have to do in full, a program does better itself that cannot fall back.
    let refused = cannot_fall_back(true).err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|why| why.contains("no session")), "{refused:?}");
    let asks = hop(&house, port, true);
    assert_eq!(asks.shows(&response), (Why::TooOld, Some(true)));
    let asks_not = hop(&house, port, false);
    assert_eq!(asks_not.shows(&response), (Why::Resumed, None));
}

#[test]
fn a_hop_that_asks_resumes_nothing_from_before_a_response_that_is_not_good() {
    let (house, good) = house_and_response((GOOD, &["-ndays", "2"]));
    let port = reserve();
    let server = stapling(&house, port, &good);
    let good = fs::read(good).expect("a file");
    assert_eq!(get(&house, port, json!({}))["why"], "no_session");
    drop(server);
    let _server = stapling(&house, port, &response(&house, (REVOKED, &["-ndays", "2"])));
    let asks = hop(&house, port, true);
    assert_eq!(asks.shows(&good), (Why::Resumed, Some(true)));
    assert_eq!(get(&house, port, json!({"share": false}))["why"], "not_wanted");
    let asks_again = hop(&house, port, true);
    assert_eq!(asks_again.shows(&good), (Why::TooOld, Some(false)));
    assert_eq!(get(&house, port, json!({}))["why"], "resumed");
}
