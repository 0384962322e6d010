//! The ways in which somebody who copied a first flight may send it again.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::copies::{Copy, Heard, hello_bytes};
use super::replays::Scene;

/// The copies to send, and how much later than the original.
pub(super) struct Replay {
    pub(super) after: Duration,
    /// Sent at the same time, each over a connection of its own.
    pub(super) copies: Vec<Copy>,
}

/// OpenSSL accepts early data for ten seconds, and a second for the client's clock.
const DELAYS_MS: [u64; 8] = [100, 500, 1_000, 3_000, 6_000, 9_000, 10_500, 12_000];
const ELSEWHERE: usize = 4;
/// The name that the server is not asked for, as long as the one that it is.
const NAMES: [&[u8]; 2] = [b"localhost", b"otherhost"];
/// The bytes of a binder of a suite with SHA-384, at the end of a ClientHello.
const BINDER_BYTES: usize = 48;

/// All ways for this flight. `before` is the flight of another connection.
pub(super) fn all(scene: &Scene, flight: &[u8], before: Option<&[u8]>) -> Vec<Replay> {
    let Scene { here, other, at_once, .. } = *scene;
    let whole = |from, to| Copy { bytes: flight.to_vec(), from, to, is_cut: false };
    let home = Ipv4Addr::LOCALHOST;
    let address = |number| whole(Ipv4Addr::new(127, 0, 0, number), here);
    let mut now = vec![
        vec![whole(home, here)],
        vec![whole(home, here); at_once],
        (2..).map(address).take(ELSEWHERE).collect(),
        vec![whole(home, other); ELSEWHERE],
    ];
    let altered = |bytes, is_cut| vec![Copy { bytes, from: home, to: here, is_cut }];
    now.push(altered(under_another_name(flight), false));
    now.extend(cuts(flight).map(|bytes| altered(bytes, true)));
    now.extend(
        before
            .into_iter()
            .flat_map(|before| mixed(flight, before))
            .map(|bytes| altered(bytes, false)),
    );
    let now = now.into_iter().map(|copies| Replay { after: Duration::ZERO, copies });
    let later = DELAYS_MS.map(|ms| Replay {
        after: Duration::from_millis(ms),
        copies: vec![whole(home, if ms % 1_000 == 0 { here } else { other })],
    });
    now.chain(later).collect()
}

fn under_another_name(flight: &[u8]) -> Vec<u8> {
    let mut bytes = flight.to_vec();
    let [name, other] = NAMES;
    if let Some(at) = bytes.windows(name.len()).position(|window| window == name) {
        bytes[at..at + name.len()].copy_from_slice(other);
    }
    bytes
}

/// In the ClientHello, after it, in the head of the early data, and before its last byte.
fn cuts(flight: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let hello = hello_bytes(flight);
    [hello / 2, hello - 1, hello, hello + 3, flight.len() - 1]
        .into_iter()
        .map(|end| flight[..end].to_vec())
}

/// With another ClientHello's binder, with another's early data, and with all early data twice.
fn mixed(flight: &[u8], before: &[u8]) -> [Vec<u8>; 3] {
    let (hello, other_hello) = (hello_bytes(flight), hello_bytes(before));
    let binder = &before[other_hello - BINDER_BYTES..other_hello];
    let (head, early) = (&flight[..hello - BINDER_BYTES], &flight[hello..]);
    [
        [head, binder, early].concat(),
        [&flight[..hello], &before[other_hello..]].concat(),
        [flight, early].concat(),
    ]
}

impl Replay {
    /// Sends the copies at the same time. Returns what was heard on each connection.
    pub(super) fn send(&self) -> Vec<Heard> {
        if let [copy] = &self.copies[..] {
            return vec![copy.send()];
        }
        send_at_once(&self.copies)
    }
}

/// Opens a connection for each copy, writes to all, and listens to each.
pub(super) fn send_at_once(copies: &[Copy]) -> Vec<Heard> {
    use std::io::Write;
    let open: Vec<_> = copies.iter().map(Copy::open).collect();
    for (copy, stream) in copies.iter().zip(&open) {
        let _ = stream.as_ref().map(|mut stream| stream.write_all(&copy.bytes));
    }
    let heard = |(copy, stream): (&Copy, std::io::Result<_>)| match stream {
        Ok(stream) => copy.hear(&stream),
        Err(_) => Heard::Nothing,
    };
    copies.iter().zip(open).map(heard).collect()
}
