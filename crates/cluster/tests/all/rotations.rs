//! A thousand rotations in a real Valkey by four servers whose clocks are off by up to a minute, and one of which
//! pauses from time to time: no ticket is refused within its lifetime, each turn has one key,
//! no key is in clear in Valkey, and no revoked key returns.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::fs;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rejoin_cluster::{ClusterKeys, ClusterSecret, Link};
use rejoin_testkit::cluster::link;
use rejoin_testkit::valkey::Valkey;
use rejoin_tickets::{KeyId, KeyRing, Label, PAGE_BYTES, Schedule, TicketSealer};

const START_S: u64 = 1_800_000_000;
const STEP_S: u64 = 5;
const TURN_S: u64 = 200;
const LIFETIME_S: u64 = 600;
const LEAD_S: u64 = ClusterKeys::LEAST_LEAD_S;
/// The longest time between two looks of a server that is not paused.
const LOOK_S: u64 = 25;
const ROTATIONS: usize = 1_000;
/// The layout of a page: the offset of the keys, the length of each, and the offset of its secret in it.
const KEYS_AT: usize = 40;
const KEY_BYTES: usize = 48;
const SECRET_AT: usize = 16;

struct Server {
    keys: ClusterKeys,
    link: Link,
    ahead_s: i64,
    ring: Option<KeyRing>,
    sealer: Option<TicketSealer>,
    looked_s: u64,
    look_s: u64,
    paused: bool,
}

impl Server {
    fn clock_s(&self, true_s: u64) -> u64 {
        true_s.saturating_add_signed(self.ahead_s)
    }

    /// Follows the ring if it is time. Returns true if it did.
    async fn look(&mut self, true_s: u64, next_s: u64) -> bool {
        if true_s < self.look_s {
            return false;
        }
        let clock_s = self.clock_s(true_s);
        let ring = self.keys.follow(&mut self.link, clock_s).await.expect("Valkey is there");
        if let Some(ring) = ring {
            self.sealer = Some(ring.sealer(&label()));
            self.ring = Some(ring);
        }
        (self.looked_s, self.look_s, self.paused) = (true_s, true_s + next_s, false);
        true
    }

    /// Returns true if every server must open its tickets: a server that has not looked for longer may not know the
    /// key whose turn it is.
    fn is_current(&self, true_s: u64) -> bool {
        true_s - self.looked_s <= LEAD_S - STEP_S
    }

    fn opens(&self, true_s: u64, ticket: &Ticket) -> bool {
        let opened = self
            .sealer
            .as_ref()
            .and_then(|sealer| sealer.open(self.clock_s(true_s), &ticket.bytes));
        opened.is_some_and(|(session, _)| *session == ticket.sealed_s.to_le_bytes())
    }

