//! Originals, and copies of each in every way, at the same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use rejoin_testkit::site::{Client, Flight, Requests, Versions, request};

use super::copies::{Heard, SETTLED, renew};
use super::servers::{Kind, Rejoin, Server};
use super::ways::{self, Replay};
use super::{Effort, Found};

/// The least part of the originals whose early data is accepted, in percent.
pub(super) const LEAST_ACCEPTED: f64 = 99.0;
const THREADS: usize = 4;
/// Reasons that are kept.
const REASONS: usize = 5;
/// Connections of a player that fail before it stops.
const MOST_FAILED: usize = 20;

/// The place of originals and copies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    /// The server that issues sessions.
    pub(super) issuer: SocketAddr,
    /// The server that gets the originals.
    pub(super) here: SocketAddr,
    /// Another address of the same server, or another server.
    pub(super) other: SocketAddr,
    pub(super) at_once: usize,
    /// True if requests are answered.
    pub(super) answers: bool,
    /// The time that a session has to reach the other server.
    pub(super) pause: Duration,
}

/// The outcome of originals and their copies.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) originals: usize,
    /// The originals whose early data the server accepted, as it told the client.
    pub(super) accepted: usize,
    /// The originals that the application saw as early data.
    pub(super) seen_early: usize,
    pub(super) copies: usize,
    /// The copies that the application saw.
    pub(super) replayed: usize,
    /// The flights that the application saw as early data more than once.
    pub(super) twice: usize,
    /// The copies for which a session was found.
    pub(super) resumed: usize,
    pub(super) failed: usize,
    pub(super) why: Vec<String>,
    /// Paths of originals that the server answered.
    pub(super) paths: Vec<String>,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.originals += other.originals;
        self.accepted += other.accepted;
        self.seen_early += other.seen_early;
        self.copies += other.copies;
        self.replayed += other.replayed;
        self.twice += other.twice;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.why.extend(other.why);
        self.why.truncate(REASONS);
        self.paths.extend(other.paths);
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failed += 1;
        if self.why.len() < REASONS {
            self.why.push(why);
        }
    }

    /// Counts an original.
    pub(super) fn original(&mut self, path: &str, flight: &Flight) {
        self.originals += 1;
        self.accepted += usize::from(flight.accepted);
        self.paths.push(path.to_owned());
    }

    /// Counts copies.
    pub(super) fn heard(&mut self, heard: &[Heard]) {
        self.copies += heard.len();
        self.resumed += heard.iter().filter(|heard| **heard == Heard::Resumed).count();
    }

    /// Compares with what the application saw, once no copy is on its way.
    pub(super) fn settle(&mut self, server: &Server) {
        thread::sleep(SETTLED);
        self.compare(server.seen());
    }

    pub(super) fn compare(&mut self, seen: impl Fn(&str) -> Requests) {
        for path in &self.paths {
            let requests = seen(path);
            self.seen_early += usize::from(requests.early > 0);
            self.twice += usize::from(requests.early > 1);
            self.replayed += requests.all.saturating_sub(1);
        }
    }

    /// True if no copy was accepted, and no connection failed.
    pub(super) fn is_safe(&self) -> bool {
        self.copies > 0 && self.replayed == 0 && self.failed == 0
    }

    pub(super) fn percent_accepted(&self) -> f64 {
        100.0 * self.accepted as f64 / self.originals.max(1) as f64
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { originals, seen_early, copies, replayed, twice, resumed, failed, why, .. } =
            self;
        let percent = self.percent_accepted();
        write!(
            f,
            "{replayed} of {copies} copies accepted, {twice} flights twice, {resumed} found a session; {percent:.1} % of \
             {originals} originals accepted, {seen_early} seen as early data; {failed} failed"
        )?;
        if why.is_empty() { Ok(()) } else { write!(f, " ({})", why.join(", ")) }
    }
}

/// Sends this many copies.
pub(super) fn with_rejoin(effort: Effort, kind: Kind, copies: usize) -> Option<Found> {
    let copies = if effort.quick { copies / 25 } else { copies };
    let server = Server::start(kind, Rejoin::Once, "replays")?;
    let tally = play(&server, copies);
    let holds = tally.is_safe()
        && tally.copies >= copies
        && tally.resumed == 0
        && tally.percent_accepted() >= LEAST_ACCEPTED;
    Some(Found { figure: tally.to_string(), holds })
}

