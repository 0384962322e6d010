//! Copies of first flights of before a restart, and what was accepted of them, while a server is certain of nothing.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_store::Store;
use rejoin_testkit::site::{Client, request};

use super::copies::Copy;
use super::replays::{LEAST_ACCEPTED, Tally, WINDOW};
use super::servers::{Kind, Rejoin, Server};
use super::ways::send_at_once;
use super::{Effort, Found};

/// The event between the originals and their copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The server is started again.
    Restarted,
    /// Its cache is removed meanwhile.
    Removed,
    /// An older copy of its cache is put in the cache's place meanwhile.
    Restored,
    /// It is started again with another capacity.
    Replaced,
}

const CHANGES: [Change; 4] =
    [Change::Restarted, Change::Removed, Change::Restored, Change::Replaced];
/// A little longer than anything could be accepted.
const REPLAYED_FOR: Duration = WINDOW.saturating_add(Duration::from_secs(2));
/// Between two copies of a flight.
const EVERY: Duration = Duration::from_millis(700);
/// The copies of a flight that nobody got, at once.
const AT_ONCE: usize = 3;

/// All changes at the same time, to a server each.
pub(super) fn changes(effort: Effort, kind: Kind) -> Option<Found> {
    let clients = if effort.quick { 8 } else { 40 };
    let found: Option<Vec<_>> = thread::scope(|scope| {
        let threads = CHANGES.map(|change| scope.spawn(move || after(kind, change, clients)));
        threads.map(|thread| thread.join().expect("no panic")).into_iter().collect()
    });
    let found = found?;
    let figures: Vec<_> = found.iter().map(|found| found.figure.as_str()).collect();
    Some(Found { figure: figures.join("; "), holds: found.iter().all(|found| found.holds) })
}

/// The flights and sessions of before a change.
struct Before {
    /// Paths and flights that were answered.
    sent: Vec<(String, Vec<u8>)>,
    /// Those that no server got.
    held: Vec<(String, Vec<u8>)>,
    /// Clients with sessions that they have not used.
    unused: Vec<Client>,
}

fn after(kind: Kind, change: Change, clients: usize) -> Option<Found> {
    let mut server = Server::start(kind, Rejoin::Once, &format!("{change:?}").to_lowercase())?;
    let mut tally = Tally::default();
    let before = before(&server, change, clients, &mut tally);
    let before = match before {
        Ok(before) => before,
        Err(figure) => return Some(Found { figure, holds: false }),
    };
    server.site.stop();
    make(change, &mut server);
    server.start_again()?;
    let started = Instant::now();
    let early = come_back(&server, &before.unused[..clients / 2], "early", &mut tally);
    while started.elapsed() < REPLAYED_FOR {
        let round = Instant::now();
        replay(&server, &before, &mut tally);
        thread::sleep(EVERY.saturating_sub(round.elapsed()));
    }
    let late = come_back(&server, &before.unused[clients / 2..], "late", &mut tally);
    let new = new_originals(&server, clients, &mut tally);
    tally.settle(&server);
    let twice = before.held.iter().filter(|(path, _)| server.seen()(path).all > 1).count();
    let kept =
        if change == Change::Removed || change == Change::Replaced { 0.0 } else { LEAST_ACCEPTED };
    let figure = format!(
        "{change:?}: {} of {} copies accepted, {twice} of {} held back twice; of the sessions of before, accepted \
         {early:.0} % at once and {late:.0} % after {} s; of new ones {new:.0} %; {} failed {:?}",
        tally.replayed,
        tally.copies,
        before.held.len(),
        REPLAYED_FOR.as_secs(),
        tally.failed,
        tally.why
    );
    let is_safe = tally.replayed == 0 && twice == 0 && tally.failed == 0 && early == 0.0;
    Some(Found { figure, holds: is_safe && late >= kept && new >= LEAST_ACCEPTED })
}

fn before(
    server: &Server,
    change: Change,
    clients: usize,
    tally: &mut Tally,
) -> Result<Before, String> {
    let with_session = || (0..clients).map(|_| server.client()).collect::<Result<Vec<_>, _>>();
    let (unused, used, silent) = (with_session()?, with_session()?, with_session()?);
    if change == Change::Restored {
        std::fs::copy(cache(server), saved(server)).map_err(|error| error.to_string())?;
    }
    let held = silent.iter().enumerate().filter_map(|(number, client)| {
        let path = format!("/held-{number}");
        Some((path.clone(), client.first_flight(request(client.name, &path).as_bytes())?))
    });
    let held = held.collect();
    let sent = used.iter().enumerate().map(|(number, client)| {
        let path = format!("/sent-{number}");
        let flight = server.ask(client, &path)?;
        tally.original(&path, &flight);
        Ok((path, flight.bytes))
    });
    let sent = sent.collect::<Result<_, String>>()?;
    match tally.percent_accepted() < LEAST_ACCEPTED {
        true => Err(format!("before, {} originals accepted of {clients}", tally.accepted)),
        false => Ok(Before { sent, held, unused }),
    }
}

/// Does it, while no process of the server runs.
fn make(change: Change, server: &mut Server) {
    match change {
        Change::Restarted => {}
        Change::Removed => {
            Store::remove(Path::new(Store::FOLDER), &server.site.cache()).expect("it is there");
        }
        Change::Restored => {
            std::fs::copy(saved(server), cache(server)).expect("copied");
        }
        Change::Replaced => server.configure("2MiB"),
    }
}

fn cache(server: &Server) -> PathBuf {
    Path::new(Store::FOLDER).join(format!("rejoin-{}", server.site.cache))
}

fn saved(server: &Server) -> PathBuf {
    server.site.file("saved")
}

/// Sends each flight again, and those that nobody got several times at once.
fn replay(server: &Server, before: &Before, tally: &mut Tally) {
    let copy = |bytes: &[u8]| Copy::whole(bytes.to_vec(), server.site.address());
    before.sent.iter().for_each(|(_, bytes)| tally.heard(&[copy(bytes).send()]));
    before
        .held
        .iter()
        .for_each(|(_, bytes)| tally.heard(&send_at_once(&vec![copy(bytes); AT_ONCE])));
}

/// Has clients use sessions of before. Returns the percentage whose early data was accepted.
fn come_back(server: &Server, clients: &[Client], when: &str, tally: &mut Tally) -> f64 {
    let mut accepted = 0;
    for (number, client) in clients.iter().enumerate() {
        let path = format!("/{when}-{number}");
        match server.ask(client, &path) {
            Ok(flight) => {
                accepted += usize::from(flight.accepted);
                tally.original(&path, &flight);
                let copy = Copy::whole(flight.bytes, server.site.address());
                tally.heard(&send_at_once(&vec![copy; AT_ONCE]));
            }
            Err(why) => tally.fail(why),
        }
    }
    100.0 * accepted as f64 / clients.len().max(1) as f64
}

/// Returns the percentage of new sessions with which early data is accepted.
fn new_originals(server: &Server, clients: usize, tally: &mut Tally) -> f64 {
    let mut accepted = 0;
    for number in 0..clients {
        let path = format!("/new-{number}");
        let asked = server.client().and_then(|client| server.ask(&client, &path));
        match asked {
            Ok(flight) => {
                accepted += usize::from(flight.accepted);
                tally.original(&path, &flight);
            }
            Err(why) => tally.fail(why),
        }
    }
    100.0 * accepted as f64 / clients as f64
}
