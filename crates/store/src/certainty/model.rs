//! A model of one machine: sessions are made and taken, processes start and crash, older memory comes back and the wall
//! clock is set, in any order, in virtual time; and whoever copied a first flight sends it again at any time. The
//! decision is the shipped one. Memory is imitated, and so is OpenSSL's check of a ticket's age.
//!
//! The model keeps to what the promise rests on. Older memory does not come back
//! - under a process that has not taken a session since it was saved;
//! - after the wall clock was set back; and once it has come back, no process starts after the clock was set back.

use std::sync::atomic::Ordering;

use rejoin_testkit::random::Random;

use super::*;

const RUNS: u64 = 200_000;
const EVENTS: usize = 120;
const PROCESSES: usize = 2;
/// Sessions of a run, each of which its client uses once.
const SESSIONS: usize = 4;
const PAUSES_MS: [u64; 9] = [1, 50, 400, 1_000, 3_000, 6_000, 10_900, 12_000, 13_000];
const STEPS_MS: [i64; 6] = [-3_600_000, -12_000, -9_000, -600, 5_000, 3_600_000];
/// The steps back, in all, that are too small to be noticed.
const UNNOTICED_MS: i64 = 900;

/// The decision, whole or without one of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Shipped,
    /// A process that opens memory does not wait.
    Impatient,
    /// Older memory is not noticed.
    Forgetful,
    /// A clock that is set back is not noticed.
    Timeless,
}

#[test]
fn no_order_of_events_leads_to_a_replay() {
    let mut accepted = 0;
    for seed in 0..RUNS {
        let world = World::play(seed, Variant::Shipped);
        assert!(world.replayed.is_none(), "seed {seed}: {:#?}", world.told);
        accepted += world.flights.iter().filter(|flight| flight.accepted).count();
    }
    // Rejecting all would be safe, too.
    assert!(accepted as u64 > RUNS / 20, "{accepted} accepted");
}

#[test]
fn without_a_part_of_the_decision_there_are_replays() {
    for variant in [Variant::Impatient, Variant::Forgetful, Variant::Timeless] {
        let replays = |seed| World::play(seed, variant).replayed.is_some();
        assert!((0..RUNS).any(replays), "{variant:?}");
    }
}

/// The memory that processes share: the sessions in it, and how many were taken.
#[derive(Debug, Clone, Default)]
struct Memory {
    sessions: Vec<usize>,
    taken: u64,
    doubted_until_ms: u64,
}

struct Process {
    certainty: Certainty,
    /// The flight whose session it has just taken.
    took: Option<usize>,
    /// True if it has counted a session since the memory was saved.
    has_counted: bool,
}

/// A first flight.
#[derive(Debug)]
struct Flight {
    session: usize,
    /// The age of the ticket, as the client says it.
    claimed_ms: i64,
    accepted: bool,
}

/// A session that a client has.
#[derive(Debug)]
struct Session {
    /// The server's time of issue.
    issued_s: i64,
    /// The time at which its client got it.
    got_ms: u64,
    is_used: bool,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Pause(u64),
    Step(i64),
    Start(usize),
    Crash(usize),
    Issue,
    Send(usize),
    Take { process: usize, flight: usize },
    Decide(usize),
    Save,
    Restore,
    Remove,
}

struct World {
    variant: Variant,
    now_ms: u64,
    wall_ms: i64,
    /// `None`: no process has made any.
    memory: Option<Memory>,
    saved: Option<Memory>,
    processes: [Option<Process>; PROCESSES],
    sessions: Vec<Session>,
    flights: Vec<Flight>,
    was_set_back: bool,
    was_restored: bool,
    unnoticed_ms: i64,
    /// The flight that was accepted twice.
    replayed: Option<usize>,
    told: Vec<Event>,
}

impl World {
    /// Lets events happen until a flight is accepted twice, or it is enough.
    fn play(seed: u64, variant: Variant) -> Self {
        let mut random = Random::new(seed);
        let mut world = Self {
            variant,
            now_ms: 5_000_000_000,
            wall_ms: 1_800_000_000_000,
            memory: None,
            saved: None,
            processes: [const { None }; PROCESSES],
            sessions: Vec::new(),
            flights: Vec::new(),
            was_set_back: false,
            was_restored: false,
            unnoticed_ms: 0,
            replayed: None,
            told: Vec::new(),
        };
        for _ in 0..EVENTS {
            let Some(event) = world.some_event(&mut random) else { continue };
            world.happen(event);
            world.told.push(event);
            if world.replayed.is_some() {
                break;
            }
        }
        world
    }

