//! The schedule, kept for simulated weeks by several servers: there is always one key to encrypt
//! with, every ticket opens for its whole lifetime, and none for much longer.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rejoin_tickets::{
    CLOCKS_APART_S, Error, KeyRing, KeyState, Label, Opened, Schedule, TicketSealer,
};

const HOUR_S: u64 = 3_600;
const START_S: u64 = 1_800_000_000;

fn label() -> Label {
    Label::new(b"shop.example").expect("a label")
}

fn states(ring: &KeyRing, now_s: u64) -> Vec<KeyState> {
    ring.list(now_s).map(|key| key.state).collect()
}

/// Two servers whose clocks are `ahead_s` apart. They ask every minute whether a rotation is due;
/// the other hears of a new key half an hour later.
struct Pair {
    random: ChaCha8Rng,
    ahead_s: u64,
    rings: [KeyRing; 2],
    /// The newest ring, and when the one who did not make it has it.
    under_way: Option<(u64, KeyRing)>,
    sealers: [TicketSealer; 2],
}

impl Pair {
    const PROPAGATION_S: u64 = HOUR_S / 2;

    fn new(schedule: Schedule, ahead_s: u64, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut ring = KeyRing::new(schedule);
        assert!(ring.due(START_S));
        ring.rotate(START_S, &mut random.random()).expect("the first key");
        let sealers = [ring.sealer(&label()), ring.sealer(&label())];
        Self { random, ahead_s, rings: [ring.clone(), ring], under_way: None, sealers }
    }

    fn clock_s(&self, server: usize, now_s: u64) -> u64 {
        now_s + if server == 1 { self.ahead_s } else { 0 }
    }

    fn tick(&mut self, now_s: u64) {
        if self.under_way.as_ref().is_some_and(|(at_s, _)| *at_s <= now_s) {
            let (_, ring) = self.under_way.take().expect("just seen");
            self.rings = [ring.clone(), ring];
            self.refresh();
        }
        for server in [0, 1] {
            let clock_s = self.clock_s(server, now_s);
            if self.under_way.is_none() && self.rings[server].due(clock_s) {
                let made = self.rings[server].rotate_due(clock_s, &mut self.random.random());
                made.expect("the schedule leaves room");
                assert!(!self.rings[server].due(clock_s));
                self.under_way = Some((now_s + Self::PROPAGATION_S, self.rings[server].clone()));
                self.refresh();
            }
            let encrypting = |state: &&KeyState| **state == KeyState::Encrypting;
            let states = states(&self.rings[server], clock_s);
            assert_eq!(states.iter().filter(encrypting).count(), 1, "{states:?}");
        }
    }

    fn refresh(&mut self) {
        self.sealers = [0, 1].map(|server| self.rings[server].sealer(&label()));
    }

    fn seal(&mut self, server: usize, now_s: u64) -> Vec<u8> {
        let clock_s = self.clock_s(server, now_s);
        let nonce = self.random.random();
        self.sealers[server].seal(clock_s, &now_s.to_le_bytes(), nonce).expect("a ticket")
    }

    fn opens(&self, server: usize, now_s: u64, ticket: &[u8]) -> bool {
        let clock_s = self.clock_s(server, now_s);
        self.sealers[server].open(clock_s, ticket).is_some()
    }
}

