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

use std::collections::HashSet;
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
    /// Handshakes of the last capture.
    last: Vec<u64>,
}

/// The identity of a handshake.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// A hash of the client's random, or else of the endpoints and the time.
    identity: [u8; 8],
    /// A hash of the part of the server's random; 0 if there is none, or it is made up. It tells apart handshakes
    /// of one client's random only.
    answer: u32,
}

/// The properties that decide, beside its identity, whether a handshake is another's duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nature {
    pub(super) has_random: bool,
    pub(super) cls: Class,
    pub(super) carrier: Carrier,
    pub(super) outcome: Outcome,
}

/// The treatment of a handshake that is not a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Counts,
    Unclassified,
    Indirect,
    ClientCertificate,
}

/// The place of a handshake among those seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    New,
    /// In an earlier capture, or begun on another path.
    Duplicate,
    /// Within the same capture.
    Copy,
    /// In an earlier capture, which shows more or less of it.
    Part,
}

/// A copy begins within this time.
const COPY_WITHIN_US: i64 = 2_000_000;

impl SeenHandshakes {
    pub(super) fn new(hash_seed: u64) -> Self {
        let before = HashSet::with_hasher(FixedState::with_seed(hash_seed));
        Self { hash_seed, before, last: Vec::new() }
    }

    pub(super) fn mark(&self, handshake: &Handshake) -> Mark {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 0);
        match random(handshake) {
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
        // A random of equal bytes is made up.
        let answer = handshake.sh_random_part.map(|part| part.0);
        let answer = answer.filter(|part| part.iter().any(|byte| *byte != part[0]));
        Mark {
            identity: hasher.finish().to_ne_bytes(),
            answer: answer.map_or(0, |part| self.answer(part)),
        }
    }

    fn answer(&self, part: [u8; 8]) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 2);
        hasher.write(&part);
        (hasher.finish() as u32).max(1)
    }

    /// Tells which handshakes of the next capture were seen before. They must be given in order of time.
    pub(super) fn see(
        &mut self,
        marks: &[Mark],
        nature: impl Fn(usize) -> Nature,
        begun_us: impl Fn(usize) -> i64,
    ) -> Vec<Seen> {
        let last = std::mem::take(&mut self.last);
        self.before.extend(last);
        let hash = |(place, mark): (_, &Mark)| mark.hash(self.hash_seed, nature(place), place);
        self.last = marks.iter().enumerate().map(hash).collect();
        let before = |(place, hash)| self.seen_before(hash, &marks[place], nature(place), place);
        let mut seen: Vec<Seen> = self.last.iter().enumerate().map(before).collect();
        let mut order: Vec<u32> = (0..marks.len() as u32).collect();
        order.retain(|at| nature(*at as usize).has_random);
        order.sort_unstable_by_key(|at| (marks[*at as usize].identity, *at));
        let is_one = |one: &u32, other: &u32| {
            marks[*one as usize].identity == marks[*other as usize].identity
        };
        for same in order.chunk_by_mut(is_one).filter(|same| same.len() > 1) {
            let paths = same.iter().filter(|at| nature(**at as usize).carrier == Carrier::Quic);
            paths.skip(1).for_each(|at| seen[*at as usize] = Seen::Duplicate);
            // Only among those that would count is one a copy of another.
            let answer = |at: u32| match nature(at as usize).outcome {
                Outcome::Counts => marks[at as usize].answer,
                _ => 0,
            };
            same.sort_unstable_by_key(|at| (answer(*at), *at));
            for pair in same.windows(2) {
                let [one, other] = [pair[0], pair[1]];
                let is_copy = answer(one) != 0
                    && answer(one) == answer(other)
                    && begun_us(other as usize) - begun_us(one as usize) <= COPY_WITHIN_US;
                let seen = &mut seen[other as usize];
                if is_copy && *seen != Seen::Duplicate {
                    *seen = Seen::Copy;
                }
            }
        }
        seen
    }

    /// Tells whether an earlier capture has the handshake with this mark, whose hash is known.
    fn seen_before(&self, hash: &u64, mark: &Mark, nature: Nature, place: usize) -> Seen {
        let has_other = || {
            let classes = Class::ALL.into_iter().filter(|cls| *cls != nature.cls);
            let mut others = classes.map(|cls| Nature { cls, ..nature });
            others.any(|other| self.before.contains(&mark.hash(self.hash_seed, other, place)))
        };
        match self.before.contains(hash) {
            true => Seen::Duplicate,
            false if nature.has_random && has_other() => Seen::Part,
            false => Seen::New,
        }
    }
}

impl Nature {
    pub(super) fn of(handshake: &Handshake) -> Self {
        let outcome = match handshake {
            Handshake { cls: Class::Unknown | Class::NoServerhello, .. } => Outcome::Unclassified,
            Handshake { direct: false, .. } => Outcome::Indirect,
            Handshake { client_auth: Some(true), .. } => Outcome::ClientCertificate,
            _ => Outcome::Counts,
        };
        let Handshake { cls, carrier, .. } = *handshake;
        Self { has_random: random(handshake).is_some(), cls, carrier, outcome }
    }
}

/// The client's random, unless the hello is in SSL 2 format.
fn random(handshake: &Handshake) -> Option<&[u8]> {
    handshake.ch_random.as_deref().filter(|random| !random.is_empty())
}

impl Mark {
    /// A hash of all that must be equal in two captures. Without a random that is the place in the capture, too.
    fn hash(&self, hash_seed: u64, nature: Nature, place: usize) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(hash_seed, 1);
        hasher.write(&[nature.cls as u8, nature.carrier as u8]);
        hasher.write(&self.identity);
        if !nature.has_random {
            hasher.write_u64(place as u64);
        }
        hasher.finish()
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}
