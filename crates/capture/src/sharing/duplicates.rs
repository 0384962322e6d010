//! Removal of duplicates: each handshake counts once, however many captures contain it.
//!
//! Two records are the same handshake if they have the same client random and the same class.
//! Addresses do not count, because they differ if a capture was rewritten. The class counts, so
//! that a capture with only the beginning of a handshake hides none that is complete elsewhere.
//! Without a random (SSL 2 format, or not captured) the endpoints, the time and the position in the
//! capture must be equal.
//!
//! Within one capture, a copy by NAT or of another interface has the same client random and the same
//! part of the server's random, and begins within two seconds. Synthetic captures repeat the client's
//! random alone, or a constant one of the server. The two sides of a proxy that passes TLS on are copies
//! too.
//!
//! A QUIC ClientHello sent on several paths (happy eyeballs) is one handshake and belongs to its
//! first path: if only the second path was answered, it does not count. The tool we compare with
//! does the same (`docs/capture-differences.md`).

use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use siphasher::sip::SipHasher13;

use crate::handshake::{Carrier, Class, Handshake};

/// The handshakes seen so far.
#[derive(Debug)]
pub(super) struct SeenHandshakes {
    hash_seed: u64,
    before: HashSet<u64, FixedState>,
    /// Handshakes of the current capture.
    now: Vec<u64>,
    /// When the answered handshakes of the current capture began, by both randoms.
    answered: HashMap<u64, i64, FixedState>,
    /// Randoms of QUIC handshakes in the current capture.
    quic: HashSet<u64, FixedState>,
}

/// The identity of a handshake.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    cls: Class,
    carrier: Carrier,
    identity: Identity,
    /// The part of the server's random.
    answer: Option<u64>,
    begun_us: i64,
}

/// The place of a handshake among those seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    New,
    /// In an earlier capture, or begun on another path.
    Duplicate,
    /// Within the same capture.
    Copy,
}

/// A copy begins within this time.
const COPY_WITHIN_US: i64 = 2_000_000;

#[derive(Debug, Clone, Copy)]
enum Identity {
    Random(u64),
    EndsAndTime(u64),
}

impl SeenHandshakes {
    pub(super) fn new(hash_seed: u64) -> Self {
        let set = || HashSet::with_hasher(FixedState::with_seed(hash_seed));
        let answered = HashMap::with_hasher(FixedState::with_seed(hash_seed));
        Self { hash_seed, before: set(), now: Vec::new(), answered, quic: set() }
    }

    pub(super) fn mark(&self, handshake: &Handshake) -> Mark {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 0);
        let identity = match handshake.ch_random.as_deref() {
            Some(random @ [_, ..]) => {
                hasher.write(random);
                Identity::Random(hasher.finish())
            }
            _ => {
                let Handshake { client_ip, client_port, server_ip, server_port, .. } = handshake;
                for (ip, port) in [(client_ip, client_port), (server_ip, server_port)] {
                    hasher.write_u128(bits(*ip));
                    hasher.write_u16(*port);
                }
                hasher.write_i64(super::counted::begun_us(handshake));
                Identity::EndsAndTime(hasher.finish())
            }
        };
        let answer = handshake.sh_random_part.map(|part| u64::from_be_bytes(part.0));
        let begun_us = super::counted::begun_us(handshake);
        Mark { cls: handshake.cls, carrier: handshake.carrier, identity, answer, begun_us }
    }

    /// Takes the handshake at this position of its capture. The handshakes of a capture must be given
    /// in order of time. Only among those that would count is one a copy of another.
    pub(super) fn see(&mut self, mark: Mark, place: usize, counts: bool) -> Seen {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 1);
        hasher.write(&[mark.cls as u8, mark.carrier as u8]);
        let is_first_path = match mark.identity {
            Identity::Random(random) => {
                hasher.write_u64(random);
                mark.carrier != Carrier::Quic || self.quic.insert(random)
            }
            Identity::EndsAndTime(ends) => {
                hasher.write_u64(ends);
                hasher.write_u64(place as u64);
                true
            }
        };
        let is_copy = counts && self.is_copy(mark);
        let mark = hasher.finish();
        self.now.push(mark);
        match is_first_path && !self.before.contains(&mark) {
            true if is_copy => Seen::Copy,
            true => Seen::New,
            false => Seen::Duplicate,
        }
    }

    fn is_copy(&mut self, mark: Mark) -> bool {
        let (Identity::Random(random), Some(answer)) = (mark.identity, mark.answer) else {
            return false;
        };
        // A server's random of equal bytes is made up.
        if answer == answer.rotate_left(8) {
            return false;
        }
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 2);
        [random, answer].into_iter().for_each(|part| hasher.write_u64(part));
        let before = self.answered.insert(hasher.finish(), mark.begun_us);
        before.is_some_and(|before| mark.begun_us - before <= COPY_WITHIN_US)
    }

    /// Ends the current capture.
    pub(super) fn end(&mut self) {
        self.before.extend(self.now.drain(..));
        self.answered.clear();
        self.quic.clear();
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}
