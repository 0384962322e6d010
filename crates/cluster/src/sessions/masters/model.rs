//! A search for a first flight that is accepted twice: machines, agents and masters of Valkey in virtual time, which crash,
//! are promoted, are cut off and lose their last writes, by the real decisions of [`Masters`] and [`Majority`].
//!
//! A master of a Valkey cluster that is cut off stops after a while. One that sentinels watch goes on for ever; its machines
//! have no majority for it. Two sites have masters of their own, and sessions go from one to the other.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Masters;
use crate::link::Majority;

const ROUNDS: u64 = 3_000;
const EVENTS: usize = 400;
const MACHINES: usize = 3;
/// The time for which a master that is cut off goes on, and after which its replica is promoted.
const NODE_TIMEOUT_MS: u64 = 15_000;
/// The time after a promotion in which some sentinels still name the master before.
const HEARD_WITHIN_MS: u64 = 3_000;
/// By this much OpenSSL lets a ticket be younger, or older, than its client says.
const YOUNGER_MS: i64 = 1_000;
const OLDER_MS: i64 = 10_000;

/// A process of Valkey that is, or was, a master: what it was told, in order.
#[derive(Clone)]
struct Master {
    name: String,
    log: Vec<(u64, u32, bool)>,
    clock_ms: i64,
    /// The time at which it stops, if it is cut off.
    until_ms: u64,
}

struct Machine {
    masters: Masters,
    majority: Majority,
    clock_ms: i64,
    /// The index of its master.
    master: usize,
    /// True if it reaches no other master, and no majority of the sentinels.
    is_cut_off: bool,
}

/// The kind of Valkey, and what agents do about its faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// True if sentinels watch it. Otherwise it is a cluster.
    is_watched: bool,
    /// True if agents are not certain of a master that they have just met.
    waits: bool,
    /// True if agents are not certain of a master that no majority names.
    counts: bool,
    /// True if agents are not certain of a session that came from another site.
    marks: bool,
}

/// A client's first flight.
#[derive(Clone, Copy)]
struct Flight {
    number: usize,
    session: u32,
    /// The second in which the session was made, by the clock of the machine that made it.
    made_s: i64,
    age_ms: i64,
}

/// One site.
struct World {
    kind: Kind,
    /// The time until which the master before the newest may still be named by a majority.
    heard_ms: u64,
    begin: Instant,
    now_ms: u64,
    random: ChaCha8Rng,
    masters: Vec<Master>,
    machines: Vec<Machine>,
}

/// The clients of all sites.
#[derive(Default)]
struct Clients {
    /// Their sessions: the names, the second in which they were made, and the real time of that.
    sessions: Vec<(u32, i64, u64)>,
    made: u32,
    flights: Vec<Flight>,
    /// How often each flight was accepted.
    accepted: HashMap<usize, u32>,
}