    fn knows(&self, revoked: &HashSet<KeyId>) -> bool {
        self.ring.iter().flat_map(|ring| ring.list(START_S)).any(|key| revoked.contains(&key.id))
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ticket {
    sealed_s: u64,
    by_ahead_s: i64,
    bytes: Vec<u8>,
}

struct World {
    random: ChaCha8Rng,
    servers: Vec<Server>,
    /// The tickets, by the time at which they are opened next.
    tickets: BinaryHeap<Reverse<(u64, Ticket)>>,
    keys: HashSet<KeyId>,
    secrets: HashSet<Vec<u8>>,
    revoked: HashSet<KeyId>,
    opened: u64,
    pauses: u64,
}

fn label() -> Label {
    Label::new(b"shop.example").expect("a label")
}

impl World {
    async fn new(valkey: &Valkey, key: &ClusterSecret) -> Self {
        let schedule = Schedule::new(TURN_S, LIFETIME_S, LEAD_S).expect("a schedule");
        let mut servers = Vec::new();
        for ahead_s in [-60, -20, 20, 60] {
            let name = "four.servers".parse().expect("a name");
            servers.push(Server {
                keys: ClusterKeys::new(name, key, Some(schedule))
                    .expect("long enough")
                    .trusting_clock(),
                link: link(valkey).await,
                ahead_s,
                ring: None,
                sealer: None,
                looked_s: START_S,
                look_s: START_S,
                paused: false,
            });
        }
        Self {
            random: ChaCha8Rng::seed_from_u64(9),
            servers,
            tickets: BinaryHeap::new(),
            keys: HashSet::new(),
            secrets: HashSet::new(),
            revoked: HashSet::new(),
            opened: 0,
            pauses: 0,
        }
    }

    /// Has the servers look whose time it is, in any order, and often several at once.
    async fn look(&mut self, true_s: u64) {
        self.servers.shuffle(&mut self.random);
        let next_s = [(); 4].map(|()| self.random.random_range(STEP_S..=LOOK_S));
        let [a, b, c, d] = &mut self.servers[..] else { panic!("four servers") };
        let looked = tokio::join!(
            a.look(true_s, next_s[0]),
            b.look(true_s, next_s[1]),
            c.look(true_s, next_s[2]),
            d.look(true_s, next_s[3])
        );
        let looked: [bool; 4] = looked.into();
        for at in (0..4).filter(|at| looked[*at]) {
            // Of two who saw that a key is due, one is told of it at the next look.
            let Some(ring) = self.servers[at].ring.clone() else { continue };
            self.check(&ring, true_s);
        }
    }

    fn check(&mut self, ring: &KeyRing, true_s: u64) {
        let keys: Vec<_> = ring.list(true_s).collect();
        assert!(keys.iter().all(|key| !self.revoked.contains(&key.id)), "a revoked key is back");
        for turns in keys.windows(2) {
            let apart_s = turns[1].encrypts_from_s - turns[0].encrypts_from_s;
            assert!(apart_s >= TURN_S, "two keys within {apart_s} s");
        }
        self.keys.extend(keys.iter().map(|key| key.id));
        let mut page = [0; PAGE_BYTES];
        ring.to_page(&mut page);
        let secrets = page[KEYS_AT..].chunks(KEY_BYTES).take(keys.len());
        self.secrets.extend(secrets.map(|key| key[SECRET_AT..].to_vec()));
    }

    fn pause(&mut self) {
        let longest_s = if self.random.random_bool(0.8) { LEAD_S - 10 } else { 5 * TURN_S };
        let pause_s = self.random.random_range(LOOK_S..=longest_s);
        let which = self.random.random_range(0..4);
        let paused = &mut self.servers[which];
        (paused.look_s, paused.paused) = (paused.looked_s + pause_s, true);
        self.pauses += 1;
    }

    /// Seals a ticket at each server, by its own clock, paused or not.
    fn seal(&mut self, true_s: u64) {
        for server in &self.servers {
            let nonce = self.random.random();
            let sealer = server.sealer.as_ref().expect("it has looked");
            let session = true_s.to_le_bytes();
            let Some(bytes) = sealer.seal(server.clock_s(true_s), &session, nonce) else {
                continue;
            };
            // What was sealed with a key that was revoked is void.
            if server.is_current(true_s) && !server.knows(&self.revoked) {
                let ticket = Ticket { sealed_s: true_s, by_ahead_s: server.ahead_s, bytes };
                self.tickets.push(Reverse((true_s, ticket)));
            }
        }
    }

    /// Opens tickets at random ages and at the end of their lifetimes.
    fn open(&mut self, true_s: u64) {
        while self.tickets.peek().is_some_and(|Reverse((at_s, _))| *at_s <= true_s) {
            let Some(Reverse((_, ticket))) = self.tickets.pop() else { return };
            for server in self.servers.iter().filter(|server| !server.paused) {
                let (by, to) = (ticket.by_ahead_s, server.ahead_s);
                let age_s = true_s - ticket.sealed_s;
                assert!(server.opens(true_s, &ticket), "of {by}, refused by {to} at {age_s} s");
                self.opened += 1;
            }
            let over_s = ticket.sealed_s + LIFETIME_S;
            if true_s < over_s {
                let steps = self.random.random_range(1..=LIFETIME_S / STEP_S / 2);
                self.tickets.push(Reverse(((true_s + steps * STEP_S).min(over_s), ticket)));
            }
        }
    }

    /// Revokes a random key at a random server. Forgets all tickets, because some are void now.
    async fn revoke(&mut self, true_s: u64) {
        let at = self.random.random_range(0..4);
        let server = &mut self.servers[at];
        let clock_s = server.clock_s(true_s);
        let keys: Vec<_> = server.ring.iter().flat_map(|ring| ring.list(clock_s)).collect();
        if keys.len() < 3 {
            // Without any other, the next would be used before all have it.
            return;
        }
        let id = keys[self.random.random_range(0..keys.len())].id;
        if server.keys.revoke(&mut server.link, &id, clock_s).await.expect("Valkey is there") {
            self.revoked.insert(id);
        }
        // The others still have it, until they look.
        self.tickets.clear();
    }
}

/// Returns all of Valkey's data, as written to disk, for which no link waits long enough on a busy machine.
fn dump(valkey: &Valkey) -> Vec<u8> {
    assert_eq!(valkey.say("SAVE"), "OK");
    fs::read(valkey.folder.join("dump.rdb")).expect("a dump")
}

fn holds(dump: &[u8], bytes: &[u8]) -> bool {
    dump.windows(bytes.len()).any(|window| window == bytes)
}

async fn search(world: &World, valkey: &Valkey, link: &mut Link, key_digits: &str) {
    let dump = dump(valkey);
    let ring = "rejoin:{four.servers}:ring";
    let page: Vec<u8> =
        redis::cmd("HGET").arg(ring).arg("page").query_async(link).await.expect("a page");
    assert!(holds(&dump, ring.as_bytes()) && holds(&dump, &page), "what is there is found");
    // Halves, so that none is missed that is not whole.
    let newest = world.servers.iter().filter_map(|server| server.ring.as_ref());
    let mut plain = [0; PAGE_BYTES];
    for ring in newest {
        ring.to_page(&mut plain);
        assert!(!holds(&dump, &plain[..16]), "a page in clear");
    }
    let windows: HashSet<&[u8]> = dump.windows(16).collect();
    for secret in &world.secrets {
        assert!(!windows.contains(&secret[..16]) && !windows.contains(&secret[16..]), "a secret");
    }
    let byte = |at| u8::from_str_radix(&key_digits[at..at + 2], 16).expect("digits");
    let key: Vec<u8> = (0..64).step_by(2).map(byte).collect();
    assert!(!windows.contains(&key[..16]) && !windows.contains(&key[16..]), "the wrapping key");
    assert!(!holds(&dump, &key_digits.as_bytes()[..32]), "the wrapping key in digits");
}

#[tokio::test]
async fn a_thousand_rotations() {
    let valkey = Valkey::start(&[]);
    let path = valkey.folder.join("key");
    let key = ClusterSecret::create(&path).expect("a key");
    let key_digits = fs::read_to_string(&path).expect("the key");
    let mut link = link(&valkey).await;
    let mut world = World::new(&valkey, &key).await;
    let (mut true_s, mut searched) = (START_S, 0);
    let latest_s = START_S + 2 * ROTATIONS as u64 * TURN_S;
    world.look(true_s).await;
    // Of four, the first made the first key.
    world.servers.iter_mut().for_each(|server| server.look_s = true_s);
    while world.keys.len() <= ROTATIONS {
        assert!(true_s < latest_s, "keys are not made when they are due");
        world.look(true_s).await;
        world.seal(true_s);
        world.open(true_s);
        if world.servers.iter().all(|server| !server.paused) && world.random.random_bool(0.03) {
            world.pause();
        }
        if true_s.is_multiple_of(50 * TURN_S) {
            world.revoke(true_s).await;
        }
        if world.keys.len() >= searched + 50 {
            search(&world, &valkey, &mut link, &key_digits).await;
            searched = world.keys.len();
        }
        true_s += STEP_S;
    }
    let most = (true_s - START_S) / TURN_S + 2 + world.revoked.len() as u64;
    assert!(world.keys.len() as u64 <= most, "{} keys where {most} were due", world.keys.len());
    assert_eq!(world.secrets.len(), world.keys.len());
    assert!(world.opened > 100_000 && world.pauses > 100 && world.revoked.len() > 10);
    assert!(world.servers.iter().all(|server| server.keys.refused() == 0));
}
