//! A search for a first flight that is accepted twice: machines, agents and masters of Valkey in virtual time, which crash,
//! are promoted, are cut off and lose their last writes, by the real decision of [`Masters`].

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Masters;

const ROUNDS: u64 = 3_000;
const EVENTS: usize = 400;
const MACHINES: usize = 3;
/// The time for which a master that is cut off goes on, and after which its replica is promoted.
const NODE_TIMEOUT_MS: u64 = 15_000;
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
    clock_ms: i64,
    /// The index of its master.
    master: usize,
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
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let machine = |random: &mut ChaCha8Rng| Machine {
            masters: Masters::default(),
            clock_ms: random.random_range(-2_000..=2_000),
            master: 0,
        };
        let machines = (0..MACHINES).map(|_| machine(&mut random)).collect();
        let (masters, sessions, flights) = (Vec::new(), Vec::new(), Vec::new());
        let (begin, accepted) = (Instant::now(), HashMap::new());
        let mut world = Self {
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
        for machine in &mut self.machines {
            if self.random.random_ratio(1, 2) {
                machine.master = self.masters.len() - 1;
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

    fn master(&mut self, machine: usize) -> Option<&mut Master> {
        let (newest, machine) = (self.masters.len() - 1, &mut self.machines[machine]);
        if self.masters[machine.master].until_ms <= self.now_ms {
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
    fn present(&mut self, machine: usize, flight: Flight, waits: bool) {
        let now_ms = self.now_ms;
        let Some(master) = self.master(machine) else { return };
        let last = master.log.iter().rfind(|(_, session, _)| *session == flight.session);
        if !last.is_some_and(|(.., is_there)| *is_there) {
            return;
        }
        master.log.push((now_ms, flight.session, false));
        let (name, valkeys_ms) = (master.name.clone(), now_ms as i64 + master.clock_ms);
        let Machine { masters, clock_ms, .. } = &self.machines[machine];
        let own_ms = now_ms as i64 + clock_ms;
        let epoch = |ms: i64| ms.saturating_add(1_000_000_000).unsigned_abs();
        let at = self.begin + Duration::from_millis(now_ms);
        let is_certain = masters.is_certain_at(at, &name, epoch(own_ms), epoch(valkeys_ms));
        let age_ms = (own_ms.div_euclid(1_000) - flight.made_s) * 1_000;
        let is_fresh = (-YOUNGER_MS..=OLDER_MS).contains(&(age_ms - flight.age_ms));
        if is_fresh && (is_certain || !waits) {
            *self.accepted.entry(flight.session).or_default() += 1;
        }
    }

    fn event(&mut self, waits: bool) {
        self.now_ms += u64::from(self.random.next_u32() % 1_500);
        let machine = self.random.random_range(0..MACHINES);
        match self.random.random_range(0..100) {
            0..25 => self.make(machine),
            25..50 if !self.sessions.is_empty() => {
                let at = self.random.random_range(0..self.sessions.len());
                let (session, made_s, at_ms) = self.sessions.swap_remove(at);
                let age_ms = (self.now_ms - at_ms) as i64;
                let flight = Flight { session, made_s, age_ms };
                self.flights.push(flight);
                self.present(machine, flight, waits);
            }
            50..95 if !self.flights.is_empty() => {
                let recent = self.flights.len().saturating_sub(8);
                let at = self.random.random_range(recent..self.flights.len());
                self.present(machine, self.flights[at], waits);
            }
            95 => self.crash(),
            96 => self.cut(),
            97 => self.machines[machine].masters = Masters::default(),
            98 => self.machines[machine].clock_ms = self.random.random_range(-2_500..=2_500),
            _ => {
                let name = self.masters.last().expect("one").name.clone();
                let at = self.begin + Duration::from_millis(self.now_ms);
                self.machines[machine].masters.since(&name, at);
            }
        }
    }
}

/// Returns the flights that were accepted, and those that were accepted twice.
fn search(waits: bool) -> (usize, usize) {
    let (mut accepted, mut twice) = (0, 0);
    for seed in 0..ROUNDS {
        let mut world = World::new(seed);
        (0..EVENTS).for_each(|_| world.event(waits));
        accepted += world.accepted.len();
        twice += world.accepted.values().filter(|times| **times > 1).count();
    }
    (accepted, twice)
}

#[test]
fn no_flight_is_accepted_twice_whatever_valkey_forgets() {
    let (accepted, twice) = search(true);
    assert!(accepted > 10_000, "{accepted} were accepted");
    assert_eq!(twice, 0, "of {accepted}");
}

#[test]
fn the_search_finds_replays_where_agents_do_not_wait() {
    let (accepted, twice) = search(false);
    assert!(twice > 100, "{twice} of {accepted}");
}
