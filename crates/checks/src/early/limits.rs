//! Thousands of copies at once, more early data than a server allows, and a server that reads none.

use rejoin_testkit::site::request;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::copies::{Copy, Heard};
use super::replays::Tally;
use super::servers::{Kind, Rejoin, Server};
use super::ways::send_at_once;
use super::{Effort, Found};

const AT_ONCE: usize = 10_000;
/// The flights that nobody got before.
const FLIGHTS: usize = 5;
/// The copies of a flight, one after the other.
const EACH: usize = 8;

/// The flight comes first to whoever copied it, in thousands of copies: one is accepted, or none.
pub(super) fn at_once(effort: Effort, kind: Kind) -> Option<Found> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).ok()?;
    let room = limit.current.map_or(AT_ONCE, |files| files as usize / 4 * 3);
    let copies = room.min(if effort.quick { AT_ONCE / 10 } else { AT_ONCE });
    let server = Server::start(kind, Rejoin::Once, "at-once")?;
    let (mut most, mut resumed, mut silent) = (0, Vec::new(), 0);
    for number in 0..FLIGHTS {
        let path = format!("/{number}");
        let client = server.client().expect("a session");
        let bytes = client.first_flight(request(client.name, &path).as_bytes());
        let bytes = bytes.expect("early data is allowed");
        let copy = Copy::whole(bytes, server.site.address());
        let heard = send_at_once(&vec![copy; copies]);
        let count = |what| heard.iter().filter(|heard| **heard == what).count();
        resumed.push(count(Heard::Resumed));
        silent += count(Heard::Nothing) + count(Heard::Alert);
        most = most.max(server.seen()(&path).all);
    }
    let figure = format!(
        "{most} accepted at most of {copies} copies of each of {FLIGHTS} flights, sessions found {resumed:?}, \
         {silent} unanswered"
    );
    Some(Found { figure, holds: most <= 1 && resumed.iter().all(|resumed| *resumed == 1) })
}

/// A client sends more than the session allows; then copies of that come.
pub(super) fn beyond(effort: Effort, kind: Kind) -> Option<Found> {
    const BODY_BYTES: usize = 60_000;
    let server = Server::start(kind, Rejoin::Once, "beyond")?;
    let (mut most, mut copies) = (0, 0);
    let flights = if effort.quick { 10 } else { 100 };
    for number in 0..flights {
        let path = format!("/{number}");
        let client = server.client().expect("a session");
        client.overstate_early_data(u32::MAX);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
        );
        let bytes = client.first_flight(&[head.as_bytes(), &[b'x'; BODY_BYTES]].concat());
        let bytes = bytes.expect("early data is allowed");
        let copy = Copy::whole(bytes, server.site.address());
        for _ in 0..EACH {
            copy.send();
        }
        copies += EACH;
        most = most.max(server.seen()(&path).all);
    }
    // It goes on serving.
    let client = server.client().expect("a session");
    let after = server.ask(&client, "/after");
    let is_served = after.as_ref().is_ok_and(|flight| flight.accepted);
    let figure = format!(
        "{most} accepted at most of {copies} copies of {flights} flights; then served: {is_served}"
    );
    Some(Found { figure, holds: most <= 1 && is_served })
}

/// `openssl s_server` allows early data, and never reads any.
pub(super) fn never_read(effort: Effort) -> Option<Found> {
    let server = Server::never_reading()?;
    let mut tally = Tally::default();
    for number in 0..if effort.quick { 10 } else { 200 } {
        let path = format!("/{number}");
        match server.client().and_then(|client| server.ask(&client, &path)) {
            Ok(flight) => {
                tally.original(&path, &flight);
                let copy = Copy::whole(flight.bytes, server.site.address());
                tally.heard(&(0..EACH).map(|_| copy.send()).collect::<Vec<_>>());
            }
            Err(why) => tally.fail(why),
        }
    }
    tally.settle(&server);
    let holds =
        tally.replayed == 0 && tally.failed == 0 && tally.accepted == 0 && tally.seen_early == 0;
    Some(Found { figure: tally.to_string(), holds })
}