/// Three weeks of tickets, each tried at once, at the end of its lifetime and after.
fn every_ticket_opens_as_long_as_it_should(schedule: Schedule, ahead_s: u64, seed: u64) {
    const STEP_S: u64 = 60;
    let mut pair = Pair::new(schedule, ahead_s, seed);
    let mut tickets: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    let lifetime_s = schedule.ticket_lifetime_s();
    let over_s = lifetime_s + schedule.rotate_every_s() + 2 * CLOCKS_APART_S + STEP_S;
    let (mut checked, mut over) = (0, 0);
    for now_s in (START_S..START_S + 21 * 24 * HOUR_S).step_by(STEP_S as usize) {
        pair.tick(now_s);
        for (issued_s, ticket) in &tickets {
            let age_s = now_s - issued_s;
            if age_s <= lifetime_s && age_s + 7 * STEP_S > lifetime_s {
                assert!((0..2).all(|server| pair.opens(server, now_s, ticket)), "at {age_s}");
                checked += 1;
            }
        }
        while tickets.front().is_some_and(|(issued_s, _)| now_s > issued_s + over_s) {
            let (_, ticket) = tickets.pop_front().expect("just seen");
            assert!(!(0..2).any(|server| pair.opens(server, now_s, &ticket)), "at {now_s}");
            over += 1;
        }
        if (now_s - START_S).is_multiple_of(7 * STEP_S) {
            let issuer = pair.random.random_range(0..2);
            let ticket = pair.seal(issuer, now_s);
            assert!((0..2).all(|server| pair.opens(server, now_s, &ticket)), "at once, {now_s}");
            tickets.push_back((now_s, ticket));
        }
    }
    assert!(checked > 1_000 && over > 1_000, "{checked} {over}");
}

#[test]
fn every_ticket_opens_as_long_as_it_should_by_the_default() {
    for (seed, ahead_s) in [0, 1, 60, CLOCKS_APART_S].into_iter().enumerate() {
        every_ticket_opens_as_long_as_it_should(Schedule::default(), ahead_s, seed as u64);
    }
}

#[test]
fn every_ticket_opens_as_long_as_it_should_by_a_tight_schedule() {
    let schedule = Schedule::new(2 * HOUR_S, 24 * HOUR_S, HOUR_S).expect("a schedule");
    every_ticket_opens_as_long_as_it_should(schedule, CLOCKS_APART_S, 9);
}

#[test]
fn a_key_goes_through_its_states() {
    use KeyState::{Encrypting, Opening, Upcoming};
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(START_S, &mut [1; 32]).expect("a key");
    let made_s = START_S + 11 * HOUR_S;
    let turn_s = made_s + HOUR_S;
    assert_eq!(ring.next_turn_s(made_s), Some(turn_s));
    assert!(!ring.due(made_s - 1));
    assert!(ring.due(made_s));
    ring.rotate(made_s, &mut [2; 32]).expect("a key");
    assert!(!ring.due(made_s));
    let turns = [made_s, turn_s].map(|now_s| ring.next_turn_s(now_s));
    assert_eq!(turns, [Some(turn_s), Some(turn_s + 12 * HOUR_S)]);
    assert_eq!(states(&ring, turn_s - 1), [Encrypting, Upcoming]);
    assert_eq!(states(&ring, turn_s), [Opening, Encrypting]);
    let over_s = turn_s + 24 * HOUR_S + CLOCKS_APART_S;
    assert_eq!(ring.list(turn_s).next().and_then(|key| key.opens_until_s), Some(over_s));
    assert_eq!(states(&ring, over_s - 1), [Opening, Encrypting]);
    assert_eq!(states(&ring, over_s), [KeyState::Expired, Encrypting]);
    assert_eq!(ring.remove_expired(over_s - 1), 0);
    assert_eq!(ring.remove_expired(over_s), 1);
    assert_eq!(ring.list(over_s).count(), 1);
    assert_eq!(ring.list(over_s).next().map(|key| key.age_s), Some(over_s - made_s));
}

