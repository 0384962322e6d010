//! The time to the first byte of an answer, over a path with a round trip of 40 ms.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_report::median;
use rejoin_testkit::proxy::delayed::SlowWay;
use rejoin_testkit::site::{Client, Versions, request};

use super::copies::renew;
use super::servers::{Kind, Rejoin, Server};
use super::{Effort, Found};

const ROUND_TRIP: Duration = Duration::from_millis(40);
const THREADS: usize = 4;
/// A round trip takes longer on a busy machine, and never less.
const LEAST: [f64; 2] = [0.95, 1.95];

/// The way in which a client begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    Early,
    Resumed,
    /// TLS 1.2, in full.
    Full,
}

/// Counts without TCP's own round trip: the connection is open before the clock runs.
pub(super) fn saved(effort: Effort, kind: Kind) -> Option<Found> {
    let requests = if effort.quick { 40 } else { 1_000 };
    let server = Server::start(kind, Rejoin::Once, "first-byte")?;
    let way = SlowWay::to(server.site.port, ROUND_TRIP);
    let slow = SocketAddr::from((Ipv4Addr::LOCALHOST, way.port));
    let here = server.site.address();
    let times = [Begin::Early, Begin::Resumed, Begin::Full]
        .map(|begin| median_ms(begin, here, slow, requests));
    let [Ok(early), Ok(resumed), Ok(full)] = &times else {
        return Some(Found { figure: format!("{times:?}"), holds: false });
    };
    let trips = |later: &f64| (later - early) / (ROUND_TRIP.as_secs_f64() * 1_000.0);
    let figure = format!(
        "{early:.1} ms; {resumed:.1} with a resumption without early data, {:.2} round trips more; {full:.1} with \
         TLS 1.2 in full, {:.2} more; medians of {requests}",
        trips(resumed),
        trips(full)
    );
    let holds = trips(resumed) >= LEAST[0] && trips(full) >= LEAST[1];
    Some(Found { figure, holds })
}

/// The median of several clients at the same time.
fn median_ms(
    begin: Begin,
    here: SocketAddr,
    slow: SocketAddr,
    requests: usize,
) -> Result<f64, String> {
    let times: Result<Vec<_>, _> = thread::scope(|scope| {
        let client = || scope.spawn(|| measure(begin, here, slow, requests / THREADS));
        let threads: Vec<_> = std::iter::repeat_with(client).take(THREADS).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    times.map(|times| median(times.concat()))
}

/// Milliseconds of each request. `Err` with the reason if one began in another way.
fn measure(
    begin: Begin,
    here: SocketAddr,
    slow: SocketAddr,
    requests: usize,
) -> Result<Vec<f64>, String> {
    let versions = if begin == Begin::Full { Versions::Tls12 } else { Versions::Tls13 };
    let mut client = Client::new(here, versions);
    let time = |number: usize| {
        if begin == Begin::Full {
            *client.session.lock().expect("no panic") = None;
        } else {
            client.address = here;
            renew(&client)?;
        }
        client.address = slow;
        let asked = request(client.name, &format!("/{number}"));
        let began = Instant::now();
        let early = client.open(asked.as_bytes(), begin == Begin::Early);
        let mut early = early.map_err(|error| error.to_string())?;
        early.tls.read_exact(&mut [0]).map_err(|error| error.to_string())?;
        let time = began.elapsed();
        let is_so = (early.flight.accepted, early.flight.resumed);
        if is_so != (begin == Begin::Early, begin != Begin::Full) {
            return Err(format!("{begin:?}: accepted and resumed are {is_so:?}"));
        }
        Ok(time.as_secs_f64() * 1_000.0)
    };
    (0..requests).map(time).collect()
}