    /// `None` if the event that was chosen cannot happen now.
    fn some_event(&self, random: &mut Random) -> Option<Event> {
        let process = random.below(PROCESSES as u64) as usize;
        let running = self.processes[process].as_ref();
        let may_start = !(self.was_set_back && self.was_restored);
        let below = |random: &mut Random, length: usize| {
            (length > 0).then(|| random.below(length as u64) as usize)
        };
        let event = match random.below(22) {
            0..4 => Event::Pause(random.one_of(&PAUSES_MS)),
            4 => Event::Step(random.one_of(&STEPS_MS)),
            5 => Event::Step(-random.one_of(&[100, 300, 450])),
            6..8 => Event::Start(process),
            8 => Event::Crash(process),
            9..11 => Event::Issue,
            11..13 => Event::Send(below(random, self.sessions.len())?),
            13..17 => Event::Take { process, flight: below(random, self.flights.len())? },
            17..20 => Event::Decide(process),
            20 => random.one_of(&[Event::Save, Event::Restore, Event::Remove]),
            _ => Event::Save,
        };
        let can = match event {
            Event::Step(-500..0) => self.unnoticed_ms < UNNOTICED_MS - 450,
            Event::Pause(_) | Event::Step(_) => true,
            Event::Start(_) => running.is_none() && may_start,
            Event::Crash(_) => running.is_some(),
            Event::Issue => self.running().next().is_some() && self.sessions.len() < SESSIONS,
            Event::Send(session) => !self.sessions[session].is_used,
            Event::Take { .. } => running.is_some_and(|process| process.took.is_none()),
            Event::Decide(_) => running.is_some_and(|process| process.took.is_some()),
            Event::Save => self.memory.is_some(),
            Event::Restore => self.may_restore(),
            Event::Remove => self.running().next().is_none(),
        };
        can.then_some(event)
    }

    fn running(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().flatten()
    }

    fn may_restore(&self) -> bool {
        let notices = |process: &Process| process.has_counted && process.took.is_none();
        self.saved.is_some() && !self.was_set_back && self.running().all(notices)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Pause(ms) => {
                self.now_ms += ms;
                self.wall_ms += ms as i64;
            }
            Event::Step(ms) => self.step(ms),
            Event::Start(process) => self.start(process),
            Event::Crash(process) => self.processes[process] = None,
            Event::Issue => self.issue(),
            Event::Send(session) => self.send(session),
            Event::Take { process, flight } => self.take(process, flight),
            Event::Decide(process) => self.decide(process),
            Event::Save => self.save(),
            Event::Restore => {
                self.memory.clone_from(&self.saved);
                self.was_restored = true;
            }
            Event::Remove => self.memory = None,
        }
    }

    fn step(&mut self, ms: i64) {
        self.wall_ms += ms;
        match ms {
            -500..0 => self.unnoticed_ms -= ms,
            ..-500 => self.was_set_back = true,
            _ => {}
        }
    }

    fn start(&mut self, process: usize) {
        let certainty = Certainty::new(self.now_ms);
        if self.memory.is_none() || self.variant == Variant::Impatient {
            certainty.begin(self.now_ms);
        }
        self.memory.get_or_insert_default();
        certainty.offset_ms.store(self.wall_ms - self.now_ms as i64, Ordering::Relaxed);
        self.processes[process] = Some(Process { certainty, took: None, has_counted: false });
    }

    fn issue(&mut self) {
        let memory = self.memory.as_mut().expect("a process runs");
        memory.sessions.push(self.sessions.len());
        let issued_s = self.wall_ms.div_euclid(1_000);
        self.sessions.push(Session { issued_s, got_ms: self.now_ms, is_used: false });
    }

    fn send(&mut self, session: usize) {
        let Session { got_ms, is_used, .. } = &mut self.sessions[session];
        *is_used = true;
        let claimed_ms = (self.now_ms - *got_ms) as i64;
        self.flights.push(Flight { session, claimed_ms, accepted: false });
    }

    fn take(&mut self, process: usize, flight: usize) {
        let session = self.flights[flight].session;
        let memory = self.memory.as_mut().expect("a process runs");
        if let Some(at) = memory.sessions.iter().position(|other| *other == session) {
            memory.sessions.remove(at);
            self.processes[process].as_mut().expect("it runs").took = Some(flight);
        }
    }

    /// True if OpenSSL accepts a ticket of this age, which it looks at after the decision. It counts in seconds, and
    /// allows the client's clock one of them.
    fn is_young(&self, flight: usize) -> bool {
        let Flight { session, claimed_ms, .. } = self.flights[flight];
        let age_ms = (self.wall_ms.div_euclid(1_000) - self.sessions[session].issued_s) * 1_000;
        claimed_ms <= age_ms + 1_000 && claimed_ms + 10_000 >= age_ms + 1_000
    }

    fn decide(&mut self, process: usize) {
        let Self { variant, now_ms, wall_ms, .. } = *self;
        let memory = self.memory.as_mut().expect("a process runs");
        let process = self.processes[process].as_mut().expect("it runs");
        let flight = process.took.take().expect("it took one");
        match variant {
            Variant::Forgetful => process.certainty.seen.store(0, Ordering::Relaxed),
            Variant::Timeless => {
                process.certainty.offset_ms.store(wall_ms - now_ms as i64, Ordering::Relaxed);
            }
            Variant::Shipped | Variant::Impatient => {}
        }
        let [taken, doubted] = [memory.taken, memory.doubted_until_ms].map(AtomicU64::new);
        let told = Seen { taken: &taken, doubted_until_ms: &doubted };
        let is_certain = process.certainty.count_at(now_ms, wall_ms, told);
        memory.taken = taken.into_inner();
        memory.doubted_until_ms = doubted.into_inner();
        process.has_counted = true;
        if is_certain && self.is_young(flight) {
            let was_accepted = std::mem::replace(&mut self.flights[flight].accepted, true);
            self.replayed = was_accepted.then_some(flight);
        }
    }

    fn save(&mut self) {
        self.saved.clone_from(&self.memory);
        self.processes.iter_mut().flatten().for_each(|process| process.has_counted = false);
    }
}
