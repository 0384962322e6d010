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
    /// A hash of the client's random, or else of the endpoints and the time.
    identity: u64,
    /// The part of the server's random; 0 if there is none.
    answer: u64,
    pub(super) begun_us: i64,
    has_random: bool,
    cls: Class,
    carrier: Carrier,
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

impl SeenHandshakes {
    pub(super) fn new(hash_seed: u64) -> Self {
        let set = || HashSet::with_hasher(FixedState::with_seed(hash_seed));
        let answered = HashMap::with_hasher(FixedState::with_seed(hash_seed));
        Self { hash_seed, before: set(), now: Vec::new(), answered, quic: set() }
    }

    pub(super) fn mark(&self, handshake: &Handshake) -> Mark {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 0);
        let random = handshake.ch_random.as_deref().filter(|random| !random.is_empty());
        match random {
            Some(random) => hasher.write(random),
            None => {
                let Handshake { client_ip, client_port, server_ip, server_port, .. } = handshake;
                for (ip, port) in [(client_ip, client_port), (server_ip, server_port)] {
                    hasher.write_u128(bits(*ip));
                    hasher.write_u16(*port);
                }
                hasher.write_i64(super::counted::begun_us(handshake));
            }
        }
        Mark {
            identity: hasher.finish(),
            answer: handshake.sh_random_part.map_or(0, |part| u64::from_be_bytes(part.0)),
            begun_us: super::counted::begun_us(handshake),
            has_random: random.is_some(),
            cls: handshake.cls,
            carrier: handshake.carrier,
        }
    }

    /// Takes the handshake at this position of its capture. The handshakes of a capture must be given
    /// in order of time. Only among those that would count is one a copy of another.
    pub(super) fn see(&mut self, mark: Mark, place: usize, counts: bool) -> Seen {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 1);
        hasher.write(&[mark.cls as u8, mark.carrier as u8]);
        hasher.write_u64(mark.identity);
        if !mark.has_random {
            hasher.write_u64(place as u64);
        }
        let is_first_path =
            !mark.has_random || mark.carrier != Carrier::Quic || self.quic.insert(mark.identity);
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
        // A server's random of equal bytes is made up, or there is none.
        if !mark.has_random || mark.answer == mark.answer.rotate_left(8) {
            return false;
        }
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 2);
        [mark.identity, mark.answer].into_iter().for_each(|part| hasher.write_u64(part));
        let before = self.answered.insert(hasher.finish(), mark.begun_us);
        before.is_some_and(|before| mark.begun_us - before <= COPY_WITHIN_US)
    }

    /// Ends the current capture.
    pub(super) fn end(&mut self) {
        self.before.extend(std::mem::take(&mut self.now));
        let Self { answered, quic, .. } = Self::new(self.hash_seed);
        (self.answered, self.quic) = (answered, quic);
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}
