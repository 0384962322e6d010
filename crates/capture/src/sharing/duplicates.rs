//! Removal of duplicates: each handshake counts once, however many captures contain it.
//!
//! Two records are the same handshake if they have the same client random and the same class.
//! Addresses do not count, because they differ if a capture was rewritten. The class counts, so
//! that a capture with only the beginning of a handshake hides none that is complete elsewhere.
//! Without a random (SSL 2 format, or not captured) the endpoints, the time and the position in the
//! capture must be equal.
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
    /// Handshakes of the current capture.
    now: Vec<u64>,
    /// Randoms of QUIC handshakes in the current capture.
    quic: HashSet<u64, FixedState>,
}

/// The identity of a handshake.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    cls: Class,
    carrier: Carrier,
    identity: Identity,
}

#[derive(Debug, Clone, Copy)]
enum Identity {
    Random(u64),
    EndsAndTime(u64),
}

impl SeenHandshakes {
    pub(super) fn new(hash_seed: u64) -> Self {
        let set = || HashSet::with_hasher(FixedState::with_seed(hash_seed));
        Self { hash_seed, before: set(), now: Vec::new(), quic: set() }
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
        Mark { cls: handshake.cls, carrier: handshake.carrier, identity }
    }

    /// Returns true if the handshake at this position of its capture is new. The handshakes of a
    /// capture must be given in order of time.
    pub(super) fn is_new(&mut self, mark: Mark, place: usize) -> bool {
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
        let mark = hasher.finish();
        self.now.push(mark);
        is_first_path && !self.before.contains(&mark)
    }

    /// Ends the current capture.
    pub(super) fn end(&mut self) {
        self.before.extend(self.now.drain(..));
        self.quic.clear();
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}
