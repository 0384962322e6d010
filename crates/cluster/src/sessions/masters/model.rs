//! A search for a first flight that is accepted twice: machines, agents and masters of Valkey in virtual time, which crash,
//! are promoted, are cut off and lose their last writes, by the real decisions of [`Masters`] and [`Majority`].
//!
//! A master of a Valkey cluster that is cut off stops after a while. One that sentinels watch goes on for ever; its machines
//! have no majority for it.

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
}

/// A client's first flight.
#[derive(Clone, Copy)]
struct Flight {
    session: u32,
    /// The second in which the session was made, by the clock of the machine that made it.
    made_s: i64,
    age_ms: i64,
}

struct World {
    kind: Kind,
    /// The time until which the master before the newest may still be named by a majority.
    heard_ms: u64,
    begin: Instant,
    now_ms: u64,
    random: ChaCha8Rng,
    masters: Vec<Master>,
    machines: Vec<Machine>,
    /// Sessions that clients have: their names, the second in which they were made, and the real time of that.
    sessions: Vec<(u32, i64, u64)>,
    made: u32,
    flights: Vec<Flight>,
    accepted: HashMap<u32, u32>,
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
        let (masters, sessions, flights) = (Vec::new(), Vec::new(), Vec::new());
        let (begin, accepted) = (Instant::now(), HashMap::new());
        let mut world = Self {
            kind,
            heard_ms: 0,
            begin,
            now_ms: 0,
            random,
            masters,
            machines,
            sessions,
            made: 0,
            flights,
            accepted,
        };
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
    fn make(&mut self, machine: usize) {
        let (now_ms, session) = (self.now_ms, self.made);
        self.made += 1;
        let clock_ms = now_ms as i64 + self.machines[machine].clock_ms;
        if let Some(master) = self.master(machine) {
            master.log.push((now_ms, session, true));
            self.sessions.push((session, clock_ms.div_euclid(1_000), now_ms));
        }
    }

    /// A flight comes to a machine, which looks its session up.
    fn present(&mut self, machine: usize, flight: Flight) {
        let now_ms = self.now_ms;
        let Some(master) = self.master(machine) else { return };
        let last = master.log.iter().rfind(|(_, session, _)| *session == flight.session);
        if !last.is_some_and(|(.., is_there)| *is_there) {
            return;
        }
        master.log.push((now_ms, flight.session, false));
        let (name, valkeys_ms) = (master.name.clone(), now_ms as i64 + master.clock_ms);
        let Machine { masters, majority, clock_ms, master, .. } = &self.machines[machine];
        let own_ms = now_ms as i64 + clock_ms;
        let epoch = |ms: i64| ms.saturating_add(1_000_000_000).unsigned_abs();
        let at = self.begin + Duration::from_millis(now_ms);
        let Kind { is_watched, waits, counts } = self.kind;
        let is_sole = !(is_watched && counts) || majority.is_for_at(*master as u64, at);
        let is_certain = is_sole
            && (!waits || masters.is_certain_at(at, &name, epoch(own_ms), epoch(valkeys_ms)));
        let age_ms = (own_ms.div_euclid(1_000) - flight.made_s) * 1_000;
        let is_fresh = (-YOUNGER_MS..=OLDER_MS).contains(&(age_ms - flight.age_ms));
        if is_fresh && is_certain {
            *self.accepted.entry(flight.session).or_default() += 1;
        }
    }

    fn event(&mut self) {
        self.now_ms += u64::from(self.random.next_u32() % 1_500);
        self.hear();
        let machine = self.random.random_range(0..MACHINES);
        match self.random.random_range(0..100) {
            0..25 => self.make(machine),
            25..50 if !self.sessions.is_empty() => {
                let at = self.random.random_range(0..self.sessions.len());
                let (session, made_s, at_ms) = self.sessions.swap_remove(at);
                let age_ms = (self.now_ms - at_ms) as i64;
                let flight = Flight { session, made_s, age_ms };
                self.flights.push(flight);
                self.present(machine, flight);
            }
            94 => self.heal(),
            50..94 if !self.flights.is_empty() => {
                let recent = self.flights.len().saturating_sub(8);
                let at = self.random.random_range(recent..self.flights.len());
                self.present(machine, self.flights[at]);
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
}

/// Returns the flights that were accepted, and those that were accepted twice.
fn search(kind: Kind) -> (usize, usize) {
    let (mut accepted, mut twice) = (0, 0);
    for seed in 0..ROUNDS {
        let mut world = World::new(seed, kind);
        (0..EVENTS).for_each(|_| world.event());
        accepted += world.accepted.len();
        twice += world.accepted.values().filter(|times| **times > 1).count();
    }
    (accepted, twice)
}

const CLUSTER: Kind = Kind { is_watched: false, waits: true, counts: true };
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
