//! All servers at once, as two machines each, and what came of their clients' connections.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_testkit::clock::Clock;
use serde_json::{Value, json};

use super::ground::{CONTEXT, Ground, LIFETIME_S, TURN_S};
use super::kinds::{KINDS, Kind};
use super::visits::{Counts, Limits, come_again};
use super::{Effort, Found};

const LEAST_PERCENT: f64 = 99.0;
/// A turn lasts a second.
const FACTOR: u32 = TURN_S;
/// On OpenSSL 3 it refuses some tickets of the key that it has: docs/keys.md.
const APACHE: &str = "apache";
/// The longest time for all rotations, which take 17 minutes. On a busy machine some take two turns: by the agents' clock a
/// millisecond is a third of a second, and their lookups time out.
const LONGEST: Duration = Duration::from_secs(50 * 60);
const STEP: Duration = Duration::from_millis(20);

/// The outcome of one kind: TLS 1.2 and 1.3.
type Played = (Kind, Option<[Counts; 2]>);

pub(super) fn second(effort: Effort, name: &str) -> Option<Found> {
    static PLAYED: OnceLock<Option<Vec<Played>>> = OnceLock::new();
    let time = Duration::from_secs(if effort.quick { 8 } else { 60 });
    let played = PLAYED.get_or_init(|| {
        let begin = Instant::now();
        play(Clock::real(), |_| begin.elapsed() > time).map(|(played, _)| played)
    });
    let counts = of(played.as_ref()?, name)?;
    let figures = counts.each_ref().map(|counts| {
        let Counts { seconds, failed, why, .. } = counts;
        format!("{:.1} % of {seconds}, {failed} failed{}", counts.percent(), reasons(why))
    });
    let is_kept = |counts: &Counts| {
        counts.seconds > 0 && counts.failed == 0 && counts.percent() >= LEAST_PERCENT
    };
    Some(Found { figure: by_version(&figures), holds: counts.iter().all(is_kept) })
}

pub(super) fn rotations(effort: Effort, name: &str) -> Option<Found> {
    static PLAYED: OnceLock<Option<(Vec<Played>, usize)>> = OnceLock::new();
    let wanted = if effort.quick { 20 } else { 1_000 };
    let played = PLAYED.get_or_init(|| {
        let begin = Instant::now();
        let is_over = |rotations| rotations >= wanted || begin.elapsed() > LONGEST;
        play(Clock::faster(FACTOR)?, is_over)
    });
    let (played, rotations) = played.as_ref()?;
    let counts = of(played, name)?;
    let figures = counts.each_ref().map(|counts| {
        let Counts { seconds, beyond, failed, cut, unanswered, why, .. } = counts;
        format!(
            "{:.1} % of {seconds} resumed, {beyond} beyond its limit, {} lost, {failed} failed, {cut} without \
             close_notify, {unanswered} unanswered{}",
            counts.percent(),
            counts.lost(),
            reasons(why)
        )
    });
    let is_whole = |counts: &Counts| name == APACHE || counts.lost() == 0;
    let is_kept = |counts: &Counts| counts.resumed > 0 && counts.failed == 0 && is_whole(counts);
    let figure = format!("{rotations} rotations: {}", by_version(&figures));
    Some(Found { figure, holds: *rotations >= wanted && counts.iter().all(is_kept) })
}

fn of<'a>(played: &'a [Played], name: &str) -> Option<&'a [Counts; 2]> {
    played.iter().find(|(kind, _)| kind.name == name)?.1.as_ref()
}

fn by_version([old, new]: &[String; 2]) -> String {
    format!("1.2: {old}; 1.3: {new}")
}

fn reasons(why: &[String]) -> String {
    if why.is_empty() { String::new() } else { format!(" ({})", why.join(", ")) }
}

/// Lets clients come to all servers until it is over, for so many rotations. Returns the rotations that happened.
fn play(clock: Clock, is_over: impl Fn(usize) -> bool) -> Option<(Vec<Played>, usize)> {
    let of_clock = |seconds| Duration::from_secs(u64::from(seconds)) / clock.factor;
    let limits = Limits { turn: of_clock(TURN_S), lifetime: of_clock(LIFETIME_S) };
    let mut ground = Ground::new(clock)?;
    let started = KINDS.map(|kind| {
        let machines = ground.start(kind.start);
        // One for each client.
        (kind, machines.and_then(|it| Some([ground.balance(it)?, ground.balance(it)?])))
    });
    let mut follower = Follower::of(&ground.machines[0].folder.join("share"));
    let over = AtomicBool::new(false);
    let played = thread::scope(|scope| {
        let threads = started.each_ref().map(|(kind, balancers)| {
            let kind = *kind;
            let over = &over;
            let come = |balancers| scope.spawn(move || come_again(kind, balancers, limits, over));
            (kind, balancers.as_ref().map(come))
        });
        while !is_over(follower.rotations()) {
            thread::sleep(STEP);
        }
        over.store(true, Ordering::Relaxed);
        let joined = threads
            .map(|(kind, thread)| (kind, thread.map(|thread| thread.join().expect("no panic"))));
        joined.into()
    });
    Some((played, follower.rotations()))
}

/// A follower of the ring, which counts the keys that encrypted.
struct Follower {
    stream: UnixStream,
    unread: Vec<u8>,
    encrypting: Option<Value>,
    turns: usize,
}

impl Follower {
    fn of(share: &Path) -> Self {
        let mut stream = UnixStream::connect(share).expect("the share listens");
        let request = json!({"rejoin": 1, "keys": {"context": CONTEXT, "form": "raw32"}});
        let request = request.to_string();
        let length = u32::try_from(request.len()).expect("short").to_be_bytes();
        stream.write_all(&[&length, request.as_bytes()].concat()).expect("it reads");
        stream.set_nonblocking(true).expect("an option");
        Self { stream, unread: Vec::new(), encrypting: None, turns: 0 }
    }

    /// The changes of the key that encrypts, so far.
    fn rotations(&mut self) -> usize {
        let mut part = [0; 4_096];
        while let Ok(read @ 1..) = self.stream.read(&mut part) {
            self.unread.extend_from_slice(&part[..read]);
        }
        while let Some(message) = self.message() {
            let key = message["keys"][0]["key"].clone();
            let before = self.encrypting.replace(key);
            self.turns += usize::from(before.is_some() && before != self.encrypting);
        }
        self.turns
    }

    fn message(&mut self) -> Option<Value> {
        let length = u32::from_be_bytes(*self.unread.first_chunk()?) as usize;
        let message = serde_json::from_slice(self.unread.get(4..4 + length)?).expect("JSON");
        self.unread.drain(..4 + length);
        Some(message)
    }
}