impl World {
    fn new(seed: u64, kind: Kind) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let machine = |random: &mut ChaCha8Rng| Machine {
            masters: Masters::default(),
            majority: Majority::default(),
            clock_ms: random.random_range(-2_000..=2_000),
            master: 0,
            is_cut_off: false,
        };
        let machines = (0..MACHINES).map(|_| machine(&mut random)).collect();
        let (masters, begin) = (Vec::new(), Instant::now());
        let mut world = Self { kind, heard_ms: 0, begin, now_ms: 0, random, masters, machines };
        world.promote(Vec::new());
        world
    }

    /// Makes a master with what it remembers, to which some machines turn at once, and all when theirs has stopped.
    fn promote(&mut self, log: Vec<(u64, u32, bool)>) {
        let name = format!("master {}", self.masters.len());
        let clock_ms = self.random.random_range(-1_000..=1_000);
        self.masters.push(Master { name, log, clock_ms, until_ms: u64::MAX });
        for machine in self.machines.iter_mut().filter(|machine| !machine.is_cut_off) {
            if self.random.random_ratio(1, 2) {
                machine.master = self.masters.len() - 1;
            }
        }
        self.heard_ms = self.now_ms + self.random.random_range(0..HEARD_WITHIN_MS);
    }

    /// Every machine that reaches a majority of the sentinels notes which master they name.
    fn hear(&mut self) {
        let (newest, at) =
            (self.masters.len() - 1, self.begin + Duration::from_millis(self.now_ms));
        for machine in self.machines.iter().filter(|machine| !machine.is_cut_off) {
            let is_named = machine.master == newest
                || machine.master + 1 == newest && self.now_ms < self.heard_ms;
            if is_named {
                machine.majority.note(machine.master as u64, at);
            }
        }
    }

    /// Returns what the newest master was told, without its last writes.
    fn remembered(&mut self) -> Vec<(u64, u32, bool)> {
        let lost_ms = self.random.random_range(0..20_000);
        let from_ms = self.now_ms.saturating_sub(lost_ms);
        let newest = self.masters.last().expect("one");
        newest.log.iter().filter(|(at_ms, ..)| *at_ms <= from_ms).copied().collect()
    }

    /// The newest master crashes. It restarts from a file, or a replica takes its place: all of its names are new.
    fn crash(&mut self) {
        let log = self.remembered();
        self.masters.last_mut().expect("one").until_ms = self.now_ms;
        self.promote(log);
    }

    /// The newest master is cut off with some machines, which go on with it for a while.
    fn cut(&mut self) {
        let log = self.remembered();
        let newest = self.masters.last_mut().expect("one");
        newest.until_ms = newest.until_ms.min(self.now_ms + NODE_TIMEOUT_MS);
        // Its replica is promoted when it has stopped, or is about to; until then others have none.
        self.now_ms += NODE_TIMEOUT_MS - self.random.random_range(0..1_000);
        self.promote(log);
    }

    /// Some machines are cut off with the newest master, which goes on, while a replica is promoted elsewhere.
    fn isolate(&mut self) {
        let (log, newest) = (self.remembered(), self.masters.len() - 1);
        for machine in &mut self.machines {
            machine.is_cut_off = machine.master == newest && self.random.random_ratio(1, 2);
        }
        self.now_ms += self.random.random_range(0..10_000);
        self.promote(log);
        let newest = self.masters.len() - 1;
        for machine in self.machines.iter_mut().filter(|machine| !machine.is_cut_off) {
            machine.master = newest;
        }
    }

    fn heal(&mut self) {
        let newest = self.masters.len() - 1;
        for machine in self.machines.iter_mut().filter(|machine| machine.is_cut_off) {
            (machine.is_cut_off, machine.master) = (false, newest);
        }
    }

    fn master(&mut self, machine: usize) -> Option<&mut Master> {
        let (newest, machine) = (self.masters.len() - 1, &mut self.machines[machine]);
        if self.masters[machine.master].until_ms <= self.now_ms && !machine.is_cut_off {
            machine.master = newest;
        }
        let master = &mut self.masters[machine.master];
        (self.now_ms < master.until_ms).then_some(master)
    }

    /// A machine makes a session.
    fn make(&mut self, machine: usize, clients: &mut Clients) {
        let (now_ms, session) = (self.now_ms, clients.made);
        clients.made += 1;
        let clock_ms = now_ms as i64 + self.machines[machine].clock_ms;
        if let Some(master) = self.master(machine) {
            master.log.push((now_ms, session, true));
            clients.sessions.push((session, clock_ms.div_euclid(1_000), now_ms));
        }
    }

    /// A client comes with its session, which it keeps in half of all cases.
    fn come(&mut self, machine: usize, clients: &mut Clients) {
        let at = self.random.random_range(0..clients.sessions.len());
        let (session, made_s, at_ms) = clients.sessions[at];
        if self.random.random_ratio(1, 2) {
            clients.sessions.swap_remove(at);
        }
        let age_ms = self.now_ms.saturating_sub(at_ms) as i64;
        let flight = Flight { number: clients.flights.len(), session, made_s, age_ms };
        clients.flights.push(flight);
        self.present(machine, flight, clients);
    }

    /// Takes a session. Returns true if it came from another site; `None` if it is not there.
    fn take(&mut self, machine: usize, session: u32) -> Option<bool> {
        let now_ms = self.now_ms;
        let master = self.master(machine)?;
        let last = master.last(session).filter(|(.., is_there)| *is_there)?;
        master.log.push((now_ms, last.1, false));
        Some(last.1 & MOVED != 0)
    }

    /// A flight comes to a machine, which looks its session up.
    fn present(&mut self, machine: usize, flight: Flight, clients: &mut Clients) {
        let now_ms = self.now_ms;
        let Some(is_moved) = self.take(machine, flight.session) else { return };
        let Some(master) = self.master(machine) else { return };
        let (name, valkeys_ms) = (master.name.clone(), now_ms as i64 + master.clock_ms);
        let Machine { masters, majority, clock_ms, master, .. } = &self.machines[machine];
        let own_ms = now_ms as i64 + clock_ms;
        let epoch = |ms: i64| ms.saturating_add(1_000_000_000).unsigned_abs();
        let at = self.begin + Duration::from_millis(now_ms);
        let Kind { is_watched, waits, counts, marks } = self.kind;
        let is_sole = !(is_watched && counts) || majority.is_for_at(*master as u64, at);
        let is_certain = is_sole
            && !(is_moved && marks)
            && (!waits || masters.is_certain_at(at, &name, epoch(own_ms), epoch(valkeys_ms)));
        let age_ms = (own_ms.div_euclid(1_000) - flight.made_s) * 1_000;
        let is_fresh = (-YOUNGER_MS..=OLDER_MS).contains(&(age_ms - flight.age_ms));
        if is_fresh && is_certain {
            *clients.accepted.entry(flight.number).or_default() += 1;
        }
    }

    fn event(&mut self, clients: &mut Clients) {
        self.now_ms += u64::from(self.random.next_u32() % 1_500);
        self.hear();
        let machine = self.random.random_range(0..MACHINES);
        match self.random.random_range(0..100) {
            0..25 => self.make(machine, clients),
            25..50 if !clients.sessions.is_empty() => self.come(machine, clients),
            94 => self.heal(),
            50..94 if !clients.flights.is_empty() => {
                let recent = clients.flights.len().saturating_sub(8);
                let at = self.random.random_range(recent..clients.flights.len());
                self.present(machine, clients.flights[at], clients);
            }
            95 => self.crash(),
            96 if self.kind.is_watched => self.isolate(),
            96 => self.cut(),
            97 => {
                let forgets = &mut self.machines[machine];
                (forgets.masters, forgets.majority) = (Masters::default(), Majority::default());
            }
            98 => self.machines[machine].clock_ms = self.random.random_range(-2_500..=2_500),
            _ => {
                let at = self.begin + Duration::from_millis(self.now_ms);
                let Machine { masters, majority, master, .. } = &self.machines[machine];
                if !self.kind.is_watched || majority.is_for_at(*master as u64, at) {
                    masters.since(&self.masters[*master].name, at);
                }
            }
        }
    }

    /// Brings a session from another site, where some machine takes it, unless it was taken here a moment ago.
    fn fetch(&mut self, from: &mut Self, session: u32) {
        let machines = [(); 2].map(|()| self.random.random_range(0..MACHINES));
        let Some(is_moved) = from.take(machines[0], session) else { return };
        let (now_ms, marks_stay) = (self.now_ms, Masters::MARKS_STAY.as_millis() as u64);
        let is_new = |master: &&mut Master| {
            let taken = master.last(session).filter(|(.., is_there)| !is_there);
            taken.is_none_or(|(at_ms, ..)| at_ms + marks_stay < now_ms)
        };
        match self.master(machines[1]).filter(is_new) {
            Some(master) => master.log.push((now_ms, session | MOVED, true)),
            None => {
                let session = if is_moved { session | MOVED } else { session };
                from.master(machines[0]).into_iter().for_each(|master| {
                    master.log.push((now_ms, session, true));
                });
            }
        }
    }
}

