//! The sixteen rules of a shared client store, each by its number: RFC 9846, RFC 9149, and what
//! went wrong elsewhere.

mod addresses;
mod freshness;
mod partitions;
mod sharing;
mod verification;

use serde_json::json;

use crate::server::Server;
use rejoin_testkit::house::House;

/// A manager, and an `s_server` for `server.test` of that version.
fn house_and_server(version: &str) -> (House, Server) {
    let house = House::new();
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", &[version]);
    (house, server)
}

/// How a program fares that wants nothing special.
fn visit(house: &House, server: &Server) -> String {
    house.program().visit("server.test", server.port, json!({}))
}