/// Sends copies to a server without Rejoin. Some are accepted, unless the application sees no early data at all: HAProxy 2.6
/// passes it on after the handshake, which a copy does not end.
pub(super) fn without_rejoin(effort: Effort, kind: Kind) -> Option<Found> {
    let copies = if effort.quick { 200 } else { 2_000 };
    let tally = play(&Server::start(kind, Rejoin::Absent, "plain")?, copies);
    let is_late = kind == Kind::Haproxy && tally.seen_early == 0;
    let why = if is_late { "; it waits for the end of the handshake" } else { "" };
    let holds = tally.replayed > 0 || is_late && tally.resumed > 0;
    Some(Found { figure: format!("{tally}{why}"), holds })
}

/// Lets clients send originals until so many copies have been sent.
fn play(server: &Server, copies: usize) -> Tally {
    let each = copies.div_ceil(THREADS);
    let mut tally = players(&[server.scene(); THREADS], |sent| sent >= each);
    tally.settle(server);
    tally
}

/// Plays in each scene at the same time, until it is over: the argument is the number of copies that a player has sent.
pub(super) fn players(scenes: &[Scene], is_over: impl Fn(usize) -> bool + Sync) -> Tally {
    let mut all = Tally::default();
    thread::scope(|scope| {
        let is_over = &is_over;
        let play = |(number, scene)| scope.spawn(move || Player::new(number, scene).play(is_over));
        // All run before one is waited for.
        let players: Vec<_> = scenes.iter().enumerate().map(play).collect();
        players.into_iter().for_each(|player| all.add(player.join().expect("no panic")));
    });
    all
}

/// A client, and somebody who copies what it sends.
struct Player<'a> {
    number: usize,
    scene: &'a Scene,
    client: Client,
    tally: Tally,
    due: BinaryHeap<Reverse<Due>>,
    /// The number of replays so far.
    turn: usize,
    before: Option<Vec<u8>>,
}

struct Due {
    at: Instant,
    turn: usize,
    replay: Replay,
}

impl<'a> Player<'a> {
    fn new(number: usize, scene: &'a Scene) -> Self {
        let client = Client::new(scene.issuer, Versions::Tls13);
        let (tally, due) = (Tally::default(), BinaryHeap::new());
        Self { number, scene, client, tally, due, turn: 0, before: None }
    }

    fn play(mut self, is_over: impl Fn(usize) -> bool) -> Tally {
        for turn in 0.. {
            self.send_what_is_due();
            let pending: usize = self.due.iter().map(|Reverse(due)| due.replay.copies.len()).sum();
            if is_over(self.tally.copies + pending) || self.tally.failed > MOST_FAILED {
                break;
            }
            let path = format!("/{}-{turn}", self.number);
            match self.original(&path) {
                Ok(flight) => self.copy(&path, flight),
                Err(why) => self.tally.fail(why),
            }
        }
        while let Some(Reverse(next)) = self.due.peek() {
            thread::sleep(next.at.saturating_duration_since(Instant::now()));
            self.send_what_is_due();
        }
        self.tally
    }

    fn original(&mut self, path: &str) -> Result<Flight, String> {
        self.client.address = self.scene.issuer;
        renew(&self.client)?;
        thread::sleep(self.scene.pause);
        self.client.address = self.scene.here;
        ask(&self.client, path, self.scene.answers)
    }

    /// Has an original's flight sent again, in all ways.
    fn copy(&mut self, path: &str, flight: Flight) {
        self.tally.original(path, &flight);
        let began = Instant::now();
        for replay in ways::all(self.scene, &flight.bytes, self.before.as_deref()) {
            self.turn += 1;
            self.due.push(Reverse(Due { at: began + replay.after, turn: self.turn, replay }));
        }
        self.before = Some(flight.bytes);
        self.send_what_is_due();
    }

    fn send_what_is_due(&mut self) {
        while let Some(Reverse(next)) = self.due.pop() {
            if next.at > Instant::now() {
                self.due.push(Reverse(next));
                return;
            }
            self.tally.heard(&next.replay.send());
        }
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.turn).cmp(&(other.at, other.turn))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

/// Sends a request as early data, with the session that the client has.
pub(super) fn ask(client: &Client, path: &str, is_answered: bool) -> Result<Flight, String> {
    let asked = match is_answered {
        true => client.try_ask_early(path),
        false => client.open_early(request(client.name, path).as_bytes()).map(|mut early| {
            let _ = early.tls.shutdown();
            early.flight
        }),
    };
    asked.map_err(|error| format!("{path}: {error}"))
}

/// The duration after which no copy of a flight can be accepted.
pub(super) const WINDOW: Duration = Duration::from_secs(12);