#[test]
fn a_ticket_of_an_older_key_is_renewed() {
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(START_S, &mut [1; 32]).expect("a key");
    ring.rotate(START_S + HOUR_S, &mut [2; 32]).expect("a key");
    let sealer = ring.sealer(&label());
    let ticket = sealer.seal(START_S, b"session", [0; 12]).expect("a ticket");
    let opened = |now_s| sealer.open(now_s, &ticket).map(|(_, opened)| opened);
    assert_eq!(opened(START_S + 2 * HOUR_S - 1), Some(Opened::Fresh));
    assert_eq!(opened(START_S + 2 * HOUR_S), Some(Opened::Renew));
    assert_eq!(opened(START_S + 26 * HOUR_S + 119), Some(Opened::Renew));
    assert_eq!(opened(START_S + 26 * HOUR_S + 120), None);
    // Sealed by a clock that is ahead, opened by one that is behind.
    let ahead = sealer.seal(START_S + 2 * HOUR_S, b"session", [0; 12]).expect("a ticket");
    let behind = sealer.open(START_S + 2 * HOUR_S - 120, &ahead).map(|(_, opened)| opened);
    assert_eq!(behind, Some(Opened::Fresh));
}

#[test]
fn a_retired_key_neither_seals_nor_opens() {
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(START_S, &mut [1; 32]).expect("a key");
    let before = ring.sealer(&label()).seal(START_S, b"1", [0; 12]).expect("a ticket");
    let leaked = ring.rotate(START_S, &mut [2; 32]).expect("a key");
    let now_s = START_S + 2 * HOUR_S;
    let ticket = ring.sealer(&label()).seal(now_s, b"2", [0; 12]).expect("a ticket");
    assert!(ring.retire(&leaked));
    assert!(!ring.retire(&leaked), "no longer there");
    let sealer = ring.sealer(&label());
    assert!(sealer.open(now_s, &ticket).is_none());
    let again = sealer.seal(now_s, b"3", [0; 12]).expect("a ticket");
    assert_eq!(again[..16], before[..16], "the key before has another turn");
    assert_eq!(states(&ring, now_s), [KeyState::Encrypting]);
}

/// A longer lifetime keeps keys of shorter turns for longer: more than a ring holds.
#[test]
fn a_full_ring_still_turns() {
    let often = Schedule::new(HOUR_S, 13 * HOUR_S, 60).expect("a schedule");
    let seldom = Schedule::new(13 * HOUR_S, 7 * 24 * HOUR_S, 60).expect("a schedule");
    let mut ring = KeyRing::new(often);
    let mut key = 0;
    let mut turn = |ring: &mut KeyRing, now_s: u64| {
        if ring.due(now_s) {
            key += 1;
            ring.rotate_due(now_s, &mut [key; 32]).expect("a key");
        }
        let newest = ring.list(now_s).filter(|key| key.state == KeyState::Encrypting).last();
        now_s - newest.expect("one encrypts").encrypts_from_s
    };
    for minute in 0..40 * 60 {
        assert!(turn(&mut ring, START_S + minute * 60) <= HOUR_S);
    }
    ring.reschedule(seldom);
    let mut most = 0;
    for minute in 40 * 60..14 * 24 * 60 {
        assert!(turn(&mut ring, START_S + minute * 60) <= 13 * HOUR_S);
        most = ring.list(START_S + minute * 60).count().max(most);
    }
    assert_eq!(most, KeyRing::MOST_KEYS, "it was full");
}

#[test]
fn rotations_by_hand_are_bounded() {
    let mut ring = KeyRing::new(Schedule::default());
    for key in 1..=KeyRing::MOST_KEYS as u8 {
        ring.rotate(START_S, &mut [key; 32]).expect("room");
    }
    let full = Err(Error::RingFull { most: KeyRing::MOST_KEYS });
    assert_eq!(ring.rotate(START_S, &mut [99; 32]), full);
    assert_eq!(ring.rotate(START_S, &mut [1; 32]), Err(Error::KnownSecret));
    assert_eq!(ring.rotate(START_S, &mut [0; 32]), Err(Error::NoSecret));
    let later_s = START_S + 26 * HOUR_S;
    assert!(ring.rotate(later_s, &mut [99; 32]).is_ok(), "what expired made room");
}

