//! The sixteen rules of a shared client store, each by its number: RFC 9846, RFC 9149, and what
//! went wrong elsewhere.

mod addresses;
mod freshness;
mod partitions;
mod sharing;
mod staples;
mod verification;

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::server::Server;
use rejoin_testkit::house::House;

/// Gets nginx's page. Returns the facts of the connection.
fn get(house: &House, port: u16, wishes: Value) -> Value {
    let mut connection = house.program().connect("server.test", port, wishes).unwrap();
    connection.stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    connection.stream.read_to_end(&mut Vec::new()).unwrap();
    connection.facts
}

/// How a program fares that wants nothing special.
fn visit(house: &House, server: &Server) -> String {
    house.program().visit("server.test", server.port, json!({}))
}