impl Master {
    /// The last that it was told of a session, whether it came from another site or not.
    fn last(&self, session: u32) -> Option<(u64, u32, bool)> {
        self.log.iter().rfind(|(_, of, _)| of & !MOVED == session).copied()
    }
}

/// In a log, the mark of a session that came from another site.
const MOVED: u32 = 1 << 31;

/// Two sites, between which sessions go that clients bring with them.
struct Sites {
    worlds: [World; 2],
    random: ChaCha8Rng,
}

impl Sites {
    fn new(seed: u64, kind: Kind) -> Self {
        let worlds = [World::new(2 * seed, kind), World::new(2 * seed + 1, kind)];
        Self { worlds, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    fn event(&mut self, clients: &mut Clients) {
        let [one, other] = &mut self.worlds;
        let (here, there) =
            if self.random.random_ratio(1, 2) { (one, other) } else { (other, one) };
        here.event(clients);
        there.now_ms = here.now_ms;
        there.hear();
        let recent = clients.sessions.len().saturating_sub(4);
        if self.random.random_ratio(1, 4) && !clients.sessions.is_empty() {
            let (session, ..) =
                clients.sessions[self.random.random_range(recent..clients.sessions.len())];
            here.fetch(there, session);
        }
    }
}

/// Returns the number of flights that were accepted, and of those that were accepted twice.
fn search(kind: Kind) -> (usize, usize) {
    let rounds = (0..ROUNDS).map(|seed| {
        let (mut world, mut clients) = (World::new(seed, kind), Clients::default());
        (0..EVENTS).for_each(|_| world.event(&mut clients));
        clients
    });
    count(rounds)
}

/// The same with two sites.
fn search_sites(kind: Kind) -> (usize, usize) {
    let rounds = (0..ROUNDS).map(|seed| {
        let (mut sites, mut clients) = (Sites::new(seed, kind), Clients::default());
        (0..EVENTS).for_each(|_| sites.event(&mut clients));
        clients
    });
    count(rounds)
}

fn count(rounds: impl Iterator<Item = Clients>) -> (usize, usize) {
    rounds.fold((0, 0), |(accepted, twice), clients| {
        let more = clients.accepted.values().filter(|times| **times > 1).count();
        (accepted + clients.accepted.len(), twice + more)
    })
}

const CLUSTER: Kind = Kind { is_watched: false, waits: true, counts: true, marks: true };
const WATCHED: Kind = Kind { is_watched: true, ..CLUSTER };

#[test]
fn no_flight_is_accepted_twice_whatever_valkey_forgets() {
    for kind in [CLUSTER, WATCHED] {
        let (accepted, twice) = search(kind);
        assert!(accepted > 10_000, "{accepted} were accepted, {kind:?}");
        assert_eq!(twice, 0, "of {accepted}, {kind:?}");
    }
}

#[test]
fn no_flight_is_accepted_twice_in_two_sites() {
    for kind in [CLUSTER, WATCHED] {
        let (accepted, twice) = search_sites(kind);
        assert!(accepted > 1_000, "{accepted} were accepted, {kind:?}");
        assert_eq!(twice, 0, "of {accepted}, {kind:?}");
    }
}

#[test]
fn the_search_finds_replays_where_agents_do_not_wait() {
    for kind in [CLUSTER, WATCHED] {
        let (accepted, twice) = search(Kind { waits: false, ..kind });
        assert!(twice > 100, "{twice} of {accepted}, {kind:?}");
    }
}

#[test]
fn the_search_finds_replays_where_nobody_counts_the_majority() {
    let (accepted, twice) = search(Kind { counts: false, ..WATCHED });
    assert!(twice > 10, "{twice} of {accepted}");
}

#[test]
fn the_search_finds_replays_where_sessions_of_another_site_are_as_any() {
    for kind in [CLUSTER, WATCHED] {
        let (accepted, twice) = search_sites(Kind { marks: false, ..kind });
        assert!(twice > 0, "{twice} of {accepted}, {kind:?}");
    }
}
