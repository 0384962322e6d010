//! Each handshake once, however many captures it stands in.
//!
//! What is the same has the same client random, whatever the addresses, which differ if a capture
//! was rewritten, and came to the same end: a capture that shows only its beginning takes nothing
//! from one that shows it whole. Without a random (the hello is in the format of SSL 2, or was not
//! captured) it has the same ends and time, at the same place of its capture.
//!
//! A ClientHello of QUIC that a client sends on several paths (happy eyeballs) is one handshake, and
//! stands where it was sent first: if only the second path was answered, it does not count. So does the
//! tool whose answers we compare with (`docs/capture-differences.md`).

use std::collections::HashSet;
use std::hash::Hasher;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use siphasher::sip::SipHasher13;

use crate::handshake::{Carrier, Class, Handshake};

/// What was seen before.
#[derive(Debug)]
pub(super) struct Once {
    hash_seed: u64,
    before: HashSet<u64, FixedState>,
    /// In this capture.
    now: Vec<u64>,
    /// Randoms of QUIC in this capture.
    quic: HashSet<u64, FixedState>,
}

/// What tells a handshake from others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    cls: Class,
    carrier: Carrier,
    told_by: ToldBy,
}

#[derive(Debug, Clone, Copy)]
enum ToldBy {
    Random(u64),
    EndsAndTime(u64),
}

impl Once {
    pub(super) fn new(hash_seed: u64) -> Self {
        let set = || HashSet::with_hasher(FixedState::with_seed(hash_seed));
        Self { hash_seed, before: set(), now: Vec::new(), quic: set() }
    }

    pub(super) fn mark(&self, handshake: &Handshake) -> Mark {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 0);
        let told_by = match handshake.ch_random.as_deref() {
            Some(random @ [_, ..]) => {
                hasher.write(random);
                ToldBy::Random(hasher.finish())
            }
            _ => {
                let Handshake { client_ip, client_port, server_ip, server_port, .. } = handshake;
                for (ip, port) in [(client_ip, client_port), (server_ip, server_port)] {
                    hasher.write_u128(bits(*ip));
                    hasher.write_u16(*port);
                }
                hasher.write_i64(super::used::begun_us(handshake));
                ToldBy::EndsAndTime(hasher.finish())
            }
        };
        Mark { cls: handshake.cls, carrier: handshake.carrier, told_by }
    }

    /// Whether the handshake at this place of its capture is new. Those of a capture come in order
    /// of time.
    pub(super) fn is_new(&mut self, mark: Mark, place: usize) -> bool {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed, 1);
        hasher.write(&[mark.cls as u8, mark.carrier as u8]);
        let is_first_path = match mark.told_by {
            ToldBy::Random(random) => {
                hasher.write_u64(random);
                mark.carrier != Carrier::Quic || self.quic.insert(random)
            }
            ToldBy::EndsAndTime(ends) => {
                hasher.write_u64(ends);
                hasher.write_u64(place as u64);
                true
            }
        };
        let mark = hasher.finish();
        self.now.push(mark);
        is_first_path && !self.before.contains(&mark)
    }

    /// The capture is over.
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