/// A clock that was a year ahead made a key: it must not end rotation for a year.
#[test]
fn a_clock_that_was_ahead_does_not_stop_rotation() {
    const YEAR_S: u64 = 365 * 24 * HOUR_S;
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(START_S, &mut [1; 32]).expect("a key");
    ring.rotate(START_S + YEAR_S, &mut [2; 32]).expect("a key");
    let mut now_s = START_S;
    for key in 3..20 {
        assert!(ring.due(now_s));
        ring.rotate(now_s, &mut [key; 32]).expect("a key");
        assert!(!ring.due(now_s));
        now_s += 12 * HOUR_S;
    }
}

#[test]
fn keys_of_another_ring_open_its_tickets_for_their_lifetime_and_seal_none() {
    let schedule = Schedule::default();
    let ring_of = |made: &[(u64, u8)]| {
        let mut ring = KeyRing::new(schedule);
        for (hour, secret) in made {
            ring.rotate(START_S + hour * HOUR_S, &mut [*secret; 32]).expect("a key");
        }
        ring
    };
    // The other ring's newest key is newer than all of the ring that takes its place.
    let (other, mut ring) = (ring_of(&[(0, 1), (20, 2)]), ring_of(&[(10, 3)]));
    let (sealed_until_s, nonce) = (START_S + 22 * HOUR_S, [7; 12]);
    let tickets = [1, 21].map(|hour| {
        let ticket = other.sealer(&label()).seal(START_S + hour * HOUR_S, b"one", nonce);
        ticket.expect("a key")
    });
    ring.open_tickets_of(&other, sealed_until_s);
    let sealer = ring.sealer(&label());
    let opened = |ticket: &Vec<u8>, now_s| sealer.open(now_s, ticket).map(|(_, opened)| opened);
    for ticket in &tickets {
        assert_eq!(opened(ticket, sealed_until_s), Some(Opened::Renew));
    }
    // The first key's turn had ended an hour before the last ticket was sealed. The second key has no successor.
    let lifetime_s = schedule.ticket_lifetime_s() + CLOCKS_APART_S;
    for (ticket, end_s) in tickets.iter().zip([21 * HOUR_S, 22 * HOUR_S]) {
        let end_s = START_S + end_s + lifetime_s;
        assert_eq!(opened(ticket, end_s - 1), Some(Opened::Renew));
        assert_eq!(opened(ticket, end_s), None);
    }
    let sealed = sealer.seal(sealed_until_s, b"two", nonce).expect("a key");
    let of_ring = ring_of(&[(10, 3)]);
    assert!(of_ring.sealer(&label()).open(sealed_until_s, &sealed).is_some());
    let keys = ring.for_context(&label());
    assert_eq!((keys.iter().count(), ring.list(sealed_until_s).count()), (1, 1));
    let mut pages = [[0; rejoin_tickets::PAGE_BYTES]; 2];
    ring.to_page(&mut pages[0]);
    of_ring.to_page(&mut pages[1]);
    assert_eq!(pages[0], pages[1]);
    // Tickets of the ring that takes its place live for an hour, and so do those of the other from then on.
    let mut short = KeyRing::new(Schedule::new(3_600, 3_600, 600).expect("a schedule"));
    short.rotate(sealed_until_s, &mut [4; 32]).expect("a key");
    short.open_tickets_of(&other, sealed_until_s);
    let opens = |ticket: &Vec<u8>, now_s| short.sealer(&label()).open(now_s, ticket).is_some();
    for (ticket, end_s) in tickets.iter().zip([21 * HOUR_S, 22 * HOUR_S]) {
        let end_s = START_S + end_s + 3_600 + CLOCKS_APART_S;
        assert_eq!([end_s - 1, end_s].map(|now_s| opens(ticket, now_s)), [true, false]);
    }
    ring.open_tickets_of(&KeyRing::new(schedule), sealed_until_s);
    assert!(ring.sealer(&label()).open(sealed_until_s, &tickets[1]).is_none());
}
